"""What to change: each line is a full estimate, the mildest changes that fit come first, and estimates are few."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.planner import Suggestion, suggestions
from vramwise.planner.changes import FLASH, Asked, Cost
from vramwise.planner.inference_changes import _COST_OF_ADVICE, serving_changes
from vramwise.planner.option import Wishes
from vramwise.planner.plan import plan as planned
from vramwise.planner.suggestions import MOST, MOST_ESTIMATES
from vramwise.planner.training_changes import training_changes
from vramwise.result import Result
from vramwise.scenario import Scenario

LLAMA = "meta-llama/Llama-3.1-8B"
TRAIN: dict[str, dict[str, Any]] = {
    "full fine-tuning on 80 GB": {"model": LLAMA, "gpu": "a100-80gb", "train": {"precision": "bf16-mixed"}},
    "a piece is missing": {
        "model": "Qwen/Qwen3-4B", "gpu": "rtx-4090",
        "train": {"method": "lora", "micro_batch_size": 4, "checkpointing": "full",
                  "lora_targets": ["q_proj", "v_proj"]},
    },
    "fp32 weights under adapters": {
        "model": "Qwen/Qwen3-32B", "gpu": "h100", "num_gpus": 8,
        "train": {"method": "lora", "precision": "bf16-mixed", "param_dtype": "fp32", "checkpointing": "full"},
    },
    "65B on 48 GB": {"model": "huggyllama/llama-65b", "gpu": "a6000", "train": {"precision": "bf16"}},
    "405B on one card": {"model": "meta-llama/Llama-3.1-405B", "gpu": "h100", "train": {}},
    "experts in 16 bit": {
        "model": "mistralai/Mixtral-8x7B-v0.1", "gpu": "a100-80gb",
        "train": {"method": "qlora", "checkpointing": "full"},
    },
    "a batch of images": {
        "model": "google/vit-base-patch16-224", "gpu": "rtx-3060-12gb", "train": {"micro_batch_size": 4096},
    },
}  # fmt: skip
SERVE: dict[str, dict[str, Any]] = {
    "a laptop": {"model": LLAMA, "gpu": "rtx-4060", "serve": {"engine": "vllm"}},
    "whole length": {"model": LLAMA, "gpu": "rtx-4090", "serve": {"engine": "vllm"}},
    "a node too small": {
        "model": "deepseek-ai/DeepSeek-V3", "gpu": "h100", "serve": {"engine": "vllm", "tensor_parallel_size": 4},
    },
    "sglang": {"model": "Qwen/Qwen3-32B", "gpu": "rtx-3090", "serve": {"engine": "sglang"}},
    "llama.cpp": {
        "model": "Qwen/Qwen3-32B", "gpu": "rtx-3090",
        "serve": {"engine": "llama.cpp", "gguf_quant": "Q8_0", "n_gpu_layers": 99},
    },
    "two cards": {
        "model": "Qwen/Qwen3-32B", "gpu": "rtx-3090", "num_gpus": 2,
        "serve": {"engine": "llama.cpp", "gguf_quant": "BF16", "n_gpu_layers": 99, "n_ctx": 8192},
    },
}  # fmt: skip
OTHER: dict[str, dict[str, Any]] = {
    "generate": {"model": "meta-llama/Llama-2-13b-hf", "task": "generate", "gpu": "rtx-3090"},
    "load": {"model": "meta-llama/Llama-2-13b-hf", "task": "load", "gpu": "rtx-3090"},
}
ALL = {
    **{name: {"task": "train", **table} for name, table in TRAIN.items()},
    **{name: {"task": "serve", **table} for name, table in SERVE.items()},
    **OTHER,
}


def asked(table: dict[str, Any]) -> tuple[Scenario, Result, list[Suggestion]]:
    scenario = Scenario.from_dict(table)
    result = estimate(scenario)
    return scenario, result, suggestions(scenario, result, estimate)


def words(table: dict[str, Any]) -> list[str]:
    return [one.change.words for one in asked(table)[2]]


def placed(one: Suggestion, scenario: Scenario) -> tuple[bool, bool, bool, Cost]:
    """Sure ones first, then those on the cards that are there, then what fits well, then the mildest."""
    assert one.verdict is not None
    many = one.change.values.get("num_gpus", scenario.num_gpus)
    assert isinstance(many, int)
    sure = one.verdict.probability >= 0.9
    return not sure, many > scenario.num_gpus, one.verdict.word == "tight", one.change.rank


@pytest.mark.parametrize("name", ALL)
def test_each_is_a_full_estimate_and_fits_where_any_does(name: str) -> None:
    scenario, result, found = asked(ALL[name])
    assert result.verdict is not None
    assert not result.verdict.fits
    assert 1 <= len(found) <= MOST
    assert all(one.fits for one in found)
    for one in found:
        again = estimate(one.change.of(scenario))
        assert (again.needed, again.verdict) == (one.needed, one.verdict)
        assert one.saved_bytes == result.needed.expected - again.needed.expected
    assert [placed(one, scenario) for one in found] == sorted(placed(one, scenario) for one in found)


def test_what_is_likely_to_fit_here_comes_before_further_cards_and_what_hardly_fits_last() -> None:
    tuned = words({"model": "llama-3.1-8b", "task": "train", "gpu": "rtx-4090", "train": {"method": "lora"}})
    assert [change.startswith("2 GPUs") for change in tuned] == [False, True]  # tight with 94 % before a second card
    _, _, found = asked({"model": "llama-3.1-70b", "task": "serve", "gpu": "h100-sxm-80gb",
                         "serve": {"engine": "vllm"}})  # fmt: skip
    chances = [one.verdict.probability for one in found if one.verdict is not None]
    assert chances[0] > 0.95 > 0.9 > chances[-1]  # fp8 takes the one card to its last 0.01 GiB


@pytest.mark.parametrize(("gpu", "many", "first"), [
    ("rtx-4090", 8, "tensor_parallel_size 8"), ("h100-sxm-80gb", 2, "tensor_parallel_size 2"),
])  # fmt: skip
def test_gpus_that_are_there_and_idle_are_used_before_anything_else(gpu: str, many: int, first: str) -> None:
    table = {"model": "qwen3-32b", "task": "serve", "gpu": gpu, "num_gpus": many, "serve": {"engine": "vllm"}}
    _, result, found = asked(table)
    assert result.verdict is not None
    if not result.verdict.fits:
        assert (found[0].change.words, found[0].change.cost) == (first, "the GPUs that are there")
    assert "more GPUs" not in [one.change.cost for one in found if one.change.words == first]


@pytest.mark.parametrize("name", ["llama-3.1-405b", "deepseek-v3"])
def test_nodes_that_are_there_are_stages(name: str) -> None:
    table = {"model": name, "task": "serve", "gpu": "h100-sxm-80gb", "num_gpus": 16, "serve": {"engine": "vllm"}}
    _, result, found = asked(table)
    words = "tensor_parallel_size 8, pipeline_parallel_size 2"
    assert (found[0].change.words, found[0].change.cost) == (words, "the GPUs that are there")
    assert found[0].verdict is not None
    assert found[0].verdict.fits
    assert result.verdict is not None
    assert result.verdict.reasons[-1] == "set tensor_parallel_size to 8 and pipeline_parallel_size to 2"
    assert any(note.endswith("to 8 and pipeline_parallel_size to 2") for note in result.notes)


def test_idle_gpus_are_used_with_narrower_weights_where_they_alone_are_too_few() -> None:
    table = {"model": "llama-3.1-70b", "task": "serve", "gpu": "h100-sxm-80gb", "num_gpus": 2,
             "serve": {"engine": "vllm"}}  # fmt: skip
    assert words(table)[0] == "tensor_parallel_size 2, quantization fp8"
    plan = planned(Scenario.from_dict(table | {"model": "qwen3-32b", "gpu": "rtx-4090"}), Wishes("run"))
    assert plan.options[0].words == "tensor_parallel_size 2 · quantization awq"
    assert plan.options[0].result.quantities["max_seq"].expected == 40_960


@pytest.mark.parametrize("name", ALL)
def test_estimates_are_few(name: str) -> None:
    scenario = Scenario.from_dict(ALL[name])
    result, count = estimate(scenario), 0

    def counted(changed: Scenario) -> Result:
        nonlocal count
        count += 1
        return estimate(changed)

    suggestions(scenario, result, counted)
    assert count <= MOST_ESTIMATES + 4  # and the combinations


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("full fine-tuning on 80 GB", "precision bf16"),
        ("full fine-tuning on 80 GB", "method lora"),
        ("a piece is missing", "expandable_segments"),
        ("fp32 weights under adapters", "param_dtype bf16"),
        ("fp32 weights under adapters", "fsdp full-shard"),
        ("65B on 48 GB", "method qlora, checkpointing full"),
        ("experts in 16 bit", "quantize_experts"),
        ("a laptop", "llama.cpp, Q4_K_M, n_ctx 8,192"),
        ("a node too small", "tensor_parallel_size 8, pipeline_parallel_size 2"),
        ("llama.cpp", "gguf_quant Q4_K_M"),
    ],
)
def test_what_people_would_do_is_named(name: str, named: str) -> None:
    assert named in words(ALL[name])


def test_nothing_is_advised_that_the_framework_does_already() -> None:
    train = {"framework": "llamafactory", "method": "lora", "micro_batch_size": 16, "sequence_length": 2048}
    data = {"model": "Qwen/Qwen2.5-7B-Instruct", "task": "train", "gpu": "rtx-4090", "train": train}
    assert estimate(data).scenario["train"]["checkpointing"] == "full"
    found = words(data)
    assert found
    assert not [text for text in found if "checkpointing" in text]


def test_a_surer_one_of_its_kind_is_named_beside_one_that_hardly_fits() -> None:
    """LoRA in 16 bits is tight; QLoRA alone is sure, with nothing that it does not need."""
    step = {"micro_batch_size": 2, "sequence_length": 4096, "checkpointing": "full", "offload_activations": "none"}
    train = {"framework": "unsloth", **step}
    asked = Scenario.from_dict({"model": "qwen3-8b", "task": "train", "gpu": "4090", "train": train})
    found = suggestions(asked, estimate(asked), estimate)
    assert [one.change.words for one in found][:2] == ["method qlora", "method lora"]
    assert [one.verdict.word for one in found if one.verdict][:2] == ["fits", "tight"]


def test_a_run_of_405_billion_is_told_how_many_gpus_it_takes() -> None:
    (found,) = asked(ALL["405B on one card"])[2]
    assert found.change.values["num_gpus"] in (128, 256)
    assert found.fits


def test_more_ranks_that_an_engine_names_with_whole_experts_are_named_with_them() -> None:
    table = {
        "model": "Qwen/Qwen3-235B-A22B-FP8", "task": "serve", "gpu": "a100-sxm-40gb",
        "serve": {"engine": "vllm", "engine_version": "0.19.0", "tensor_parallel_size": 4},
    }  # fmt: skip
    values = [one.change.values for one in asked(table)[2] if one.fits]
    assert {"tensor_parallel_size": 8, "expert_parallel": True, "num_gpus": 8} in values


def test_the_longest_request_that_fits_is_named() -> None:
    _, result, found = asked(ALL["whole length"])
    length = next(one.change.values["max_model_len"] for one in found if "max_model_len" in one.change.values)
    assert length == result.quantities["max_seq"].low


def test_a_quantized_checkpoint_is_not_quantized_again() -> None:
    table = {"model": "Qwen/Qwen3-32B-FP8", "task": "serve", "gpu": "l4", "serve": {"engine": "vllm"}}
    assert not [change for change in words(table) if change.startswith("quantization")]


def test_a_cache_of_8_bits_is_offered_to_one_of_16_alone() -> None:
    table = {"model": LLAMA, "task": "serve", "gpu": "rtx-4090"}
    for kind in ("auto", "bf16"):
        serve = {"engine": "vllm", "max_model_len": 65536, "kv_cache_dtype": kind}
        assert "kv_cache_dtype fp8" in words({**table, "serve": serve})
    already = {"engine": "vllm", "max_model_len": 131072, "kv_cache_dtype": "fp8"}
    assert "kv_cache_dtype fp8" not in words({**table, "serve": already})


def test_more_gpus_name_what_they_change_alone() -> None:
    scenario = Scenario.from_dict({"model": LLAMA, "task": "serve", "serve": {"engine": "vllm"}})
    proposed = serving_changes(Asked(scenario, estimate(scenario)))
    named = {change.words: change.values for change in proposed if change.family == "more GPUs"}
    assert list(named) == ["tensor_parallel_size 2", "tensor_parallel_size 8, pipeline_parallel_size 2"]
    assert [values["num_gpus"] for values in named.values()] == [2, 16]


@pytest.mark.parametrize("length", [1, 2, 131072])
def test_half_a_sequence_is_proposed_where_it_has_halves(length: int) -> None:
    train = {"method": "qlora", "checkpointing": "full", "loss": "fused-linear", "sequence_length": length}
    scenario = Scenario.from_dict({"model": "gpt2", "task": "train", "gpu": "rtx-4060", "train": train})
    proposed = list(training_changes(Asked(scenario, estimate(scenario))))
    for change in proposed:
        assert Scenario.from_dict(change.of(scenario).to_dict()).task == "train", change.words
    lengths = [change.values["sequence_length"] for change in proposed if "sequence_length" in change.values]
    assert lengths == ([length // 2] if length > 1 else [])


def test_a_card_that_refuses_fp8_is_not_told_to_use_it() -> None:
    table = {"model": LLAMA, "task": "serve", "gpu": "v100-sxm2-32gb", "serve": {"engine": "vllm", "dtype": "fp16"}}
    assert "quantization fp8" not in words(table)


def test_where_nothing_is_enough_those_that_save_most_are_named() -> None:
    table = {"model": "deepseek-ai/DeepSeek-V3", "task": "train", "gpu": "rtx-4060", "train": {}}
    found = asked(table)[2]
    assert found
    assert not any(one.fits for one in found)
    assert [one.saved_bytes for one in found] == sorted((one.saved_bytes for one in found), reverse=True)


def test_without_a_card_those_that_save_most_come_first() -> None:
    found = asked({"model": LLAMA, "task": "train", "train": {}})[2]
    assert found
    assert all(one.verdict is None for one in found)
    assert [one.saved_bytes for one in found] == sorted((one.saved_bytes for one in found), reverse=True)


@pytest.mark.parametrize(("settings", "named"), [
    ({"packing": True, "document_mask": True}, {"attention flash"}),
    ({"packing": True, "document_mask": True, "precision": "fp32"}, set()),
    ({"packing": True, "attention": "eager"}, {"attention sdpa"}),
    ({"packing": True}, set()),
])  # fmt: skip
def test_flash_attention_is_named_where_sdpa_gets_a_mask_and_saves_less(
    settings: dict[str, Any], named: set[str]
) -> None:
    """One row of 32,768 tokens with adapters, checkpointed layers and a loss without logits."""
    train = {"method": "lora", "checkpointing": "full", "loss": "fused-linear", "sequence_length": 32768, **settings}
    found = words({"model": "Qwen/Qwen2.5-0.5B", "task": "train", "train": train})
    assert {change for change in found if change.startswith("attention")} == named


def test_more_gpus_are_as_few_as_fit() -> None:
    """70B in full on 8 × H100: 16 with checkpointing miss by little, 32 do; without checkpointing it takes 128."""
    table = {"model": "meta-llama/Llama-3.1-70B", "task": "train", "gpu": "h100", "num_gpus": 8,
             "train": {"fsdp": "full-shard"}}  # fmt: skip
    scenario, _, found = asked(table)
    (more,) = (one for one in found if "num_gpus" in one.change.values)
    many = int(more.change.values["num_gpus"])
    assert more.fits
    assert many < 128
    half = {**more.change.values, "num_gpus": many // 2}
    verdict = estimate(replace(more.change, values=half).of(scenario)).verdict
    assert verdict is not None
    assert not verdict.fits


def test_more_gpus_are_not_named_where_those_that_are_there_do_with_the_same_settings() -> None:
    table = {"model": "Qwen/Qwen3-32B", "task": "train", "gpu": "h100", "num_gpus": 8,
             "train": {"method": "lora", "sequence_length": 1024}}  # fmt: skip
    found = words(table)
    assert "fsdp full-shard" in found
    assert not any("GPUs" in change for change in found)


@pytest.mark.parametrize("table", [
    {"model": LLAMA, "task": "train", "gpu": "a100-80gb", "train": {}},
    {"model": "Qwen/Qwen3-235B-A22B", "task": "serve", "gpu": "h200", "num_gpus": 8,
     "serve": {"engine": "vllm", "tensor_parallel_size": 8}},
])  # fmt: skip
def test_who_has_room_to_spare_is_not_told_to_offload_or_to_take_more_gpus(table: dict[str, Any]) -> None:
    _, result, found = asked(table)
    assert result.verdict is not None
    assert result.verdict.word == "fits"
    assert found
    assert all(one.change.rank < Cost.HOST_MEMORY for one in found)


def test_another_engine_is_not_named_where_a_mild_setting_is_enough() -> None:
    table = {"model": "Qwen/Qwen3-8B", "task": "serve", "gpu": "rtx-4090",
             "serve": {"engine": "vllm", "max_model_len": 32000, "gpu_memory_utilization": 0.5}}  # fmt: skip
    found = words(table)
    assert any(change.startswith("gpu_memory_utilization") for change in found)
    assert not any(change.startswith("llama.cpp") for change in found)


@pytest.mark.parametrize(("gpu", "framework", "named"), [
    ("a100-80gb", "transformers", "precision bf16-mixed"), ("rtx-3090", "megatron", "precision bf16-master, "),
])  # fmt: skip
def test_fp8_on_a_card_that_does_not_multiply_in_it_does_not_run_and_bf16_does(
    gpu: str, framework: str, named: str
) -> None:
    train = {"method": "lora", "precision": "fp8-mixed", "framework": framework}
    table = {"model": "Qwen/Qwen3-8B", "task": "train", "gpu": gpu, "train": train}
    _, result, found = asked(table)
    assert result.verdict is not None
    assert not result.verdict.fits
    assert any("does not multiply in fp8" in reason for reason in result.verdict.reasons)
    assert found
    assert all(one.fits and one.change.words.startswith(named) for one in found)


@pytest.mark.parametrize("gpu", ["a100-80gb", "t4"])
def test_bf16_adapters_do_not_train_under_fp16s_scaler_and_do_in_bf16(gpu: str) -> None:
    """torch's scaler stops at the first step: "not implemented for 'BFloat16'". TRL makes QLoRA's adapters bf16."""
    train = {"method": "qlora", "precision": "fp16-mixed", "framework": "transformers", "framework_version": "trl 1.16"}
    table = {"model": "Qwen/Qwen3-0.6B", "task": "train", "gpu": gpu, "train": {**train, "sequence_length": 128}}
    _, result, found = asked(table)
    assert result.verdict is not None
    assert not result.verdict.fits
    assert any("no kernel for the gradients of bf16 adapters" in reason for reason in result.verdict.reasons)
    assert found
    assert all(one.fits and one.change.words.startswith("precision bf16-mixed") for one in found)
    fp32 = estimate({**table, "train": {**table["train"], "lora_dtype": "fp32"}}).verdict
    assert fp32 is not None
    assert fp32.fits


@pytest.mark.parametrize("gpu", ["h100", "rtx-4090", "mi300x"])
def test_fp8_runs_where_the_card_multiplies_in_it(gpu: str) -> None:
    train = {"method": "lora", "precision": "fp8-mixed", "sequence_length": 128}
    verdict = estimate({"model": "gpt2", "task": "train", "gpu": gpu, "train": train}).verdict
    assert verdict is not None
    assert verdict.fits


def test_leaner_steps_that_keep_the_method_come_before_another_method() -> None:
    """A LoRA whose step is far too large for its card, and which fits there without another method or another card."""
    scenario = Scenario.from_dict({
        "model": LLAMA, "task": "train", "gpu": "rtx-4090",
        "train": {"method": "lora", "micro_batch_size": 2, "sequence_length": 4096},
    })  # fmt: skip
    named = suggestions(scenario, estimate(scenario), estimate)
    assert {"checkpointing": "full", "recompute": (), "loss": "fused-linear"} in [one.change.values for one in named]
    assert all(one.fits for one in named)
    sure = [one for one in named if one.verdict is not None and one.verdict.word == "fits"]
    assert not {"method", "num_gpus"} & set(sure[0].change.values)
    assert sum(one.change.rank == Cost.ANOTHER_METHOD for one in named) == 1


def test_where_the_step_alone_is_too_large_more_gpus_are_named_with_leaner_steps() -> None:
    """70 B in full, 4 × 8,192 tokens: whatever the states are shared over, the step alone is larger than a card."""
    scenario = Scenario.from_dict({
        "model": "meta-llama/Llama-3.1-70B", "task": "train", "gpu": "h100", "num_gpus": 8,
        "train": {"micro_batch_size": 4, "sequence_length": 8192},
    })  # fmt: skip
    more = [one for one in suggestions(scenario, estimate(scenario), estimate) if "num_gpus" in one.change.values]
    assert [one.fits for one in more] == [True]
    assert more[0].change.values.items() >= {"micro_batch_size": 1, "loss": "fused-linear"}.items()


@pytest.mark.parametrize(
    ("model", "task", "settings"),
    [
        ("01-ai/Yi-34B-200K", "serve", {"engine": "sglang"}),
        ("llama-3.1-70b", "serve", {"engine": "vllm"}),
        ("llama-3.1-70b", "train", {}),
    ],
)
def test_unequal_cards_by_name_are_all_that_there_are(model, task, settings):
    """More of them would contradict the list: each command is read, and no reason names ranks that have no card."""
    scenario = Scenario.from_dict({"model": model, "task": task, "gpus": ["a100-sxm-80gb", "rtx-4090"], task: settings})
    result = estimate(scenario)
    assert not any(f"tensor_parallel_size to {ranks}" in one for ranks in (4, 8) for one in result.verdict.reasons)
    for one in suggestions(scenario, result, estimate):
        assert one.change.values.get("num_gpus", 2) == 2
        Scenario.from_dict(one.change.of(scenario).to_dict())


def test_leaner_steps_of_shorter_texts_come_before_further_cards() -> None:
    """32B with 4-bit weights on 24 GB: checkpointing and a fused loss miss by 0.03 GiB, with half the text they fit."""
    scenario = Scenario.from_dict(
        {"model": "Qwen/Qwen3-32B", "task": "train", "gpu": "rtx-4090", "train": {"method": "qlora"}}
    )
    found = suggestions(scenario, estimate(scenario), estimate)
    here = [one for one in found if "num_gpus" not in one.change.values]
    assert found[: len(here)] == here
    assert {one.change.values["sequence_length"] for one in here} <= {512, 1024}
    assert all(one.fits and one.change.values["checkpointing"] == "full" for one in here)


def suggested(scenario):
    asked = Scenario.from_dict(scenario)
    return [one.to_dict() for one in suggestions(asked, estimate(asked), estimate)]


def test_another_engine_says_what_it_puts_on_the_host():
    scenario = {"model": "deepseek-v3", "task": "serve", "gpu": "4060"}
    (llama_cpp,) = [one for one in suggested(scenario) if "engine" in one["change"]]
    assert llama_cpp["cost"].endswith("; 376.00 GiB of host memory on a node")
    (whole,) = [one for one in estimate(scenario | {"model": "llama-3.1-8b"}).suggestions if "engine" in one["change"]]
    assert whole["cost"] == "another engine, one request at a time"


def test_what_a_change_costs_is_said_in_chinese_too():
    """Costs that stand whole in the code: those made of numbers are held by the screens' own tests."""
    catalog = json.loads((resources.files("vramwise.web") / "page/i18n/sentences.zh.json").read_text("utf-8"))
    tables = [cost for cost, _ in _COST_OF_ADVICE.values()]
    costs = [*tables, FLASH.cost, "experts in 4 bit too"]
    assert [cost for cost in costs if cost != "none" and cost not in catalog] == []
