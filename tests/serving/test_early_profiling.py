"""Profile runs of vLLM's first engine: images across, sequences that carry images, blocks that wait for all-reduces."""

from __future__ import annotations

from typing import Any

from vramwise.estimation import estimate, model_of
from vramwise.hardware.lookup import find_gpu
from vramwise.result import Node, Result
from vramwise.scenario import Scenario
from vramwise.serving.vllm.early_profiling import profiled_sequences
from vramwise.serving.vllm.settings import resolve_settings
from vramwise.sources import resolve

GIB = 1 << 30


def served(model: Any, version: str, gpu: str = "a100-sxm-80gb", **settings: Any) -> Result:
    ranks = settings.get("tensor_parallel_size", 1)
    serve = {"engine": "vllm", "engine_version": version, **settings}
    return estimate({"model": model, "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": serve})


def profiled(result: Result) -> list[Node]:
    run = next(phase for phase in result.phases if phase.name == "profile run").components
    found, open_nodes = [], [run]
    while open_nodes:
        found.append(open_nodes.pop())
        open_nodes += found[-1].children
    return found


def test_llama_3_2_vision_profiles_an_image_of_every_sequence() -> None:
    config = dict(resolve("meta-llama/Llama-3.2-11B-Vision-Instruct").config)
    config["vision_config"] = {**config["vision_config"], "image_size": 448}  # the base model's
    result = served(config, "0.6.6", max_model_len=65536, max_num_seqs=128, enforce_eager=True, dtype="bf16")
    # by hand, a patch: 16 hidden states of 1,280 and two inner values of 5,120 in 16 bits, a row of the mask over the
    # 4 tiles of 32 * 32 + 1 patches (padded to 1,032), 3 * 14 * 14 values of the image in 32 bits
    patches = 4 * 1032
    by_hand = 128 * patches * (2 * (16 * 1280 + 2 * 5120 + patches) + 4 * 3 * 14 * 14)
    assert next(node.bytes for node in profiled(result) if node.name == "profile run: encoder") == by_hand
    # vllm-project/vllm PR #12126: "PyTorch activation peak memory takes 36.63GiB"
    assert abs(result.quantities["activation_peak"].expected / GIB - 36.63) < 0.05 * 36.63


def test_fewer_sequences_of_llama_3_2_vision_take_as_much_less() -> None:
    few, many = (
        served("meta-llama/Llama-3.2-11B-Vision-Instruct", "0.8.5 (V0)", max_model_len=8192, max_num_seqs=count)
        for count in (8, 16)
    )
    assert abs(many.quantities["activation_peak"].expected / few.quantities["activation_peak"].expected - 2) < 0.05


def test_sequences_that_carry_images_are_as_few_as_their_tokens_allow() -> None:
    def sequences(version: str, **settings: Any) -> int:
        scenario = Scenario.from_dict({
            "model": "llava-hf/llava-1.5-7b-hf", "task": "serve", "gpu": "a100-sxm-80gb",
            "serve": {"engine": "vllm", "engine_version": version, "max_num_batched_tokens": 5760, **settings},
        })  # fmt: skip
        _, model = model_of(scenario)
        return profiled_sequences(model, resolve_settings(scenario, model, find_gpu("a100-sxm-80gb").gpu))

    # 576 tokens of an image: 5,760 // 576, and // (2 * 576)
    assert sequences("0.7.3") == 10
    assert sequences("0.7.3", limit_mm_per_prompt={"image": 2}) == 5
    assert sequences("0.7.3", max_num_seqs=4) == 4
    assert sequences("0.7.3", limit_mm_per_prompt={"image": 20}) == 1
    assert sequences("0.11.0") == 256


def test_up_to_0_2_4_nothing_outside_torch_is_charged_and_then_the_context_too() -> None:
    before, after, later = (
        served("meta-llama/Llama-2-7b-hf", version).quantities["kv_cache_blocks"].expected
        for version in ("0.2.4", "0.2.5", "0.3.1")
    )
    # vllm-project/vllm PR #2031 on an A100 of 80 GB: 7,449 blocks before it, 7,351 with it
    assert abs(before - 7449) <= 0.01 * 7449
    assert abs(after - 7351) <= 0.01 * 7351
    assert after < later < before


def test_all_reduces_of_0_2_5_keep_their_outputs_until_the_host_has_seen_them() -> None:
    def waiting(version: str, ranks: int) -> list[int]:
        result = served("meta-llama/Llama-2-70b-hf", version, tensor_parallel_size=ranks)
        return [node.bytes for node in profiled(result) if node.name == "outputs that wait for all-reduces"]

    assert waiting("0.2.5", 4) == [(2 * 80 + 1) * 4096 * 8192 * 2]
    assert waiting("0.2.4", 4) == waiting("0.2.6", 4) == []
