"""Which family file describes which `model_type`; the file is imported when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from vramwise.errors import UnsupportedModelError, nearest
from vramwise.models.config import Config
from vramwise.models.model import Model

FAMILY_OF_TYPE: dict[str, str] = {
    "bert": "bert",
    "bloom": "bloom",
    "cohere": "variants",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek",
    "distilbert": "distilbert",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3": "gemma",
    "gemma3_text": "gemma",
    "glm": "variants",
    "glm4": "variants",
    "gpt2": "gpt2",
    "gpt_neo": "gpt_neo",
    "gpt_bigcode": "gpt_bigcode",
    "gpt_neox": "gpt_neox",
    "gpt_oss": "gpt_oss",
    "gptj": "gptj",
    "granite": "variants",
    "helium": "variants",
    "kimi_k2": "deepseek",
    "llama": "llama",
    "mamba": "mamba",
    "mistral": "llama",
    "mixtral": "moe",
    "mpt": "mpt",
    "nemotron": "variants",
    "olmo": "variants",
    "olmo2": "variants",
    "olmoe": "moe",
    "opt": "opt",
    "phi": "variants",
    "phi3": "variants",
    "qwen2": "llama",
    "qwen2_moe": "moe",
    "qwen3": "llama",
    "qwen3_moe": "moe",
    "roberta": "bert",
    "t5": "t5",
    "smollm3": "variants",
    "stablelm": "variants",
    "starcoder2": "variants",
}
"""`model_type` of a config -> module of `vramwise.models.families`."""


def supported_types() -> tuple[str, ...]:
    """Every `model_type` whose family is described."""
    return tuple(FAMILY_OF_TYPE)


def describe(config: Mapping[str, Any], model_id: str = "") -> Model:
    """The model of a `config.json`, as blocks of operations.

    Raises `UnsupportedModelError` for a `model_type` that no family describes yet and `SourceError` for values that
    cannot be a model's. The answer is cached by the config's content.
    """
    try:
        key = json.dumps(config, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Config({}, model_id).error(f"not JSON data ({problem})") from None
    return _described(key, model_id)


@lru_cache(maxsize=512)
def _described(key: str, model_id: str) -> Model:
    config = Config(json.loads(key), model_id)
    model_type = config.model_type
    family = FAMILY_OF_TYPE.get(model_type)
    if family is None:
        close = nearest(model_type, FAMILY_OF_TYPE)
        hint = f"; the nearest described types are {', '.join(close)}" if close else ""
        given = f'model_type "{model_type}"' if model_type else "a config without model_type"
        raise UnsupportedModelError(f"{model_id or 'model'}: {given} is not described yet{hint}")
    module = import_module(f"vramwise.models.families.{family}")
    blocks = module.blocks(config)
    head = getattr(module, "HEAD", "causal-lm") if "logits" in blocks[-1].outputs else "none"
    return Model(model_id, family, config, blocks, head)
