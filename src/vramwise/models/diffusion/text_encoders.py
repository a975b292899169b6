"""Text encoders of pipelines, as transformers 5.23 runs them: T5's encoder, CLIP's text tower."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.families import t5
from vramwise.models.layers import t5_layers, t5_stack
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.operations.relative_bias import RelativePositionBias
from vramwise.models.operations.simple import Named
from vramwise.models.towers.contrastive import TEXT_DEFAULTS, text_tower
from vramwise.records import replace

_UMT5: dict[str, object] = {
    **t5.CLASS_DEFAULTS, "vocab_size": 250_112, "d_ff": 1024, "num_layers": 8, "num_heads": 6,
    "feed_forward_proj": "gated-gelu", "model_type": "umt5",
}  # fmt: skip
"""Defaults of `UMT5Config`."""


def t5_encoder(config: Config) -> tuple[Block, ...]:
    """`T5EncoderModel`: the encoder of T5 and its embedding. Stream: input_ids."""
    return _encoder(config.filled({**t5.CLASS_DEFAULTS, "model_type": "t5"}))


def umt5_encoder(config: Config) -> tuple[Block, ...]:
    """`UMT5EncoderModel`: the same with biases of distances in every layer, which its attention names to its end."""
    return tuple(map(_with_named_biases, _encoder(config.filled(_UMT5))))


def _with_named_biases(block: Block) -> Block:
    ops: list[Operation] = []
    for op in block.ops:
        ops.append(op)
        if isinstance(op, Attention):
            biases = tuple(one.outputs[0] for one in block.ops if isinstance(one, RelativePositionBias))
            normed = next(one.outputs for one in block.ops if isinstance(one, RmsNorm))
            ops.append(Named(module=op.module, inputs=(*biases, *normed)))
    return replace(block, ops=tuple(ops))


def _encoder(c: Config) -> tuple[Block, ...]:
    stack = t5_stack.Stack("encoder", c.num_hidden_layers)
    layers = (t5_layers.layer(c, stack, i) for i in range(stack.num_layers))
    return _as_called((t5_stack.embedding(c, stack), *layers, t5_stack.encoder_end(c, stack)), "encoder", states=False)


def described_text(config: Config) -> tuple[Block, ...]:
    """A language model that is described as such, run on text alone, with what every layer made named to the end."""
    from vramwise.models.registry import describe

    found = describe({key: value for key, value in config.values.items() if key != "_class_name"}, config.model_id)
    read = [block for block in found.blocks if block.modality == "text"]
    unread = (replace(block, no_grad=True) for block in found.blocks if block.modality != "text")
    return (*unread, *_as_called(read, "logits", states=True))


def clip_text(config: Config) -> tuple[Block, ...]:
    """`CLIPTextModel`: the text tower; the token that ends the prompt is its pooled answer. Stream: input_ids."""
    c = config.filled(TEXT_DEFAULTS["clip"]).filled({"looks_back": True})
    return _as_called(text_tower(c, clip=True), "hidden", states=config.flag("output_hidden_states"))


def clip_text_projected(config: Config) -> tuple[Block, ...]:
    """`CLIPTextModelWithProjection`: the same, its pooled answer projected."""
    blocks = clip_text(config)
    b = ComponentBuilder("")
    b.part = "projector"
    width = config.size("projection_dim", default=512)
    hidden = b.input("hidden", blocks[-1].outputs["hidden"].width)
    return (*blocks, b.build(hidden=b.linear(hidden, "text_projection", width)))


def _as_called(blocks: Sequence[Block], last: str, *, states: bool) -> tuple[Block, ...]:
    """Without gradients; the stack's frame names what was embedded to its end, `states`: what every layer made too."""
    found: list[Block] = []
    kept: dict[str, Value] = {}
    for block in blocks:
        outputs = dict(block.outputs)
        is_last = not any(one.layer is not None for one in blocks[len(found) + 1 :])
        if "hidden" in outputs and (not found or (states and block.layer is not None and not is_last)):
            kept[f"state {len(found)}"] = outputs[f"state {len(found)}"] = outputs["hidden"]
        found.append(replace(block, no_grad=True, outputs=outputs))
    b = ComponentBuilder("")
    b.still_named(*(b.input(name, value.width) for name, value in kept.items()))
    return (*found, b.build(**{last: b.input(last, blocks[-1].outputs[last].width)}))
