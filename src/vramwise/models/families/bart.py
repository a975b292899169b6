"""BART and its relatives: encoder-decoders with biases everywhere, whole or as their decoder alone.

A config whose `architectures` names a causal class (`BartForCausalLM`, ...), or that sets `is_decoder` without
`is_encoder_decoder`, is the decoder with its unused cross-attention; any other is the whole. Streams: `hidden` runs
through both stacks, `encoder` is the encoder's result. Layer drop (`encoder_layerdrop`) is not counted: it leaves
layers out by chance. BigBird-Pegasus is described with full attention, as its class runs up to 704 tokens by default.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.bart_layers import Stack, layer
from vramwise.models.layers.seq2seq_design import design_of
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.towers.sound import frames


def task(c: Config) -> Task:
    """The head that the config asks for, the projection where it names the bare model; TrOCR's text is a decoder."""
    if c.model_type == "trocr":
        return "causal-lm"
    found = task_of(c, "seq2seq-lm")
    return "seq2seq-lm" if found == "none" else found


def loss(c: Config) -> str:
    """These classes do not shift the labels of a causal model either."""
    return "masked-lm"


def _fixed_table(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Positions computed once and kept as a parameter that is never trained; backward needs nothing of them."""
    if c.model_type in ("m2m_100", "trocr"):  # their tables are no parameters
        return x
    shape = (c.size("max_position_embeddings"), c.hidden_size)
    return b.unary("hold", x, "embed_positions", [b.parameter("embed_positions", "weight", shape)])


def embedding(s: Stack) -> Block:
    """Tokens, scaled, plus positions; norm, dropout."""
    c, d, width = s.c, s.d, s.c.hidden_size
    b = BlockBuilder(f"model.{s.name}", part="embedding")
    owner = s.tied("model.shared.weight") if s.shares else None
    table = b.parameter("embed_tokens", "weight", (s.vocabulary, width), shard="vocab", tied_to=owner)
    ids = "input_ids" if s.alone else f"{s.name}_input_ids"
    x = b.scale(b.op("embedding", "embed_tokens", [], [width], [table], ids=ids)[0])
    if d.embedding_norm == "tokens" and s.is_decoder:
        x = b.layer_norm(x, "layernorm_embedding")
    if d.positions == "fixed":
        x = _fixed_table(b, x, c)
    else:
        limit = "max_target_positions" if d.hears else "max_position_embeddings"
        shape = (c.size(limit) + (2 if d.positions == "offset" else 0), width)
        rows = c.model_type in _ROWS_IN_DECODER if s.is_decoder else d.positions == "offset"
        kind = ("" if s.is_decoder else "encoder_") + ("position_rows" if rows else "position_ids")
        weight = b.parameter("embed_positions", "weight", shape)
        x = b.add(x, b.op("embedding", "embed_positions", [], [width], [weight], ids=kind)[0])
    if d.embedding_norm == "sum" or (d.embedding_norm == "tokens" and not s.is_decoder):
        x = b.layer_norm(x, "layernorm_embedding")
    return b.build(hidden=b.dropout(x, c.number("dropout")))


_ROWS_IN_DECODER = frozenset({"trocr", "mvp", "whisper"})
"""Classes that make one row of position ids for each sequence in the decoder too."""


def shared_embedding(s: Stack) -> Block:
    """The table whose storage the stacks and the head share."""
    b = BlockBuilder("")
    x = b.input("hidden", s.c.hidden_size)
    table = b.parameter("model.shared", "weight", (s.c.vocab_size, x.width), part="embedding", shard="vocab")
    return b.build(hidden=b.unary("hold", x, "model.shared", [table]))


def closing(s: Stack) -> Block:
    """The norm after a stack's layers where there is one, and after the decoder the projection to the vocabulary."""
    b = BlockBuilder("")
    x = b.input("hidden", s.c.hidden_size)
    if s.d.final_norm:
        x = b.layer_norm(x, f"model.{s.name}.{s.d.final_norm}")
    if not s.is_decoder:
        return b.build(encoder=x)
    owner = s.tied("model.shared.weight" if s.shares else "model.decoder.embed_tokens.weight")
    if s.alone and s.c.model_type == "bigbird_pegasus":
        owner = None  # the class names no tied weights
    rows = s.c.vocab_size if s.alone or s.shares else s.vocabulary
    logits = b.linear(x, s.d.head, rows, shard="vocab", part="head", tied_to=owner)
    return b.build(logits=b.unary("add_buffer", logits) if s.d.logits_bias and not s.alone else logits)


def blocks(config: Config) -> tuple[Block, ...]:
    """Encoder, then decoder and head, or the decoder alone; layers are numbered through both stacks."""
    c, d = design_of(config)
    if c.flag("use_prompt"):
        raise c.error("use_prompt: prompts are not described")
    if task(config) == "causal-lm":
        stack = Stack(c, d, "decoder", alone=True)
        return (embedding(stack), *(layer(stack, i) for i in range(stack.num_layers)), closing(stack))
    encoder = Stack(c, d, "encoder", alone=False)
    decoder = Stack(c, d, "decoder", alone=False, first_layer=encoder.num_layers)
    shared = (shared_embedding(encoder),) if encoder.shares else ()
    first = (frames(c),) if d.hears else (embedding(encoder), *shared)
    layers = [tuple(layer(stack, i) for i in range(stack.num_layers)) for stack in (encoder, decoder)]
    return (*first, *layers[0], closing(encoder), embedding(decoder), *layers[1], closing(decoder))
