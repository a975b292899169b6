"""Phi-4 multimodal: Phi 3's decoder, SigLIP for images, a conformer for sound; all extend its token embedding."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Modality
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks
from vramwise.models.operations.padded_images import (
    PADDED_IMAGES,
    ImageRows,
    PoolPairs,
    Separators,
    SiglipEmbeddingWithPadding,
)
from vramwise.models.towers.phi4_sound import AUDIO_DEFAULTS, audio_layer, subsampling
from vramwise.models.towers.siglip_vision import siglip
from vramwise.models.towers.tower_design import own_size
from vramwise.models.towers.vision_tower import tower_blocks

# Defaults of Phi4MultimodalConfig and Phi4MultimodalVisionConfig (transformers 5.23).
_TEXT: dict[str, object] = {
    "vocab_size": 200_064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip
_VISION: dict[str, object] = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "num_channels": 3, "image_size": 448, "patch_size": 14, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
_PLACE = "model.embed_tokens_extend"


def _projector(modality: Modality, given: int, width: int) -> Block:
    """Two products with GELU between them; sound has a second pair, for batches with images too."""
    b = BlockBuilder(f"{_PLACE}.{modality}_embed", part="projector", modality=modality)
    x = b.input(modality, given)
    if modality == "image":
        ends = [
            b.parameter("", f"{n}_img_feature_extensor", (1,) * r + (given,)) for n, r in (("global", 2), ("sub", 3))
        ]
        x = b.unary(Separators(), b.unary(PoolPairs(), x), "", ends)
    pairs = {"image": [("img_projection_up", "img_projection_down")]}.get(
        modality, [(f"up_proj_for_{mode}", f"down_proj_for_{mode}") for mode in ("speech", "vision_speech")]
    )  # fmt: skip
    for up, down in pairs:
        h = b.linear(b.activation(b.linear(x, up, width, bias=True), "gelu"), down, width, bias=True, shard="row")
    return b.build(**{modality: h})


def _image_rows(c: Config, width: int) -> Block:
    """The tokens of images in their places of the prompt."""
    b = BlockBuilder("", modality="image")
    x = b.op(ImageRows(), "", [b.input("hidden", width), b.input("image", width)], [width])[0]
    return b.build(hidden=b.dropout(x, c.number("embd_pdrop")))


def blocks(c: Config) -> tuple[Block, ...]:
    """Towers with their projectors, which run only for batches with such input, and the language model."""
    text = Config({**c.values, **c.filled(_TEXT).values, "model_type": "phi3"}, c.model_id)
    vision, audio = (c.table(f"{name}_config") or Config({}, c.model_id) for name in ("vision", "audio"))
    vision, audio = vision.filled(_VISION), audio.filled(AUDIO_DEFAULTS)
    vision = Config({**vision.values, "model_type": "siglip_vision_model", "vision_use_head": True}, c.model_id)
    sound = f"{_PLACE}.audio_embed.encoder"
    tower = replace(
        siglip(vision), embedding=SiglipEmbeddingWithPadding(**own_size(vision)), attention_style=PADDED_IMAGES
    )  # fmt: skip
    reads = vision.num_hidden_layers + 1 + feature if (feature := int(vision.get("feature_layer", -2))) < 0 else feature
    embedding, *language = language_blocks(text, "model", tied=c.flag("tie_word_embeddings"))
    return (
        *tower_blocks(vision, tower, f"{_PLACE}.image_embed.img_processor", reads),
        _projector("image", vision.hidden_size, text.hidden_size), subsampling(audio, sound),
        *(audio_layer(audio, sound, i) for i in range(audio.size("num_blocks"))),
        _projector("audio", audio.hidden_size, text.hidden_size),
        embedding, _image_rows(c, text.hidden_size), *language,
    )  # fmt: skip
