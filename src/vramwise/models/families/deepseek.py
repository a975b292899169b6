"""Decoders with latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM 4.7 Flash and 5, A.X K, Mistral 4, Youtu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.latent_attention import attention
from vramwise.models.layers.latent_defaults import completed
from vramwise.models.layers.latent_design import Latent, sizes
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.parts import gated_mlp, lm_head, token_embedding
from vramwise.models.layers.sparse import Experts, checked, routed_experts
from vramwise.models.layers.token_index import Indexer

# The layers for multi-token prediction (num_nextn_predict_layers) that checkpoints hold are not part of the classes.
_INDEXED = {"axk2": (16, 128), "deepseek_v32": (64, 128), "glm_moe_dsa": (32, 128)}
"""Types with an indexer: the classes' default numbers of its heads and their width."""


def latent(c: Config) -> Latent:
    """Sizes of the attention, without an indexer."""
    s = replace(
        sizes(c), masked=c.model_type in _INDEXED, joint_gate=c.model_type == "axk2",
        scaled_queries=c.model_type == "mistral4",
    )  # fmt: skip
    if c.model_type == "deepseek_v2":
        return replace(s, style="complex")
    return replace(s, style="interleaved_cat") if s.masked else s


def indexers(c: Config) -> list[Indexer | None]:
    """The indexer of each layer; GLM 5 can let layers share that of a layer before."""
    layers = range(c.num_hidden_layers)
    if c.model_type not in _INDEXED:
        return [None for _ in layers]
    heads, width = _INDEXED[c.model_type]
    own = Indexer(c.size("index_n_heads", default=heads), c.size("index_head_dim", default=width))
    if c.model_type != "glm_moe_dsa":
        return [own for _ in layers]
    types: Sequence[Any] | None = c.items("indexer_types")
    if types is None:
        pattern, period = c.get("index_topk_pattern"), c.size("index_topk_freq", default=1)
        offset = c.size("index_skip_topk_offset", default=2, least=0)
        types = pattern or [max(i - offset + 1, 0) % period == 0 for i in layers]
    if len(types) < len(layers):
        raise c.error(f"indexer_types names {len(types)} layers, num_hidden_layers is {len(layers)}")
    return [own if kind in (True, "full", "F") else None for kind in types[: len(layers)]]


def sparse(c: Config) -> list[bool]:
    """Which layers have routed experts; none in Youtu."""
    if c.model_type == "youtu":
        return [False] * c.num_hidden_layers
    first = c.size("first_k_dense_replace", least=0)
    period = c.size("moe_layer_freq", default=1) if c.model_type.startswith("axk") else 1
    flags = sparse_layers(c, first)
    return flags if c.has("mlp_layer_types") else [flag and i % period == 0 for i, flag in enumerate(flags)]


def experts(c: Config, count: int | None) -> Experts:
    """The routed experts of a sparse layer."""
    v2 = c.model_type == "deepseek_v2"
    routing = {"deepseek_v2": "deepseek_v2", "mistral4": "mistral4"}.get(c.model_type, "deepseek_v3")
    num_experts = c.size("n_routed_experts", "num_local_experts", "num_experts", default=count)
    return checked(c, Experts(
        # The class of V2 has no default for the number of experts a token; without one all of them count as active.
        num_experts=num_experts, experts_per_token=c.size("num_experts_per_tok", default=num_experts),
        intermediate_size=c.size("moe_intermediate_size"), function=c.text("hidden_act", "silu"),
        routing=routing, normalized=not v2 and c.flag("norm_topk_prob", True),
    ))  # fmt: skip


def sparse_mlp(b: BlockBuilder, x: Value, c: Config, e: Experts, *, bias: bool) -> Value:
    """Routed experts, limited to the best groups, plus the shared ones as one dense MLP."""
    groups = chosen = 0
    limited = c.text("topk_method", "greedy") == "group_limited_greedy" or c.model_type != "deepseek_v2"
    if limited and (c.has("n_group") or c.model_type != "axk2"):
        groups, chosen = c.size("n_group"), c.size("topk_group")
        if e.num_experts % groups or chosen > groups:
            raise c.error(f"n_group ({groups}) must divide n_routed_experts ({e.num_experts}) and reach topk_group")
    routed = routed_experts(b, x, e, num_groups=groups, num_chosen_groups=chosen)
    width = e.intermediate_size * c.size("n_shared_experts")
    h = b.add(routed, gated_mlp(b, x, width, e.function, module="mlp.shared_experts", bias=bias))
    return b.rms_norm(h, "mlp.post_mlp_layernorm") if c.model_type == "axk1" else h


def norm(b: BlockBuilder, x: Value, module: str, *, rank: int) -> Value:
    """Root-mean-square norm, in A.X K2 times a gate of `rank`."""
    if not rank:
        return b.rms_norm(x, module)
    y = b.rms_norm(x, f"{module}.norm")
    inner = b.activation(b.linear(y, f"{module}.mlp.fc1", rank, part="norm"), "silu", f"{module}.mlp")
    gate = b.linear(inner, f"{module}.mlp.fc2", x.width, shard="row", part="norm")
    return b.op("sigmoid_gate", module, [y, gate], [x.width])[0]


def layer(c: Config, s: Latent, index: int, e: Experts | None) -> Block:
    """A pre-norm decoder layer, dense without experts."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    rank = c.size("gated_norm_rank", default=16) if c.model_type == "axk2" else 0
    x = b.add(x, attention(b, norm(b, x, "input_layernorm", rank=rank), c, s))
    h = norm(b, x, "post_attention_layernorm", rank=rank if e is not None else 0)
    bias = c.model_type == "deepseek_v2" and c.flag("mlp_bias")
    if e is not None:
        h = sparse_mlp(b, h, c, e, bias=bias)
    else:
        h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act", "silu"), bias=bias)
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    s, flags = latent(c), sparse(c)
    e = experts(c, count) if any(flags) else None
    each = enumerate(zip(indexers(c), flags, strict=True))
    layers = tuple(layer(c, replace(s, indexer=own), i, e if flag else None) for i, (own, flag) in each)
    tied = c.flag("tie_word_embeddings", c.model_type == "youtu")
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=tied))
