"""The cache specification equals what the real classes hold after a prefill and a token more, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from config_strategies import STRATEGIES
from hypothesis import HealthCheck, Phase, given, seed, settings
from real_caches import real_cache
from transformers_models import model_config

from by_turns import has_turn, is_thorough
from vramwise import estimate
from vramwise.models import Model, describe
from vramwise.models.operations.hyper import CompressTokens
from vramwise.serving.transformers.dynamic_cache import dynamic_cache

NOT_RUN = {
    **dict.fromkeys(
        ("depth_anything", "owlv2", "owlvit", "sam", "sam2", "segformer", "vitpose"), "takes images and keeps nothing"
    ),
    **dict.fromkeys(("dac", "encodec", "mimi", "xcodec"), "takes sound and keeps nothing"),
    **dict.fromkeys(("bark", "speecht5"), "its parts and their caches are run by loops of the class's own"),
    **dict.fromkeys(("patchtst", "timesfm", "timesfm2_5"), "takes numbers and keeps nothing"),
    "evolla": "takes no text without a protein",
    "blt": "its class hands its cache a config that names no number of layers, and fails",
    "blip-2": "takes no text without images",
    "instructblip": "takes no text without images",
    "instructblipvideo": "takes no text without images",
    "colpali": "keeps nothing that a token after it would read",
    "colqwen2": "keeps nothing that a token after it would read",
    "shieldgemma2": "its class predicts no tokens; the model inside is a type of its own",
    "convnext": "takes images and keeps nothing",
    "convnextv2": "takes images and keeps nothing",
    "siglip2": "takes images beside the text and keeps nothing",
    "voxtral_realtime": "takes no text without sound",
    "dinov2": "takes images and keeps nothing",
    "dinov2_with_registers": "takes images and keeps nothing",
    "dinov3_vit": "takes images and keeps nothing",
    "clip": "takes images beside the text and keeps nothing",
    "cpmant": "its prompts shift the ids of tiny vocabularies out of range",
    "hubert": "takes sound and keeps nothing",
    "parakeet_ctc": "takes sound and keeps nothing",
    "wav2vec2": "takes sound and keeps nothing",
    "musicgen_melody": "the class puts sounds before the tokens and hands no encoder output on",
    "qwen2_5_omni": "the class has no forward pass of its own; its thinker is a type of its own",
    "qwen3_omni_moe": "the class has no forward pass of its own; its thinker is a type of its own",
    "granite4_vision": "the class makes no cache of its own; `generate` hands it one",
    "siglip": "takes images beside the text and keeps nothing",
    "switch_transformers": "the class hands `use_cache` to its encoder, which refuses it",
    "vit": "takes images and keeps nothing",
    "xlm": "the class makes a cache in every pass and hands none on",
}
"""Types that no text runs through."""
FP32_ONLY = frozenset({"deberta", "inkling2", "inkling2_text", "musicgen", "xlnet"})
"""Classes that mix fp32 buffers into bf16 products, or whose parts stay fp32."""
BATCH, PROMPT = 2, 7
THOROUGHLY = settings.get_profile("thorough").max_examples
DRAWN = THOROUGHLY if is_thorough() else 10


def wanted(model_type: str) -> int:
    """How many of them the class has to run, the first in bf16, the second in fp32."""
    if is_thorough():
        return THOROUGHLY // 2
    return 2 if has_turn(model_type, 3) else 1


def drawn_configs(model_type: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    @seed(7)
    @settings(
        max_examples=DRAWN, deadline=None, phases=(Phase.generate,), database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(STRATEGIES[model_type]())
    def take(config: dict[str, Any]) -> None:
        found.append(config)

    take()
    return found


def described_bytes(model: Model, tokens: int, source: int, dtype: Any, *, prefill: bool) -> int:
    size = dtype.itemsize
    shapes = dynamic_cache(model)
    return BATCH * sum(shape.bytes(tokens, source, size, size, cut_to_window=not prefill) for shape in shapes)


def with_all_heads(config: dict[str, Any]) -> dict[str, Any]:
    """Latent attention makes keys for every head; some classes repeat them where the config has fewer, and fail."""
    if "kv_lora_rank" in config and "num_key_value_heads" in config:
        return {**config, "num_key_value_heads": config["num_attention_heads"]}
    return config


def runs(model: Model) -> bool:
    """Whether the real class can run the config.

    Caches without one layer of attention have no length that masks could be made of. DeepSeek V4's compressed layers
    hold a remainder of projections besides, which is not counted.
    """
    kinds = {cache.kind for cache in model.caches}
    compressed = any(True for _ in model.operations(CompressTokens))
    return not compressed and (kinds != {"recurrent"} or model.config.model_type in ALL_RECURRENT)


ALL_RECURRENT = frozenset({"falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"})


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", sorted(set(STRATEGIES) - set(NOT_RUN)))
def test_bytes_of_the_real_cache(model_type: str) -> None:
    matched = 0
    refused: list[str] = []
    for config in drawn_configs(model_type):
        full = {**model_config(with_all_heads(config)).to_dict(), "model_type": model_type}
        model = describe(full)
        if not runs(model):
            continue
        head = "causal-lm" if model.head == "masked-lm" and model.caches else model.head
        dtype = torch.float32 if model_type in FP32_ONLY or matched % 2 else torch.bfloat16
        try:
            real = real_cache(full, head, dtype, batch=BATCH, sequence=PROMPT)
        except (IndexError, RuntimeError, ValueError, ZeroDivisionError) as problem:
            refused.append(repr(problem))
            continue
        source = real.source_tokens
        if model_type != "recurrent_gemma":  # its first state is a column short of all later ones
            assert described_bytes(model, PROMPT, source, dtype, prefill=True) == real.after_prefill, config
        assert described_bytes(model, PROMPT + 1, source, dtype, prefill=False) == real.after_one_more, config
        if not matched and not source and model.caches:
            assert generated_bytes(full, dtype) == real.after_one_more, config
        matched += 1
        if matched == wanted(model_type):
            break
    assert matched, refused


def generated_bytes(config: dict[str, Any], dtype: Any) -> int:
    """`kv_cache_bytes` of `task: generate` when the second of two new tokens is made."""
    settings = {
        "dtype": "bf16" if dtype is torch.bfloat16 else "fp32", "batch_size": BATCH, "prompt_tokens": PROMPT,
        "new_tokens": 2,
    }  # fmt: skip
    result = estimate({"model": json.loads(json.dumps(config, default=str)), "task": "generate", "generate": settings})
    return int(result.quantities["kv_cache_bytes"].expected)


def test_reasons_name_types() -> None:
    assert set(NOT_RUN) <= set(STRATEGIES)
