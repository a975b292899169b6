"""A step that is recorded once and played at every size is the one that is replayed block by block."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_traced_moments import model_named

from vramwise import estimate
from vramwise.memo import Memo
from vramwise.models.allocator import NoRoomError
from vramwise.scenario import Scenario
from vramwise.training.job import Job, job_of
from vramwise.training.reserved_memory import replay
from vramwise.training.reserved_memory.play import Player
from vramwise.training.reserved_memory.replay import is_replayed, replay_in_order
from vramwise.training.reserved_memory.step_replay import Replayed, StepReplay
from vramwise.training.reserved_memory.traces import Held, Memory, Recorder, has_one_order
from vramwise.units import MIB

WORKSPACE = 2 * 8_519_680
LLAMA = "meta-llama/Llama-3.2-1B"
SCENARIOS: list[dict[str, Any]] = [
    {"model": "distilgpt2", "train": {}},
    {"model": "distilgpt2", "train": {"checkpointing": "full", "gradient_accumulation_steps": 4}},
    {"model": LLAMA, "train": {"method": "lora", "checkpointing": "full"}},
    {"model": LLAMA, "train": {"method": "qlora", "framework": "transformers"}},
    {"model": "google/gemma-3-1b-pt", "train": {"method": "lora", "framework": "pytorch"}},
    {"model": LLAMA, "num_gpus": 4, "train": {"fsdp": "full-shard", "fsdp_version": 2}},
    {"model": LLAMA, "num_gpus": 4, "train": {"fsdp": "full-shard", "fsdp_version": 1, "checkpointing": "full"}},
    {"model": LLAMA, "num_gpus": 4, "train": {"method": "lora", "fsdp": "shard-grad-op", "fsdp_version": 1}},
    {"model": LLAMA, "num_gpus": 4, "train": {"fsdp": "full-shard", "gradient_accumulation_steps": 2}},
    {"model": "distilgpt2", "train": {"eval_batch_size": 5, "framework": "transformers"}},
    {"model": "distilgpt2", "train": {"eval_batch_size": 2, "framework": "pytorch", "gradient_accumulation_steps": 2}},
    {"model": LLAMA, "train": {"method": "qlora", "framework": "llamafactory", "eval_batch_size": 4}},
    {"model": LLAMA, "num_gpus": 4, "train": {"method": "lora", "framework": "transformers", "eval_batch_size": 2}},
    {"model": "Qwen/Qwen1.5-MoE-A2.7B", "num_gpus": 8, "train": {"fsdp": "full-shard", "checkpointing": "full"}},
]


def job(scenario: dict[str, Any]) -> Job:
    return job_of(Scenario.from_dict({"task": "train", **scenario}), model_named(scenario["model"]), None)


def by_blocks(asked: Job, batch: int, sequence: int, room: int | None) -> Replayed:
    rank = asked.ranks[0]
    sizes = batch, sequence, asked.accumulates, WORKSPACE
    return StepReplay(asked.model, asked.structure, *sizes, room, (), rank).run()


def in_turn(asked: Job, batch: int, sequence: int, room: int | None) -> Replayed:
    sizes = batch, sequence, asked.accumulates, WORKSPACE
    return replay_in_order(asked.model, asked.structure, *sizes, room, asked.ranks[0])


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: f"{one['model']} {one['train']}")
def test_what_was_recorded_at_one_size_is_right_at_others_and_on_full_cards(scenario: dict[str, Any]) -> None:
    asked = job(scenario)
    assert is_replayed(asked.structure, asked.ranks[0])
    assert has_one_order(asked.structure)
    kinds = set()
    for batch, sequence in ((1, 700), (1, 1), (3, 700), (1, 911)):
        whole = by_blocks(asked, batch, sequence, None)
        assert in_turn(asked, batch, sequence, None) == whole
        for share in (0.2, 0.7, 0.9, 0.97, 0.99, 1.0):
            room = int(whole.reserved * share)
            found = by_blocks(asked, batch, sequence, room)
            assert in_turn(asked, batch, sequence, room) == found
            kinds.add((found.was_full, found.wanted > 0))
    assert {(True, True), (False, False)} <= kinds


def test_a_recording_that_was_cut_short_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    asked = job({"model": "distilgpt2", "train": {"gradient_accumulation_steps": 2}})
    monkeypatch.setattr(replay, "_recordings", Memo(8))
    with monkeypatch.context() as patched:
        patched.setattr(replay._Recording, "_backward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            in_turn(asked, 2, 300, None)
    assert in_turn(asked, 2, 300, None) == by_blocks(asked, 2, 300, None)


def test_a_search_records_each_kind_of_step_once(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, played = [], []
    step, play = replay._Recording._step, Player.play
    monkeypatch.setattr(replay._Recording, "_step", lambda self, **how: (recorded.append(self), step(self, **how)))
    monkeypatch.setattr(Player, "play", lambda self, part: (played.append(part), play(self, part)))
    table = {
        "task": "train",
        "model": "Qwen/Qwen2-0.5B",
        "gpu": "rtx-4090",
        "train": {"checkpointing": "full", "sequence_length": 256},
    }
    found = estimate(table).quantities
    assert min(found[name].expected for name in ("max_batch", "max_seq")) > 1
    assert len(played) > 20
    assert len(recorded) <= 3 * len(set(map(id, recorded)))
    assert len(set(map(id, recorded))) <= 3


def test_going_to_and_fro_between_sizes_with_other_blocks_records_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = job({"model": "distilgpt2", "train": {}})
    made = []
    begin = replay._Recording.__init__

    def noted(self: replay._Recording, *sizes: Any) -> None:
        begin(self, *sizes)
        made.append(sizes[3])
        self.recorder.rest = sizes[3] % 2  # type: ignore[attr-defined]

    monkeypatch.setattr(replay, "_recordings", Memo(8))
    monkeypatch.setattr(replay._Recording, "__init__", noted)
    monkeypatch.setattr(Recorder, "holds_at", lambda self, axes, _: axes["sequence"] % 2 == self.rest)
    for sequence in (300, 301, 302, 303, 300, 301):
        assert in_turn(asked, 2, sequence, None) == by_blocks(asked, 2, sequence, None)
    assert made == [300, 301]


BYTES = st.sampled_from([1, 512, 700, 5_000, MIB - 512, MIB, MIB + 1, 3 * MIB, 9 * MIB, 11 * MIB, 12 * MIB, 40 * MIB])
ACTIONS = ["take", "take", "take", "drop", "drop", "later", "settle", "mark", "forget", "empty"]
ACTION = st.tuples(st.sampled_from(ACTIONS), BYTES, st.integers(0, 2), st.integers(0, 50))


@given(actions=st.lists(ACTION, min_size=1, max_size=200), room=st.sampled_from([None, 60 * MIB, 130 * MIB]))
@settings(deadline=None)
def test_the_loop_is_the_allocator(actions: list[tuple[str, int, int, int]], room: int | None) -> None:
    real, recorder = Memory(room), Recorder()
    full = done(real, actions)
    done(recorder, actions)
    player = Player(recorder, {}, room)
    if full:
        with pytest.raises(NoRoomError) as error:
            player.play(recorder.cut())
        assert error.value.wanted == full
    else:
        player.play(recorder.cut())
    for counter in ("allocated", "reserved", "peak_allocated", "peak_reserved", "was_full"):
        assert getattr(player, counter) == getattr(real, counter), counter


def done(memory: Memory, actions: list[tuple[str, int, int, int]]) -> int:
    """The actions on a memory; bytes that did not fit, 0 where all did."""
    held: list[Held] = []
    mark = 0
    try:
        for what, size, stream, which in actions:
            if what == "take":
                held += memory.some(size, stream=stream)
            elif what == "mark":
                mark = memory.mark
            elif what == "settle":
                memory.settle(mark)
            elif what == "forget":
                memory.forget_peak()
            elif what == "empty":
                memory.empty_cache()
            elif held:
                one = [held.pop(which % len(held))]
                memory.drop_all(one) if what == "drop" else memory.drop_later(one)
    except NoRoomError as error:
        return error.wanted
    return 0
