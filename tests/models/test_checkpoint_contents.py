"""What files hold beyond the model: against published totals of safetensors files and the real classes' buffers."""

from __future__ import annotations

import json

import pytest

from vramwise.cli.main import main
from vramwise.models import describe
from vramwise.models.type_facts import types_with
from vramwise.serving.common.checkpoint import file_contents
from vramwise.sources import resolve

# Totals of all tensors that the Hub shows for the safetensors files, as public tables and logs quote them.
FILES = {
    "Qwen/Qwen3.5-122B-A10B": 125_086_497_008,
    "Qwen/Qwen3.5-27B": 27_781_427_952,
    "Qwen/Qwen3.5-35B-A3B": 35_951_822_704,
    "Qwen/Qwen3.5-397B-A17B": 403_397_928_944,
    "deepseek-ai/DeepSeek-V3": 684_531_386_000,  # one layer more, two tied copies, buffers, scales of fp8 by block
    "deepseek-ai/DeepSeek-V3.2": 685_396_921_376,
    "google/flan-t5-base": 247_577_856,  # a head of its own, which transformers 5 ties
    "google/flan-t5-large": 783_150_080,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "zai-org/GLM-4.5-Air": 110_468_824_832,
    "zai-org/GLM-5-FP8": 753_910_024_032,  # without copies of embedding and head
}


WITH_BUFFERS = frozenset().union(
    *(types_with("any", fact) for fact in ("corrected_routers", "biased_logits", "layer_scalars"))
)


@pytest.mark.parametrize("name", FILES)
def test_values_in_the_files(name: str) -> None:
    files = file_contents(describe(resolve(name).config, name))
    assert files.num_values == FILES[name]
    assert files.num_values == files.in_the_model + sum(files.beyond_the_model().values())


def test_falcon_keeps_its_tied_head_twice() -> None:
    files = file_contents(describe(resolve("tiiuae/falcon-7b").config))
    assert (files.num_values, files.with_tied_copies) == (6_921_720_704, 7_217_189_760)


def test_gemma_3n_keeps_keys_that_no_layer_reads() -> None:
    """The Hub shows 5.98 B and 8.39 B values for E2B and E4B (ollama pull request 11286), tied copies included."""
    small = {"num_hidden_layers": 30, "intermediate_size": 8192, "num_kv_shared_layers": 10}
    for text, shown in ((small, 5.98), ({}, 8.39)):
        files = file_contents(describe({"model_type": "gemma3n", "text_config": text}))
        layers = text.get("num_kv_shared_layers", 15)
        assert files.unread == layers * (2 * 2 * 256 * 2048 + 256)
        assert round(files.with_tied_copies / 1e9, 2) == shown


def test_what_no_rule_counts_is_said() -> None:
    config = {**resolve("mistralai/Mistral-7B-v0.1").config, "num_nextn_predict_layers": 2}
    assert file_contents(describe(config)).unknown == "2 layers that predict further tokens"
    config["quantization_config"] = {"quant_method": "no-such-method"}
    assert "is not described yet" in file_contents(describe(config)).unknown


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", sorted(WITH_BUFFERS | {"llama", "qwen3"}))
def test_buffers_are_those_of_the_state_dict(model_type: str) -> None:
    pytest.importorskip("transformers")
    from config_strategies import STRATEGIES
    from hypothesis import HealthCheck, given, settings
    from transformers_models import model_config, real_model

    if model_type not in STRATEGIES:
        pytest.skip("its class came with the checkpoint")

    @settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(STRATEGIES[model_type]())
    def same(config: dict[str, object]) -> None:
        full = {**model_config(config).to_dict(), "model_type": model_type}
        for key in ("num_nextn_predict_layers", "quantization_config"):
            full.pop(key, None)
        model = describe(full)
        real = real_model(full, model.head)
        own = {name for name, _ in real.named_parameters(remove_duplicate=False)}
        buffers = sum(tensor.numel() for name, tensor in real.state_dict().items() if name not in own)
        assert file_contents(model).buffers == buffers

    same()


def test_the_overview_shows_both_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "deepseek-v3", "--style", "table"]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "671,026,404,352 parameters" in screen
    assert (
        "684,531,386,000 values in the files: the model and layers that predict further tokens 13,463,426,048" in screen
    )
    assert main(["estimate", "gpt2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["files"]["with_tied_copies"] == 124_439_808 + 50257 * 768
    assert sum(answer["parts"].values()) == answer["num_parameters"]
