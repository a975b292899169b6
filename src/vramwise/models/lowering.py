"""Blocks run on a tape: each operation as the primitive operations of the library that runs it.

A lowering is a function of the run, an operation and the tensors it reads. It records what the library's own code
runs, in its order, so that the tape's saved storages are those of `torch.autograd`. `operations` has those of
transformers 5.23; a kernel library in the `Execution` has its own for some (`overrides`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from vramwise.errors import UndescribedOperationError
from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Storage, Tensor
from vramwise.models.blocks import Block, Modality, Operation, Parameter
from vramwise.models.execution import Execution, Lowered, Override, overrides_in, with_rewrites

ADAPTER_LEAVES = ("lora_A", "lora_B", "lora_magnitude")

F = TypeVar("F", bound=Lowered)
LOWERINGS: dict[type[Operation], Lowered] = {}


def lowering(kind: type[Operation]) -> Callable[[F], F]:
    """Registers the lowering of a class of operations: `(run, op, *tensors) -> tensor or tensors`."""

    def register(function: F) -> F:
        if kind in LOWERINGS:
            raise ValueError(f"two lowerings of {kind.__name__}: {LOWERINGS[kind].__module__}, {function.__module__}")
        LOWERINGS[kind] = function
        return function

    return register


class Variants(dict[str, F]):
    """Lowerings that share a kind of operation and differ by the class that wrote the model, by their names."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def named(self, name: str) -> Callable[[F], F]:
        """Registers a function under a name."""

        def register(function: F) -> F:
            if name in self:
                raise ValueError(f"two {self.what} are called {name}")
            self[name] = function
            return function

        return register

    def __missing__(self, name: str) -> F:
        raise UndescribedOperationError(f"{self.what} of the style {name} is not described")


