"""The kernels in which an engine runs a block, and the tensors that they make.

Engines run a block's operations in fewer kernels than transformers, and some of them in place:

- layers that read the same input and are cut by columns are one product, of which the rest reads views
- an RMS norm that begins a layer or follows a residual sum is one kernel with the sum, so a layer is handed two
  tensors, what to add and the residual; most write over both, Gemma's and those of `norms_apart` make others
- rotary embeddings turn in place; an MLP's function and its product with the other half are one kernel
- attention makes its output and nothing else
- products in 8 bits read a copy of their input in 8 bits

`Kernels` says where engines differ in this, and each engine's package from which files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from vramwise.models import Block, Operation
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
from vramwise.serving.common.forward.library_experts import library_expert_bytes

_VIEWS = Heads | HeadsFirst | Split | Cached | AnyRotary | Halves | ToParameterDtype | Dropout
_NORMS = RmsNorm | LayerNorm
FP4_ROWS, FP4_GROUP, FP4_SCALES_IN_A_WORD = 163_840, 16, 4  # VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE
GIVEN, RESIDUAL, EMBEDDINGS = -1, -2, -3
"""What the layer before made, and the residual: the two tensors that a layer with fused sums is handed, of which the
residual is written into the embeddings. Other layers are handed one tensor, and the embeddings stay beside it."""


@record
class Kernels:
    """Where engines differ in how they run a layer.

    `sums_in_place`: ranks add up what a row-cut layer made in its own tensor, else in another. `norms_apart`: a sum
    and norm in one kernel makes two tensors, else it writes over both inputs. `product_apart`: an MLP's function is a
    kernel before the product. `experts_in_place`: routed experts write over their input. `keeps_names`: a layer has a
    name of its own for whatever its norms and modules made, and the model for the embeddings. `latent_keys`: latent
    attention makes keys and values of every head.
    """

    sums_in_place: bool = False
    norms_apart: bool = False
    product_apart: bool = False
    experts_in_place: bool = False
    keeps_names: bool = False
    latent_keys: bool = False


@record
class Pass:
    """A batch on one of several ranks.

    `context_rows`: rows of the tensor that latent attention makes in place of keys and values of earlier tokens.
    `input_copy_bytes`: bytes for each value of a product's input that is copied in 8 bits. `workspace_tokens`: tokens
    whose experts run at once in buffers that go afterwards; 0 where such buffers are counted elsewhere. `reuses_name`:
    the MLP's code gives its result the name of its input (`x = self.act_fn(x)`), which frees that. `fp4_experts`: see
    `fp4_expert_bytes`; `library_experts`: experts run as `library_expert_bytes` says, in the tiles that it takes or
    not (`pads_experts`). `data_ranks`: copies of the model whose tokens meet at the experts; `narrow_gather`: in the 8
    bits in which the experts read them.
    """

    tokens: int
    element_bytes: int
    ranks: int = 1
    expert_ranks: int = 1
    context_rows: int = 0
    input_copy_bytes: float = 0.0
    workspace_tokens: int = 0
    reuses_name: bool = False
    fp4_experts: bool = False
    library_experts: bool = False
    pads_experts: bool = True
    data_ranks: int = 1
    narrow_gather: bool = False
    kernels: Kernels = Kernels()


@dataclass(slots=True)
class Step:
    """One kernel: roots of what it reads and makes, and bytes that it holds beside them while it runs."""

    name: str
    reads: list[int]
    makes: list[int]
    is_inside: bool
    ends_call: bool = False
    frees: bool = False
    beside: int = 0


@dataclass
class Lowered:
    """The kernels of one block, and the sizes of the tensors they make."""

    block: Block
    run: Pass
    root: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    unnamed: set[int] = field(default_factory=set)
    is_fused: bool = False

    def __post_init__(self) -> None:
        self._stacked = self._widths_of_stacks()
        self._readers: dict[int, list[Operation]] = {}
        for op in self.block.computing:
            for value in op.inputs:
                self._readers.setdefault(value.id, []).append(op)
        self._stream = next(iter(self.block.inputs.values())).id if self.block.inputs else 0
        self.is_fused = any(isinstance(op, RmsNorm) for op in self._readers.get(self._stream, []))
        self._residual, self._branch = RESIDUAL, GIVEN
        for value in self.block.inputs.values():
            self.root[value.id] = value.id
            self.sizes[value.id] = self._bytes(value.width)
        if self.is_fused:
            self.root[self._stream] = RESIDUAL
        for tensor in (GIVEN, RESIDUAL, EMBEDDINGS):
            self.sizes[tensor] = self.sizes.get(self._stream, 0)
        self._sums = {self._stream}
        self._inside = False
        for op in _shared_first(self.block.computing):
            self._add(op)

    def _widths_of_stacks(self) -> dict[tuple[int, str], int]:
        """Width of the one product of all column-cut layers of a module that read a value."""
        widths: dict[tuple[int, str], int] = {}
        for op in self.block.computing:
            if is_column(op):
                widths[_stack_of(op)] = widths.get(_stack_of(op), 0) + op.outputs[0].width
        return widths

    def _add(self, op: Operation) -> None:
        if isinstance(op, _VIEWS) or self._is_left_out(op):
            for place, value in enumerate(op.outputs):
                self.root[value.id] = self.root[op.inputs[min(place, len(op.inputs) - 1)].id]
        elif isinstance(op, Add) and self.is_fused and any(value.id in self._sums for value in op.inputs):
            self._sum(op)
        elif isinstance(op, RmsNorm) and self.is_fused and op.inputs[0].id in self._sums:
            self._fused_norm(op)
        else:
            self._kernel(op)

    def _is_left_out(self, op: Operation) -> bool:
        """What no kernel of its own does: an activation that a product follows, and keys of latent attention."""
        if isinstance(op, Activation) and not self.run.kernels.product_apart:
            return self._feeds_product(op)
        if not self._is_latent or self.run.kernels.latent_keys:
            return False
        made_by = {value.id: maker for maker in self.block.computing for value in maker.outputs}
        source = made_by.get(op.inputs[0].id) if op.inputs else None
        up = isinstance(op, Linear) and source is not None and isinstance(source, Cached)
        return up or isinstance(op, LatentKey | Concatenate)

    def _feeds_product(self, op: Activation) -> bool:
        return any(isinstance(reader, Multiply) for reader in self._readers.get(op.outputs[0].id, []))

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
        if op.style != "gemma" and not self.run.kernels.norms_apart:
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
            shared = self._shared(op)
            if shared is not None:
                self.root[value.id] = shared
                continue
            self.root[value.id] = value.id
            self.sizes[value.id] = self._bytes(self._width(op, value), ranks)
            makes.append(value.id)
            if ranks > 1:
                self.cut.add(value.id)
        ends = isinstance(op, ExpertMlps) or any(parameter.shard == "row" for parameter in op.parameters)
        apart = ends and self.run.ranks > 1 and not self.run.kernels.sums_in_place
        summed = sum(self.sizes[made] for made in makes) if apart else 0
        if isinstance(op, Activation) and self._feeds_product(op):
            self.unnamed.update(makes)
        self._inside = self._inside or not isinstance(op, _NORMS | Add)
        frees = self.run.reuses_name and isinstance(op, Multiply | Activation)
        self._step(op, reads, makes, ends_call=ends, frees=frees, beside=max(summed, self._beside(op)))
        self._inside = self._inside and not ends

    def _shared(self, op: Operation) -> int | None:
        """The tensor that an output lies in: the product that an earlier layer of the stack made, or experts' input."""
        if isinstance(op, ExpertMlps) and self.run.kernels.experts_in_place:
            return self.root[op.inputs[0].id]
        if not is_column(op):
            return None
        first = next(o for o in self.block.computing if is_column(o) and _stack_of(o) == _stack_of(op))
        return None if first is op else self.root[first.outputs[0].id]

    def _width(self, op: Operation, value: Value) -> int:
        """Values a token of an output: of a stack's all, of a norm of heads those of every head."""
        if is_column(op):
            return self._stacked[_stack_of(op)]
        return self._own_width(op) if isinstance(op, _NORMS) else value.width * value.places

    def _own_width(self, op: Operation) -> int:
        """Width of what a norm reads: all heads of a projection, where it norms each of them."""
        value = op.inputs[0]
        made_by = {made.id: maker for maker in self.block.computing for made in maker.outputs}
        while (maker := made_by.get(value.id)) is not None and isinstance(maker, Heads | HeadsFirst):
            value = maker.inputs[0]
        return value.width

    def _is_cut(self, op: Operation) -> bool:
        """Whether each rank makes its share of the outputs only."""
        if self.run.ranks == 1:
            return False
        if is_column(op):
            return True
        if isinstance(op, Add | ExpertMlps | Router) or any(p.shard in ("row", "vocab") for p in op.parameters):
            return False
        return bool(op.inputs) and self.root[op.inputs[0].id] in self.cut

    def _beside(self, op: Operation) -> int:
        if isinstance(op, ExpertMlps):
            if self.run.library_experts:
                return self._library_experts(op)
            return fp4_expert_bytes(op, self.run) if self.run.fp4_experts else self._beside_experts(op)
        if isinstance(op, AnyAttention) and self._is_latent and self.run.context_rows:
            up = next((o for o in self.block.computing if isinstance(o, Linear) and self._is_left_out(o)), None)
            width = up.outputs[0].width // self.run.ranks if up is not None else 0
            return block_bytes(self.run.context_rows * width * self.run.element_bytes)
        if isinstance(op, Linear) and self.run.input_copy_bytes:
            ranks = self.run.ranks if self.root[op.inputs[0].id] in self.cut else 1
            values = self.run.tokens * -(-op.inputs[0].width // ranks)
            return round(values * self.run.input_copy_bytes)
        return 0

    def _library_experts(self, op: ExpertMlps) -> int:
        run = self.run
        sizes = expert_sizes(op, run.ranks, run.expert_ranks)
        tokens = run.tokens * run.data_ranks
        return library_expert_bytes(tokens, sizes, op.num_experts, run.element_bytes, pads=run.pads_experts)

    def _beside_experts(self, op: ExpertMlps) -> int:
        """Buffers that go afterwards, copies in 8 bits of what both products read, and the tokens of all copies of the
        model, from which a rank takes its experts'."""
        run = self.run
        chosen, inner, first, hidden = expert_sizes(op, run.ranks, run.expert_ranks)
        held = run.workspace_tokens * chosen * (inner + max(first, hidden)) * run.element_bytes
        held += round((run.workspace_tokens or run.tokens) * (hidden + chosen * inner) * run.input_copy_bytes)
        if run.data_ranks > 1:
            copied = run.input_copy_bytes if run.narrow_gather and run.input_copy_bytes else run.element_bytes
            held += block_bytes(round(run.data_ranks * run.tokens * hidden * copied))
        return held

    def _step(
        self, op: Operation, reads: Iterable[int], makes: Iterable[int], *, ends_call: bool = False,
        frees: bool = False, beside: int = 0,
    ) -> None:  # fmt: skip
        name = op.module or type(op).__name__
        self.steps.append(Step(name, list(reads), list(makes), self._inside, ends_call, frees, beside))


def expert_sizes(op: ExpertMlps, ranks: int, expert_ranks: int) -> tuple[int, int, int, int]:
    """Experts of a token, inner width on a rank, width of gate and up, hidden size."""
    hidden, chosen = op.inputs[0].width, op.experts_per_token
    inner = op.inner_width if expert_ranks > 1 else -(-op.inner_width // ranks)
    return chosen, inner, (op.fused_branches or 2) * inner, hidden


def fp4_expert_bytes(op: ExpertMlps, run: Pass) -> int:
    """What routed experts of vLLM's own 4-bit kernels hold beside their two buffers.

    The rows of the chosen experts, until the end; before each product these in 4 bits, with room for the scales of
    FP4_ROWS tokens whatever the batch; at the end the rows that were made, in order, and their products with the
    router's weights (0.13.0 to 0.33.0 run_cutlass_moe_fp4, _custom_ops.py scaled_fp4_experts_quant).
    """
    chosen, inner, _, hidden = expert_sizes(op, run.ranks, run.expert_ranks)
    rows = run.tokens * chosen
    given = block_bytes(rows * hidden * run.element_bytes)

    def in_four_bits(width: int) -> int:
        words = -(-(width // FP4_GROUP) // FP4_SCALES_IN_A_WORD)
        return block_bytes(rows * width // 2) + block_bytes(FP4_ROWS * chosen * words * FP4_SCALES_IN_A_WORD)

    summed = 2 * given + block_bytes(run.tokens * hidden * run.element_bytes)
    return given + max(in_four_bits(hidden), in_four_bits(inner), summed)


def _shared_first(ops: tuple[Operation, ...]) -> list[Operation]:
    """Shared experts run before the routed ones, up to the sum of both."""
    start = next((i for i, op in enumerate(ops) if isinstance(op, ExpertMlps)), len(ops))
    routed = {value.id for op in ops[start : start + 1] for value in op.outputs}
    stop = next((i for i in range(start + 1, len(ops)) if any(v.id in routed for v in ops[i].inputs)), start + 1)
    return [*ops[:start], *ops[start + 1 : stop], *ops[start : start + 1], *ops[stop:]]


def is_column(op: Operation) -> bool:
    return isinstance(op, Linear | Conv1dLinear) and any(p.shard == "column" for p in op.parameters)


def _stack_of(op: Operation) -> tuple[int, str]:
    """What the layers of one product have in common: their input and the part that they belong to."""
    return op.inputs[0].id, op.parameters[0].part
