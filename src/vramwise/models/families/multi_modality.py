"""DeepSeek-VL and Janus in their own code: towers known by name, a projector, a Llama, and Janus's image maker.

Sizes are those of deepseek-ai/DeepSeek-VL, models/siglip_vit.py and sam.py; tensors have the names of transformers'
classes below the modules of that code, whose files hold a tower's queries, keys and values as one tensor.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families import deepseek_vl, janus
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.families.nested import renamed
from vramwise.models.operations.simple import Hold
from vramwise.models.towers import siglip_vision
from vramwise.models.towers.janus_vision import generation_blocks
from vramwise.models.towers.siglip_by_name import siglip
from vramwise.models.towers.vision_tower import tower_blocks


def _params(c: Config, name: str) -> Config:
    """The arguments of a part's class."""
    part = c.table(name) or Config({}, c.model_id)
    return part.table("params") or Config({}, c.model_id)


def _hybrid(c: Config, given: Config, width: int) -> tuple[Block, ...]:
    low, name = siglip(c, given.table("low_res_cfg") or Config({}, c.model_id)), "vision_model"
    sizes = given.table("high_res_cfg") or Config({}, c.model_id)
    if sizes.text("model_name", "sam_b_downsample") != "sam_b_downsample":
        raise c.error(f"vision_config: high_res_cfg: {sizes.text('model_name')} is not described")
    side = {"high_res_vision_config": {"image_size": sizes.size("image_size", default=1024)}}
    high = deepseek_vl.high_config(Config(side, c.model_id))
    b = BlockBuilder(name, part="vision", modality="image")
    norms = [b.parameter(f"{n}_layer_norm", leaf, (1024,)) for n in ("high", "low") for leaf in ("weight", "bias")]
    held = b.build(image=b.unary(Hold(), b.input("image", low.hidden_size), "", norms))
    tower = f"{name}.vision_tower_high.vision_tower"
    lower = tower_blocks(low, siglip_vision.siglip(low), f"{name}.vision_tower_low.vision_tower")
    upper = deepseek_vl.high_blocks(c, low, high, tower)
    upper = (*upper[:-1], renamed(upper[-1], lambda old: old.replace("model", tower, 1)))
    joined = renamed(deepseek_vl.aligner(low, high, width), lambda old: old.removeprefix("model."))
    return (*upper, *lower, held, joined)


def _image_blocks(c: Config, width: int) -> tuple[Block, ...]:
    given = _params(c, "vision_config")
    if "Hybrid" in (c.table("vision_config") or Config({}, c.model_id)).text("cls", ""):
        return _hybrid(c, given, width)
    v, aligner = siglip(c, given), _params(c, "aligner_config")
    sizes = {"projection_dim": aligner.size("n_embed", default=width), "depth": aligner.size("depth", default=1)}
    joined = janus.aligner(Config({**v.values, **sizes}, c.model_id), "aligner")
    return (*tower_blocks(v, siglip_vision.siglip(v), "vision_model.vision_tower"), joined)


def _making(c: Config) -> tuple[Block, ...]:
    """Janus's tokenizer, embeddings and head; nothing where the config has none."""
    codes, inner, head = (_params(c, f"gen_{part}_config") for part in ("vision", "aligner", "head"))
    if not c.has("gen_vision_config"):
        return ()
    names = (
        ("embed_dim", codes, "n_embed"), ("num_embeddings", codes, "image_token_size"),
        ("projection_dim", inner, "n_embed"), ("num_hidden_layers", inner, "depth"),
        ("image_token_embed_dim", head, "image_token_embed"),
    )  # fmt: skip
    sizes = {name: table.get(key) for name, table, key in names if table.has(key)}
    return tuple(replace(block, name="gen") for block in generation_blocks(Config(sizes, c.model_id)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Towers and projector, which run only for batches with images, and the language model."""
    values = {**c.values, "text_config": c.get("language_config") or {}}
    text = text_config(Config(values, c.model_id), "llama", {})
    tied = text.flag("tie_word_embeddings")
    language = language_blocks(text, "language_model.model", tied=tied, head="language_model.lm_head")
    return (*_image_blocks(c, text.hidden_size), *_making(c), *language)
