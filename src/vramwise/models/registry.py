"""A config's model by the family file of its type, which is imported when it is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module

from vramwise.errors import UndescribedTypeError, clipped, nearest
from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.family_of_type import FAMILY_OF_TYPE
from vramwise.models.model import Model

_SAME_TYPE = {"deepseek_ref": "deepseek_v4", "new": "gte"}
"""Other names of a type, as SGLang's copies of DeepSeek V4 and GTE's own code have."""
_TYPE_OF_CLASS = {"MiniCPM3ForCausalLM": "minicpm3"}
"""The type of configs that name only their class."""
_OTHER_TYPE_OF_CLASS = {
    ("bailing_hybrid", "BailingMoeV2_5ForCausalLM"): "bailing_moe_linear",
    ("deepseek_vl_v2", "DeepseekOCR2ForCausalLM"): "deepseekocr_2",
    ("deepseek_vl_v2", "DeepseekOCRForCausalLM"): "deepseek_ocr",
    ("hunyuan", "HunYuanMoEV1ForCausalLM"): "hunyuan_v1_moe",
}
"""The type of classes whose `model_type` is another class's too, or says less."""


def supported_types() -> tuple[str, ...]:
    """Every `model_type` whose family is described, those of plug-ins last."""
    return (*FAMILY_OF_TYPE, *_families_of_plugins())


def family_module(model_type: str) -> str | None:
    """The module that describes a `model_type`: of this package, else of a plug-in; None where none does."""
    family = FAMILY_OF_TYPE.get(model_type)
    if family is not None:
        return f"vramwise.models.families.{family}"
    return _families_of_plugins().get(model_type) if model_type else None


def _families_of_plugins() -> dict[str, str]:
    from vramwise import plugins

    return plugins.families(FAMILY_OF_TYPE)


def describe(config: Mapping[str, object], model_id: str = "") -> Model:
    """The model of a `config.json`, as blocks of operations.

    Raises `UndescribedTypeError` for a `model_type` that no family describes yet and `SourceError` for values that
    cannot be a model's. The answer is cached by the config's content.
    """
    try:
        key = json.dumps(config, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as problem:
        raise Config({}, model_id).error(f"not JSON data ({problem})") from None
    return _described(key, model_id)


def _typed(c: Config) -> Config:
    """The config under the type's own name; one without `model_type` is known by its class."""
    names = c.get("architectures")
    classes = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    found = c.model_type or next((_TYPE_OF_CLASS[name] for name in classes if name in _TYPE_OF_CLASS), "")
    others = (_OTHER_TYPE_OF_CLASS.get((found, name)) for name in classes)
    found = next((other for other in others if other), _SAME_TYPE.get(found, found))
    return c if found == c.model_type else Config({**c.values, "model_type": found}, c.model_id)


@lru_cache(maxsize=512)
def _described(key: str, model_id: str) -> Model:
    config = _typed(Config(json.loads(key), model_id))
    model_type = config.model_type
    described_in = family_module(model_type)
    if described_in is None:
        given = f'model_type "{clipped(model_type)}"' if model_type else _without_type(config)
        raise UndescribedTypeError(model_id, given, likely_type(config), brings_code=config.has("auto_map"))
    module = import_module(described_in)
    blocks = module.blocks(config)
    _check_shapes(blocks, config)
    head = module.task(config) if hasattr(module, "task") else getattr(module, "HEAD", "causal-lm")
    head = head if "logits" in blocks[-1].outputs else "none"
    loss = module.loss(config) if hasattr(module, "loss") else ""
    not_counted = module.not_counted(config) if hasattr(module, "not_counted") else ""
    counted_as = module.counted_as(config) if hasattr(module, "counted_as") else ""
    return Model(model_id, described_in.rpartition(".")[2], config, blocks, head, loss, not_counted, counted_as)


def _without_type(c: Config) -> str:
    """What a config of another library calls itself."""
    for key, what in (("_class_name", "the Diffusers class"), ("architecture", "the timm architecture")):
        if isinstance(c.get(key), str) and c.get(key):
            return f'{what} "{clipped(c.get(key))}"'
    return "a config without model_type"


def likely_type(c: Config) -> str | None:
    """The described type whose name begins with the same word, else the plainest one with the same kinds of layers.

    None for what has no layers of a decoder of text: an image classifier, a pipeline.
    """
    family = _first_word(c.model_type)
    close = nearest(c.model_type, [name for name in FAMILY_OF_TYPE if family and _first_word(name) == family], n=1)
    if close:
        return close[0]
    if c.has("kv_lora_rank"):
        return "deepseek_v3"
    if any(c.has(key) for key in ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")):
        return "qwen3_moe"
    return "llama" if all(any(c.has(key) for key in keys) for keys in _OF_A_DECODER) else None


_OF_A_DECODER = (
    ("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"),
    ("vocab_size",),
)  # fmt: skip


def _first_word(model_type: str) -> str:
    found = re.match(r"[a-z]+", model_type.lower())
    return found[0] if found else ""


def _check_shapes(blocks: tuple[Block, ...], config: Config) -> None:
    """Sizes that are worked out of several values can come to nothing although each value is one."""
    for block in blocks:
        for parameter in block.parameters:
            if min(parameter.shape, default=1) < 1:
                raise config.error(f"{parameter.name} would have the shape {parameter.shape}")
