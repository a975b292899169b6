"""The largest micro-batch and the longest sequence fit when they are asked for, and the next ones do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramwise import estimate
from vramwise.cli.screens.estimate import estimate_screen
from vramwise.models.registry import describe
from vramwise.result import Result
from vramwise.training.limits import last_that_fits


def ask(table: dict[str, Any], **train: Any) -> Result:
    return estimate({"task": "train", **table, "train": {**table["train"], **train}})


def fits(table: dict[str, Any], **train: Any) -> bool:
    verdict = ask(table, **train).verdict
    assert verdict is not None
    return verdict.fits


STAGES = {"model": "distilgpt2", "gpu": "rtx-5090", "train": {"pipeline_parallel_size": 4}}
MEGATRON = {"model": "gpt2", "gpu": "rtx-4090", "train": {"pipeline_parallel_size": 2, "framework": "megatron"}}
ONE_TOKEN = {
    "model": "Qwen/Qwen2-0.5B-Instruct", "gpu": "rtx-4090",
    "train": {"method": "lora", "framework": "pytorch", "precision": "bf16-master", "optimizer_impl": "for-loop",
              "micro_batch_size": 2, "sequence_length": 1},
}  # fmt: skip
CONVERSATIONS = {
    "model": "codellama/CodeLlama-7b-hf", "gpu": "h200",
    "train": {"framework": "ms-swift", "precision": "fp16", "checkpointing": "none", "sequence_length": 2048},
}  # fmt: skip
SHARDED = {
    "model": "Qwen/Qwen2-0.5B-Instruct", "gpu": "rtx-3060-12gb", "num_gpus": 4,
    "train": {"fsdp": "full-shard", "checkpointing": "full", "sequence_length": 700},
}  # fmt: skip
CUT = {
    "model": "meta-llama/Llama-3.2-1B", "gpu": "a100-80gb", "num_gpus": 8,
    "train": {"context_parallel_size": 4, "tensor_parallel_size": 2, "sequence_parallel": True},
}  # fmt: skip
INPUTS_KEPT = {
    "model": "meta-llama/Llama-3.2-1B", "gpu": "rtx-4090", "num_gpus": 2,
    "train": {"method": "lora", "fsdp": "full-shard", "fsdp_version": 1, "checkpointing": "full",
              "framework_version": "transformers 4.50"},
}  # fmt: skip
ALL = [STAGES, MEGATRON, ONE_TOKEN, CONVERSATIONS, SHARDED, CUT, INPUTS_KEPT]


@pytest.mark.parametrize("table", ALL)
def test_the_largest_batch_fits_and_the_next_does_not(table: dict[str, Any]) -> None:
    most = ask(table).quantities["max_batch"].expected
    assert most > 0
    assert fits(table, micro_batch_size=most)
    assert not fits(table, micro_batch_size=most + 1)
    assert ask(table, micro_batch_size=most).quantities["max_batch"].expected == most
    assert ask(table, micro_batch_size=most + 1).quantities["max_batch"].expected == most


@pytest.mark.parametrize("table", [ONE_TOKEN, CONVERSATIONS, SHARDED, CUT, INPUTS_KEPT])
def test_the_longest_sequence_fits_and_the_next_does_not(table: dict[str, Any]) -> None:
    unit = 2 * 4 * 2 if table is CUT else 1
    most = ask(table).quantities["max_seq"].expected
    assert most > 0
    assert most % unit == 0
    assert fits(table, sequence_length=most)
    assert not fits(table, sequence_length=most + unit)
    assert ask(table, sequence_length=most).quantities["max_seq"].expected == most


@pytest.mark.parametrize(
    ("model", "rows"),
    [("openai-community/gpt2", 1024), ("facebook/opt-1.3b", 2048), ("FacebookAI/roberta-base", 512),
     ("google-bert/bert-base-uncased", 512), ("facebook/bart-large", 1024), ("openai/whisper-tiny", 448)],
)  # fmt: skip
def test_a_sequence_has_no_more_tokens_than_a_table_of_positions_has_rows(model: str, rows: int) -> None:
    assert ask({"model": model, "gpu": "b200", "train": {}}).quantities["max_seq"].expected == rows


def test_images_alone_have_no_sequence() -> None:
    found = ask({"model": "google/vit-base-patch16-224", "gpu": "rtx-4090", "train": {}}).quantities
    assert "max_batch" in found
    assert "max_seq" not in found


def test_where_nothing_fits_the_limits_are_nothing() -> None:
    found = ask({"model": "meta-llama/Llama-3.1-8B", "gpu": "t4", "train": {}}).quantities
    assert (found["max_batch"].expected, found["max_seq"].expected) == (0, 0)


def test_both_stand_on_the_screen() -> None:
    found = ask({"model": "Qwen/Qwen2-0.5B-Instruct", "gpu": "rtx-4090", "train": {"method": "lora"}})
    text = "\n".join("".join(piece for piece, _ in line) if isinstance(line, list) else line
                     for line in estimate_screen(found))  # fmt: skip
    for name, label in (("max_batch", "largest micro batch"), ("max_seq", "longest sequence")):
        assert f"{label} {found.quantities[name].expected:,}" in text


@pytest.mark.parametrize("table", ALL)
def test_counters_are_in_order_at_every_end_and_ranks_have_all_that_a_process_has(table: dict[str, Any]) -> None:
    for batch in (1, int(ask(table).quantities["max_batch"].expected)):
        found = ask(table, micro_batch_size=batch)
        allocated, kept, process = (found.quantities[n] for n in ("peak_allocated", "peak_reserved", "nvidia_smi"))
        for end in ("low", "expected", "high"):
            assert getattr(allocated, end) <= getattr(kept, end) <= getattr(process, end)
        assert found.capacity is not None
        assert process.high <= found.capacity.usable_bytes
        peak = next(phase for phase in found.phases if phase.name == found.peak_phase)
        assert max(rank.bytes for rank in found.ranks) == peak.bytes


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "transformers"])
def test_allocated_keeps_to_a_card_that_a_run_fills(framework: str) -> None:
    table: dict[str, Any] = {
        "model": "gpt2", "train": {"framework": framework, "micro_batch_size": 4, "expandable_segments": True},
    }  # fmt: skip
    whole = ask(table).quantities["total_needed"].expected
    found = ask({**table, "gpu_total_bytes": whole + 1})
    assert found.verdict is not None
    assert found.verdict.word == "tight"
    assert found.quantities["peak_allocated"].high <= found.quantities["peak_reserved"].high < whole


@given(table=st.lists(st.booleans(), min_size=1, max_size=300), data=st.data())
@settings(deadline=None)
def test_an_edge_is_found_whatever_fits(table: list[bool], data: st.DataObject) -> None:
    table[0] = True
    most = len(table) - 1
    low = data.draw(st.sampled_from([n for n, good in enumerate(table) if good]))
    found = last_that_fits(table.__getitem__, low, most)
    assert low <= found <= most
    assert table[found]
    assert found == most or not table[found + 1]


def test_tables_of_positions_are_those_of_text() -> None:
    from vramwise.models.lengths import rows_of_positions

    rotary = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
              "intermediate_size": 96, "vocab_size": 99}  # fmt: skip
    assert rows_of_positions(describe(rotary, "x")) is None


def test_the_longest_sequence_is_the_same_from_every_size() -> None:
    """Under ZeRO stage 3 the card's lag behind its host, and what it holds meanwhile, is that of the size looked at."""
    train = {"zero_stage": 3, "reshard_after_forward": False}
    table = {"model": "01-ai/Yi-1.5-34B-Chat-16K", "task": "train", "gpu": "a100-sxm-80gb", "num_gpus": 8}
    asked = [estimate({**table, "train": {**train, "sequence_length": n}}) for n in (576, 4096)]
    longest = [int(result.quantities["max_seq"].expected) for result in asked]
    assert longest[0] == longest[1]
    there = [estimate({**table, "train": {**train, "sequence_length": longest[0] + n}}).verdict for n in (0, 1)]
    assert [verdict is not None and verdict.fits for verdict in there] == [True, False]


