"""Memory events of a trace as a timeline: exact totals, bins of bounded number, whatever the events are."""

from __future__ import annotations

import json
import random
from bisect import bisect_left

from made_traces import document, two_steps

from vramwise.cli.main import main
from vramwise.cli.screens.profile_memory import _curve
from vramwise.utilization.profiler.memory_timeline import MOST_BINS, PENDING_EVENTS, MemoryFold


def test_bins_hold_the_extremes_of_their_events():
    chance = random.Random(3)
    held, time, events = 10_000_000, 5_000, []
    for _ in range(PENDING_EVENTS + 5000):
        time += chance.randrange(0, 3000)
        change = chance.choice((512, 4096, -512, -4096))
        held += change
        events.append((time, change, held, held + 1000))
    fold = MemoryFold("GPU 0")
    for event in events:
        fold.add(*([value] for value in event))
    timeline = fold.timeline()
    assert len(timeline.start) <= MOST_BINS < 2 * len(timeline.start)
    assert (timeline.events, timeline.relative) == (len(events), False)
    peak = max(events, key=lambda event: event[2])
    assert timeline.allocated == (events[0][2], peak[2], peak[0], events[-1][2])
    times = [event[0] for event in events]
    for start, low, high, last in zip(timeline.start, timeline.low, timeline.high, timeline.last, strict=True):
        begin, end = (bisect_left(times, at) for at in (start, start + timeline.bin_ns))
        inside = [event[2] for event in events[begin:end]]
        assert (min(inside), max(inside), inside[-1]) == (low, high, last)


def test_far_apart_and_backward_times_stay_bounded():
    fold = MemoryFold("GPU 0")
    for time in (0, 2**61, -(2**61), 7, 2**40):
        fold.add([time], [512], [-1], [-1])
    timeline = fold.timeline()
    assert timeline.relative
    assert timeline.reserved is None
    assert timeline.allocated is not None
    assert timeline.allocated.peak == 5 * 512
    assert len(timeline.start) <= 5


def memory(time: float, change: int, **totals: int) -> dict:
    said = {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": change, **totals}
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 9, "tid": 9,
            "ts": time, "args": said}  # fmt: skip


def test_the_curve_has_as_much_room_for_each_moment():
    timeline = {"at_us": [0, 10, 20, 30], "bin_us": 10, "allocated_high_bytes": [80, 40, 20, 0],
                "allocated_last_bytes": [80, 40, 20, 0]}  # fmt: skip
    assert _curve({"timeline": timeline}, 4) == "█▄▂ "
    assert _curve({"timeline": timeline}, 8) == "██▄▄▂▂  "


def test_screen_json_and_picture(tmp_path, capsys):
    mib = 2**20
    events = [memory(120, 64 * mib, **{"Total Allocated": 64 * mib, "Total Reserved": 96 * mib}),
              memory(350, 64 * mib, **{"Total Allocated": 128 * mib, "Total Reserved": 160 * mib}),
              memory(410, -128 * mib, **{"Total Allocated": 0, "Total Reserved": 160 * mib})]  # fmt: skip
    path, drawn = tmp_path / "t.pt.trace.json", tmp_path / "t.svg"
    path.write_text(json.dumps(document([*two_steps(), *events])))
    assert main(["profile", str(path), "--json", "--picture", str(drawn)]) == 0
    (device,) = json.loads(capsys.readouterr().out)["ranks"]["0"]["memory"]
    assert device["allocated_bytes"] == {
        "first": 64 * mib, "peak": 128 * mib, "last": 0, "peak_at_us": 250, "peak_step": "ProfilerStep#2"
    }  # fmt: skip
    assert device["timeline"]["at_us"] == [20, 250, 310]
    assert device["timeline"]["allocated_high_bytes"] == [64 * mib, 128 * mib, 0]
    assert device["timeline"]["reserved_bytes"] == [96 * mib, 160 * mib, 160 * mib]
    assert "allocated peak 0.12 GiB" in drawn.read_text()
    assert main(["profile", str(path), "--memory"]) == 0
    printed = capsys.readouterr().out
    assert "peak 0.12 GiB at 0.25 ms, in ProfilerStep#2" in printed
    assert "0.31 ms" in printed
    assert "█" in printed
