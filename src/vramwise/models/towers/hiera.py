"""The weights of Segment Anything 2's Hiera: stages of attention, each wider than the one before."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.known_weights import known_weights, norms, product
from vramwise.models.towers.tower_design import Weight, pair, with_bias

_DEFAULTS: dict[str, object] = {
    "hidden_size": 96, "num_channels": 3, "patch_kernel_size": [7, 7], "blocks_per_stage": [1, 2, 7, 2],
    "window_positional_embedding_background_size": [7, 7], "embed_dim_per_stage": [96, 192, 384, 768],
    "window_size_per_stage": [8, 4, 14, 7], "mlp_ratio": 4.0,
}  # fmt: skip
"""Defaults of `Sam2HieraDetConfig` (transformers 5.23)."""


def layer(given: int, width: int, ratio: float) -> list[Weight]:
    """Attention that widens where a stage begins, a product that does so to what it is added to, an MLP."""
    inner = int(width * ratio)
    found = [*norms(["layer_norm1"], given), *product("attn.qkv", 3 * width, given), *norms(["layer_norm2"], width)]
    found += [*product("attn.proj", width, width), *product("mlp.proj_in", inner, width)]
    found += product("mlp.proj_out", width, inner)
    return [*found, *product("proj", width, given)] if given != width else found


def hiera(v: Config) -> tuple[Block, ...]:
    """Patches with places of the image and of windows, then the layers of all stages under one number."""
    if v.table("backbone_config") and (kind := v.part("backbone_config", {}).model_type) not in ("", _TYPE):
        raise v.error(f"backbone_config: only {_TYPE} is described here, not {kind:.40}")
    c = v.part("backbone_config", _DEFAULTS)
    widths, depths, windows = c.sizes("embed_dim_per_stage"), c.depths("blocks_per_stage"), c.sizes(_WINDOWS)
    if not windows or not 0 < len(depths) <= len(widths):
        raise c.error(f"blocks_per_stage names {len(depths)} stages, embed_dim_per_stage {len(widths)}")
    width, places = c.hidden_size, pair(c, "window_positional_embedding_background_size")
    patches: list[Weight] = [
        ("pos_embed", (1, width, *places)), ("pos_embed_window", (1, width, windows[0], windows[0])),
        *with_bias("patch_embed.projection", width, c.size("num_channels"), *pair(c, "patch_kernel_size")),
    ]  # fmt: skip
    before = [widths[0], *widths]
    sizes = [(before[i] if first else widths[i], widths[i]) for i, n in enumerate(depths) for first in _firsts(n)]
    ratio = c.number("mlp_ratio")
    layers = (known_weights(f"backbone.blocks.{i}", layer(*pair_of, ratio), "a Hiera's layer", layer=i)
              for i, pair_of in enumerate(sizes))  # fmt: skip
    return (known_weights("backbone", patches, "an embedding of patches"), *layers)


_TYPE, _WINDOWS = "sam2_hiera_det_model", "window_size_per_stage"


def _firsts(depth: int) -> list[bool]:
    """For each layer of a stage, whether it is the first."""
    return [True] + [False] * (depth - 1)
