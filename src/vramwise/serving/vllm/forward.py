"""What is alive while vLLM runs a block of a model, walked operation by operation.

vLLM runs the block's operations in fewer kernels, and some of them in place (read in 0.8.5, 0.16.0, 0.19.0, 0.33.0):

- layers that read the same input and are cut by columns are one product, of which the rest reads views
- an RMS norm that begins a layer or follows a residual sum is one kernel with the sum and writes over both its inputs,
  so a layer is handed two tensors, what to add and the residual (layernorm.py fused_add_rms_norm); Gemma's makes others
- rotary embeddings turn in place; an MLP's function and its product with the other half are one kernel
- attention makes its output and nothing else; latent attention makes no keys and values in a profile run, but a tensor
  of the size that a chunk of earlier tokens would have (mla_attention.py forward_impl)
- ranks add up what a row-cut layer made into a tensor of its own
- products in 8 bits read a copy of their input in 8 bits

A module's call ends with its row-cut layer or its experts. Python's names keep what it received and made until then,
and what the model handed to the layer until the layer returns. A compiled model has no names: there a tensor may go
when nothing reads it any more, which is the low end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from vramwise.models import Block, Model, Operation
from vramwise.models.allocator import block_bytes
from vramwise.models.blocks import Value
from vramwise.models.operations.attention import AnyAttention, AnyRotary
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.latent import Cached, LatentKey
from vramwise.models.operations.mixers import Halves
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.operations.routers import Router
from vramwise.models.operations.simple import (
    Activation,
    Add,
    Concatenate,
    Conv1dLinear,
    Dropout,
    Heads,
    HeadsFirst,
    Linear,
    Multiply,
    Split,
    ToParameterDtype,
)
from vramwise.records import record

_VIEWS = Heads | HeadsFirst | Split | Cached | AnyRotary | Halves | ToParameterDtype | Dropout
_NORMS = RmsNorm | LayerNorm
_GIVEN, _RESIDUAL, _EMBEDDINGS = -1, -2, -3
"""What the layer before made, and the residual: the two tensors that a layer with fused sums is handed, of which the
residual is written into the embeddings. Other layers are handed one tensor, and the embeddings stay beside it."""


@record
class Pass:
    """A batch on one of several ranks.

    `context_rows`: rows of the tensor that latent attention makes in place of keys and values of earlier tokens.
    `input_copy_bytes`: bytes for each value of a product's input that is copied in 8 bits. `workspace_tokens`: tokens
    whose experts run at once in buffers that go afterwards; 0 where such buffers are counted elsewhere. `reuses_name`:
    the MLP's code gives its result the name of its input (`x = self.act_fn(x)`), which frees that.
    """

    tokens: int
    element_bytes: int
    ranks: int = 1
    expert_ranks: int = 1
    context_rows: int = 0
    input_copy_bytes: float = 0.0
    workspace_tokens: int = 0
    reuses_name: bool = False


@record
class LiveSet:
    """Bytes alive at the fullest moment of a layer, in blocks of the allocator, and the operation that runs then."""

    bytes: int
    moment: str


@dataclass(slots=True)
class _Step:
    """One kernel: roots of what it reads and makes, and bytes that it holds beside them while it runs."""

    name: str
    reads: list[int]
    makes: list[int]
    is_inside: bool
    ends_call: bool = False
    frees: bool = False
    beside: int = 0


@lru_cache(maxsize=1024)
def largest_live_set(model: Model, run: Pass, *, named: bool, dense: bool = False) -> LiveSet:
    """The fullest moment over the layers from the first with routed experts on, or `dense`: over those before it.

    `named`: with what Python's names keep.
    """
    layers = list(model.layers())
    first = next((i for i, block in enumerate(layers) if block.has(ExpertMlps)), 0)
    layers = layers[:first] if dense else layers[first:]
    blocks = {tuple((type(op), op.inputs, op.outputs) for op in block.ops): block for block in layers}
    found = (_Lowered(block, run).fullest(named=named) for block in blocks.values())
    return max(found, key=lambda live: live.bytes, default=LiveSet(0, ""))


@lru_cache(maxsize=1024)
def widest_attention(model: Model, ranks: int) -> int:
    """Values a token of queries, keys and values on one rank, in the layer with most of them."""
    widths = (
        sum(op.outputs[0].width for op in block.ops if _is_column(op) and op.parameters[0].part == "attention")
        for block in model.layers()
    )
    return -(-max(widths, default=0) // ranks)


@lru_cache(maxsize=1024)
def experts_workspace(model: Model, tokens: int, ranks: int, expert_ranks: int) -> int:
    """Elements of the two buffers of the layer with the largest routed experts.

    tokens · chosen · (max(inner, hidden) + max(gate and up, hidden)): TritonExperts.workspace_shapes of
    layers/fused_moe, 0.14.1 to 0.33.0.
    """
    sizes = (
        _expert_sizes(op, ranks, expert_ranks) for b in model.layers() for op in b.ops if isinstance(op, ExpertMlps)
    )
    return tokens * max((chosen * (max(inner, hidden) + max(first, hidden)) for chosen, inner, first, hidden in sizes),
                        default=0)  # fmt: skip


def _expert_sizes(op: ExpertMlps, ranks: int, expert_ranks: int) -> tuple[int, int, int, int]:
    """Experts of a token, inner width on a rank, width of gate and up, hidden size."""
    hidden, chosen = op.inputs[0].width, op.experts_per_token
    inner = op.inner_width if expert_ranks > 1 else -(-op.inner_width // ranks)
    return chosen, inner, (op.fused_branches or 2) * inner, hidden


@dataclass
class _Lowered:
    """The kernels of one block, and the sizes of the tensors they make."""

    block: Block
    run: Pass
    root: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    steps: list[_Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stacked = self._widths_of_stacks()
        self._readers: dict[int, list[Operation]] = {}
        for op in self.block.ops:
            for value in op.inputs:
                self._readers.setdefault(value.id, []).append(op)
        self._stream = next(iter(self.block.inputs.values())).id if self.block.inputs else 0
        self._fused = any(isinstance(op, RmsNorm) for op in self._readers.get(self._stream, []))
        self._residual, self._branch = _RESIDUAL, _GIVEN
        for value in self.block.inputs.values():
            self.root[value.id] = value.id
            self.sizes[value.id] = self._bytes(value.width)
        if self._fused:
            self.root[self._stream] = _RESIDUAL
        for tensor in (_GIVEN, _RESIDUAL, _EMBEDDINGS):
            self.sizes[tensor] = self.sizes.get(self._stream, 0)
        self._sums = {self._stream}
        self._inside = False
        for op in _shared_first(self.block.ops):
            self._add(op)

    def _widths_of_stacks(self) -> dict[tuple[int, str], int]:
        """Width of the one product of all column-cut layers of a module that read a value."""
        widths: dict[tuple[int, str], int] = {}
        for op in self.block.ops:
            if _is_column(op):
                widths[_stack_of(op)] = widths.get(_stack_of(op), 0) + op.outputs[0].width
        return widths

    def _add(self, op: Operation) -> None:
        if isinstance(op, _VIEWS) or self._is_left_out(op):
            for place, value in enumerate(op.outputs):
                self.root[value.id] = self.root[op.inputs[min(place, len(op.inputs) - 1)].id]
        elif isinstance(op, Add) and self._fused and any(value.id in self._sums for value in op.inputs):
            self._sum(op)
        elif isinstance(op, RmsNorm) and self._fused and op.inputs[0].id in self._sums:
            self._fused_norm(op)
        else:
            self._kernel(op)

    def _is_left_out(self, op: Operation) -> bool:
        """What no kernel of its own does: an activation that a product follows, and keys of latent attention."""
        if isinstance(op, Activation):
            return any(isinstance(reader, Multiply) for reader in self._readers.get(op.outputs[0].id, []))
        if not self._is_latent:
            return False
        made_by = {value.id: maker for maker in self.block.ops for value in maker.outputs}
        source = made_by.get(op.inputs[0].id) if op.inputs else None
        up = isinstance(op, Linear) and source is not None and isinstance(source, Cached)
        return up or isinstance(op, LatentKey | Concatenate)

    @property
    def _is_latent(self) -> bool:
        return any(cache.kind == "latent" for cache in self.block.caches)

    def _sum(self, op: Operation) -> None:
        """A residual sum, which the next norm does."""
        branch = next(value for value in op.inputs if value.id not in self._sums)
        self._branch = self.root[branch.id]
        self._sums.add(op.outputs[0].id)
        self.root[op.outputs[0].id] = self._residual

    def _fused_norm(self, op: RmsNorm) -> None:
        out = op.outputs[0]
        if op.style != "gemma":
            self.root[out.id] = self._branch
            self._step(op, [self._branch, self._residual], [])
            return
        residual = -100 - len(self.steps)
        self.root[out.id] = out.id
        self.sizes[out.id] = self.sizes[residual] = self._bytes(out.width)
        self._step(op, [self._branch, self._residual], [out.id, residual])
        self._residual = residual
        for sum_ in self._sums:
            self.root[sum_] = residual

    def _bytes(self, width: int, ranks: int = 1) -> int:
        return block_bytes(-(-width // ranks) * self.run.tokens * self.run.element_bytes)

    def _kernel(self, op: Operation) -> None:
        reads = [self.root[value.id] for value in op.inputs]
        ranks = self.run.ranks if self._is_cut(op) else 1
        makes = []
        for value in op.outputs:
            stack = self._stack(op)
            if stack is not None:
                self.root[value.id] = stack
                continue
            self.root[value.id] = value.id
            self.sizes[value.id] = self._bytes(self._width(op, value), ranks)
            makes.append(value.id)
            if ranks > 1:
                self.cut.add(value.id)
        ends = isinstance(op, ExpertMlps) or any(parameter.shard == "row" for parameter in op.parameters)
        summed = sum(self.sizes[made] for made in makes) if ends and self.run.ranks > 1 else 0
        self._inside = self._inside or not isinstance(op, _NORMS | Add)
        frees = self.run.reuses_name and isinstance(op, Multiply | Activation)
        self._step(op, reads, makes, ends_call=ends, frees=frees, beside=max(summed, self._beside(op)))
        self._inside = self._inside and not ends

    def _stack(self, op: Operation) -> int | None:
        """The product that an earlier layer of the stack made already."""
        if not _is_column(op):
            return None
        first = next(o for o in self.block.ops if _is_column(o) and _stack_of(o) == _stack_of(op))
        return None if first is op else self.root[first.outputs[0].id]

    def _width(self, op: Operation, value: Value) -> int:
        """Values a token of an output: of a stack's all, of a norm of heads those of every head."""
        if _is_column(op):
            return self._stacked[_stack_of(op)]
        return self._own_width(op) if isinstance(op, _NORMS) else value.width * value.places

    def _own_width(self, op: Operation) -> int:
        """Width of what a norm reads: all heads of a projection, where it norms each of them."""
        value = op.inputs[0]
        made_by = {made.id: maker for maker in self.block.ops for made in maker.outputs}
        while (maker := made_by.get(value.id)) is not None and isinstance(maker, Heads | HeadsFirst):
            value = maker.inputs[0]
        return value.width

    def _is_cut(self, op: Operation) -> bool:
        """Whether each rank makes its share of the outputs only."""
        if self.run.ranks == 1:
            return False
        if _is_column(op):
            return True
        if isinstance(op, Add | ExpertMlps | Router) or any(p.shard in ("row", "vocab") for p in op.parameters):
            return False
        return bool(op.inputs) and self.root[op.inputs[0].id] in self.cut

    def _beside(self, op: Operation) -> int:
        if isinstance(op, ExpertMlps) and self.run.workspace_tokens:
            chosen, inner, first, hidden = _expert_sizes(op, self.run.ranks, self.run.expert_ranks)
            return self.run.workspace_tokens * chosen * (inner + max(first, hidden)) * self.run.element_bytes
        if isinstance(op, AnyAttention) and self._is_latent and self.run.context_rows:
            up = next((o for o in self.block.ops if isinstance(o, Linear) and self._is_left_out(o)), None)
            width = up.outputs[0].width // self.run.ranks if up is not None else 0
            return block_bytes(self.run.context_rows * width * self.run.element_bytes)
        if isinstance(op, Linear) and self.run.input_copy_bytes:
            ranks = self.run.ranks if self.root[op.inputs[0].id] in self.cut else 1
            values = self.run.tokens * -(-op.inputs[0].width // ranks)
            return round(values * self.run.input_copy_bytes)
        return 0

    def _step(
        self, op: Operation, reads: Iterable[int], makes: Iterable[int], *, ends_call: bool = False,
        frees: bool = False, beside: int = 0,
    ) -> None:  # fmt: skip
        name = op.module or type(op).__name__
        self.steps.append(_Step(name, list(reads), list(makes), self._inside, ends_call, frees, beside))

    def fullest(self, *, named: bool) -> LiveSet:
        """The moment with most elements alive."""
        born = {made: i for i, step in enumerate(self.steps) for made in step.makes}
        last = dict(born)
        for i, step in enumerate(self.steps):
            until = self._end_of_call(i) if named and step.is_inside else i
            for tensor in (*step.reads, *step.makes):
                last[tensor] = max(last.get(tensor, 0), until)
            if step.frees:
                last.update(dict.fromkeys(step.reads, i))
        for value in self.block.outputs.values():
            last[self.root.get(value.id, value.id)] = len(self.steps)
        handed = [_GIVEN, _RESIDUAL]
        if not self._fused:
            handed = [_EMBEDDINGS, *(value.id for value in self.block.inputs.values())]
        if named:
            last.update(dict.fromkeys(handed, len(self.steps)))
        best = LiveSet(0, "")
        for i, step in enumerate(self.steps):
            alive = {tensor for tensor, start in born.items() if start <= i <= last[tensor]}
            alive |= {tensor for tensor in handed if i <= last.get(tensor, -1)}
            total = sum(self.sizes[tensor] for tensor in alive) + step.beside
            if total > best.bytes:
                best = LiveSet(total, step.name)
        return best

    def _end_of_call(self, start: int) -> int:
        return next((i for i in range(start, len(self.steps)) if self.steps[i].ends_call), start)


def _shared_first(ops: tuple[Operation, ...]) -> list[Operation]:
    """Shared experts run before the routed ones, up to the sum of both."""
    start = next((i for i, op in enumerate(ops) if isinstance(op, ExpertMlps)), len(ops))
    routed = {value.id for op in ops[start : start + 1] for value in op.outputs}
    stop = next((i for i in range(start + 1, len(ops)) if any(v.id in routed for v in ops[i].inputs)), start + 1)
    return [*ops[:start], *ops[start + 1 : stop], *ops[start : start + 1], *ops[stop:]]


def _is_column(op: Operation) -> bool:
    return isinstance(op, Linear | Conv1dLinear) and any(p.shard == "column" for p in op.parameters)


def _stack_of(op: Operation) -> tuple[int, str]:
    """What the layers of one product have in common: their input and the part that they belong to."""
    return op.inputs[0].id, op.parameters[0].part
