"""Mistral Large 4's language model: latent attention whose layers may share latents, an indexer, learned scales.

Every fourth layer turns nothing; queries are scaled by position with two learned numbers a head. A layer that shares
reads what the last such layer of its kind (turned or not) kept. transformers 5.23, modeling_mistral_large4.py. Not
counted: that routers stay in fp32, and the chosen tokens' indices that checkpointed layers are handed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Aside, Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head, token_embedding
from vramwise.models.layers.mixture import Mixture, experts, feed_forward, grouped, sparse_layers
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.layers.text_defaults import TEXT_DEFAULTS
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention, Rotary
from vramwise.models.operations.latent import Cached, LatentKey, indexer_scores
from vramwise.models.operations.simple import Concatenate
from vramwise.records import record

_TURN = "interleaved_cat"
Source = Literal["own", "kept", "shared"]


class ScaledByPlace(Operation):
    """Queries, heads first, times scale · log(position + 1) + bias of their head."""

    __slots__ = ()


@lowering(ScaledByPlace)
def scaled_by_place(run: Lowering, op: ScaledByPlace, q: Tensor) -> Tensor:
    tape = run.tape
    places = tape.new((1, 1, run.sequence), q.dtype, op="_to_copy")
    scale, bias = (tape.view(tape.to(one, q.dtype), 1, -1, 1) for one in run.parameters_of(op))
    return tape.mul(q, tape.unsqueeze(tape.add(tape.mul(scale, places), bias), -1))


@record(kw_only=True, eq=False)
class ScaledIndexer(Aside):
    """An indexer whose queries come of the normed stream and are scaled by position."""

    num_heads: int
    head_dim: int


@lowering(ScaledIndexer)
def scaled_indexer(run: Lowering, op: ScaledIndexer, x: Tensor) -> tuple[()]:
    tape = run.tape
    wq, *others, weight, bias, scale, shift = (tape.detached(one) for one in run.parameters_of(op))
    x = tape.detached(x)
    q = tape.linear(tape.layer_norm(x, weight, bias), wq)
    q = tape.view(q, *q.shape[:-1], op.num_heads, op.head_dim)
    places = tape.new((1, run.sequence, 1), q.dtype, op="_to_copy")
    factor = tape.add(tape.mul(places, tape.view(scale, 1, 1, -1)), tape.view(shift, 1, 1, -1))
    indexer_scores(run, x, tape.mul(q, tape.unsqueeze(factor, -1)), others)
    return ()


@record
class Layer:
    """What differs between layers: rotary positions, whose latents it reads, an indexer, experts."""

    turned: bool
    source: Source
    indexed: bool
    sparse: bool


def flags(c: Config, key: str, default: Sequence[int]) -> list[int]:
    """A whole number for each layer. Raises SourceError."""
    given = c.by_layer(key)
    numbers = list(default) if given is None else [int(one) if isinstance(one, int) else -1 for one in given]
    if len(numbers) < len(default) or min(numbers) < 0:
        raise c.error(f"{key}: expected a whole number for each of {len(default)} layers")
    return numbers[: len(default)]


def layer_kinds(c: Config) -> list[Layer]:
    """The kinds of all layers. Raises SourceError."""
    count, period = c.num_hidden_layers, c.size("no_rope_layer_interval", default=4)
    turned = [bool(one) for one in flags(c, "no_rope_layers", [int((i + 1) % period != 0) for i in range(count)])]
    sources = flags(c, "kv_source_layers", range(count))
    if any(source > i or sources[source] != source for i, source in enumerate(sources)):
        raise c.error("kv_source_layers: a layer shares latents with an earlier one that has its own")
    indexed, kept, found = indexed_layers(c), set[bool](), list[Layer]()
    for i, sparse in enumerate(sparse_layers(c, c.size("first_k_dense_replace", least=0))):
        turns = turned[i]
        source: Source = "shared" if sources[i] != i else "kept" if i in sources[i + 1 :] else "own"
        if source == "shared" and turns not in kept:
            raise c.error("kv_source_layers: a layer shares latents with one that turns as it does")
        if source == "kept":
            kept.add(turns)
        found.append(Layer(turns, source, indexed[i], sparse))
    return found


def indexed_layers(c: Config) -> list[bool]:
    """Which layers have an indexer of their own; the others take what the last one chose."""
    count, types = c.num_hidden_layers, c.by_layer("indexer_types") or c.get("index_topk_pattern")
    if types is None:
        period, offset = c.size("index_topk_freq", default=1), c.size("index_skip_topk_offset", default=2, least=0)
        return [max(i - offset + 1, 0) % period == 0 for i in range(count)]
    if not isinstance(types, (list, tuple, str)) or len(types) < count or types[0] not in ("full", "F"):
        raise c.error(f"indexer_types: expected the kinds of {count} layers, the first of which is full")
    return [kind in ("full", "F") for kind in types[:count]]


def own_latents(b: BlockBuilder, x: Value, c: Config, turned: int) -> tuple[Value, Value | None]:
    """The compressed vector, and the key that all heads share where the layer turns any."""
    rank = c.size("kv_lora_rank")
    joint = b.linear(
        x, "self_attn.kv_a_proj_with_mqa", rank + turned, bias=c.flag("attention_bias"), shard="replicated"
    )
    compressed, shared = b.split(joint, [rank, turned]) if turned else (joint, None)
    compressed = b.rms_norm(compressed, "self_attn.kv_a_layernorm")
    return compressed, b.heads_first(b.heads(shared, 1)) if shared is not None else None


def turn(b: BlockBuilder, *values: Value) -> tuple[Value, ...]:
    widths = [value.width for value in values]
    return b.op(Rotary(rotary_dim=widths[0], style=_TURN), "", values, widths)


def queries(b: BlockBuilder, x: Value, c: Config, turned: int, shared: Value | None) -> tuple[Value, Value | None]:
    """Queries, turned and scaled by position, beside the shared key turned with them."""
    heads, width = c.num_attention_heads, c.size("qk_nope_head_dim") + c.size("qk_rope_head_dim")
    q = b.heads_first(b.heads(b.linear(x, "self_attn.q_proj", heads * width), heads))
    pieces: Sequence[Value] = (q,)
    if turned:
        own, part = b.split(q, [width - turned, turned])
        part, *key = turn(b, part) if shared is None else turn(b, part, shared)
        pieces, shared = (own, part), key[0] if key else None
    return b.op(Concatenate(), "", pieces, [width])[0], shared


def attention(b: BlockBuilder, x: Value, c: Config, s: Layer) -> tuple[Value, dict[str, Value]]:
    """Latent attention, and the latents that later layers read."""
    b.part = "attention"
    heads, rank, value_dim = c.num_attention_heads, c.size("kv_lora_rank"), c.size("v_head_dim")
    rope = c.size("qk_rope_head_dim")
    turned, name = (rope, "turned") if s.turned else (0, "unturned")
    own = rope - turned + c.size("qk_nope_head_dim")
    if rope % 2:
        raise c.error(f"rotary positions turn pairs: qk_rope_head_dim ({rope}) must be even")
    if s.source == "shared":
        latent, key = b.input(f"{name}_latents", rank), b.input(f"{name}_keys", rope) if s.turned else None
        q, _ = queries(b, x, c, turned, None)
    else:
        latent, key = own_latents(b, x, c, turned)
        q, key = queries(b, x, c, turned, key)
        latent, *rest = b.op(Cached(), "", [latent, *([key] if key else [])], [rank, *([rope] if key else [])])
        key = rest[0] if rest else None
    kept = {f"{name}_latents": latent} | ({f"{name}_keys": key} if key is not None else {})
    q = b.unary(
        ScaledByPlace(), q, "self_attn.softmax_scaling",
        [b.parameter("self_attn.softmax_scaling", leaf, (heads,)) for leaf in ("scale", "bias")],
    )  # fmt: skip
    joint = b.heads_first(b.heads(b.linear(latent, "self_attn.kv_b_proj", heads * (own + value_dim)), heads))
    k, v = b.split(joint, [own, value_dim])
    k = b.op(LatentKey(), "self_attn", [k, *([key] if key else [])], [own + turned])[0]
    index_dim = indexer(b, x, c) if s.indexed else 0
    has_own = s.source != "shared"
    cache = LayerCache("latent", latent_dim=rank * has_own, rope_dim=turned * has_own, index_dim=index_dim)
    mixed = b.attention(
        Attention(
            num_heads=heads, num_key_value_heads=heads, dropout=c.number("attention_dropout"), latent=True, masked=True
        ),
        q, k, v, cache=cache if has_own or index_dim else LayerCache("none"),
    )  # fmt: skip
    mixed = b.linear(mixed, "self_attn.o_proj", x.width, bias=c.flag("attention_bias"), shard="row")
    return mixed, kept if s.source == "kept" else {}


def indexer(b: BlockBuilder, x: Value, c: Config) -> int:
    """Scores of every earlier token; the width of the key that it keeps for each."""
    heads, width, module = c.size("index_n_heads"), c.size("index_head_dim"), "self_attn.indexer"
    products = {"wq_b": heads * width, "wk": width, "weights_proj": heads}
    wq, wk, weigh = (
        b.parameter(f"{module}.{name}", "weight", (rows, x.width), is_linear=True) for name, rows in products.items()
    )
    norms = [
        b.parameter(f"{module}.{name}", leaf, (size,), part="norm")
        for name, size in (("k_norm", width), ("q_input_norm", x.width)) for leaf in ("weight", "bias")
    ]  # fmt: skip
    scales = [b.parameter(f"{module}.softmax_scaling", leaf, (heads,)) for leaf in ("scale", "bias")]
    own = ScaledIndexer(num_heads=heads, head_dim=width)
    b.op(own, module, [x], [], [wq, wk, *norms[:2], weigh, *norms[2:], *scales])
    return width


def layer(c: Config, index: int, s: Layer, m: Mixture | None) -> Block:
    """A pre-norm decoder layer, dense without experts."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    mixed, kept = attention(b, b.rms_norm(x, "input_layernorm"), c, s)
    x = b.add(x, mixed)
    h = b.rms_norm(x, "post_attention_layernorm")
    if s.sparse and m is not None:
        h = feed_forward(b, h, m=m)
    else:
        h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act", "silu"))
    return b.build(hidden=b.add(x, h), **kept)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head with a cap."""
    c = c.filled(TEXT_DEFAULTS["mistral_large4_text"])
    kinds, m = layer_kinds(c), None
    if any(kind.sparse for kind in kinds):
        e = experts(c, None, keys=("num_experts", "n_routed_experts", "num_local_experts"), routing="mistral_large4",
                    normalized=True)  # fmt: skip
        m = Mixture(e, routing=grouped(c, e), shared=e.intermediate_size * c.size("n_shared_experts"))
    layers = (layer(c, i, kind, m) for i, kind in enumerate(kinds))
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings"), capped=True))
