"""The language model inside a model that also reads images or sound: its own family's blocks under other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, language_model
from vramwise.models.layers.text_defaults import TEXT_DEFAULTS
from vramwise.models.operations.attention import Rotary

_SAME_DECODER = {
    "glm4v_moe_text": "glm4_moe", "glm4v_text": "glm4", "glm_ocr_text": "glm4", "hunyuan_vl_text": "hunyuan_v1_dense",
    "paddleocr_vl_text": "ernie4_5",
    "qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen2_5_omni_text": "qwen2", "qwen3_vl_text": "qwen3",
    "qwen3_omni_moe_text": "qwen3_moe", "qwen3_vl_moe_text": "qwen3_moe",
}  # fmt: skip
"""Text configs of models with images -> the `model_type` whose decoder they have, with positions of three axes."""
_FORMER_NAMES = {
    "exaone4_5_text": "exaone4", "granite4_vision_text": "granite", "granite_docling_text": "granite",
    "hy_v4_vl_text": "hy_v4",
}  # fmt: skip
"""Text types that checkpoints name and their class takes for another."""
_NEVER_SLIDES = frozenset({"qwen3_omni_moe_text", "qwen3_vl_text", "qwen3_vl_moe_text"})


def text_config(c: Config, default_type: str, absent: Mapping[str, object]) -> Config:
    """The text config with its class's defaults; of a model without one, the keys of its flat config over `absent`."""
    text = c.table("text_config") or Config({**absent, **c.values, "model_type": default_type}, c.model_id)
    own = text.model_type or default_type
    model_type = _FORMER_NAMES.get(own, own)
    filled = text.filled(TEXT_DEFAULTS.get(own, TEXT_DEFAULTS.get(model_type, {}))).values
    values = {**text.values, **filled, "model_type": model_type}
    if model_type in _NEVER_SLIDES:
        values["use_sliding_window"] = False
    return Config(values, c.model_id)


def language_blocks(
    text: Config, name: str, *, tied: bool, head: str = "lm_head", capped: bool = False
) -> tuple[Block, ...]:
    """The blocks of a text config's family, its inner model named `name`, its head `head`, bare unless `capped`."""
    decoder = _SAME_DECODER.get(text.model_type, text.model_type)
    inner = Config(
        {**text.values, "model_type": decoder, "tie_word_embeddings": tied, "tie_embedding": None}, text.model_id
    )
    place = inside(name)
    blocks = language_model(inner, lambda old: place(old).replace("lm_head", head, 1))
    if text.model_type in _SAME_DECODER:
        blocks = tuple(_with_tables_by_row(block) for block in blocks)
    return blocks if capped else (*blocks[:-1], _bare_head(blocks[-1]))


def _with_tables_by_row(block: Block) -> Block:
    """Positions of time, height and width come for every sequence of the batch, and so do their rotary tables."""
    ops = (replace(op, table="rows") if isinstance(op, Rotary) else op for op in block.ops)
    return replace(block, ops=tuple(ops))


def _bare_head(block: Block) -> Block:
    """The norm and one product without bias: most of these models neither scale nor cap their logits."""
    last = next(i for i, op in enumerate(block.ops) if any(p.part == "head" for p in op.parameters))
    head = replace(block.ops[last], parameters=block.ops[last].parameters[:1])
    return replace(block, ops=(*block.ops[:last], head), outputs={"logits": head.outputs[0]})
