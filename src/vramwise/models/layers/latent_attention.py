"""Multi-head latent attention: keys and values of every head are made from one compressed vector a token."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.indexer import indexer
from vramwise.models.layers.latent_design import Latent
from vramwise.models.operations.attention import Attention, ScaleByPosition
from vramwise.models.operations.gates import Fp32HeadGate, SigmoidGate, SigmoidHeadGate
from vramwise.models.operations.latent import Cached, LatentKey, RotaryComplex, SinkAttention
from vramwise.models.operations.mixers import RowMajor
from vramwise.models.operations.simple import Concatenate


def attention(b: BlockBuilder, x: Value, c: Config, s: Latent, module: str = "self_attn") -> Value:
    """Compression, expansion, attention, output projection."""
    b.part = "attention"
    heads, width = c.num_attention_heads, s.own + s.turned
    if s.turned % 2 or (s.style == "complex" and s.compressed % 2):
        raise c.error(
            f"rotary positions turn pairs: qk_rope_head_dim ({s.turned}) and kv_lora_rank ({s.compressed}) must be even"
        )
    q, compressed_query, gate = queries(b, x, heads, s, module)
    q = b.heads_first(q)
    q_own, q_turned = b.split(q, [s.own, s.turned])
    joint = b.linear(x, f"{module}.kv_a_proj_with_mqa", s.compressed + s.turned, bias=s.bias, shard="replicated")
    compressed, shared = b.split(joint, [s.compressed, s.turned])
    compressed = b.unary(RowMajor(), compressed) if s.latents else compressed
    compressed = b.rms_norm(compressed, f"{module}.kv_a_layernorm")
    compressed = b.scale(compressed) if s.latents else compressed
    if s.scaled:
        q_own, q_turned, compressed = b.scale(q_own), b.scale(q_turned), b.scale(compressed)
    shared = b.heads_first(b.heads(shared, 1))
    shared = b.rms_norm(shared, f"{module}.k_rope_only_layernorm") if s.latents else shared
    if s.style == "complex":
        q_turned, shared = b.op(RotaryComplex(), "", [q_turned, shared], [s.turned, s.turned])
    elif s.style != "unturned":
        q_turned, shared = b.rotary(q_turned, shared, style=s.style, table=s.table)
    compressed, shared = b.op(Cached(), "", [compressed, shared], [s.compressed, s.turned])
    if s.style != "unturned":
        q = b.op(Concatenate(), "", [q_own, q_turned], [width])[0]
    q = b.unary(ScaleByPosition(), q) if s.scaled_queries else q
    joint = b.linear(compressed, f"{module}.kv_b_proj", heads * (s.own + s.value_dim))
    k_own, v = b.split(b.heads_first(b.heads(joint, heads)), [s.own, s.value_dim])
    k = b.op(LatentKey(), module, [k_own, shared], [width])[0]
    if s.indexer is not None and compressed_query is not None:
        indexer(b, x, compressed_query, s.indexer, f"{module}.indexer")
    mixed = core(b, q, k, v, c, s, module)
    if gate is not None:
        mixed = b.op(SigmoidGate(), module, [mixed, gate], [mixed.width])[0]
    mixed = gated(b, mixed, x, heads, s, module)
    return b.linear(mixed, f"{module}.o_proj", c.hidden_size, bias=s.bias, shard="row")


def core(b: BlockBuilder, q: Value, k: Value, v: Value, c: Config, s: Latent, module: str) -> Value:
    """Attention over the expanded keys and values; what is cached is compressed."""
    heads, dropout = c.num_attention_heads, c.number("attention_dropout")
    index_dim, pool = (s.indexer.head_dim, s.indexer.pool) if s.indexer is not None else (0, 0)
    # Index keys that fp32 tables turn stay fp32.
    cache = LayerCache(
        "latent", latent_dim=s.compressed, rope_dim=s.turned, index_dim=index_dim, index_pool=pool,
        fp32_index=s.table == "fp32",
    )  # fmt: skip
    if s.window is not None:
        cache = LayerCache("sliding", 1, s.compressed, s.turned, window=s.window)
    if not s.sinks:
        return b.attention(
            Attention(
                num_heads=heads,
                num_key_value_heads=heads,
                dropout=dropout,
                latent=True,
                window=s.window,
                masked=s.masked,
            ),
            q,
            k,
            v,
            cache=cache,
        )
    b.keep(cache)
    sinks = b.parameter(module, "sinks", (heads,), shard="column")
    return b.op(
        SinkAttention(
            num_heads=heads, num_key_value_heads=heads, causal=True, window=None, dropout=dropout, latent=True
        ),
        module,
        [q, k, v],
        [heads * v.width],
        [sinks],
    )[0]


def gated(b: BlockBuilder, mixed: Value, x: Value, heads: int, s: Latent, module: str) -> Value:
    """Attention's result times sigmoids of a product with the layer's input."""
    if s.output_gate.startswith("by_head"):
        gate = b.linear(x, f"{module}.g_proj", heads)
        widened = s.output_gate == "by_head_fp32"
        by_head = Fp32HeadGate(num_heads=heads) if widened else SigmoidHeadGate(num_heads=heads)
        return b.op(by_head, module, [mixed, gate], [mixed.width])[0]
    if s.output_gate == "by_element":
        gate = b.linear(x, f"{module}.gate_proj", mixed.width)
        return b.multiply(mixed, b.activation(gate, "sigmoid", module))
    return mixed


def queries(b: BlockBuilder, x: Value, heads: int, s: Latent, module: str) -> tuple[Value, Value | None, Value | None]:
    """Queries by head, the compressed query where there is one, and gates where they come with the queries."""
    width = s.own + s.turned
    if s.rank is None:
        return b.heads(b.linear(x, f"{module}.q_proj", heads * width), heads), None, None
    raw = b.linear(x, f"{module}.q_a_proj", s.rank, bias=s.bias, shard="replicated")
    compressed = b.rms_norm(raw, f"{module}.q_a_layernorm")
    compressed = b.scale(compressed) if s.latents else compressed
    if not s.joint_gate:
        return b.heads(b.linear(compressed, f"{module}.q_b_proj", heads * width), heads), compressed, None
    both = b.op(Concatenate(), "", [compressed, raw], [2 * s.rank])[0]
    fused = b.heads(b.linear(both, f"{module}.q_gate_proj", heads * (width + s.value_dim)), heads)
    q, gate = b.split(fused, [width, s.value_dim])
    return q, compressed, gate
