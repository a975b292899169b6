"""Multi-head latent attention: keys and values of every head are made from one compressed vector a token."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.blocks import BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config


@dataclass(frozen=True, slots=True)
class Indexer:
    """DeepSeek sparse attention: small heads score every earlier token, and attention reads the best few."""

    num_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Latent:
    """Sizes and switches.

    `own` and `turned` are a head's columns without and with rotary positions; `rank` is that of the query's
    compression, None without one. `scaled` multiplies both compressed vectors' results by numbers. `masked`: the
    layer's mask is always there, because it names the tokens that an indexer (this layer's, where it has one) chose.
    `joint_gate`: the query's product makes gates too, from the compressed query before and after its norm;
    `head_gate`: one number for each head gates its result.
    """

    own: int
    turned: int
    compressed: int
    value_dim: int
    rank: int | None
    bias: bool = False
    style: str = "interleaved_cat"
    scaled: bool = False
    masked: bool = False
    indexer: Indexer | None = None
    joint_gate: bool = False
    head_gate: bool = False


def sizes(c: Config) -> Latent:
    """The sizes by the keys that the families share."""
    return Latent(
        own=c.size("qk_nope_head_dim"), turned=c.size("qk_rope_head_dim"), compressed=c.size("kv_lora_rank"),
        value_dim=c.size("v_head_dim"), rank=c.size("q_lora_rank") if c.has("q_lora_rank") else None,
        bias=c.flag("attention_bias"), style="interleaved_cat" if c.flag("rope_interleave", True) else "half",
    )  # fmt: skip


def attention(b: BlockBuilder, x: Value, c: Config, s: Latent, module: str = "self_attn") -> Value:
    """Compression, expansion, attention, output projection."""
    b.part = "attention"
    heads, width = c.num_attention_heads, s.own + s.turned
    if s.turned % 2 or (s.style == "complex" and s.compressed % 2):
        raise c.error(
            f"rotary positions turn pairs: qk_rope_head_dim ({s.turned}) and kv_lora_rank ({s.compressed}) must be even"
        )
    q, compressed_query, gate = queries(b, x, heads, s, module)
    q_own, q_turned = b.split(b.heads_first(q), [s.own, s.turned])
    joint = b.linear(x, f"{module}.kv_a_proj_with_mqa", s.compressed + s.turned, bias=s.bias, shard="replicated")
    compressed, shared = b.split(joint, [s.compressed, s.turned])
    compressed = b.rms_norm(compressed, f"{module}.kv_a_layernorm")
    if s.scaled:
        q_own, q_turned, compressed = b.scale(q_own), b.scale(q_turned), b.scale(compressed)
    shared = b.heads_first(b.heads(shared, 1))
    if s.style == "complex":
        q_turned, shared = b.op("rotary_complex", "", [q_turned, shared], [s.turned, s.turned])
    elif s.style != "unturned":
        q_turned, shared = b.rotary(q_turned, shared, style=s.style)
    compressed, shared = b.op("cached", "", [compressed, shared], [s.compressed, s.turned])
    q = b.op("concatenate", "", [q_own, q_turned], [width])[0]
    joint = b.linear(compressed, f"{module}.kv_b_proj", heads * (s.own + s.value_dim))
    k_own, v = b.split(b.heads_first(b.heads(joint, heads)), [s.own, s.value_dim])
    k = b.op("latent_key", module, [k_own, shared], [width])[0]
    if s.indexer is not None and compressed_query is not None:
        indexer(b, x, compressed_query, s.indexer, f"{module}.indexer")
    index_dim = s.indexer.head_dim if s.indexer is not None else 0
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, dropout=c.number("attention_dropout"), latent=True,
        cache=LayerCache("latent", latent_dim=s.compressed, rope_dim=s.turned, index_dim=index_dim), masked=s.masked,
    )  # fmt: skip
    if gate is not None:
        mixed = b.op("sigmoid_gate", module, [mixed, gate], [mixed.width])[0]
    if s.head_gate:
        gate = b.linear(x, f"{module}.g_proj", heads)
        (mixed,) = b.op("undescribed", module, [mixed, gate], [mixed.width], name="gates by head on latent attention")
    return b.linear(mixed, f"{module}.o_proj", c.hidden_size, bias=s.bias, shard="row")


def queries(b: BlockBuilder, x: Value, heads: int, s: Latent, module: str) -> tuple[Value, Value | None, Value | None]:
    """Queries by head, the compressed query where there is one, and gates where they come with the queries."""
    width = s.own + s.turned
    if s.rank is None:
        return b.heads(b.linear(x, f"{module}.q_proj", heads * width), heads), None, None
    raw = b.linear(x, f"{module}.q_a_proj", s.rank, bias=s.bias, shard="replicated")
    compressed = b.rms_norm(raw, f"{module}.q_a_layernorm")
    if not s.joint_gate:
        return b.heads(b.linear(compressed, f"{module}.q_b_proj", heads * width), heads), compressed, None
    both = b.op("concatenate", "", [compressed, raw], [2 * s.rank])[0]
    fused = b.heads(b.linear(both, f"{module}.q_gate_proj", heads * (width + s.value_dim)), heads)
    q, gate = b.split(fused, [width, s.value_dim])
    return q, compressed, gate


def indexer(b: BlockBuilder, x: Value, compressed_query: Value, s: Indexer, module: str) -> None:
    """Scores of every earlier token; runs outside of autograd."""
    width = s.num_heads * s.head_dim
    parameters = [
        b.parameter(f"{module}.wq_b", "weight", (width, compressed_query.width), is_linear=True),
        b.parameter(f"{module}.wk", "weight", (s.head_dim, x.width), is_linear=True),
        b.parameter(f"{module}.k_norm", "weight", (s.head_dim,), part="norm"),
        b.parameter(f"{module}.k_norm", "bias", (s.head_dim,), part="norm"),
        b.parameter(f"{module}.weights_proj", "weight", (s.num_heads, x.width), is_linear=True),
    ]
    b.op("indexer", module, [x, compressed_query], [], parameters, num_heads=s.num_heads, head_dim=s.head_dim)
