"""The words in which a model is written: blocks, each a short dataflow of named operations.

A family file builds `Block`s with a `BlockBuilder`; everything else is read off their operations: parameters here,
caches in `caches`, saved activations, live sets and FLOPs through the lowering of each (`lowerings`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vramwise.errors import SourceError
from vramwise.models.caches import LayerCache

Part = Literal[
    "embedding", "attention", "mlp", "experts", "router", "norm", "head", "mixer", "vision", "audio", "speech",
    "projector",
]  # fmt: skip
Modality = Literal["text", "image", "audio"]
Shard = Literal["column", "row", "vocab", "expert_column", "expert_row", "replicated"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter tensor of a model.

    `name` is the name in transformers, `shape` the tensor's own shape; `shard` says how tensor or expert
    parallelism cuts it; `is_linear` marks the weights of linear layers, which 8- and 4-bit quantizers replace;
    `tied_to` names the parameter whose storage this one shares; `frozen`: its class never trains it.
    """

    name: str
    shape: tuple[int, ...]
    part: Part
    shard: Shard = "replicated"
    is_linear: bool = False
    layer: int | None = None
    tied_to: str | None = None
    frozen: bool = False

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class Value:
    """An edge of the dataflow: `width` is the size of its last axis."""

    id: int
    width: int


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: what it reads and makes, the module it belongs to, its parameters and settings."""

    kind: str
    module: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    parameters: tuple[Parameter, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """A named run of operations, such as one decoder layer.

    `inputs` and `outputs` bind streams (`hidden`, `encoder`, ...) to values; `repeats` marks a layer, which is what
    checkpointing wraps and pipeline parallelism deals out; `cache` is what one token leaves behind in it. Blocks of
    another modality than text run only for batches that hold it. `no_grad`: the class runs it without a gradient, so
    that nothing is kept and no product of it has a backward pass; so it is too where nothing reads its results.
    `tower_layer` marks a layer of a tower, which checkpointing wraps as well. `tiled`: it runs only for images that
    come in tiles besides the whole.
    """

    name: str
    ops: tuple[Op, ...]
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    layer: int | None = None
    caches: tuple[LayerCache, ...] = ()
    modality: Modality = "text"
    no_grad: bool = False
    tower_layer: bool = False
    tiled: bool = False

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Those of its operations; one that several operations use is there once."""
        return tuple({parameter.name: parameter for op in self.ops for parameter in op.parameters}.values())

    def signature(self) -> tuple[Any, ...]:
        """Equal for blocks that differ only in their layer's number."""
        ops = tuple(
            (op.kind, op.module, op.inputs, op.outputs, tuple(p.shape for p in op.parameters), _frozen(op.settings))
            for op in self.ops
        )
        return (*ops, tuple(self.inputs.items()), tuple(self.outputs.items()), self.no_grad)


def _frozen(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(settings.items()))


