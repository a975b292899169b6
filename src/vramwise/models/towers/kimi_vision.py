"""Kimi K2.5's and K3's towers: patches of frames in one row, a learned grid stretched to theirs, rotary positions."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.config import Config
from vramwise.models.operations.frames import StretchedGrid
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.towers.tower_design import Tower, encoder_sizes, layer_norm, with_bias

# Defaults of Kimi_K25VisionConfig (transformers 5.23), and the names of the same sizes in the hub's own code.
_DEFAULTS: dict[str, object] = {
    "patch_size": 14, "pos_emb_height": 64, "pos_emb_width": 64, "num_attention_heads": 16, "num_hidden_layers": 27,
    "hidden_size": 1152, "intermediate_size": 4304, "hidden_act": "gelu_pytorch_tanh", "merge_kernel_size": (2, 2),
}  # fmt: skip
_OWN_NAMES = {
    "hidden_size": "vt_hidden_size", "intermediate_size": "vt_intermediate_size",
    "num_attention_heads": "vt_num_attention_heads", "num_hidden_layers": "vt_num_hidden_layers",
    "pos_emb_height": "init_pos_emb_height", "pos_emb_width": "init_pos_emb_width",
}  # fmt: skip


def kimi_config(c: Config) -> Config:
    """The vision part's sizes, by either name."""
    v = c.table("vision_config") or Config({}, c.model_id)
    own = {name: v.values[other] for name, other in _OWN_NAMES.items() if v.has(other)}
    return Config({**own, **{k: x for k, x in v.values.items() if x is not None}}, c.model_id).filled(_DEFAULTS)


def kimi_tower(v: Config) -> Tower:
    width, patch = v.hidden_size, v.size("patch_size")
    grid = (v.size("pos_emb_height"), v.size("pos_emb_width"), width)
    return Tower(
        **encoder_sizes(v),
        before=(
            *with_bias("patch_embed.proj", width, 3, patch, patch), ("patch_embed.pos_emb.position_embeddings", grid),
        ),
        after=layer_norm("final_layernorm", width), closing=LayerNorm(), layers="layers", norms=("norm1", "norm2"),
        qkv=tuple(f"attn.{n}_proj" for n in "qkv"), output="attn.proj", packed=True, embedding=StretchedGrid(),
    )  # fmt: skip


def kimi_k3_tower(v: Config) -> Tower:
    """K3's: root mean square norms, no biases, and heads that are wider together than the stream."""
    if v.flag("attn_bias") or v.flag("linear_bias") or v.flag("patch_embed_proj_bias"):
        raise v.error("a tower of Kimi K3 with biases is not described")
    t = kimi_tower(v)
    return replace(
        t, before=tuple(weight for weight in t.before if not weight[0].endswith(".bias")),
        after=(("encoder.final_layernorm.weight", (t.width,)),), closing=RmsNorm(), norm="rms",
        layers="encoder.blocks", norms=("norm0", "norm1"), inner=v.size("qkv_hidden_size", default=t.width),
        biases=(False, False, False, False), mlp=("mlp.fc0", "mlp.fc1"), mlp_bias=False,
    )  # fmt: skip


def kimi_vl_tower(v: Config) -> Tower:
    """Kimi VL's: K2.5's layers with one product for q, k and v, and a grid of positions that has no frames."""
    t = kimi_tower(v)
    patches, (_, grid) = t.before[:-1], t.before[-1]
    return replace(
        t, before=(*patches, ("patch_embed.pos_emb.weight", grid)),
        after=layer_norm("encoder.final_layernorm", t.width), layers="encoder.blocks",
        norms=("norm0", "norm1"), qkv=("wqkv",), output="wo", mlp=("mlp.fc0", "mlp.fc1"),
    )  # fmt: skip
