"""Many combinations at once have the numbers of one estimate for each."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vramwise
from vramwise.errors import UsageError
from vramwise.estimation import estimate
from vramwise.planner.changes import changed
from vramwise.scenario import Scenario

TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 4096,
}  # fmt: skip
WINDOWED = TINY | {"model_type": "mistral", "sliding_window": 100}
EXPERTS = TINY | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 4096}

train_tables = st.fixed_dictionaries(
    {},
    optional={
        "method": st.sampled_from(["full", "lora", "qlora"]),
        "checkpointing": st.sampled_from(["none", "full"]),
        "precision": st.sampled_from(["bf16-mixed", "bf16", "fp32"]),
        "attention": st.sampled_from(["sdpa", "eager", "flash"]),
        "loss": st.sampled_from(["standard", "fused-linear", "chunked"]),
        "optimizer": st.sampled_from(["adamw", "adamw-8bit", "sgd", "adafactor"]),
        "gradient_accumulation_steps": st.sampled_from([1, 4]),
        "offload_activations": st.sampled_from(["none", "cpu"]),
        "eval_batch_size": st.sampled_from([1, 3]),
        "framework": st.sampled_from(["transformers", "torchtune", "litgpt", "axolotl"]),
        "padding": st.sampled_from([0.0, 0.25]),
        "lora_dropout": st.sampled_from([0.0, 0.1]),
        "fsdp": st.sampled_from(["none", "full-shard"]),
        "zero_stage": st.sampled_from([0, 2, 3]),
    },
)
sizes = st.lists(st.one_of(st.integers(1, 40), st.integers(1, 4096)), min_size=1, max_size=6, unique=True)


def of_one(scenario, key):
    """What an estimate of its own says, as a cell has it."""
    try:
        result = estimate(scenario, replays=False)
    except vramwise.VramwiseError as problem:
        return str(problem)
    return key(result)


def figures(result):
    allocated = int(result.quantities["peak_allocated"].expected)
    return int(result.needed.expected), allocated, result.verdict.word, result.peak_phase


@given(
    model=st.sampled_from([TINY, WINDOWED, EXPERTS, GPT2]), train=train_tables, batches=sizes, lengths=sizes,
    memory=st.sampled_from(["1 GiB", "4 GiB", "24 GiB"]), cards=st.sampled_from([1, 2]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_every_cell_is_the_estimate_of_its_own_scenario(model, train, batches, lengths, memory, cards):
    base = {"model": model, "task": "train", "gpu_total_bytes": memory, "num_gpus": cards, "train": train}
    try:
        scenario = Scenario.from_dict(base)
    except vramwise.VramwiseError:
        return
    axes = {"micro_batch_size": batches, "sequence_length": lengths}
    found = vramwise.grid(scenario, axes)
    cells = iter(found.cells)
    for batch in batches:
        for length in lengths:
            cell = next(cells)
            one = changed(scenario, {"micro_batch_size": batch, "sequence_length": length})
            got = cell.error or (cell.needed_bytes, cell.peak_allocated_bytes, cell.word, cell.peak_phase)
            assert got == of_one(one, figures), (batch, length)


serve_tables = st.fixed_dictionaries(
    {},
    optional={
        "engine_version": st.sampled_from(["0.7.3", "0.8.5", "0.11.2", "0.25.0", "0.33.0"]),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8_e4m3"]),
        "max_num_seqs": st.sampled_from([4, 256]),
        "max_num_batched_tokens": st.sampled_from([64, 2048, 8192]),
        "gpu_memory_utilization": st.sampled_from([0.5, 0.9, 1.0]),
        "enforce_eager": st.booleans(),
        "block_size": st.sampled_from([16, 32]),
        "max_loras": st.sampled_from([1, 4]),
        "sleep_level": st.sampled_from([1]),
        "kv_cache_memory_bytes": st.sampled_from([10_000_000]),
        "tensor_parallel_size": st.sampled_from([1, 2]),
    },
)


@given(
    model=st.sampled_from([TINY, WINDOWED, EXPERTS, GPT2]), serve=serve_tables, lengths=sizes,
    memory=st.sampled_from(["1 GiB", "4 GiB", "80 GiB"]), free=st.sampled_from([None, "900 MiB"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_length_of_a_server_is_the_estimate_of_its_own(model, serve, lengths, memory, free):
    base = {"model": model, "task": "serve", "gpu_total_bytes": memory, "num_gpus": 2, "serve": serve}
    scenario = Scenario.from_dict(base | ({"gpu_free_bytes": free} if free else {}))
    found = vramwise.grid(scenario, {"max_model_len": lengths})
    for length, cell in zip(lengths, found.cells, strict=True):
        one = changed(scenario, {"max_model_len": length})
        got = cell.error or (cell.needed_bytes, cell.word, cell.peak_phase)
        assert got == of_one(one, lambda result: (int(result.needed.expected), result.verdict.word, result.peak_phase))


def test_with_replays_a_grid_says_what_the_whole_estimate_says():
    scenario = Scenario.from_dict({"model": TINY, "task": "train", "gpu_total_bytes": "1 GiB"})
    axes = {"checkpointing": ["none", "full"], "micro_batch_size": [1, 8, 32, 64], "sequence_length": [64, 512, 1024]}
    found = vramwise.grid(scenario, axes, replays=True)
    cells = iter(found.cells)
    words = []
    for kind in axes["checkpointing"]:
        for batch in axes["micro_batch_size"]:
            for length in axes["sequence_length"]:
                values = {"checkpointing": kind, "micro_batch_size": batch, "sequence_length": length}
                result, cell = estimate(changed(scenario, values)), next(cells)
                assert (cell.needed_bytes, cell.word) == (result.needed.expected, result.verdict.word)
                words.append(cell.word)
    assert {"fits", "does not fit"} <= set(words)


@pytest.mark.parametrize("replays", [False, True])
def test_a_replay_only_adds_to_a_need(replays):
    scenario = {"model": TINY, "task": "train", "gpu_total_bytes": "1 GiB"}
    axes = {"micro_batch_size": [1, 4, 12, 16, 20], "sequence_length": [512, 1024]}
    without, held = vramwise.grid(scenario, axes), vramwise.grid(scenario, axes, replays=replays)
    for one, other in zip(without.cells, held.cells, strict=True):
        assert one.needed_bytes <= other.needed_bytes
        assert one.peak_allocated_bytes == other.peak_allocated_bytes


def test_a_grid_over_other_keys_and_tasks():
    scenario = {"model": TINY, "task": "serve", "gpu": "4090", "serve": {"engine": "vllm"}}
    found = vramwise.grid(scenario, {"max_model_len": [512, 9999, 1024], "kv_cache_dtype": ["auto", "fp8_e4m3"]})
    table = found.to_dict()
    assert [axis["key"] for axis in table["axes"]] == ["max_model_len", "kv_cache_dtype"]
    assert [len(row) for row in table["needed_bytes"]] == [2, 2, 2]
    one = estimate(changed(Scenario.from_dict(scenario), {"max_model_len": 1024, "kv_cache_dtype": "fp8_e4m3"}))
    assert table["needed_bytes"][2][1] == one.needed.expected


def test_what_is_refused_says_why_in_its_cell():
    scenario = {
        "model": TINY, "task": "train", "gpu": "h100", "num_gpus": 4,
        "train": {"framework": "torchtitan", "context_parallel_size": 4},
    }  # fmt: skip
    found = vramwise.grid(scenario, {"sequence_length": [1001, 1024], "micro_batch_size": [1, 2]})
    errors = [cell.error for cell in found.cells]
    assert "does not divide the 1,001 tokens" in errors[0]
    assert errors[0] == errors[1]
    assert errors[2:] == ["", ""]


MANY = range(1, 1 << 12)


@pytest.mark.parametrize("axes", [{}, {"micro_batch_size": []}, {"micro_batch_size": MANY, "lora_rank": MANY}])
def test_axes_that_are_none_or_too_many_are_refused(axes):
    with pytest.raises(UsageError, match="grid: "):
        vramwise.grid({"model": TINY, "task": "train", "gpu": "4090"}, axes)
