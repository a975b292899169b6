"""The encoder and the decoder of T5 and its relatives: what is around their layers.

Streams: `hidden` runs through both stacks, `encoder` is the encoder's result. The token embedding, both stacks' names
for it and the output projection are one storage, as transformers 5.23 ties them whatever `tie_word_embeddings` says;
checkpoints of v1.1 and Flan-T5 hold a projection of their own, vocab_size · d_model parameters more.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.simple import Embedding, Hold
from vramwise.records import record


@record
class Stack:
    """The encoder or the decoder, and how many layers of the model come before it."""

    name: str
    num_layers: int
    first_layer: int = 0

    @property
    def is_decoder(self) -> bool:
        return self.name == "decoder"


def embedding(c: Config, stack: Stack) -> Block:
    """Token ids -> hidden states; the encoder's comes first and holds the storage that all share."""
    b = BlockBuilder("", part="embedding")
    rows, width = c.vocab_size, c.hidden_size
    module = f"{stack.name}.embed_tokens"
    table = b.parameter(module, "weight", (rows, width), shard="vocab", tied_to="shared.weight")
    (x,) = b.op(Embedding(ids=f"{stack.name}_input_ids"), module, [], [width], [table])
    if not stack.is_decoder:
        x = b.unary(Hold(), x, "shared", [b.parameter("shared", "weight", (rows, width), shard="vocab")])
    return b.build(hidden=b.dropout(x, c.number("dropout_rate")))


def final_norm(b: BlockBuilder, c: Config, stack: Stack) -> Value:
    """The norm and dropout after a stack's layers."""
    x = b.rms_norm(b.input("hidden", c.hidden_size), f"{stack.name}.final_layer_norm", style="t5")
    return b.dropout(x, c.number("dropout_rate"))


def encoder_end(c: Config, stack: Stack) -> Block:
    """The encoder's last block, which hands its result to every decoder layer."""
    b = BlockBuilder("")
    return b.build(encoder=final_norm(b, c, stack))


def head(c: Config, stack: Stack) -> Block:
    """The decoder's norm and the output projection; v1.1 does not scale what it projects."""
    b = BlockBuilder("")
    x = outputs = final_norm(b, c, stack)
    tied = c.get("tie_word_embeddings") is not False
    if c.model_type == "umt5" or (c.model_type == "t5" and c.flag("scale_decoder_outputs", tied)):
        x = b.scale(x)
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to="shared.weight")
    b.named_beside_loss(outputs, x)  # `decoder_outputs` and `sequence_output`
    return b.build(logits=logits)


def model(c: Config, layer: Callable[[Config, Stack, int], Block]) -> tuple[Block, ...]:
    """Encoder, then decoder and head; layers are numbered through both stacks."""
    encoder = Stack("encoder", c.num_hidden_layers)
    decoder = Stack("decoder", c.size("num_decoder_layers", default=encoder.num_layers), encoder.num_layers)
    stacks = [
        (embedding(c, stack), *(layer(c, stack, i) for i in range(stack.num_layers))) for stack in (encoder, decoder)
    ]
    return (*stacks[0], encoder_end(c, encoder), *stacks[1], head(c, decoder))
