"""The words in which a model is written: blocks, each a short dataflow of named operations.

A family file builds `Block`s with a `BlockBuilder` (`builder`); everything else is read off their operations:
parameters here, caches in `caches`, saved activations, live sets and FLOPs through the lowering of each (`operations`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, Self, TypeVar

from vramwise.models.caches import LayerCache
from vramwise.records import names_of, record

Part = Literal[
    "embedding", "attention", "mlp", "experts", "router", "norm", "head", "mixer", "vision", "audio", "speech",
    "projector",
]  # fmt: skip
Modality = Literal["text", "image", "audio"]
Shard = Literal["column", "row", "vocab", "expert_column", "expert_row", "replicated"]


@record
class Parameter:
    """One parameter tensor of a model.

    `name` is the name in transformers, `shape` the tensor's own shape; `shard` says how tensor or expert
    parallelism cuts it; `is_linear` marks the weights of linear layers, which 8- and 4-bit quantizers replace;
    `tied_to` names the parameter whose storage this one shares; `original`: the one whose storage it shared before a
    copy of either trained beside adapters; `frozen`: its class never trains it.
    """

    name: str
    shape: tuple[int, ...]
    part: Part
    shard: Shard = "replicated"
    is_linear: bool = False
    layer: int | None = None
    tied_to: str | None = None
    frozen: bool = False
    original: str | None = None

    @property
    def numel(self) -> int:
        """Values of the tensor: the product of its shape."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def module(self) -> str:
        """The path of the module that owns it."""
        return self.name.rpartition(".")[0]


class Buffer(NamedTuple):
    """A tensor that a module registers beside its parameters: large ones alone, such as a table of every position.

    `dtype`: empty for that of the weights, in which the class makes it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layer: int | None


class Value(NamedTuple):
    """An edge of the dataflow: `width` is the size of its last axis.

    `places`: how many of an image it has for each of the coarsest stage of a tower of convolutions.
    """

    id: int
    width: int
    places: int = 1


@record(kw_only=True, eq=False)
class Operation:
    """One operation: the module it belongs to, what it reads and makes, its parameters.

    A kind of operation is a class of its own with its settings as further fields; its lowering, which says what runs,
    is registered for the class (`lowering.lowering`). Of the dataclass only __init__ is made: the start stays quick.
    """

    module: str = ""
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    parameters: tuple[Parameter, ...] = ()

    package: ClassVar[str] = ""
    """The package to which transformers leaves it where that is installed, and which keeps other tensors."""
    is_module: ClassVar[bool] = False
    """Whether the class has a module of its own for it although it has no weights."""
    is_norm: ClassVar[bool] = False
    """Whether it norms: by a mean and a variance, or a root mean square."""
    inputs_first: ClassVar[bool] = False
    """Whether its weight is (inputs, outputs)."""
    joins_images: ClassVar[bool] = False
    """Whether it puts the tokens of images into the prompt."""
    is_described: ClassVar[bool] = True
    """Whether more than its parameters is known, as training asks."""
    only_names: ClassVar[bool] = False
    """Whether it computes nothing, and says what a frame of PyTorch's modeling code still names."""

    @property
    def embeds_inputs(self) -> bool:
        """Whether it embeds what a batch brings: looks up its tokens, cuts its images or sounds up."""
        return False

    @property
    def has_gradients(self) -> bool:
        """Whether backward reaches its parameters: not where it runs under `torch.no_grad`, nor where only indices come
        of it or nothing reads what it makes."""
        return True

    @property
    def idle_numel(self) -> int:
        """Values of its parameters that a token does not pass, as those of experts to which it is not sent."""
        return 0

    @property
    def settings(self) -> tuple[object, ...]:
        """What its class adds to every operation's fields, in the order of the class."""
        return tuple(getattr(self, name) for name in _settings_of(type(self)))

    def at(
        self, module: str, inputs: tuple[Value, ...], outputs: tuple[Value, ...], parameters: tuple[Parameter, ...]
    ) -> Self:
        """The same operation at its place in a block."""
        settings = {name: getattr(self, name) for name in _settings_of(type(self))}
        return type(self)(module=module, inputs=inputs, outputs=outputs, parameters=parameters, **settings)


class Aside(Operation):
    """An operation to whose parameters no gradient comes: only indices come of it, or nothing reads what it makes."""

    __slots__ = ()

    @property
    def has_gradients(self) -> bool:
        return False


_settings: dict[object, tuple[str, ...]] = {}


def _settings_of(kind: type[Operation]) -> tuple[str, ...]:
    if kind not in _settings:
        _settings[kind] = names_of(kind)[len(names_of(Operation)) :]
    return _settings[kind]


K = TypeVar("K", bound=Operation)


@record(slots=False)
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
    ops: tuple[Operation, ...]
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    layer: int | None = None
    caches: tuple[LayerCache, ...] = ()
    modality: Modality = "text"
    no_grad: bool = False
    tower_layer: bool = False
    tiled: bool = False
    buffers: tuple[Buffer, ...] = ()

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Those of its operations; one that several operations use is there once."""
        return tuple({parameter.name: parameter for op in self.ops for parameter in op.parameters}.values())

    @cached_property
    def computing(self) -> tuple[Operation, ...]:
        """The operations that compute: of programs with code of their own, whose frames name other values."""
        return tuple(op for op in self.ops if not op.only_names)

    def operations(self, kind: type[K]) -> Iterator[K]:
        """Its operations of one class, in their order."""
        return (op for op in self.ops if isinstance(op, kind))

    def has(self, kind: type[Operation]) -> bool:
        """Whether an operation of a class is among its own."""
        return any(isinstance(op, kind) for op in self.ops)

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Equal for blocks that differ only in their layer's number."""
        ops = tuple(
            (type(op), op.module, op.inputs, op.outputs, tuple(p.shape for p in op.parameters), op.settings)
            for op in self.ops
        )
        return (*ops, tuple(self.inputs.items()), tuple(self.outputs.items()), self.no_grad)
