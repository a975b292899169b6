"""Writes blocks of diffusers' classes: convolutions, norms, modulation; without gradients."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.operations.latents import FusedRmsNorm, GatedBy, GroupNorm, MapConvolution, Modulated
from vramwise.models.operations.simple import Add, Multiply, Scale, Split


class ComponentBuilder(BlockBuilder):
    """A block that runs under `torch.no_grad`."""

    def __init__(self, name: str, layer: int | None = None) -> None:
        super().__init__(name, layer, no_grad=True)

    def inside_add(self, a: Value, b: Value, module: str) -> Value:
        """A sum that a module inside the block makes."""
        return self.op(Add(), module, [a, b], [a.width])[0]

    def inside_scale(self, x: Value, module: str) -> Value:
        """A product with a number that a module inside the block makes."""
        return self.unary(Scale(), x, module)

    def convolution(
        self, x: Value, module: str, width: int, kernel: int | Sequence[int], *, stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0, bias: bool = True, dimensions: int = 2,
    ) -> Value:  # fmt: skip
        """`nn.Conv2d` (or 3d): weight (width, x.width, *kernel)."""
        sizes, steps, pads = (
            (one,) * dimensions if isinstance(one, int) else tuple(one) for one in (kernel, stride, padding)
        )
        parameters = [self.parameter(module, "weight", (width, x.width, *sizes))]
        parameters += [self.parameter(module, "bias", (width,))] if bias else []
        return self.unary(MapConvolution(stride=steps, padding=pads), x, module, parameters, width)

    def group_norm(self, x: Value, module: str, groups: int) -> Value:
        """`nn.GroupNorm` with weight and bias."""
        parameters = [self.parameter(module, leaf, (x.width,), part="norm") for leaf in ("weight", "bias")]
        return self.unary(GroupNorm(groups=groups), x, module, parameters)

    def fused_rms_norm(self, x: Value, module: str, *, weight: bool = True) -> Value:
        """`nn.RMSNorm` over the last axis."""
        parameters = [self.parameter(module, "weight", (x.width,), part="norm")] if weight else []
        return self.unary(FusedRmsNorm(), x, module, parameters)

    def modulated(self, x: Value, scale: Value, shift: Value, module: str = "") -> Value:
        """x · (1 + scale) + shift."""
        return self.op(Modulated(), module, [x, scale, shift], [x.width])[0]

    def gated(self, gate: Value, x: Value) -> Value:
        """gate · x."""
        return self.op(GatedBy(), "", [gate, x], [x.width])[0]

    def pieces(self, x: Value, count: int, module: str = "") -> tuple[Value, ...]:
        """Views of equal pieces of the last axis."""
        width = x.width // count
        return self.op(Split(pieces=(width,) * count), module, [x], [width] * count)

    def feed_forward(self, x: Value, module: str, function: str = "gelu", inner: int | None = None) -> Value:
        """`FeedForward`: net.0.proj, its function, net.2; `geglu` multiplies one half by gelu of the other."""
        inner = inner or 4 * x.width
        first = f"{module}.net.0"
        if function == "geglu":
            wide = self.linear(x, f"{first}.proj", 2 * inner, bias=True)
            h, gate = self.pieces(wide, 2, first)
            acted = self.activation(gate, "gelu", f"{first}.gelu")
            wide = self.op(Multiply(), first, [h, acted], [inner])[0]
        else:
            wide = self.activation(self.linear(x, f"{first}.proj", inner, bias=True), function, f"{first}.gelu")
        return self.linear(wide, f"{module}.net.2", x.width, bias=True)

    def time_embedding(self, x: Value, module: str, width: int) -> Value:
        """`TimestepEmbedding`: two linear layers around silu."""
        h = self.activation(self.linear(x, f"{module}.linear_1", width, bias=True), "silu", f"{module}.act")
        return self.linear(h, f"{module}.linear_2", width, bias=True)
