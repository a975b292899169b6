"""Writes blocks: an operation a line, in the order in which the real class runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from typing import Literal

from vramwise.errors import SourceError
from vramwise.models.blocks import Block, Buffer, Modality, Operation, Parameter, Part, Shard, Value
from vramwise.models.caches import LayerCache
from vramwise.models.operations.attention import AnyAttention, Rotary
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.operations.simple import (
    Activation,
    Add,
    Conv1dLinear,
    Dropout,
    Embedding,
    Heads,
    HeadsFirst,
    Linear,
    Multiply,
    Named,
    Scale,
    ScaleByBuffer,
    Split,
)  # fmt: skip
from vramwise.records import record


@lru_cache(maxsize=4096)
def _value(id: int, width: int) -> Value:
    """Equal values of many layers are one: a description that is kept between runs holds it once."""
    return Value(id, width)


@record(frozen=False, slots=False)
class BlockBuilder:
    """Writes one block; every method appends an operation and returns its value or values."""

    name: str
    layer: int | None = None
    part: Part = "mlp"
    modality: Modality = "text"
    ops: list[Operation] = field(default_factory=list)
    _inputs: dict[str, Value] = field(default_factory=dict)
    _outputs: dict[str, Value] = field(default_factory=dict)
    _caches: list[LayerCache] = field(default_factory=list)
    _count: int = 0
    no_grad: bool = False
    tower_layer: bool = False
    _buffers: list[Buffer] = field(default_factory=list)

    # -- edges ---------------------------------------------------------------------------------------------

    def value(self, width: int) -> Value:
        self._count += 1
        return _value(self._count, width)

    def input(self, stream: str, width: int) -> Value:
        """The block's view of a stream that comes from the block before."""
        self._inputs[stream] = value = self.value(width)
        return value

    def hand_on(self, stream: str, value: Value) -> None:
        """A stream besides those that `build` names."""
        self._outputs[stream] = value

    def build(self, **outputs: Value) -> Block:
        """The finished block; keyword arguments name the streams that it hands on."""
        return Block(
            self.name, tuple(self.ops), dict(self._inputs), {**outputs, **self._outputs}, self.layer,
            tuple(self._caches), self.modality, self.no_grad, self.tower_layer, buffers=tuple(self._buffers),
        )  # fmt: skip

    def path(self, module: str) -> str:
        return f"{self.name}.{module}" if self.name and module else self.name or module

    def parameter(
        self, module: str, leaf: str, shape: Sequence[int], *, part: Part | None = None,
        shard: Shard = "replicated", is_linear: bool = False, tied_to: str | None = None, frozen: bool = False,
    ) -> Parameter:  # fmt: skip
        name = ".".join(piece for piece in (self.path(module), leaf) if piece)
        return Parameter(name, tuple(shape), part or self.part, shard, is_linear, self.layer, tied_to, frozen)

    def buffer(self, module: str, leaf: str, shape: Sequence[int], dtype: str = "") -> None:
        """A large tensor that the module registers beside its parameters."""
        name = ".".join(piece for piece in (self.path(module), leaf) if piece)
        self._buffers.append(Buffer(name, tuple(shape), dtype, self.layer))

    def op(
        self, operation: Operation, module: str, inputs: Sequence[Value], widths: Sequence[int],
        parameters: Sequence[Parameter] = (),
    ) -> tuple[Value, ...]:  # fmt: skip
        """Append any operation; `widths` are those of its outputs."""
        outputs = tuple(self.value(width) for width in widths)
        self.ops.append(operation.at(module, tuple(inputs), outputs, tuple(parameters)))
        return outputs

    def unary(
        self, operation: Operation, x: Value, module: str = "", parameters: Sequence[Parameter] = (),
        width: int | None = None,
    ) -> Value:  # fmt: skip
        """Append an operation that makes one value of another, as wide unless `width` says else."""
        return self.op(operation, module, [x], [x.width if width is None else width], parameters)[0]

    # -- layers with parameters ----------------------------------------------------------------------------

    def embedding(
        self, module: str, rows: int, width: int, ids: str = "input_ids", part: Part = "embedding",
        shard: Shard = "vocab",
    ) -> Value:  # fmt: skip
        """A lookup table; `ids` names the stream of indices (`input_ids`, `position_ids`, ...)."""
        weight = self.parameter(module, "weight", (rows, width), part=part, shard=shard)
        return self.op(Embedding(ids=ids), module, [], [width], [weight])[0]

    def linear(
        self, x: Value, module: str, width: int, *, bias: bool = False, shard: Shard = "column",
        part: Part | None = None, tied_to: str | None = None,
    ) -> Value:  # fmt: skip
        """`nn.Linear`: weight (width, x.width)."""
        weight = self.parameter(
            module, "weight", (width, x.width), part=part, shard=shard, is_linear=True, tied_to=tied_to
        )
        parameters = [weight]
        if bias:
            cut: Shard = shard if shard in ("column", "vocab", "expert_column") else "replicated"
            parameters.append(self.parameter(module, "bias", (width,), part=part, shard=cut))
        return self.unary(Linear(), x, module, parameters, width)

    def conv1d_linear(self, x: Value, module: str, width: int, *, shard: Shard = "column") -> Value:
        """GPT-2's `Conv1D`: a linear layer with weight (x.width, width) and a bias."""
        weight = self.parameter(module, "weight", (x.width, width), shard=shard, is_linear=True)
        bias = self.parameter(module, "bias", (width,), shard="column" if shard == "column" else "replicated")
        return self.unary(Conv1dLinear(), x, module, [weight, bias], width)

    def rms_norm(
        self, x: Value, module: str, *, style: str = "llama", leaf: str = "weight", part: Part = "norm"
    ) -> Value:
        """Root-mean-square norm over the last axis, with a weight unless `style` has none."""
        parameters = [self.parameter(module, leaf, (x.width,), part=part)] if not style.startswith("unweighted") else []
        return self.unary(RmsNorm(style=style), x, module, parameters)

    def layer_norm(
        self, x: Value, module: str, *, bias: bool = True, weight: bool = True, style: str = "torch",
        part: Part = "norm",
    ) -> Value:  # fmt: skip
        """Layer norm over the last axis; `style` names how the implementation computes it."""
        parameters = [self.parameter(module, "weight", (x.width,), part=part)] if weight else []
        if bias and weight:
            parameters.append(self.parameter(module, "bias", (x.width,), part=part))
        return self.unary(LayerNorm(style=style), x, module, parameters)

    def still_named(self, *values: Value) -> None:
        """Names that the block's frame keeps up to here."""
        self.op(Named(), "", values, [])

    def named_beside_loss(self, *values: Value) -> None:
        """Names that the model's frame keeps until it returns."""
        self.op(Named(beside_loss=True), "", values, [])

    def still_named_in(self, module: str, *values: Value) -> None:
        """Names that the frame of a module inside the block keeps up to here."""
        self.op(Named(), module, values, [])

    # -- arithmetic ----------------------------------------------------------------------------------------

    def add(self, a: Value, b: Value) -> Value:
        return self.op(Add(), "", [a, b], [a.width])[0]

    def multiply(self, a: Value, b: Value) -> Value:
        return self.op(Multiply(), "", [a, b], [a.width])[0]

    def scale(self, x: Value) -> Value:
        """A product with, or sum with, a plain number."""
        return self.unary(Scale(), x)

    def scale_by_buffer(self, x: Value, module: str) -> Value:
        """A product with a number that the module holds as a buffer, which backward keeps."""
        return self.unary(ScaleByBuffer(), x, module)

    def softcap(self, x: Value) -> Value:
        """cap · tanh(x / cap)."""
        return self.scale(self.activation(self.scale(x), "tanh", ""))

    def softcap_in_one(self, x: Value) -> Value:
        """The same in one expression or function: the name of `x` stays until it is done."""
        capped = self.softcap(x)
        self.still_named(x)
        return capped

    def activation(self, x: Value, function: str, module: str = "act_fn") -> Value:
        return self.unary(Activation(function=function), x, module)

    def dropout(self, x: Value, probability: float, module: str = "") -> Value:
        return self.unary(Dropout(p=float(probability)), x, module) if probability else x

    def split(self, x: Value, widths: Sequence[int]) -> tuple[Value, ...]:
        """Views of consecutive pieces of the last axis."""
        return self.op(Split(pieces=tuple(widths)), "", [x], list(widths))

    def heads(self, x: Value, num_heads: int) -> Value:
        """(batch, sequence, heads·d) seen as (batch, sequence, heads, d)."""
        return self.unary(Heads(num_heads=num_heads), x, width=x.width // num_heads)

    def heads_first(self, x: Value) -> Value:
        """(batch, sequence, heads, d) -> (batch, heads, sequence, d), a view."""
        return self.unary(HeadsFirst(), x)

    # -- attention -----------------------------------------------------------------------------------------

    def rotary(
        self,
        q: Value,
        k: Value,
        *,
        rotary_dim: int | None = None,
        style: str = "half",
        table: str = "default",
    ) -> tuple[Value, Value]:
        """Rotary positions on q and k; `rotary_dim` of each head's width, by `style`; tables are shared by name.

        Raises SourceError.
        """
        turned = rotary_dim or q.width
        if turned % 2 or turned > q.width:
            raise SourceError(f"rotary positions turn pairs: {turned} columns of a head of {q.width} cannot be turned")
        turning = Rotary(rotary_dim=turned, style=style, table=table)
        rotated = self.op(turning, "", [q, k], [q.width, k.width])
        return rotated[0], rotated[1]

    def attention(
        self, operation: AnyAttention, q: Value, k: Value, v: Value, *, module: str = "self_attn",
        cache: LayerCache | Literal["own"] | None = "own", others: Sequence[Value] = (),
    ) -> Value:  # fmt: skip
        """Attention over heads-first q, k, v; returns (batch, sequence, heads·value width).

        `cache` is what a token leaves behind, by default keys and values of this layer; `others` are values that the
        style's code path reads as well.
        """
        window = operation.window
        if cache == "own":
            kind: Literal["sliding", "full"] = "sliding" if window else "full"
            cache = LayerCache(kind, operation.num_key_value_heads, k.width, v.width, window=window)
        if cache is not None:
            self._caches.append(cache)
        return self.op(operation, module, [q, k, v, *others], [operation.num_heads * v.width])[0]

    def keep(self, cache: LayerCache) -> None:
        """State that this block leaves behind other than attention's keys and values."""
        self._caches.append(cache)
