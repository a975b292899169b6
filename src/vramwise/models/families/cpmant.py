"""CPM-Ant: a decoder with learned prompts before the text and biases for segments and distances."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention, AttentionStyle, attention_dropout
from vramwise.records import record

CLASS_DEFAULTS = {
    "vocab_size": 30720, "hidden_size": 4096, "num_attention_heads": 32, "dim_head": 128, "dim_ff": 10240,
    "num_hidden_layers": 48, "position_bias_num_buckets": 512, "prompt_types": 32, "prompt_length": 32,
    "segment_types": 32,
}  # fmt: skip
"""Defaults of `CpmAntConfig`."""


def loss(c: Config) -> str:
    """The class does not shift labels."""
    return "masked-lm"


def embedding(c: Config) -> Block:
    """Tokens and prompts in one table, segments, and the table of position biases."""
    b = BlockBuilder("cpmant", part="embedding")
    width, segments, prompt = c.hidden_size, c.size("segment_types"), c.size("prompt_length")
    rows = c.vocab_size + c.size("prompt_types") * prompt
    tables = [
        b.parameter("input_embedding", "weight", (rows, width), shard="vocab"),
        b.parameter("segment_embedding", "weight", (segments, width)),
    ]
    tokens, kinds = (b.op(PromptedEmbedding(prompt_length=prompt), "", [], [width], [t])[0] for t in tables)
    shape = (segments**2 + c.size("position_bias_num_buckets"), c.num_attention_heads)
    table = b.parameter("position_bias", "relative_attention_bias", shape, part="attention")
    (bias,) = b.op(SegmentPositionBias(prompt_length=prompt), "position_bias", [], [shape[1]], [table])
    return b.build(hidden=b.add(tokens, kinds), position_bias=bias)


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention with a width of its own for each head."""
    heads, d, module = c.num_attention_heads, c.size("dim_head"), "self_att.self_attention"
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"{module}.project_{name}", heads * d), heads)) for name in "qkv"
    )  # fmt: skip
    mixed = b.attention(
        Attention(
            num_heads=heads, num_key_value_heads=heads, style=CPMANT, dropout=c.number("dropout_p"), eager_only=True
        ),
        q,
        k,
        v,
        module=module,
        others=[b.input("position_bias", heads)],
    )
    return b.linear(mixed, f"{module}.attention_out", x.width, shard="row")


def layer(c: Config, index: int) -> Block:
    """A pre-norm layer with a gated feed-forward."""
    b = BlockBuilder(f"cpmant.encoder.layers.{index}", layer=index, part="attention")
    dropout, width = c.number("dropout_p"), c.size("dim_ff")
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(x, "self_att.layernorm_before_attention", style="t5")
    x = b.add(x, b.dropout(attention(b, h, c), dropout))
    b.part = "mlp"
    h = b.rms_norm(x, "ffn.layernorm_before_ffn", style="t5")
    gate = b.activation(b.linear(h, "ffn.ffn.w_in.w_0", width), "gelu", "ffn.ffn.w_in.act")
    h = b.dropout(b.multiply(gate, b.linear(h, "ffn.ffn.w_in.w_1", width)), dropout)
    return b.build(hidden=b.add(x, b.dropout(b.linear(h, "ffn.ffn.w_out", x.width, shard="row"), dropout)))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, norm and output projection, which is never tied."""
    c = config.filled(CLASS_DEFAULTS)
    b = BlockBuilder("", part="head")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "cpmant.encoder.output_layernorm", style="t5")
    x = b.unary(WithoutPrompt(), x)
    head = b.build(logits=b.linear(x, "lm_head", c.vocab_size, shard="vocab"))
    return (embedding(c), *(layer(c, i) for i in range(c.num_hidden_layers)), head)


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class PromptedEmbedding(Operation):
    prompt_length: int


@lowering(PromptedEmbedding)
def prompted_embedding(run: Lowering, op: PromptedEmbedding) -> Tensor:
    """Ids (or segments) of the prompt and the text, joined and looked up."""
    length = run.sequence + op.prompt_length
    return run.tape.embedding(run.tape.new((run.batch, length), "int32", op="cat"), *run.parameters_of(op))


@record(kw_only=True, eq=False)
class SegmentPositionBias(Operation):
    prompt_length: int


@lowering(SegmentPositionBias)
def segment_position_bias(run: Lowering, op: SegmentPositionBias) -> Tensor:
    """The bucket of every pair of positions looked up: (batch, heads, queries, keys), once for all layers."""
    length = run.sequence + op.prompt_length
    buckets = run.tape.new((run.batch, length, length), "int32", op="where")
    found = run.tape.embedding(buckets, *run.parameters_of(op))
    return run.tape.contiguous(run.tape.permute(found, 0, 3, 1, 2))


class WithoutPrompt(Operation):
    __slots__ = ()


@lowering(WithoutPrompt)
def without_prompt(run: Lowering, op: WithoutPrompt, x: Tensor) -> Tensor:
    return run.tape.narrow(x, 1, run.sequence)


CPMANT = AttentionStyle("cpmant")


@CPMANT.path("eager")
def _eager_cpmant(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Scores masked before the softmax and after it, each time by a mask made anew."""
    tape = run.tape
    scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
    masks = [tape.new((run.batch, 1, q.shape[2], k.shape[2]), "bool", op="eq") for _ in range(2)]
    weights = tape.masked_fill(tape.softmax(tape.masked_fill(scores, masks[0])), masks[1])
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))