def test_a_low_end_is_that_of_the_stage_that_surely_needs_most() -> None:
    """Another stage of a pipeline may be expected to need most, and have less that is certain."""
    train = {
        "pipeline_parallel_size": 2,
        "zero_stage": 3,
        "expert_parallel_size": 2,
        "pipeline_schedule": "interleaved-1f1b",
    }
    table = {"model": "inclusionAI/Ring-1T", "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": 16}
    lows = [
        estimate({**table, "train": {**train, "micro_batch_size": n}}).quantities["total_needed"].low for n in (1, 2)
    ]
    assert lows[0] <= lows[1]


@pytest.mark.parametrize(
    ("model", "gpu", "train"),
    [
        ("Qwen/Qwen3.5-4B-Base", {"gpu": "a100-sxm-80gb", "num_gpus": 2}, {"packing": True}),
        ("deepseek-ai/DeepSeek-V2.5-1210", {"gpus": ["t4", "rtx-3060-12gb"]}, {"zero_stage": 2, "loss": "chunked"}),
    ],
)
def test_of_gradients_that_go_as_they_come_the_largest_is_certain(
    model: str, gpu: dict[str, Any], train: dict[str, Any]
) -> None:
    """The operation that needs most is another one at twice the micro-batch, and other gradients are there at it."""
    table = {"model": model, "task": "train", **gpu}
    asked = [estimate({**table, "train": {"gradient_release": True, **train, "micro_batch_size": n}}) for n in (1, 2)]
    assert asked[0].quantities["total_needed"].low <= asked[1].quantities["total_needed"].low
    for result in asked:
        peak = next(phase for phase in result.phases if phase.name == result.peak_phase)
        assert result.quantities["peak_allocated"].low >= sum(
            part.low for part in peak.components.children if part.name in ("weights", "gradients", "optimizer states")
        )
