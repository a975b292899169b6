"""XLNet: two-way attention over contents and relative positions, without recurrence between batches."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import HeadedAttention
from vramwise.models.operations.simple import Hold, input_tensor
from vramwise.records import record

CLASS_DEFAULTS = {"vocab_size": 32000, "d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096}
"""Defaults of `XLNetConfig`."""


def loss(c: Config) -> str:
    """The class does not shift labels."""
    return "masked-lm"


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """One operation with weights that keep their heads apart; the segments' stay without use."""
    heads, module = c.num_attention_heads, "rel_attn"
    if x.width % heads:
        raise c.error(f"n_head ({heads}) does not divide d_model ({x.width})")
    d = x.width // heads
    weights = [b.parameter(module, name, (x.width, heads, d)) for name in "qkvor"]
    weights += [b.parameter(module, f"r_{kind}_bias", (heads, d)) for kind in "rsw"]
    weights.append(b.parameter(module, "seg_embed", (2, heads, d)))
    return b.unary(XlnetAttention(dropout=c.number("dropout", 0.1), num_heads=heads), x, module, weights)


def layer(c: Config, index: int) -> Block:
    """A post-norm layer."""
    b = BlockBuilder(f"transformer.layer.{index}", layer=index, part="attention")
    dropout = c.number("dropout", 0.1)
    x = b.input("hidden", c.hidden_size)
    if c.flag("use_mems_eval", True):  # the layer's inputs, which its keys and values are made of again
        kept = c.size("mem_len", default=0, least=0) or None
        b.keep(LayerCache("sliding" if kept else "full", 1, x.width, 0, window=kept))
    x = b.layer_norm(b.add(b.dropout(attention(b, x, c), dropout), x), "rel_attn.layer_norm")
    b.part = "mlp"
    h = b.linear(x, "ff.layer_1", c.size("d_inner"), bias=True)
    h = b.dropout(b.activation(h, c.text("ff_activation", "gelu"), "ff.activation_function"), dropout)
    h = b.dropout(b.linear(h, "ff.layer_2", x.width, bias=True, shard="row"), dropout)
    return b.build(hidden=b.layer_norm(b.add(h, x), "ff.layer_norm"))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, output projection with a bias."""
    c = config.filled(CLASS_DEFAULTS)
    b = BlockBuilder("transformer", part="embedding")
    table = b.parameter("word_embedding", "weight", (c.vocab_size, c.hidden_size), shard="vocab")
    x = b.op(SequenceFirstEmbedding(), "word_embedding", [], [c.hidden_size], [table])[0]
    x = b.unary(Hold(), x, "", [b.parameter("", "mask_emb", (1, 1, x.width))])
    first = b.build(hidden=b.dropout(x, c.number("dropout", 0.1)))
    end = BlockBuilder("", part="head")
    x = end.unary(BatchFirst(), end.dropout(end.input("hidden", c.hidden_size), c.number("dropout", 0.1)))
    tied_to = "transformer.word_embedding.weight" if c.flag("tie_word_embeddings", True) else None
    last = end.build(logits=end.linear(x, "lm_loss", c.vocab_size, bias=True, shard="vocab", tied_to=tied_to))
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


class SequenceFirstEmbedding(Operation):
    __slots__ = ()


@lowering(SequenceFirstEmbedding)
def sequence_first_embedding(run: Lowering, op: SequenceFirstEmbedding) -> Tensor:
    """Ids turned to (sequence, batch), a copy, and looked up."""
    tape = run.tape
    ids = tape.contiguous(tape.transpose(input_tensor(run, "input_ids"), 0, 1))
    return tape.embedding(ids, *run.parameters_of(op))


class BatchFirst(Operation):
    __slots__ = ()


@lowering(BatchFirst)
def batch_first(run: Lowering, op: BatchFirst, x: Tensor) -> Tensor:
    return run.tape.contiguous(run.tape.permute(x, 1, 0, 2))


@record(kw_only=True, eq=False)
class XlnetAttention(HeadedAttention):
    dropout: float


@lowering(XlnetAttention)
def xlnet_attention(run: Lowering, op: XlnetAttention, x: Tensor) -> Tensor:
    """`XLNetRelativeAttention` as far as the output projection.

    The weights are no operands of linear layers, so that autocast casts them, and the input for each, anew.
    """
    tape, p = run.tape, op.dropout if run.execution.dropout else 0.0
    query, key, value, out, relative, distance_bias, _, content_bias, _ = run.parameters_of(op)
    q, k, v = (tape.einsum("ibh,hnd->ibnd", x, weight) for weight in (query, key, value))
    distances = tape.to(_distances(run, x.shape[-1], p), relative.dtype)
    r = tape.einsum("ibh,hnd->ibnd", distances, relative)
    content = tape.einsum("ibnd,jbnd->bnij", tape.add(q, content_bias), k)
    shifted = _shifted(run, tape.einsum("ibnd,jbnd->bnij", tape.add(q, distance_bias), r))
    scores = tape.scale(tape.scale(tape.add(content, shifted), "add_scalar"))
    weights = tape.dropout(tape.softmax(scores), p)
    return tape.einsum("ibnd,hnd->ibh", tape.einsum("bnij,jbnd->ibnd", weights, v), out)


def _distances(run: Lowering, width: Dim, p: float) -> Tensor:
    """Sines and cosines of every distance, seen for every row of the batch, with a dropout; made once."""
    if "distances" not in run.tables:
        tape = run.tape
        table = tape.new((2 * run.sequence, 1, width), "fp32", op="cat")
        wide = tape.expand(table, 2 * run.sequence, run.batch, width)
        run.tables["distances"] = (tape.dropout(wide, p),)
    return run.tables["distances"][0]


def _shifted(run: Lowering, scores: Tensor) -> Tensor:
    """`rel_shift_bnij`: each query's distances moved to its keys; `index_select` keeps the keys' numbers."""
    tape = run.tape
    b, n, i, j = scores.shape
    x = tape.narrow(tape.reshape(scores, b, n, j, i), 2, j - 1)
    x = tape.reshape(x, b, n, i, j - 1)
    keys = tape.new((i,), "int64", op="arange")
    picked = tape.new((b, n, i, i), x.dtype, requires_grad=x.requires_grad, op="index_select")
    tape.record("index_select", [x, keys], [picked], [(keys, "index")])
    return picked
