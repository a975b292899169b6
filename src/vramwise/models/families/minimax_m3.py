"""MiniMax M3's language model: an indexer picks blocks of tokens in some layers, gates and values are clamped."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.block_attention import attention
from vramwise.models.layers.decoder_attention import rotary_columns
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mixture import Mixture, sparse_layers
from vramwise.models.layers.sigmoid_routing import corrected
from vramwise.models.operations.experts import ClampedGlu

# Defaults of the configuration class (transformers 5.23).
_DEFAULTS = {
    "vocab_size": 200_064, "hidden_size": 6144, "intermediate_size": 3072, "num_hidden_layers": 60,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_experts_per_tok": 4,
    "dense_intermediate_size": 12_288, "shared_intermediate_size": 3072, "index_n_heads": 4, "index_head_dim": 128,
}  # fmt: skip


def clamped_mlp(b: BlockBuilder, x: Value, *, width: int, module: str) -> Value:
    """Gate and up in one product, clamped, gated as gpt-oss does."""
    h = b.linear(x, f"{module}.gate_up_proj", 2 * width, part="mlp")
    h = b.unary(ClampedGlu(), h, module, width=width)
    return b.linear(h, f"{module}.down_proj", x.width, shard="row", part="mlp")


def shared(b: BlockBuilder, x: Value, m: Mixture) -> Value:
    return clamped_mlp(b, x, width=m.shared, module=m.shared_module)


def indexed_layers(c: Config) -> list[bool]:
    """Which layers have an indexer: by `layer_types`, or as checkpoints name them."""
    types, old = c.layer_types(), c.table("sparse_attention_config") or Config({}, c.model_id)
    if types is not None:
        return [kind == "minimax_m3_sparse" for kind in types]
    old = Config({**old.values, "num_hidden_layers": c.num_hidden_layers}, c.model_id)
    flags = old.by_layer("sparse_attention_freq", empty_is_absent=True)
    return [bool(flag) for flag in flags or [0] * c.num_hidden_layers]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    old = c.table("sparse_attention_config") or Config({}, c.model_id)
    renamed = {"index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim"}
    c = c.filled({**_DEFAULTS, **{name: old.size(key) for name, key in renamed.items() if old.has(key)}})
    if c.get("moe_layer_freq") is not None and not c.has("mlp_layer_types"):
        types = ["sparse" if flag else "dense" for flag in c.items("moe_layer_freq") or []]
        c = Config({**c.values, "mlp_layer_types": types}, c.model_id)
    s = Design(norm_style="gemma")
    m = corrected(c, 128, shared=c.size("shared_intermediate_size"), in_place=True, epsilon=False, scaled=False)
    m = replace(
        m, experts=replace(m.experts, gating="clamped_halves_glu"), shared_mlp=shared, scaled=True, balanced=True
    )
    columns, dense = rotary_columns(c, s), partial(clamped_mlp, width=c.size("dense_intermediate_size"), module="mlp")
    kinds = [
        LayerKind(attention=partial(attention, c=c, indexed=flag, columns=columns), mlp=dense)
        for flag in indexed_layers(c)
    ]
    return mixture.model(c, s, m, sparse_layers(c, 0), kinds)
