"""Dots 3: latent attention with gates by head, an indexer in some layers, a window and other sizes in the rest."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.indexer import Indexer
from vramwise.models.layers.latent_attention import attention
from vramwise.models.layers.latent_design import Latent, sizes
from vramwise.models.layers.mixture import Mixture, experts, grouped, model, sparse_layers

# Defaults of Dots3NoteTextConfig (transformers 5.23), and those of the layers with a window.
_DEFAULTS: dict[str, object] = {
    "vocab_size": 152_064, "hidden_size": 5120, "intermediate_size": 13_824, "moe_intermediate_size": 1536,
    "num_hidden_layers": 46, "num_attention_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
    "kv_lora_rank": 512, "q_lora_rank": 1024, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
    "num_experts_per_tok": 8, "index_head_dim": 128, "index_n_heads": 64, "shared_experts_intermediate_size": 1536,
}  # fmt: skip
_SLIDING: dict[str, int] = {
    "num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024, "head_dim": 256, "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}  # fmt: skip


def layer_types(c: Config) -> list[str]:
    """Every fourth layer and the first two see all tokens; older configs call those that have an indexer full."""
    indexed = "full_attention" if c.get("use_dsa") is False else "indexed_attention"
    types = c.layer_types()
    if types is None:
        slides = c.flag("use_sliding_window", True)
        every = ((not slides or i < 2 or i % 4 == 1) for i in range(c.num_hidden_layers))
        return [indexed if full else "sliding_attention" for full in every]
    if c.has("per_layer_config") and not c.has("use_dsa"):
        return types
    return [indexed if kind in ("full_attention", "indexed_attention") else kind for kind in types]


def layer_config(c: Config, index: int, kind: str) -> Config:
    """The config with a layer's own sizes."""
    own = c.of_layer(index)
    if own is None and kind == "sliding_attention":
        sizes = {name: c.size(f"swa_{name}", default=size) for name, size in _SLIDING.items()}
        rest = sizes["head_dim"] - sizes["qk_nope_head_dim"]
        own = Config({**sizes, "qk_rope_head_dim": c.size("swa_qk_rope_head_dim", default=rest)}, c.model_id)
    return Config({**c.values, **own.values}, c.model_id) if own is not None else c


def latent(c: Config, kind: str) -> Latent:
    """The sizes of a layer's attention."""
    indexed, window = kind == "indexed_attention", None
    if kind == "sliding_attention":
        window = c.size("sliding_window", "sliding_window_size", default=512)
    return replace(
        sizes(c), style="interleaved_cat_fp32", latents=True, output_gate="by_head", masked=indexed, window=window,
        table="fp32" if indexed else kind,
        indexer=Indexer(c.size("index_n_heads"), c.size("index_head_dim")) if indexed else None,
    )  # fmt: skip


def mixture(c: Config) -> Mixture:
    """Experts of the best groups by corrected sigmoid scores, and shared ones."""
    e = experts(c, None, keys=("n_routed_experts",), routing="deepseek_v3", normalized=c.flag("norm_topk_prob", True))
    shared = c.size("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size")
    return Mixture(e, routing=grouped(c, e), shared=shared * c.size("n_shared_experts"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; the sizes may stand beside towers, in a table of their own."""
    c = (c.table("text_config") or c).filled(_DEFAULTS)
    sparse = sparse_layers(c, c.size("first_k_dense_replace", default=1, least=0))
    kinds = []
    for index, kind in enumerate(layer_types(c)):
        own = layer_config(c, index, kind)
        kinds.append(LayerKind(attention=partial(attention, c=own, s=latent(own, kind))))
    return model(c, Design(), mixture(c), sparse, kinds)
