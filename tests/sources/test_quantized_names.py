"""Checkpoints whose names say how their weights are quantized."""

from __future__ import annotations

import pytest

from vramwise import estimate
from vramwise.errors import SourceError
from vramwise.sources import resolve


@pytest.mark.parametrize(
    ("name", "base", "method"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct", "awq"),
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "mistralai/Mistral-7B-v0.1", "gptq"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "meta-llama/Meta-Llama-3.1-8B-Instruct", "awq"),
        ("unsloth/meta-llama-3.1-8b-instruct-bnb-4bit", "meta-llama/Meta-Llama-3.1-8B-Instruct", "bitsandbytes"),
        ("nobody/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.3-70B-Instruct", "fbgemm_fp8"),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "Qwen/Qwen3-14B", "bitsandbytes"),
        ("unsloth/gemma-3-4b-it-unsloth-bnb-4bit", "google/gemma-3-4b-it", "bitsandbytes"),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "meta-llama/Llama-3.3-70B-Instruct", "modelopt"),
        ("nvidia/DeepSeek-R1-0528-FP4", "deepseek-ai/DeepSeek-R1-0528", "modelopt"),
        ("Intel/Qwen3-30B-A3B-Instruct-2507-int4-AutoRound", "Qwen/Qwen3-30B-A3B-Instruct-2507", "gptq"),
        ("casperhansen/llama-3-70b-instruct-awq", "meta-llama/Meta-Llama-3-70B-Instruct", "awq"),
        ("TheBloke/Llama-2-13B-chat-GPTQ", "meta-llama/Llama-2-13b-chat-hf", "gptq"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "fp8"),
        ("nobody/NVIDIA-Nemotron-3-Nano-30B-A3B-AWQ", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "awq"),
        ("google/gemma-4-31B-it-qat-w4a16-ct", "google/gemma-4-31B-it", "compressed-tensors"),
        ("Qwen/Qwen3.5-35B-A3B-GPTQ-Int4", "Qwen/Qwen3.5-35B-A3B", "gptq"),
        ("cyankiwi/Qwen3.5-9B-AWQ-4bit", "Qwen/Qwen3.5-9B", "compressed-tensors"),
        ("cyankiwi/Qwen3.6-27B-AWQ-INT4", "Qwen/Qwen3.6-27B", "compressed-tensors"),
        ("cpatonn/Qwen3-30B-A3B-Thinking-2507-AWQ-4bit", "Qwen/Qwen3-30B-A3B-Thinking-2507", "awq"),
        ("ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "google/gemma-3-27b-it", "gptq"),
    ],
)
def test_the_name_says_model_and_format(name: str, base: str, method: str) -> None:
    found = resolve(name)
    assert found.id == name
    assert found.config["quantization_config"]["quant_method"] == method
    assert {**found.config, "quantization_config": None} == {**resolve(base).config, "quantization_config": None}
    assert found.note is not None
    assert base in found.note


@pytest.mark.parametrize(("size", "gib"), [("27B", 27.51), ("35B-A3B", 21.05)])
def test_qwens_own_4_bits_leave_attention_as_it_is(size: str, gib: float) -> None:
    """What vLLM loads of them; all layers in 4 bits would be 19.3 GiB of the larger."""
    model = f"Qwen/Qwen3.5-{size}-GPTQ-Int4"
    found = estimate(
        {"model": model, "task": "serve", "gpu": "h200", "serve": {"engine": "vllm", "engine_version": "0.18.0"}}
    )
    assert found.quantities["weights"].expected / 2**30 == pytest.approx(gib, rel=0.01)


def test_cyankiwi_stores_groups_of_32() -> None:
    """7.55 GiB of Qwen3.5-9B-AWQ-4bit in vLLM, without its tower: 7.26 would be groups of 128."""
    serve = {"engine": "vllm", "engine_version": "0.30.0", "limit_mm_per_prompt": {"image": 0, "video": 0}}
    found = estimate(
        {"model": "cyankiwi/Qwen3.5-9B-AWQ-4bit", "task": "serve", "gpu": "RTX 5060 Ti 16GB", "serve": serve}
    )
    assert found.quantities["weights"].expected / 2**30 == pytest.approx(7.55, abs=0.02)


def test_a_dynamic_quant_says_that_some_layers_are_wider() -> None:
    note = resolve("unsloth/Qwen3-14B-unsloth-bnb-4bit").note
    assert note is not None
    assert "some layers in 16 bit" in note
    assert "some layers" not in str(resolve("unsloth/Meta-Llama-3.1-8B-bnb-4bit").note)


@pytest.mark.parametrize("name", ["Qwen3VL-8B-Instruct", "qwen3vl 8b instruct"])
def test_words_that_run_together_name_the_same_model(name: str) -> None:
    """`Qwen3VL-8B-Instruct-Q8_0.gguf` is a file of Qwen/Qwen3-VL-8B-Instruct-GGUF."""
    assert resolve(name).id == "Qwen/Qwen3-VL-8B-Instruct"


@pytest.mark.parametrize("ending", ["4bit", "4bit-DWQ", "4bit-DWQ-053125"])
def test_names_of_mlx_may_say_how_the_bits_were_learned(ending: str) -> None:
    """mlx_lm.dwq of mlx-lm 0.32 stores what mlx_lm.convert does: groups of 64."""
    found = resolve(f"mlx-community/Qwen3-30B-A3B-{ending}").config["quantization_config"]
    assert found == {"group_size": 64, "bits": 4}


def test_a_format_behind_an_unknown_name_is_no_model() -> None:
    with pytest.raises(SourceError, match="unknown model"):
        resolve("nobody/nothing-AWQ")


def test_weights_as_vllm_prints_them() -> None:
    """ "Loading model weights took 5.2032 GB", Qwen2.5 7B Instruct AWQ, vllm-project/vllm issue #13882."""
    serve = {"engine": "vllm", "engine_version": "0.7.3", "max_model_len": 4096}
    scenario = {"model": "Qwen/Qwen2.5-7B-Instruct-AWQ", "task": "serve", "gpu": "rtx-4090", "serve": serve}
    assert estimate(scenario).quantities["weights"].expected == pytest.approx(5.2032 * 2**30, rel=0.002)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        # experts were linear layers when bitsandbytes met them (transformers 4.57): about 17 GB, and 26 GB of Mixtral
        ("unsloth/Qwen3-30B-A3B-bnb-4bit", 15.5, 17.0),
        ("unsloth/Mixtral-8x7B-Instruct-v0.1-bnb-4bit", 22.5, 25.0),
        # Unsloth rewrote the class for its files: QLoRA is documented to fit 14 GB
        ("unsloth/gpt-oss-20b-unsloth-bnb-4bit", 11.0, 13.5),
        # one 3-D parameter from the start, which bitsandbytes passes over (unslothai/unsloth#5432: about 46 GB)
        ("unsloth/gemma-4-26B-A4B-it-bnb-4bit", 42.0, 47.0),
    ],
)
def test_experts_of_checkpoints_that_bitsandbytes_wrote(name: str, least: float, most: float) -> None:
    weights = estimate({"model": name, "task": "load"}).quantities["weights"].expected
    assert least < weights / 2**30 < most
