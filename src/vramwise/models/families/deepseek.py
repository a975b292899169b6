"""Decoders with latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM 4.7 Flash and 5, A.X K, Mistral 4, Youtu."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head, token_embedding
from vramwise.models.layers.gated_norm import gated_norm
from vramwise.models.layers.indexer import INDEXED, indexers
from vramwise.models.layers.latent_attention import attention
from vramwise.models.layers.latent_defaults import completed
from vramwise.models.layers.latent_design import Latent, sizes
from vramwise.models.layers.mixture import Mixture, experts, feed_forward, grouped, sparse_layers
from vramwise.models.layers.mlp import gated_mlp

# The layers for multi-token prediction (num_nextn_predict_layers) that checkpoints hold are not part of the classes.


def latent(c: Config) -> Latent:
    """Sizes of the attention, without an indexer."""
    s = replace(
        sizes(c), masked=c.model_type in INDEXED, joint_gate=c.model_type == "axk2",
        scaled_queries=c.model_type == "mistral4",
    )  # fmt: skip
    if c.model_type == "deepseek_v2":
        return replace(s, style="complex")
    return replace(s, style="interleaved_cat") if s.masked else s


def sparse(c: Config) -> list[bool]:
    """Which layers have routed experts; none in Youtu."""
    if c.model_type == "youtu":
        return [False] * c.num_hidden_layers
    first = c.size("first_k_dense_replace", least=0)
    period = c.size("moe_layer_freq", default=1) if c.model_type.startswith("axk") else 1
    flags = sparse_layers(c, first)
    return flags if c.has("mlp_layer_types") else [flag and i % period == 0 for i, flag in enumerate(flags)]


def mixture(c: Config, count: int | None) -> Mixture:
    """Routed experts, limited to the best groups, beside shared ones."""
    v2 = c.model_type == "deepseek_v2"
    routing = {"deepseek_v2": "deepseek_v2", "mistral4": "mistral4"}.get(c.model_type, "deepseek_v3")
    # The class of V2 has no default for the number of experts a token; without one all of them count as active.
    c = c.filled({"num_experts_per_tok": c.size("n_routed_experts", "num_local_experts", "num_experts", default=count)})
    e = experts(
        c, count, keys=("n_routed_experts", "num_local_experts", "num_experts"), routing=routing,
        normalized=not v2 and c.flag("norm_topk_prob", True),
    )  # fmt: skip
    limited = c.text("topk_method", "greedy") == "group_limited_greedy" if v2 else c.has("n_group")
    return Mixture(
        e, routing=grouped(c, e) if limited else {"num_groups": 0, "num_chosen_groups": 0},
        shared=e.intermediate_size * c.size("n_shared_experts"), bias=v2 and c.flag("mlp_bias"),
        norm="mlp.post_mlp_layernorm" if c.model_type == "axk1" else None,
    )  # fmt: skip


def layer(c: Config, s: Latent, index: int, m: Mixture | None) -> Block:
    """A pre-norm decoder layer, dense without experts."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    rank = c.size("gated_norm_rank", default=16) if c.model_type == "axk2" else 0
    x = b.add(x, attention(b, gated_norm(b, x, "input_layernorm", rank), c, s))
    h = gated_norm(b, x, "post_attention_layernorm", rank if m is not None else 0)
    if m is not None:
        return b.build(hidden=b.add(x, feed_forward(b, h, m=m)))
    bias = c.model_type == "deepseek_v2" and c.flag("mlp_bias")
    return b.build(hidden=b.add(x, gated_mlp(b, h, c.intermediate_size, c.text("hidden_act", "silu"), bias=bias)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    s, flags = latent(c), sparse(c)
    m = mixture(c, count) if any(flags) else None
    each = enumerate(zip(indexers(c), flags, strict=True))
    layers = tuple(layer(c, replace(s, indexer=own), i, m if flag else None) for i, (own, flag) in each)
    tied = c.flag("tie_word_embeddings", c.model_type == "youtu")
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=tied))
