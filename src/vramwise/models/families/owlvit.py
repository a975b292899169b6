"""OWL-ViT and OWLv2: CLIP's two towers, and with `architectures` naming it the detection of what a text names.

The parameters are those of `OwlViTModel` and `OwlViTForObjectDetection` (OWLv2's alike) in transformers 5.23; what
training keeps is not described: detection has no loss in the library.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import renamed, under
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.clip_layer import layer
from vramwise.models.towers.known_weights import known_weights, norms, product, products
from vramwise.models.towers.tower_design import Weight, num_patches, pair, with_bias

TEXT: dict[str, object] = {
    "vocab_size": 49_408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 8, "max_position_embeddings": 16, "hidden_act": "quick_gelu",
}  # fmt: skip
"""Defaults of `OwlViTTextConfig` and `Owlv2TextConfig`."""
_VISION: dict[str, object] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "hidden_act": "quick_gelu",
}  # fmt: skip
VISION: dict[str, dict[str, object]] = {
    "owlvit": {**_VISION, "image_size": 768, "patch_size": 32},
    "owlv2": {**_VISION, "image_size": 768, "patch_size": 16},
}
"""Defaults of `OwlViTVisionConfig` and `Owlv2VisionConfig`."""


def task(c: Config) -> str:
    """It predicts no tokens."""
    return "none"


def detects(c: Config) -> bool:
    """Whether the config names the class that detects."""
    return any(str(name).endswith("ForObjectDetection") for name in c.items("architectures") or [])


def text_tower(t: Config) -> tuple[Block, ...]:
    """Tokens and places, layers, norm."""
    width = t.hidden_size
    tables: list[Weight] = [
        ("token_embedding.weight", (t.vocab_size, width)),
        ("position_embedding.weight", (t.size("max_position_embeddings"), width)),
    ]
    b = BlockBuilder("text_model.embeddings", part="embedding")
    weights = [b.parameter("", leaf, shape) for leaf, shape in tables]
    first = b.build(hidden=b.op(Undescribed(name="tokens of queries"), "", [], [width], weights)[0])
    end = BlockBuilder("text_model", part="norm")
    y = end.layer_norm(end.input("hidden", width), "final_layer_norm")
    return (first, *(layer(t, "text_model", i) for i in range(t.num_hidden_layers)), end.build(hidden=y))


def image_tower(v: Config) -> tuple[Block, ...]:
    """A class token and patches without bias, norms before and after the layers."""
    width = v.hidden_size
    patches: list[Weight] = [
        ("embeddings.class_embedding", (width,)),
        with_bias("embeddings.patch_embedding", width, v.size("num_channels"), *pair(v, "patch_size"))[0],
        ("embeddings.position_embedding.weight", (num_patches(v) + 1, width)), *norms(["pre_layernorm"], width),
    ]  # fmt: skip
    b = BlockBuilder("vision_model", part="vision", modality="image")
    weights = [b.parameter("", leaf, shape) for leaf, shape in patches]
    first = b.build(image=b.op(Undescribed(name="an embedding of patches"), "", [], [width], weights)[0])
    end = BlockBuilder("vision_model", part="vision", modality="image")
    y = end.layer_norm(end.input("image", width), "post_layernorm", part="vision")
    layers = (layer(v, "vision_model", i, "vision") for i in range(v.num_hidden_layers))
    return (first, *layers, end.build(image=y))


def heads(c: Config, width: int, asked: int) -> list[Weight]:
    """Whether a patch is what a text names, where its box is and, in version 2, whether it is anything."""
    found = [*product("class_head.dense0", asked, width), *product("class_head.logit_shift", 1, width)]
    found += [*product("class_head.logit_scale", 1, width), *norms(["layer_norm"], width)]
    for name, made in {"box_head": 4, **({"objectness_head": 1} if c.model_type == "owlv2" else {})}.items():
        found += [
            *products([f"{name}.dense0", f"{name}.dense1"], width, width),
            *product(f"{name}.dense2", made, width),
        ]
    return found


def blocks(c: Config) -> tuple[Block, ...]:
    """Both towers, what compares them, and the heads."""
    text, vision = c.part("text_config", TEXT), c.part("vision_config", VISION[c.model_type])
    width = c.size("projection_dim", default=512)
    both: list[Weight] = [
        ("logit_scale", ()), *product("visual_projection", width, vision.hidden_size, bias=False),
        *product("text_projection", width, text.hidden_size, bias=False),
    ]  # fmt: skip
    found = [*text_tower(text), *image_tower(vision)]
    found.append(known_weights("", both, "a comparison of both towers", part="projector"))
    if not detects(c):
        return tuple(found)
    last = known_weights("", heads(c, vision.hidden_size, text.hidden_size), "boxes and what is in them")
    return (*(renamed(block, under(c.model_type)) for block in found), last)
