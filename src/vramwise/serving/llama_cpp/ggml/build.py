"""llama.cpp's graph of one batch: a model's operations as the ggml nodes that its own code makes of them.

A lowering is a function of the build, an operation and the tensors it reads; it is registered by the class of the
operation, in `decoders` and beside it. What a lowering makes enters the graph when llama.cpp expands it, not before.
Where an operation has no lowering the graph is not described (UndescribedOperationError), and the older rules answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import TypeVar

from vramwise.errors import UndescribedOperationError
from vramwise.formats import GgufType
from vramwise.models import Block, Operation, Parameter
from vramwise.models.operations.norms import RmsNorm
from vramwise.records import record
from vramwise.serving.llama_cpp.ggml.homes import Homes, Piece
from vramwise.serving.llama_cpp.ggml.tensors import (
    F16,
    F32,
    HOST,
    I32,
    I64,
    OUTPUT,
    RESIDUAL,
    Graph,
    Tensor,
    get_rows,
    leaf,
    like,
    shape,
    stored,
    view,
)

HALF = GgufType("F16", 1, F16)
Lowered = Callable[..., "Tensor | tuple[Tensor, ...]"]
F = TypeVar("F", bound=Lowered)
GGML_LOWERINGS: dict[type[Operation], Lowered] = {}


def ggml_lowering(*kinds: type[Operation]) -> Callable[[F], F]:
    """Registers what llama.cpp runs for a class of operations: `(build, op, *tensors) -> tensor or tensors`."""

    def register(function: F) -> F:
        for kind in kinds:
            GGML_LOWERINGS[kind] = function
        return function

    return register


@record
class Batch:
    """What the worst batch has: tokens, rows with logits, sequences; cells of a stream, by kind of cache.

    `states_kept`: recurrent states of a sequence that are written. `turned_…`, `copied_…`: what is turned before it
    goes into a quantized cache, and copied out of it in 16 bit. `own_order`, `joint_experts`: ollama's own
    engine, whose inputs have buffers of their own (own_engine.py).
    """

    tokens: int
    outputs: int
    sequences: int
    streams: int
    cells: int
    window_cells: int
    flash: bool
    half_masks: bool
    ready_embeddings: bool
    windows: bool
    states_kept: int = 1
    turned_keys: bool = False
    turned_values: bool = False
    copied_keys: bool = False
    copied_values: bool = False
    key_type: GgufType = HALF
    value_type: GgufType = HALF
    own_order: bool = False
    joint_experts: bool = False
    cache_on_devices: bool = True
    keeps_norms: bool = False
    """Whether norms run where their layer lies, told by the program (llama-context.cpp graph_get_cb)."""


@record
class GraphOf:
    """What llama.cpp's graph of a type has of its own (facts of `type_facts.csv`).

    `value_width`: elements of a token's values in the widest layer. `positions`: those of a token. `sum_order`: how
    attention and MLP beside one another are added: `ffn+residual`, `attn+ffn` or `ffn+attn` first. `residual_first`:
    the sum, `first`, `second` or `both`, that names the residual before the rest. `late_rows`: rows with logits are
    picked `behind the layers` or `behind the norm` that follows them. `scales_experts`: weights of experts are scaled
    by a factor that is not 1 (llama-graph.cpp build_moe_ffn w_scale). `rotary_factors`: frequency factors in the file.
    `deep_inputs`: further inputs of the hidden size that come beside the embeddings, one for each of the first layers.
    `joint_experts`: gate and up of all experts are one tensor of the file.
    """

    value_width: int
    positions: int = 1
    sum_order: str = ""
    residual_first: str = ""
    scales_queries: bool = False
    late_rows: str = ""
    normalizes_experts: bool = False
    scales_experts: bool = False
    rotary_factors: int = 0
    deep_inputs: int = 0
    joint_experts: bool = False


class Build:
    """One graph in the making."""

    def __init__(self, batch: Batch, graph_of: GraphOf) -> None:
        self.batch, self.graph_of = batch, graph_of
        self.graph = Graph(batch.own_order)
        self.device = self.cache_device = HOST
        self.homes: dict[str, tuple[Piece, ...]] = {}
        self.block: Block | None = None
        self.is_last = False
        self.values: dict[int, Tensor] = {}
        self.is_behind_layers = self.selected = False
        self.embedded: Tensor | None = None
        self.streams: dict[str, Tensor] = {}
        self.cached: dict[int, tuple[Tensor, Tensor]] = {}
        """Keys and values of all cells, by the keys of the batch, which later layers may read."""
        self._place = 0
        self._inputs: dict[str, Tensor] = {}

    def input(self, name: str, ne: tuple[int, ...], item: int) -> Tensor:
        """An input of the whole graph, made once."""
        found = self._inputs.get(name)
        if found is None:
            apart = self.batch.own_order
            found = stored(shape(*ne), item, HOST, weight=False) if apart else leaf(shape(*ne), item)
            self._inputs[name] = found
        return found

    def positions_input(self) -> Tensor:
        return self.input("positions", (self.batch.tokens * self.graph_of.positions,), I32)

    def output_rows(self) -> Tensor:
        return self.input("outputs", (self.batch.outputs,), I32)

    def mask(self, windowed: bool) -> Tensor:
        """The mask of a kind of cache; flash attention reads it in f16, builds before b9390 made that themselves."""
        b = self.batch
        cells = b.window_cells if windowed else b.cells
        ne = (cells, b.tokens // b.streams, 1, b.streams)
        name = f"mask {windowed}"
        if not b.flash:
            return self.input(name, ne, F32)
        if b.half_masks:
            return self.input(name, ne, F16)
        key = f"cast {name}"
        if key not in self._inputs:
            self._inputs[key] = Tensor("CPY", shape(*ne), F16, (self.input(name, ne, F32),))
        return self._inputs[key]

    def rotary_factors(self) -> tuple[Tensor, ...]:
        """Frequency factors, one tensor for all layers of a device."""
        many = self.graph_of.rotary_factors
        if not many:
            return ()
        name = f"factors {self.device}"
        if name not in self._inputs:
            self._inputs[name] = self.weight(many)
        return (self._inputs[name],)

    def cell_indices(self, windowed: bool, part: str) -> Tensor:
        """Where keys ("k") or values ("v") go: a cell a token, or a place for every element of transposed values."""
        apart = part == "v" and not self.batch.flash
        many = self.batch.tokens * (self.graph_of.value_width if apart else 1)
        return self.input(f"cells {windowed} {part}", (many,), I64)

    def state_places(self) -> tuple[Tensor, Tensor]:
        """Where the batch's sequences have their states, and where the others of the batch do, which are none: views of
        an input, made once (build_rs_inp_impl)."""
        places = self.input("states", (self.batch.sequences,), I32)
        for part, many in (("own places", self.batch.sequences), ("other places", 0)):
            if part not in self._inputs:
                self._inputs[part] = view(places, shape(many), places.nb)
        return self._inputs["own places"], self._inputs["other places"]

    def turn(self, width: int) -> Tensor:
        """A Hadamard matrix (llama-kv-cache.cpp build_input_k_rot, build_input_v_rot)."""
        return self.input(f"turn {width}", (width, width), F32)

    def weight(self, *ne: int, of: Parameter | None = None, name: str = "", device: int | None = None) -> Tensor:
        """A weight where it lies, `device` if nothing else is said of it: that `of` a parameter, or of a parameter's
        tensors the one called `name`."""
        pieces = self.homes.get(of.name, ()) if of is not None else ()
        found = next((piece for piece in pieces if not name or piece[0] == name), None)
        if found is not None:
            return stored(shape(*ne), F16, found[1], weight=True, size=found[2] or F32 * prod(ne))
        place = self.device if device is None else device
        return stored(shape(*ne), F16, place, weight=True, size=F32 * prod(ne))

    def parameter(self, ending: str) -> Parameter | None:
        """The parameter of the block whose name ends so."""
        owned = self.block.parameters if self.block is not None else ()
        return next((parameter for parameter in owned if parameter.name.endswith(ending)), None)

    def run(self, block: Block, hidden: Tensor | None, device: int, is_last: bool, homes: Homes = ()) -> Tensor | None:
        """The hidden states or logits that a block hands on, which another stream (the embeddings for each layer, keys
        for later layers) leaves as they are; `homes`: where its parameters lie, if not all with it on a device.

        Raises UndescribedOperationError.
        """
        self.homes = {parameter.name: pieces for parameter, pieces in zip(block.parameters, homes, strict=False)}
        self.is_behind_layers |= self.is_last
        self.block, self.device, self.is_last = block, device, is_last
        self.cache_device = device if self.batch.cache_on_devices else HOST
        late = self.graph_of.late_rows if self.is_behind_layers else ""
        if hidden is not None and late == "behind the layers":
            hidden = self._late_rows(hidden)
        values = self.values = self._read(block, hidden)
        for self._place, op in enumerate(block.computing):
            lower = GGML_LOWERINGS.get(type(op))
            if lower is None:
                raise UndescribedOperationError(f"{type(op).__name__} has no ggml graph")
            results = lower(self, op, *(values[value.id] for value in op.inputs))
            if late == "behind the norm" and isinstance(op, RmsNorm) and isinstance(results, Tensor):
                results = self._late_rows(results)
            for value, result in zip(op.outputs, (results,) if isinstance(results, Tensor) else results, strict=False):
                values[value.id] = result
        made = {name: values[value.id] for name, value in block.outputs.items()}
        through = [made.pop(name) for name in ("hidden", "logits") if name in made]
        self.streams |= made
        if not through:
            return hidden
        if self.embedded is None or block.layer is None or block.layer >= self.graph_of.deep_inputs:
            return through[0]
        return like("ADD", through[0], view(self.embedded, through[0].ne, self.embedded.nb))

    def _read(self, block: Block, hidden: Tensor | None) -> dict[int, Tensor]:
        """What a block reads, by the numbers of its values. Raises UndescribedOperationError."""
        found = {}
        for name, value in block.inputs.items():
            read = hidden if name == "hidden" else self.streams.get(name)
            if read is None:
                raise UndescribedOperationError(f"stream {name} has no graph")
            if read is hidden:
                read.mark = RESIDUAL
            found[value.id] = read
        return found

    def _late_rows(self, hidden: Tensor) -> Tensor:
        hidden.flags |= OUTPUT  # a draft may read it (res->t_h_nextn)
        return get_rows(hidden, self.output_rows())

    def keep_outputs(self, *mixed: Tensor) -> tuple[Tensor, ...]:
        """Of the last layer only rows with logits go on: of what attention gave, and of what is read later."""
        batch = self.batch
        if not self.is_last or self.selected or self.graph_of.late_rows:
            return mixed
        self.selected = True
        rows = self.output_rows()
        assert self.block is not None
        read = {value.id for op in self.block.computing[self._place + 1 :] for value in op.inputs}
        for key in read & self.values.keys():
            old = self.values[key]
            if old.ne[1] == batch.tokens and old.ne[2] == 1:
                new = self.values[key] = get_rows(old, rows)
                new.mark = old.mark
        return tuple(get_rows(one, rows) for one in mixed)


def lowerings_known(blocks: Iterable[Block]) -> bool:
    """Whether every operation of the blocks has a lowering."""
    return all(type(op) in GGML_LOWERINGS for block in blocks for op in block.computing)
