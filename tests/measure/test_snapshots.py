"""Snapshots: sums over segments, the history played through, and torch's older forms."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from snapshots import MIB, MLP, Allocator, frames, pickled, small_run

from vramwise.measure import diagnose_snapshot, snapshot_from, snapshot_from_pickle, timeline_of
from vramwise.measure.plain_pickle import PlainPickleError
from vramwise.measure.plot import timeline_svg
from vramwise.measure.snapshot import Frame, SnapshotError
from vramwise.measure.timeline import grouped, held_by

FOLDER = os.environ.get("VRAMWISE_SNAPSHOTS", "")
"""A folder of more snapshots with an expected.json of the same form, where one is at hand."""


def read(run, last=None):
    return snapshot_from_pickle(pickled(run.snapshot(last)))


def test_what_is_held_adds_up():
    held = held_by(read(small_run()).held_by(0))
    assert held.allocated == (10 * 4 + 3 * 8 + 60) * MIB
    assert held.requested == (10 * 3 + 3 * 8 + 60) * MIB
    assert held.free == held.largest_free == held.fragmentation == 8 * MIB
    assert held.allocated + held.waiting + held.free == held.reserved


def test_the_history_is_played_through():
    timeline = timeline_of(read(small_run()), 0)
    assert timeline.base == 0
    assert timeline.peak == (30 + 32 + 60) * MIB
    assert timeline.live[-1] == (30 + 24 + 60) * MIB
    assert timeline.peak_reserved == (40 + 32 + 60) * MIB
    top = grouped(timeline.alive_at(timeline.peak_at))
    assert [(group.size, group.count, group.stack[0].name) for group in top] == [
        (60 * MIB, 1, "_init_group"), (32 * MIB, 4, "silu"), (30 * MIB, 10, "forward"),
    ]  # fmt: skip


@pytest.mark.parametrize("last", range(1, 33))
def test_a_window_knows_what_was_alive_before_it(last):
    whole = timeline_of(read(small_run()), 0)
    window = timeline_of(read(small_run(), last), 0)
    assert window.live == whole.live[len(whole.live) - len(window.live) :]
    assert window.reserved == whole.reserved[len(whole.reserved) - len(window.reserved) :]


def test_torch_1_13_keeps_stacks_in_a_blocks_history():
    block = {"size": 2 * MIB, "state": "active_allocated", "history": [{"addr": 0, "real_size": 7, "frames": MLP}]}
    snapshot = snapshot_from([{"device": 0, "address": 4096, "total_size": 2 * MIB, "stream": 0, "blocks": [block]}])
    (found,) = snapshot.segments[0].blocks
    assert (found.requested, found.address, found.stack[0].name) == (7, 4096, "silu")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "has no segments"),
        (3, "has no segments"),
        ({"segments": 3}, "segments is no list"),
        ({"segments": [3]}, "a segment is no table"),
        ({"segments": [{"total_size": "x"}]}, "total_size is no size"),
        ({"segments": [{"total_size": 1, "blocks": [{"size": 1}]}]}, "a block has no state"),
        ({"segments": [{"total_size": 1, "blocks": [{"size": -1, "state": "inactive"}]}]}, "size is no size"),
        ({"segments": [], "device_traces": [[{}]]}, "has no action"),
        ({"segments": [], "device_traces": [[{"action": "alloc", "frames": [3]}]]}, "a frame is no table"),
    ],
)
def test_what_is_no_snapshot_is_one_sentence(value, problem):
    with pytest.raises(SnapshotError, match=problem):
        snapshot_from(value)


def test_a_small_file_of_many_rows_is_refused(monkeypatch):
    monkeypatch.setattr("vramwise.measure.snapshot.MOST_ROWS", 1000)
    row = {"action": "alloc", "addr": 1, "size": 1}
    with pytest.raises(SnapshotError, match="more than 1,000 rows"):
        snapshot_from({"segments": [], "device_traces": [[row] * 100] * 100})


def test_a_failure_in_the_history_is_diagnosed():
    (found,) = diagnose_snapshot(read(small_run()))
    assert (found.asked, found.free, found.kind) == (40 * MIB, 2 * MIB, "optimizer temporaries")
    assert dict(found.holdings) == {
        "optimizer states": 60 * MIB,
        "activations": (24 + 30) * MIB,
    }
    assert found.changes[0].what.startswith("optimizer_impl fused")
    assert found.changes[1].frees >= 38 * MIB


def test_fragmentation_is_told_from_want():
    run = Allocator()
    held = [run.alloc(16 * MIB, MLP) for _ in range(8)]
    for address in held[::2]:
        run.free(address)
    run.oom(40 * MIB, 0, MLP)
    (found,) = diagnose_snapshot(read(run))
    assert found.cause.startswith(
        "fragmentation: 64.00 MiB is reserved and unused, the largest free block is 16.00 MiB"
    )
    assert "expandable_segments" in found.changes[0].what
    assert found.changes[0].frees == 64 * MIB


def test_without_a_failure_the_peak_is_described_by_the_two_largest_of_three():
    run = small_run(fails=False)
    run.alloc(10 * MIB, frames("/site/torch/autograd/graph.py:7 run_backward", "train.py:11 main"))
    (found,) = diagnose_snapshot(read(run))
    assert not found.is_failure
    assert found.cause == "nothing failed in this window; at its peak of 124.00 MiB the most is " + (
        "optimizer states 60.00 MiB, activations 54.00 MiB"
    )


def test_the_picture_is_well_formed_and_holds_the_peak():
    from xml.etree import ElementTree

    run = small_run()
    for i in range(700):  # more entries than columns: the peak must survive
        run.free(run.alloc((i == 350) * 500 * MIB + 512, frames(f"<odd&name>.py:{i} f")))
    picture = timeline_svg(timeline_of(read(run), 0), "GPU 0 <&>")
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    assert "peak 0.60 GiB" in picture
    assert "train.py:12 main (optimizer states)" in picture


def known(folder):
    """Rows of a folder's expected.json; random data (whose sizes contradict) is not among them."""
    rows = json.loads((folder / "expected.json").read_text())
    return [row for row in rows if row.get("identity_allocated_plus_inactive_is_reserved", "segments" in row)]