class Lowering:
    """One forward pass in the making.

    `batch`, `sequence` and `source` (an encoder's length) are numbers or axes. `streams`: tensors that blocks hand on,
    by name. `tables`: what is made once for all layers (cos and sin, masks), by name. `parameters`: those used so far.
    `hidden_dtype`: that of the embeddings, which masks take. `windows_reached`, `chunks_filled`, `one_behind_chunks`:
    see `step.Structure`. `overrides`: what kernel libraries run for operations of the block. `windows`: (how many,
    patches in each) into which a tower divides its patches. `stand_ins`: by a parameter's name, tensors of other shapes
    that a framework's own layers have for it. `named_in`: tensors beside operations' outputs that the frames of the
    block's modules name until they return, those of the layer's own frame under the empty name.
    """

    def __init__(
        self,
        tape: Tape,
        execution: Execution,
        batch: Dim,
        sequence: Dim,
        windows_reached: frozenset[int],
        source: Dim | None = None,
    ) -> None:
        self.tape = tape
        self.execution = execution
        self.batch = batch
        self.sequence = sequence
        self.source = sequence if source is None else source
        self.windows_reached = windows_reached
        self.chunks_filled: frozenset[int] = frozenset()
        self.one_behind_chunks: frozenset[int] = frozenset()
        self.streams: dict[str, Tensor] = {}
        self.tables: dict[str, tuple[Tensor, ...]] = {}
        self.parameters: dict[str, Tensor] = {}
        self.stand_ins: dict[str, list[Tensor]] = {}
        self.hidden_dtype = execution.param_dtype
        self.modality: Modality = "text"
        self.overrides: Mapping[type[Operation], Override] = {}
        self.images_see_each_other: Literal["", "windows", "all"] = ""
        self.windows: tuple[tuple[int, int], ...] = ()
        self.named_in: defaultdict[str, list[Tensor]] = defaultdict(list)

    def through_cache(self, along: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """What `DynamicCache.update` hands back of keys and values: copies, along the sequence; the tape knows what it
        would keep where a pass has none."""
        self.tape.for_cache += [tensor.storage for tensor in tensors]
        return tuple(self.tape.cat([x], along) for x in tensors) if self.execution.use_cache else tensors

    def run(self, block: Block) -> None:
        """Runs a block: reads its streams, replaces those that it hands on."""
        self.tape.grad_enabled = not block.no_grad
        self.modality = block.modality
        self.overrides = overrides_in(self.execution.kernels, block.modality)
        block = with_rewrites(block, self.overrides)
        values: dict[int, Tensor] = {value.id: self.streams[name] for name, value in block.inputs.items()}
        leaf = self._last_of_embedding(block)
        for op in block.ops:
            self.tape.in_norm = op.is_norm
            with self.tape.inside(op.module):
                results = self.lowered(op, *(values[value.id] for value in op.inputs))
            self.tape.in_norm = False
            if op is leaf and not results[0].requires_grad:
                results = (self.tape.wanted(results[0]),)
            for value, result in zip(op.outputs, results, strict=True):
                values[value.id] = result
        for name, value in block.outputs.items():
            self.streams[name] = values[value.id]
        if named := self.named_in.pop("", None):
            self.tape.record("locals", named, [])

    def _last_of_embedding(self, block: Block) -> Operation | None:
        """What makes the tokens' embedding where that is to want a gradient: the module may scale what it looks up."""
        if not self.execution.inputs_require_grad:
            return None
        modules = {op.module for op in block.ops if op.embeds_inputs}
        return next((op for op in reversed(block.ops) if op.module in modules), None)

    def as_input(self, patches: Tensor) -> Tensor:
        """Patches of an image as their class's input embeddings, which may be asked for a gradient."""
        wanted = self.execution.patches_require_grad and not patches.requires_grad
        return self.tape.wanted(patches) if wanted else patches

    def lowered(self, op: Operation, *inputs: Tensor) -> tuple[Tensor, ...]:
        """What an operation makes of its inputs: by a kernel library's override, else as it is registered."""
        override = self.overrides.get(type(op))
        results = (LOWERINGS[type(op)] if override is None else override.lowering)(self, op, *inputs)
        return (results,) if isinstance(results, Tensor) else results

    def parameter(self, parameter: Parameter) -> Tensor:
        """The tensor of a parameter; tied parameters share one."""
        name = parameter.tied_to or parameter.name
        if name not in self.parameters:
            trains = self.execution.trains(name) and not parameter.frozen
            dtype = self.execution.dtype_of(parameter)
            self.parameters[name] = self.tape.parameter(parameter.shape, dtype, requires_grad=trains)
        return self.parameters[name]

    def parameters_of(self, op: Operation) -> list[Tensor]:
        """The tensors of an operation's parameters, in their order."""
        return [self.parameter(parameter) for parameter in op.parameters]

    def stand_in(self, parameter: Parameter, shape: Sequence[int], *, adapter: bool = False) -> Tensor:
        """A tensor of a shape of its own that trains, and is stored, as a parameter does, or as an adapter of it."""
        lora, trains = self.execution.lora, self.execution.trains(parameter.name)
        dtype = lora.dtype if adapter and lora is not None else self.execution.dtype_of(parameter)
        tensor = self.tape.parameter(shape, dtype, requires_grad=adapter or trains)
        self.stand_ins.setdefault(parameter.name, []).append(tensor)
        return tensor

    def weights_of(self, block: Block) -> tuple[tuple[Storage, int], ...]:
        """Storages of a block's parameters and of their adapters, as far as they were used, with their places."""
        found: list[tuple[Storage, int]] = []
        for place, parameter in enumerate(block.parameters):
            names = (parameter.tied_to or parameter.name, *(f"{parameter.name}.{leaf}" for leaf in ADAPTER_LEAVES))
            found += [(self.parameters[name].storage, place) for name in names if name in self.parameters]
            found += [(tensor.storage, place) for tensor in self.stand_ins.get(parameter.name, ())]
        return tuple(found)