@dataclass
class BlockBuilder:
    """Writes one block; every method appends an operation and returns its value or values."""

    name: str
    layer: int | None = None
    part: Part = "mlp"
    modality: Modality = "text"
    ops: list[Op] = field(default_factory=list)
    _inputs: dict[str, Value] = field(default_factory=dict)
    _outputs: dict[str, Value] = field(default_factory=dict)
    _caches: list[LayerCache] = field(default_factory=list)
    _count: int = 0
    no_grad: bool = False
    tower_layer: bool = False

    # -- edges ---------------------------------------------------------------------------------------------

    def value(self, width: int) -> Value:
        self._count += 1
        return Value(self._count, width)

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
            tuple(self._caches), self.modality, self.no_grad, self.tower_layer,
        )  # fmt: skip

    def path(self, module: str) -> str:
        return f"{self.name}.{module}" if self.name and module else self.name or module

    def parameter(
        self, module: str, leaf: str, shape: Sequence[int], *, part: Part | None = None,
        shard: Shard = "replicated", is_linear: bool = False, tied_to: str | None = None, frozen: bool = False,
    ) -> Parameter:  # fmt: skip
        name = ".".join(piece for piece in (self.path(module), leaf) if piece)
        return Parameter(name, tuple(shape), part or self.part, shard, is_linear, self.layer, tied_to, frozen)

    def op(
        self, kind: str, module: str, inputs: Sequence[Value], widths: Sequence[int],
        parameters: Sequence[Parameter] = (), **settings: Any,
    ) -> tuple[Value, ...]:  # fmt: skip
        """Append any operation; `widths` are those of its outputs."""
        outputs = tuple(self.value(width) for width in widths)
        self.ops.append(Op(kind, module, tuple(inputs), outputs, tuple(parameters), settings))
        return outputs

    def unary(
        self, kind: str, x: Value, module: str = "", parameters: Sequence[Parameter] = (), width: int | None = None,
        **settings: Any,
    ) -> Value:  # fmt: skip
        return self.op(kind, module, [x], [x.width if width is None else width], parameters, **settings)[0]

    # -- layers with parameters ----------------------------------------------------------------------------

    def embedding(
        self, module: str, rows: int, width: int, ids: str = "input_ids", part: Part = "embedding",
        shard: Shard = "vocab",
    ) -> Value:  # fmt: skip
        """A lookup table; `ids` names the stream of indices (`input_ids`, `position_ids`, ...)."""
        weight = self.parameter(module, "weight", (rows, width), part=part, shard=shard)
        return self.op("embedding", module, [], [width], [weight], ids=ids)[0]

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
        return self.unary("linear", x, module, parameters, width)

    def conv1d_linear(self, x: Value, module: str, width: int, *, shard: Shard = "column") -> Value:
        """GPT-2's `Conv1D`: a linear layer with weight (x.width, width) and a bias."""
        weight = self.parameter(module, "weight", (x.width, width), shard=shard, is_linear=True)
        bias = self.parameter(module, "bias", (width,), shard="column" if shard == "column" else "replicated")
        return self.unary("conv1d_linear", x, module, [weight, bias], width)

    def rms_norm(
        self, x: Value, module: str, *, style: str = "llama", leaf: str = "weight", part: Part = "norm"
    ) -> Value:
        """Root-mean-square norm over the last axis, with a weight unless `style` has none."""
        parameters = [self.parameter(module, leaf, (x.width,), part=part)] if not style.startswith("unweighted") else []
        return self.unary("rms_norm", x, module, parameters, style=style)

    def layer_norm(
        self, x: Value, module: str, *, bias: bool = True, weight: bool = True, style: str = "torch",
        part: Part = "norm",
    ) -> Value:  # fmt: skip
        """Layer norm over the last axis; `style` names how the implementation computes it."""
        parameters = [self.parameter(module, "weight", (x.width,), part=part)] if weight else []
        if bias and weight:
            parameters.append(self.parameter(module, "bias", (x.width,), part=part))
        return self.unary("layer_norm", x, module, parameters, style=style)

    # -- arithmetic ----------------------------------------------------------------------------------------

    def add(self, a: Value, b: Value) -> Value:
        return self.op("add", "", [a, b], [a.width])[0]

    def multiply(self, a: Value, b: Value) -> Value:
        return self.op("multiply", "", [a, b], [a.width])[0]

    def scale(self, x: Value) -> Value:
        """A product with, or sum with, a plain number."""
        return self.unary("scale", x)

    def scale_by_buffer(self, x: Value, module: str) -> Value:
        """A product with a number that the module holds as a buffer, which backward keeps."""
        return self.unary("scale_by_buffer", x, module)

    def softcap(self, x: Value) -> Value:
        """cap · tanh(x / cap)."""
        return self.scale(self.activation(self.scale(x), "tanh", ""))

    def activation(self, x: Value, function: str, module: str = "act_fn") -> Value:
        return self.unary("activation", x, module, function=function)

    def dropout(self, x: Value, probability: float, module: str = "") -> Value:
        return self.unary("dropout", x, module, p=float(probability)) if probability else x

    def split(self, x: Value, widths: Sequence[int]) -> tuple[Value, ...]:
        """Views of consecutive pieces of the last axis."""
        return self.op("split", "", [x], list(widths), pieces=tuple(widths))

    def heads(self, x: Value, num_heads: int) -> Value:
        """(batch, sequence, heads·d) seen as (batch, sequence, heads, d)."""
        return self.unary("heads", x, width=x.width // num_heads, num_heads=num_heads)

    def heads_first(self, x: Value) -> Value:
        """(batch, sequence, heads, d) -> (batch, heads, sequence, d), a view."""
        return self.unary("heads_first", x)

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
        """Rotary positions on q and k; `rotary_dim` of each head's width, by `style`; tables are shared by name."""
        turned = rotary_dim or q.width
        if turned % 2 or turned > q.width:
            raise SourceError(f"rotary positions turn pairs: {turned} columns of a head of {q.width} cannot be turned")
        rotated = self.op(
            "rotary",
            "",
            [q, k],
            [q.width, k.width],
            rotary_dim=turned,
            style=style,
            table=table,
        )
        return rotated[0], rotated[1]

    def attention(
        self, q: Value, k: Value, v: Value, *, num_heads: int, num_key_value_heads: int, module: str = "self_attn",
        causal: bool = True, window: int | None = None, dropout: float = 0.0, style: str = "llama",
        cache: LayerCache | Literal["own"] | None = "own", others: Sequence[Value] = (), **settings: Any,
    ) -> Value:  # fmt: skip
        """Attention over heads-first q, k, v; returns (batch, sequence, heads·value width).

        `style` names the eager code path of the implementation; `cache` is what a token leaves behind, by default
        keys and values of this layer; `others` are values that the style's code path reads as well.
        """
        if cache == "own":
            kind: Literal["sliding", "full"] = "sliding" if window else "full"
            cache = LayerCache(kind, num_key_value_heads, k.width, v.width, window=window)
        if cache is not None:
            self._caches.append(cache)
        return self.op(
            "attention", module, [q, k, v, *others], [num_heads * v.width], num_heads=num_heads,
            num_key_value_heads=num_key_value_heads, causal=causal, window=window, dropout=float(dropout),
            style=style, **settings,
        )[0]  # fmt: skip

    def keep(self, cache: LayerCache) -> None:
        """State that this block leaves behind other than attention's keys and values."""
        self._caches.append(cache)
