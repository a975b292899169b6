"""BART and its relatives: encoder-decoders with biases everywhere, whole or as their decoder alone.

A config whose `architectures` names a causal class (`BartForCausalLM`, ...), or that sets `is_decoder` without
`is_encoder_decoder`, is the decoder with its unused cross-attention; any other is the whole. Streams: `hidden` runs
through both stacks, `encoder` is the encoder's result. Layer drop (`encoder_layerdrop`) is not counted: it leaves
layers out by chance. BigBird-Pegasus is described with full attention, as its class runs up to 704 tokens by default.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.bart_ends import closing, embedding, shared_embedding
from vramwise.models.layers.bart_layers import Stack, layer
from vramwise.models.layers.seq2seq_design import design_of
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.towers.whisper_frames import frames


def task(c: Config) -> Task:
    """The head that the config asks for, the projection where it names the bare model; TrOCR's text is a decoder."""
    if c.model_type == "trocr":
        return "causal-lm"
    found = task_of(c, "seq2seq-lm")
    return "seq2seq-lm" if found == "none" else found


def loss(c: Config) -> str:
    """These classes do not shift the labels of a causal model either."""
    return "masked-lm"


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
