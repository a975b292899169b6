"""Ovis 2's tower: gated layers with root mean square norms, which ends in logits of a vocabulary of images.

What an image becomes is an average of that vocabulary's embeddings, weighed by the softmax of those logits.
"""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.tower_design import Tower, encoder_sizes, layer_norm, num_patches, patch_weights


def ovis2(c: Config) -> Tower:
    """Patches with a norm behind them and learned positions; squares of `hidden_stride` patches make one token."""
    width, bias = c.hidden_size, c.flag("qkv_bias")
    kinds = c.vocab_size - c.size("num_visual_indicator_tokens", least=0)
    if kinds < 1:
        raise c.error("num_visual_indicator_tokens leaves nothing of the tower's vocab_size")
    embeddings = "transformer.embeddings"
    return Tower(
        **encoder_sizes(c), layers="transformer.encoder.layers", norm="rms", norms=("rms_norm1", "rms_norm2"),
        before=(
            *patch_weights(c, f"{embeddings}.patch_embedding"),
            (f"{embeddings}.position_embedding.weight", (num_patches(c), width)),
            (f"{embeddings}.rms_norm.weight", (width,)),
        ),
        after=(
            ("transformer.rms_norm.weight", (width,)),
            ("head_linear.weight", (kinds, width * c.size("hidden_stride") ** 2)), *layer_norm("head_norm", kinds),
        ),
        qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"), output="attention.out_proj",
        biases=(bias,) * 4, mlp=("ffn.gate_proj", "ffn.up_proj", "ffn.down_proj"), mlp_bias=c.flag("mlp_bias"),
        closing=Undescribed(name="a vocabulary of images"),
    )  # fmt: skip
