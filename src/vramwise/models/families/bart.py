"""BART and its relatives: encoder-decoders with biases everywhere, whole or as their decoder alone.

A config whose `architectures` names a causal class (`BartForCausalLM`, ...), or that sets `is_decoder` without
`is_encoder_decoder`, is the decoder with its unused cross-attention; any other is the whole. Streams: `hidden` runs
through both stacks, `encoder` is the encoder's result. Layer drop (`encoder_layerdrop`) is not counted: it leaves
layers out by chance. BigBird-Pegasus is described with full attention, as its class runs up to 704 tokens by default.
Names and defaults are those of transformers 5.23.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.bart_ends import closing, embedding, shared_embedding
from vramwise.models.layers.bart_layers import Stack, layer
from vramwise.models.layers.seq2seq_design import Design
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.towers.whisper_frames import frames

BART = Design()
_PRE_NORM = Design(pre_norm=True, final_norm="layer_norm")
_DESIGNS: dict[str, Design] = {
    "bart": BART,
    "bigbird_pegasus": Design(
        "learned", pre_norm=True, embedding_norm="none", final_norm="layernorm_embedding",
        encoder_attention=("self_attn.self.{}", "self_attn.output"), tied_alone=False, encoder_clamps=False,
        encoder_drops_inside=False,
    ),
    "blenderbot": replace(_PRE_NORM, positions="learned", embedding_norm="none"),
    "blenderbot-small": Design("learned", embedding_norm="tokens"),
    "led": Design("learned", attention="folded", masks_one_token=False),
    "m2m_100": replace(
        _PRE_NORM, positions="fixed", fixed_table="buffer", embedding_norm="none", logits_bias=False
    ),
    "marian": Design("fixed", embedding_norm="none"),
    "mbart": _PRE_NORM,
    "mvp": Design(attention="folded", decoder_rows=True),
    "pegasus": replace(_PRE_NORM, positions="fixed", embedding_norm="none"),
    "plbart": BART,
    "trocr": Design(attention="folded", head="output_projection", fixed_table="neither", decoder_rows=True),
    "whisper": Design(
        "learned", pre_norm=True, embedding_norm="none", final_norm="layer_norm", attention="copied",
        head="proj_out", logits_bias=False, hears=True, decoder_rows=True,
    ),
}  # fmt: skip

_NAMES = ("vocab_size", "d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "decoder_layers",
          "decoder_attention_heads", "decoder_ffn_dim", "max_position_embeddings")  # fmt: skip
_SIZES = {
    "bart": (50265, 1024, 12, 16, 4096, 12, 16, 4096, 1024),
    "bigbird_pegasus": (96103, 1024, 16, 16, 4096, 16, 16, 4096, 4096),
    "blenderbot": (8008, 2560, 2, 32, 10240, 24, 32, 10240, 128),
    "blenderbot-small": (50265, 512, 8, 16, 2048, 8, 16, 2048, 512),
    "m2m_100": (128112, 1024, 12, 16, 4096, 12, 16, 4096, 1024),
    "marian": (58101, 1024, 12, 16, 4096, 12, 16, 4096, 1024),
    "mvp": (50267, 1024, 12, 16, 4096, 12, 16, 4096, 1024),
    "plbart": (50005, 768, 6, 12, 3072, 6, 12, 3072, 1024),
    "trocr": (50265, 1024, 12, 16, 4096, 12, 16, 4096, 512),
    "whisper": (51865, 384, 4, 6, 1536, 4, 6, 1536, 448),
}
_OTHERS: dict[str, dict[str, object]] = {
    "bigbird_pegasus": {"activation_function": "gelu_new"},
    "m2m_100": {"activation_function": "relu", "attention_dropout": 0.1},
    "plbart": {"attention_dropout": 0.1},
    "whisper": {"dropout": 0.0, "num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448},
}


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


def design_of(config: Config) -> tuple[Config, Design]:
    """The config with its class's defaults, and the switches of its model type."""
    model_type = config.model_type
    design = _DESIGNS[model_type]
    sizes = dict(zip(_NAMES, _SIZES.get(model_type, _SIZES["bart"]), strict=True))
    c = config.filled({"dropout": 0.1, "activation_function": "gelu", **sizes, **_OTHERS.get(model_type, {})})
    if model_type == "bigbird_pegasus":
        design = replace(design, attention_bias=c.flag("use_bias"))
    if model_type == "trocr":
        if not c.flag("use_learned_position_embeddings", True):
            design = replace(design, positions="fixed")
        if not c.flag("layernorm_embedding", True):
            design = replace(design, embedding_norm="none")
    return c, design
