"""MiniMax Text 01: layers of lightning attention and of softmax attention, all with experts."""

from __future__ import annotations

from typing import Any

from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import Dim, chunks_of
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head, token_embedding
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.routed_experts import Experts, balancing_loss, checked, routed_experts
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import HeadedAttention
from vramwise.models.operations.experts import Jitter
from vramwise.models.operations.mixers import PaddingZeroed
from vramwise.records import record

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "num_experts_per_tok": 2,
    "num_local_experts": 8, "block_size": 256,
}  # fmt: skip
"""Defaults of `MiniMaxConfig` (transformers 5.23)."""


def lightning_attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(sigmoid(gate(x)) · norm(linear attention with a decay for every head)); keeps a d·d matrix for each."""
    heads, d, module = c.num_attention_heads, c.head_dim, "self_attn"
    b.part = "attention"
    length = c.size("block_size")
    for name, shape in (("slope_rate", (heads, 1, 1)), ("query_decay", (heads, length, 1)),
                        ("key_decay", (heads, length, 1)), ("diagonal_decay", (1, heads, length, length))):  # fmt: skip
        b.buffer(module, name, shape)
    qkv = b.activation(b.linear(x, f"{module}.qkv_proj", 3 * heads * d), c.text("hidden_act"), f"{module}.act_fn")
    settings: dict[str, Any] = {"num_heads": heads, "chunk_size": length}
    mixed = b.unary(LightningAttention(**settings), b.unary(PaddingZeroed(), qkv), module, width=heads * d)
    mixed = b.rms_norm(mixed, f"{module}.norm")
    gate = b.activation(b.linear(x, f"{module}.output_gate", heads * d), "sigmoid", module)
    mixed = b.multiply(gate, mixed)
    b.keep(LayerCache("recurrent", state_elements=heads * d * d, model_dtype_state=True))
    return b.linear(mixed, f"{module}.out_proj", x.width, shard="row")


def layer(c: Config, index: int, kind: str, e: Experts) -> Block:
    """Norms feed the residual too, and both terms are scaled."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.rms_norm(b.input("hidden", c.hidden_size), "input_layernorm")
    window = c.size("sliding_window", default=0, least=0) or None
    mixed = lightning_attention(b, x, c) if kind == "linear_attention" else grouped_attention(b, x, c, window=window)
    x = b.rms_norm(b.add(b.scale(x), b.scale(mixed)), "post_attention_layernorm")
    x = b.unary(Jitter(), x, "mlp") if c.number("router_jitter_noise") > 0 else x
    return b.build(hidden=b.add(b.scale(x), b.scale(routed_experts(b, x, e))))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(CLASS_DEFAULTS)
    default = ["linear_attention" if i % 2 else "full_attention" for i in range(c.num_hidden_layers)]
    kinds = layer_kinds(c, default, allowed=("linear_attention", "full_attention"))
    e = checked(c, Experts(
        num_experts=c.size("num_local_experts"), experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.intermediate_size, function=c.text("hidden_act"), routing="mixtral",
    ))  # fmt: skip
    layers = tuple(layer(c, i, kind, e) for i, kind in enumerate(kinds))
    head = lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings"))
    return (token_embedding(c), *layers, *balancing_loss(c, e, len(layers)), head)


# -- as transformers 5.23 runs it -------------------------------------------------------------------------
# Its steps are alike, so that they are recorded once; sums over blocks are sizes of one tensor.


@record(kw_only=True, eq=False)
class LightningAttention(HeadedAttention):
    chunk_size: int


