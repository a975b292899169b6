"""Florence 2: DaViT over an image, whose patches and words go into BART's encoder.

Training is described for batches of text alone; what images keep of the tower is not.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.families.nested import renamed, under
from vramwise.models.towers.known_weights import inside, known_weights, norms, product
from vramwise.models.towers.tower_design import Weight, with_bias

VISION: dict[str, object] = {
    "in_channels": 3, "depths": [1, 1, 9, 1], "patch_size": [7, 3, 3, 3], "patch_prenorm": [False, True, True, True],
    "embed_dim": [128, 256, 512, 1024], "mlp_ratio": 4.0, "projection_dim": 1024, "max_temporal_embeddings": 100,
    "max_position_embeddings": 50,
}  # fmt: skip
"""Defaults of `Florence2VisionConfig` (transformers 5.23)."""


def task(c: Config) -> str:
    """It writes text; the bare model has no projection to words."""
    return "none" if "Florence2Model" in map(str, c.items("architectures") or []) else "seq2seq-lm"


def loss(c: Config) -> str:
    """That of decoders on fp32 logits, for labels that are shifted already."""
    return "fp32-lm" if task(c) == "seq2seq-lm" else ""


def half(v: Config, width: int, attention: str) -> list[Weight]:
    """Attention of windows or of channels and an MLP, a convolution by channel before either."""
    inner = int(width * v.number("mlp_ratio"))
    found = [w for i in (1, 2) for w in (*with_bias(f"conv{i}", width, 1, 3, 3), *norms([f"norm{i}"], width))]
    found += [*product(f"{attention}.qkv", 3 * width, width, v.flag("qkv_bias", True))]
    found += [*product(f"{attention}.proj", width, width), *product("ffn.fc1", inner, width)]
    return [*found, *product("ffn.fc2", width, inner)]


def tower(v: Config) -> list[Block]:
    """Stages, each with fewer and wider patches."""
    widths, depths, kernels = v.sizes("embed_dim"), v.depths("depths"), v.sizes("patch_size")
    before = [bool(flag) for flag in v.items("patch_prenorm") or []]
    if not widths or min(len(depths), len(kernels), len(before)) < len(widths):
        raise v.error(f"depths, patch_size and patch_prenorm name fewer stages than embed_dim ({len(widths)})")
    found = []
    for i, (given, width) in enumerate(zip([v.size("in_channels"), *widths], widths, strict=False)):
        normed = given if before[i] else width
        patches = [*with_bias("conv", width, given, kernels[i], kernels[i]), *norms(["norm"], normed)]
        both = [*inside("spatial_block", half(v, width, "window_attn")),
                *inside("channel_block", half(v, width, "channel_attn"))]  # fmt: skip
        found.append(known_weights(f"vision_tower.convs.{i}", patches, "patches made fewer"))
        found += [
            known_weights(f"vision_tower.blocks.{i}.{j}", both, "attention of channels") for j in range(depths[i])
        ]
    return found


def projector(v: Config) -> Block:
    """Places by row, column and time, a product to the words' width, a norm."""
    read, width, places = v.sizes("embed_dim")[-1], v.size("projection_dim"), v.size("max_position_embeddings")
    weights: list[Weight] = [
        *product("image_projection", width, read, bias=False), *norms(["image_proj_norm"], width),
        ("image_position_embed.row_embeddings.weight", (places, read // 2)),
        ("image_position_embed.column_embeddings.weight", (places, read - read // 2)),
    ]  # fmt: skip
    times = [("visual_temporal_embed.pos_idx_to_embed", (v.size("max_temporal_embeddings"), read))]
    return known_weights("multi_modal_projector", weights, "places of patches", part="projector", buffers=times)


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower, projector, BART."""
    v, bare = c.part("vision_config", VISION), task(c) == "none"
    text = text_config(c, "bart", {})
    if text.model_type != "bart":
        raise c.error(f"text_config: only bart is described here, not {text.model_type:.40}")
    text = Config({**text.values, "architectures": None}, c.model_id)
    images = [*tower(v), projector(v)]
    inner = "language_model" if bare else "model.language_model"
    words = language_blocks(text, inner, tied=c.flag("tie_word_embeddings", True))
    if bare:
        return (*images, *words[:-1])
    return (*(renamed(block, under("model")) for block in images), *words)
