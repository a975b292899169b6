"""A log written by hand through the allocator: spans, shares, reserved memory, and the snapshot of it."""

from __future__ import annotations

from vramwise.dryrun.categories import category
from vramwise.dryrun.detail import groups_of, line_of
from vramwise.dryrun.events import EMPTY, FREE, MARK, Life, Log
from vramwise.dryrun.flame import folded, write_flame
from vramwise.dryrun.moments import moments_of
from vramwise.dryrun.recorder import REMAINDERS, replayed, shares
from vramwise.dryrun.snapshot import write_snapshot
from vramwise.measure import snapshot_from_pickle, timeline_of

MIB = 2**20
LINE = ("/home/me/train.py", 7, "forward")
LIBRARY = ("/venv/site-packages/transformers/models/llama/modeling_llama.py", 158, "forward")


def log_of_two_steps():
    """Weights of 3 MiB; in each step 12 MiB kept for backward, 31 MiB of a loss, 3 MiB of gradients."""
    log = Log()

    def take(size, moment, operation="mm", **more):
        life = Life(len(log.lives), size, operation, moment, **more)
        log.take(life)
        return life

    log.say(MARK, "0|load")
    take(3 * MIB, "0|load", name="weights", module="layers.0.proj", stack=(LIBRARY,))
    log.say(EMPTY)
    log.say(MARK, "0|loaded")
    for step in (1, 2):
        log.say(MARK, f"{step}|forward")
        kept = [
            take(6 * MIB, f"{step}|forward", module=f"layers.{i}.mlp", stack=(LIBRARY, LINE), lasted=True)
            for i in range(2)
        ]
        log.say(MARK, f"{step}|loss")
        loss = take(31 * MIB + 1, f"{step}|loss", "log_softmax", stack=(LIBRARY,))
        log.say(MARK, f"{step}|backward: head")
        log.say(FREE, loss.number)
        log.say(MARK, f"{step}|backward: layers")
        gradient = take(3 * MIB, f"{step}|backward: layers", name="gradients", backward=True)
        for life in kept:
            log.say(FREE, life.number)
        log.say(MARK, f"{step}|optimizer step")
        log.say(FREE, gradient.number)
        log.say(MARK, f"{step}|end")
    log.say(MARK, "")
    return log


def test_moments_are_the_largest_of_the_second_step():
    moments = {moment["name"]: moment for moment in moments_of(replayed(log_of_two_steps()))}
    assert list(moments) == [
        "load", "forward", "loss", "forward end", "backward: head", "backward: layers", "backward end",
        "optimizer step", "first step",
    ]  # fmt: skip
    assert moments["load"]["bytes"] == 3 * MIB
    assert moments["backward: layers"]["bytes"] == (3 + 12 + 3) * MIB
    assert moments["backward end"]["bytes"] == 6 * MIB


def test_the_first_step_is_what_it_takes_before_there_are_states():
    log = Log()
    log.say(MARK, "0|load")
    for step in (1, 2):
        for moment, size in (("forward", 4), ("optimizer step", 9 - step), ("end", 0)):
            log.say(MARK, f"{step}|{moment}")
            if size:
                log.take(Life(len(log.lives), size * MIB, "mm", f"{step}|{moment}"))
                log.say(FREE, len(log.lives) - 1)
    log.say(MARK, "")
    moments = {moment["name"]: moment["bytes"] for moment in moments_of(replayed(log))}
    assert moments["first step"] == 4 * MIB
    assert moments["optimizer step"] == 8 * MIB


def test_shares_add_up_with_what_blocks_hold_beyond_their_tensors():
    replay = replayed(log_of_two_steps())
    span = next(span for span in replay.spans if span.label == "2|loss")
    found = shares(span.at_peak, span.peak)
    assert found == {"weights": 3 * MIB, "activations": 12 * MIB, "logits and loss": 31 * MIB + 512,
                     REMAINDERS: MIB - 512}  # fmt: skip
    assert replay.peak_allocated == sum(found.values()) == 47 * MIB
    assert replay.peak_reserved == (20 + 32) * MIB


def test_a_room_that_is_too_small_says_which_segment_did_not_fit():
    label, wanted, held = replayed(log_of_two_steps(), 40 * MIB).stuck
    assert (label, wanted, held) == ("1|loss", 32 * MIB, 20 * MIB)


def test_categories_follow_the_moment_and_what_backward_needs():
    def named(moment, **more):
        return category(Life(0, 1, "mm", moment, **more))

    assert named("2|forward") == "forward temporaries"
    assert named("2|forward", lasted=True) == "activations"
    assert named("2|backward: head", backward=True) == "logits and loss"
    assert named("2|backward: layers", backward=True) == "backward temporaries"
    assert named("2|optimizer step") == "optimizer temporaries"
    assert named("2|optimizer step", name="optimizer states") == "optimizer states"


def test_groups_put_equal_places_of_all_layers_together():
    log = log_of_two_steps()
    groups = groups_of(log.lives[1:3])["activations"]
    assert groups == [
        {"module": "layers.*.mlp", "operation": "mm", "line": "/home/me/train.py:7", "bytes": 12 * MIB, "count": 2}
    ]
    assert line_of((LIBRARY,)) == "transformers/models/llama/modeling_llama.py:158"


def test_the_snapshot_is_one_that_pytorch_would_write(tmp_path):
    log, path = log_of_two_steps(), tmp_path / "snapshot.pickle"
    write_snapshot(path, log)
    timeline = timeline_of(snapshot_from_pickle(path.read_bytes()), 0)
    replay = replayed(log)
    assert timeline.peak == 3 * MIB + 12 * MIB + 31 * MIB + 1
    assert timeline.peak_reserved == replay.peak_reserved
    assert [file.name for file in tmp_path.iterdir()] == ["snapshot.pickle"]


def test_the_flame_is_the_peak_by_lines(tmp_path):
    replay = replayed(log_of_two_steps())
    assert sum(folded(replay).values()) == 3 * MIB + 12 * MIB + 31 * MIB + 1
    write_flame(tmp_path / "peak.txt", replay)
    lines = (tmp_path / "peak.txt").read_text("utf-8").splitlines()
    frames = "/home/me/train.py:7 forward;transformers/models/llama/modeling_llama.py:158 forward"
    assert f"activations;{frames};layers.0.mlp;mm {6 * MIB}" in lines
    write_flame(tmp_path / "peak.svg", replay)
    assert (tmp_path / "peak.svg").read_text("utf-8").startswith("<svg")
