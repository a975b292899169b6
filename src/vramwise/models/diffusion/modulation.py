"""What denoisers of two streams share: norms scaled and shifted by the step's time, feed-forwards behind a gate."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.operations.latents import Waves

TIMES = 256
"""Sines and cosines of a step's time, in the code of every class here."""


def modulated_norm(
    b: ComponentBuilder, x: Value, temb: Value, module: str, count: int
) -> tuple[Value, tuple[Value, ...]]:
    """`AdaLayerNormZero`: a norm, scaled and shifted by what a linear layer makes of silu(temb); the other pieces."""
    emb = b.linear(b.activation(temb, "silu", f"{module}.silu"), f"{module}.linear", count * x.width, bias=True)
    shift, scale, *rest = b.pieces(emb, count, module)
    normed = b.layer_norm(x, f"{module}.norm", weight=False)
    return b.modulated(normed, scale, shift, module), tuple(rest)


def continuous_norm(b: ComponentBuilder, x: Value, temb: Value, module: str) -> Value:
    """`AdaLayerNormContinuous`: the same with scale and shift alone."""
    emb = b.linear(b.activation(temb, "silu", f"{module}.silu"), f"{module}.linear", 2 * x.width, bias=True)
    scale, shift = b.pieces(emb, 2, module)
    return b.modulated(b.layer_norm(x, f"{module}.norm", weight=False), scale, shift, module)


def step_embedding(b: ComponentBuilder, stream: str, module: str, width: int) -> Value:
    """A number for each row as `width` values."""
    waves = b.unary(Waves(width=TIMES), b.input(stream, 1), module.rpartition(".")[0], width=TIMES)
    return b.time_embedding(waves, module, width)


def fed(
    b: ComponentBuilder, x: Value, norm: str, module: str, pieces: tuple[Value, ...], replaced: Value
) -> tuple[Value, tuple[Value, ...]]:
    """x + gate · ff(norm(x) · (1 + scale) + shift), and what the frame names; `replaced`: named until the norm."""
    shift, scale, gate = pieces
    h = b.layer_norm(x, norm, weight=False)
    b.still_named(replaced)
    h = b.modulated(h, scale, shift)
    out = b.gated(gate, b.feed_forward(h, module))
    return b.add(x, out), (h, out)
