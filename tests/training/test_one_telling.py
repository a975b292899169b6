"""A step's sums and its events hold the same bytes at each moment: one is the oracle of the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_replay import job
from test_traced_moments import rows

from by_turns import is_thorough
from vramwise.errors import UnsupportedModelError
from vramwise.models.allocator import Block
from vramwise.training.activations.sizes import StepShape
from vramwise.training.job import Job
from vramwise.training.recipe.attention import rows_of
from vramwise.training.recipe.settings import execution
from vramwise.training.reserved_memory import step_replay
from vramwise.training.reserved_memory.replay import is_replayed, runs_one_by_one
from vramwise.training.reserved_memory.scripts import Script
from vramwise.training.reserved_memory.step_replay import StepReplay
from vramwise.training.reserved_memory.traces import Held, Memory

CASES = Path(__file__).parents[2] / "benchmarks" / "cases"
CLOSE = 0.0005
"""Scalars, labels, pieces of divided-up scratch: the largest is 0.48 per mille (torchtune's chunked loss)."""
OPEN = {
    # a step of few bytes, beside which the same pieces of a chunked loss's scratch are 0.94 per mille
    "tt389-7b-sgd-init": {"backward: head"},
    # Qwen 3.5's gated attention on ranks of Megatron, computed again: the sums have one gathered sequence
    # of hidden states more, 4 % of the step
    "nbaseten-qwen3.5-27b-131072": {"backward: layers"},
    "nbaseten-qwen3.5-27b-262144": {"backward: layers"},
    # embedded tokens that nothing keeps but the model's frame, as dry runs of these classes do: the events let them go
    # with the first layer, 0.07 to 0.14 % of the step
    "hf-performance-bert-large-fp16-b4": {"forward"},
    "lora-experiments-llama3.2-1b-lora": {"forward"},
    "soup-llama3.1-8b-lora-liger": {"forward"},
    "soup-llama3.1-8b-lora-flash-liger": {"forward"},
}
"""Moments of measured cases in which the two tellings are known to differ."""
SHARES = 12
"""Of the measured cases: which of them are replayed is known once a job stands, too long for collecting."""


class Sum(Memory):
    """Counts tensors one by one, rounded up to 512 bytes; blocks of the allocator may be larger."""

    def take(self, size: int, stream: int = 0) -> Block:
        block = Block(max(512, -(-size // 512) * 512), 0, [])
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: Block) -> None:
        self.allocated -= block.size

    free_later = free

    def settle(self, mark: int | None = None) -> None: ...


class Moments(StepReplay):
    """The most bytes in each part of the last micro-batch, and in its step."""

    found: dict[str, int]
    blocks: list[Script]
    at: int

    def lap(self, name: str = "") -> None:
        if name:
            self.found[name] = max(self.found.get(name, 0), self.memory.peak_allocated)
        self.memory.peak_allocated = self.memory.allocated

    def _micro_batch(self, *, accumulating: bool, is_first: bool = False) -> list[Held]:
        self.found = {}
        self.lap()
        given = super()._micro_batch(accumulating=accumulating, is_first=is_first)
        self.found["backward end"] = self.memory.allocated
        return given

    def _forward(self, blocks: list[Script], sizes: list[int]) -> Any:
        self.blocks, self.at = blocks, 0
        tables = super()._forward(blocks, sizes)
        self.lap("forward return")
        self.found["forward end"] = self.memory.allocated
        return tables

    def _forward_of(self, script: Script, table: Any, streams: dict[str, Held], sizes: list[int]) -> None:
        self.lap("forward")
        super()._forward_of(script, table, streams, sizes)
        self.lap("loss" if self.shape.runs[self.at].name == "loss" else "forward")
        self.at += 1

    def _hand(self, script: Script, table: Any, arriving: dict[str, Held]) -> None:
        run = self.shape.runs[self.blocks.index(script)]
        self.lap("backward: head" if run.is_head else "backward: layers")
        super()._hand(script, table, arriving)

    def _optimizer_step(self, *, is_first: bool) -> None:
        self.lap()
        super()._optimizer_step(is_first=is_first)
        self.lap("optimizer step")


def shape_of(asked: Job) -> StepShape:
    return asked.shape(asked.ranks[0])


def apart(scenario: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Bytes that the events hold at each moment and those that the sums say, where they are not close."""
    asked = job(scenario)
    monkeypatch.setattr(step_replay, "Memory", Sum)
    batch, sequence = rows_of(asked.train, asked.train.micro_batch_size, asked.local_sequence)
    played = Moments(asked.model, asked.structure, batch, sequence, asked.accumulates, 0, None, (), asked.ranks[0])
    played.run()
    said = {moment.name: moment.total for moment in asked.moments(asked.ranks[0])}
    both = {name: (size, said[name]) for name, size in played.found.items() if name in said}
    assert len(both) >= 5
    return {name: (held, size) for name, (held, size) in both.items() if abs(held - size) > CLOSE * size}


@pytest.mark.parametrize("row", rows()[1::4], ids=lambda row: str(row["id"]))
def test_traced_steps(row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert apart(row["scenario"], monkeypatch) == {}


def whole_weights() -> Iterator[tuple[str, dict[str, Any]]]:
    """Measured cases whose GPUs hold whole weights, without ZeRO, whose moments overlap (see test_zero_checks.py)."""
    for path in sorted(CASES.glob("training*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            train = case["scenario"].get("train", {})
            if train.get("fsdp", "none") == "none" and not train.get("zero_stage"):
                yield case["id"], case["scenario"]


def is_compared(asked: Job) -> bool:
    """Whether the replay plays what the case ran, and its gradients are those that the sums know."""
    rank = asked.ranks[0]
    compute = execution(asked.train, asked.model)
    narrow = compute.lora is not None and compute.lora.dtype != asked.train.lora_dtype  # a kernel's own gradients
    if narrow or not is_replayed(asked.train, rank):
        return False
    try:
        return runs_one_by_one(shape_of(asked), asked.model, asked.train)
    except UnsupportedModelError:  # cut in a way that is not described
        return False


@pytest.mark.parametrize("share", range(0, SHARES, 1 if is_thorough() else 3))
def test_measured_cases(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are replayed, loops that name their outputs among them: never less than a fifth of a share."""
    cases = [*whole_weights()][share::SHARES]
    compared = {case: scenario for case, scenario in cases if is_compared(job(scenario))}
    assert len(compared) > len(cases) / 5
    found = {case: set(apart(scenario, monkeypatch)) for case, scenario in compared.items()}
    assert {case: names for case, names in found.items() if names} == {
        case: names for case, names in OPEN.items() if case in compared
    }


@pytest.mark.parametrize("method", ["lora", "qlora"])
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B"])  # the second's are tied
def test_copies_that_train_stand_beside_their_originals(
    model: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = {"method": method, "trainable": ["lm_head", "embed_tokens"], "sequence_length": 256}
    assert apart({"model": model, "task": "train", "train": train}, monkeypatch) == {}


def test_fp32_copies_of_16_bit_gradients_are_made_for_megatrons_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """core 0.16 optimizer/distrib_optimizer.py `_copy_model_grads_to_main_grads`, each of its own."""
    train = {"framework": "megatron", "precision": "bf16-master", "grad_dtype": "bf16", "distributed_optimizer": True}
    scenario = {
        "model": "meta-llama/Llama-3.2-1B",
        "task": "train",
        "num_gpus": 2,
        "train": {**train, "sequence_length": 256},
    }
    assert apart(scenario, monkeypatch) == {}
