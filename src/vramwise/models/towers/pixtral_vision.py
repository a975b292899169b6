"""Pixtral's tower."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.operations.packed_images import ROWS_OF_IMAGES, PixtralEmbedding, TurnedPatches
from vramwise.models.towers.tower_design import Tower, encoder_sizes, patch_weights


def pixtral(c: Config) -> Tower:
    """Pixtral: rotary positions, RMS norms, gated MLP, no biases."""
    return Tower(
        **encoder_sizes(c), before=(patch_weights(c, "patch_conv")[0], ("ln_pre.weight", (c.hidden_size,))),
        layers="transformer.layers", norm="rms", norms=("attention_norm", "ffn_norm"),
        qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"), output="attention.o_proj",
        biases=(False,) * 4, mlp=tuple(f"feed_forward.{n}_proj" for n in ("gate", "up", "down")), mlp_bias=False,
        embedding=PixtralEmbedding(num_channels=c.size("num_channels")),
        attention_style=ROWS_OF_IMAGES, turned=TurnedPatches(),
    )  # fmt: skip