def check_sums(folder, row):
    snapshot = snapshot_from_pickle((folder / row["file"]).read_bytes())
    held = held_by(snapshot.segments)
    counted = (held.reserved, held.allocated, held.requested, held.free, held.waiting, held.segments)
    assert counted == tuple(
        row[key] for key in ("reserved", "allocated", "requested", "inactive", "awaiting_free", "segments")
    )
    timeline, trace = timeline_of(snapshot, 0), row["device_traces"][0]
    assert timeline.peak == trace["peak_requested"]
    assert timeline.base == trace["base_requested_before_trace"]
    assert timeline.peak_reserved == trace["peak_reserved"]
    assert timeline.reserved[0] == trace["base_reserved_before_trace"]


@pytest.mark.skipif(not FOLDER, reason="VRAMWISE_SNAPSHOTS names no folder of more snapshots")
def test_more_samples_give_the_known_sums():
    rows = known(Path(FOLDER))
    assert rows
    for row in rows:
        check_sums(Path(FOLDER), row)


@pytest.mark.skipif(not FOLDER, reason="VRAMWISE_SNAPSHOTS names no folder of more snapshots")
def test_random_samples_are_read_though_their_sizes_contradict():
    for row in json.loads((Path(FOLDER) / "expected.json").read_text()):
        if row.get("identity_allocated_plus_inactive_is_reserved") is False:
            snapshot = snapshot_from_pickle((Path(FOLDER) / row["file"]).read_bytes())
            assert held_by(snapshot.segments).reserved == row["reserved"]
            assert diagnose_snapshot(snapshot)


class Calling:
    def __reduce__(self):
        return print, ("called",)


def test_a_snapshot_that_calls_is_refused(capsys):
    with pytest.raises(PlainPickleError, match="refused"):
        snapshot_from_pickle(pickle.dumps({"segments": [Calling()], "device_traces": []}))
    assert capsys.readouterr().out == ""


def test_a_frame_whose_name_is_no_text_has_none():
    """Lists that hold one list twelve times over, eight deep, are 434 bytes of a file and gigabytes of text."""
    deep: list[object] = []
    for _ in range(8):
        deep = [deep] * 12
    run = {"action": "alloc", "addr": 0, "size": 1, "frames": [{"filename": deep, "name": deep, "line": deep}]}
    found = snapshot_from_pickle(pickle.dumps({"segments": [], "device_traces": [[run]]}))
    ((event,),) = found.histories
    assert event.stack == (Frame("", 0, ""),)