@lowering(LightningAttention)
def lightning_attention_lowered(run: Lowering, op: LightningAttention, qkv: Tensor) -> Tensor:
    """q·kᵀ·decay·v within a block plus q·decay·S, where S sums kᵀ·v of the blocks before: (b, s, h·d)."""
    tape, heads, length = run.tape, op.num_heads, op.chunk_size
    joint = tape.reshape(qkv, *qkv.shape[:2], heads, qkv.shape[-1] // heads)
    q, k, v = (tape.transpose(x, 1, 2) for x in tape.chunk(joint, 3))
    within = _within_blocks(run, q, k, v, length)
    before = _blocks_before(run, q, k, v, length)
    out = tape.cat([tape.add(before, within)], 2)
    return tape.reshape(tape.transpose(out, 1, 2), *qkv.shape[:2], -1)


def _outgrows(run: Lowering, length: int) -> bool:
    return length in run.windows_reached


def _before_last(run: Lowering, length: int) -> Dim:
    """How many positions there are before the last block."""
    return (chunks_of(run.sequence, length) - 1) * length if _outgrows(run, length) else 0


def _decay_buffer(run: Lowering, *shape: Dim) -> Tensor:
    """One of the module's buffers."""
    return run.tape.new(shape, run.execution.param_dtype, kind="buffer", op="buffer")


def _heads_in_batch(run: Lowering, x: Tensor) -> Tensor:
    """Heads folded into the batch: a copy where they do not lie so."""
    (x,) = run.tape.autocast_low(x)
    return run.tape.reshape(x, x.shape[0] * x.shape[1], *x.shape[2:])


def _within_blocks(run: Lowering, q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    tape = run.tape
    b, heads, s, d = q.shape
    earlier = _before_last(run, length)
    pairs = earlier * length + (s - earlier) * (s - earlier)
    rows, columns = _heads_in_batch(run, q), _heads_in_batch(run, tape.transpose(k, 2, 3))
    work = 2 * b * heads * pairs * d
    scores = tape.new((b, heads, pairs), rows.dtype, requires_grad=True, op="bmm")
    saves = [(rows, "self"), (columns, "mat2")]
    tape.record("bmm", [rows, columns], [scores], saves, flops=work, backward_flops=2 * work)
    decay = _decay_buffer(run, 1, heads, length, length)
    dtype = promote(scores.dtype, decay.dtype)
    decayed = tape.new(scores.shape, dtype, requires_grad=True, op="mul")
    tape.record("mul", [scores, decay], [decayed], [(decay, "other")])
    (decayed,), values = tape.autocast_low(decayed), _heads_in_batch(run, v)
    out = tape.new((b, heads, s, d), values.dtype, requires_grad=True, op="bmm")
    saves = [(decayed, "self"), (values, "mat2")]
    tape.record("bmm", [decayed, values], [out], saves, flops=work, backward_flops=2 * work)
    return out


def _decayed(run: Lowering, x: Tensor, length: int) -> Tensor:
    """x times a buffer of factors by head and position of a block."""
    return run.tape.mul(x, run.tape.narrow(_decay_buffer(run, x.shape[1], length, 1), 1, x.shape[2]))


def _blocks_before(run: Lowering, q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
    """The first block reads zeros without a gradient, for which no query is kept; the last S is not read."""
    tape, many = run.tape, _outgrows(run, length)
    b, heads, s, d = q.shape
    state = (b, heads, d, d)
    zeros = tape.new(state, v.dtype, op="zeros")
    (queries,) = tape.autocast_low(_decayed(run, q, length))
    out = tape.new((b, heads, s, d), queries.dtype, requires_grad=True, op="bmm")
    saves, work, backward = [(zeros, "mat2")], 2 * b * heads * s * d * d, 2 * b * heads * s * d * d
    inputs = [queries, zeros]
    if many:
        states = _summed_states(run, k, v, length)
        read = tape.new((b, heads, s - length, d), queries.dtype, requires_grad=True, op="clone")
        tape.record("clone", [queries], [read])
        saves += [(states, "mat2"), (read, "self")]
        backward = backward + 2 * b * heads * (s - length) * d * d
        inputs = [read, zeros, states]
    tape.record("bmm", inputs, [out], saves, flops=work, backward_flops=backward)
    if not many:  # S of the only block: made, and dropped with its graph
        tape.record("bmm", [tape.detached(k), tape.detached(v)], [zeros], flops=work)
    return out


def _summed_states(run: Lowering, k: Tensor, v: Tensor, length: int) -> Tensor:
    """S after every block but the last, whose product is made too, in the dtype in which queries meet them."""
    tape, earlier = run.tape, _before_last(run, length)
    b, heads, s, d = k.shape
    (keys,) = tape.autocast_low(_decayed(run, k, length))
    low = keys.dtype
    kept = tape.new((b, heads, earlier, d), low, requires_grad=True, op="clone")
    tape.record("clone", [keys], [kept])
    values = _heads_in_batch(run, v)
    if values.storage is not v.storage:
        values = tape.new((b, heads, earlier, d), low, requires_grad=True, op="clone")
        tape.record("clone", [v], [values])
    blocks = chunks_of(run.sequence, length) - 1
    states = tape.new((blocks, b, heads, d, d), low, requires_grad=True, op="add")
    factors = tape.new((blocks - 1, heads), run.execution.param_dtype, op="exp")
    tape.record(
        "bmm", [kept, values], [states], [(kept, "self"), (values, "mat2"), (factors, "other")],
        flops=2 * b * heads * s * d * d, backward_flops=2 * 2 * b * heads * earlier * d * d,
    )  # fmt: skip
    return states
