"""DeepSeek-OCR, 1 and 2: Segment Anything's encoder, a second one over its result, a product, and a small mixture.

Both towers are built without a config: their sizes are those of the code that comes with deepseek-ai/DeepSeek-OCR and
DeepSeek-OCR-2, as vLLM 0.33.0 has it (`models/deepencoder.py`, `models/deepencoder2.py`). The second is CLIP's large
one without its last norm, whose patches are the first's result, or the layers of Qwen2 0.5B with learned queries. The
language model is DeepSeek's first mixture; its sizes stand in `language_config` or beside it. Not counted: what
training on images keeps.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.deepseek_vl import high_config
from vramwise.models.families.language import language_blocks
from vramwise.models.families.nested import language_model, under
from vramwise.models.operations.simple import Hold
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.clip_vision import clip
from vramwise.models.towers.segment_anything import got_ocr2
from vramwise.models.towers.tower_defaults import DEFAULTS
from vramwise.models.towers.vision_tower import tower_blocks

_CLIP = {
    **DEFAULTS["clip_vision_model"], "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16,
    "num_hidden_layers": 24, "image_size": 224, "patch_size": 14,
}  # fmt: skip
_QWEN = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 1,
}  # fmt: skip
_QUERIES = (("query_768", 144), ("query_1024", 256))


def joined(b: BlockBuilder, name: str, widths: tuple[int, int]) -> None:
    """Two convolutions that each halve the sides of what the first tower makes."""
    inner, out = widths
    weights = [
        b.parameter("net_2", "weight", (inner, 256, 3, 3)), b.parameter("net_3", "weight", (out, inner, 3, 3)),
    ]  # fmt: skip
    b.op(Undescribed(name=name), "", [b.input("image", 256)], [], weights)


def first_tower(c: Config, out: int) -> tuple[Block, ...]:
    """Segment Anything's base encoder, and the convolutions behind it."""
    sizes = high_config(Config({"high_res_vision_config": {"model_type": "sam"}}, c.model_id))
    name = "model.sam_model"
    b = BlockBuilder(name, part="vision", modality="image")
    joined(b, "convolutions over patches", (512, out))
    return (*tower_blocks(sizes, got_ocr2(sizes), name), b.build())


def clip_blocks(c: Config) -> tuple[Block, ...]:
    """CLIP's large encoder without its last norm."""
    sizes = Config(_CLIP, c.model_id)
    tower = replace(clip(sizes), after=(), layers="transformer.layers")
    return tower_blocks(sizes, tower, "model.vision_model")


def qwen_blocks(c: Config) -> tuple[Block, ...]:
    """The layers and the last norm of Qwen2 0.5B over patches, in the place of an embedding, and 144 or 256 queries."""
    _, *layers, last = language_model(Config(_QWEN, c.model_id), under("model.qwen2_model.model"))
    b = BlockBuilder("model.qwen2_model", part="vision", modality="image")
    queries = [b.parameter(name, "weight", (count, 896)) for name, count in _QUERIES]
    norm = [parameter for parameter in last.parameters if parameter.part == "norm"]
    b.op(Undescribed(name="queries behind patches"), "", [], [], [*queries, *norm])
    return (b.build(), *(replace(layer, modality="image", layer=None, caches=()) for layer in layers))


def bridge(c: Config, given: int, width: int) -> Block:
    """The product to the language model's width, the learned ends of rows and of views."""
    b = BlockBuilder("model", part="projector", modality="image")
    x = b.linear(b.input("image", given), "projector.layers", width, bias=True)
    names = ("view_seperator",) if c.model_type == "deepseekocr_2" else ("image_newline", "view_seperator")
    ends = [b.parameter("", name, (width,)) for name in names]
    return b.build(image=b.unary(Hold(), x, "", ends))


def blocks(c: Config) -> tuple[Block, ...]:
    """Towers and product, which run only for batches with images, and the language model."""
    second = c.model_type == "deepseekocr_2"
    given = c.table("language_config") or c
    if given.flag("use_mla", True):
        raise c.error("language_config: use_mla: DeepSeek-OCR's language model has no latent attention")
    text = Config({**given.values, "model_type": "deepseek"}, c.model_id)
    width, out = text.hidden_size, 896 if second else 1024
    behind = qwen_blocks(c) if second else clip_blocks(c)
    projected = out if second else 2 * out  # both towers' results side by side
    language = language_blocks(text, "model", tied=text.flag("tie_word_embeddings"))
    return (*first_tower(c, out), *behind, bridge(c, projected, width), *language)
