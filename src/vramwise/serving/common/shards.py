"""The linear layers and stacks of experts of one rank, as an engine cuts and fuses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from vramwise.memo import of_model
from vramwise.models import Block, Model, Operation, Parameter
from vramwise.models.operations.simple import Linear
from vramwise.models.parallel_cut import ParallelCut, key_value_rows
from vramwise.records import record
from vramwise.serving.common.weights import Layout

# what the engines' own parallel layers cut; mixers and towers have rules of their own
CUT_PARTS = frozenset({"attention", "mlp", "experts"})
# packed_modules_mapping of vLLM's and SGLang's models
FUSED = (frozenset({"q_proj", "k_proj", "v_proj"}), frozenset({"gate_proj", "up_proj"}))


@record
class Shard:
    """One linear layer of a rank, with those that the engine fuses with it, or one expert.

    `parameter`: the first weight; `inputs` and `whole_inputs`: columns on the rank and in all; `outputs`: rows on the
    rank, one figure for each of the fused layers, whose names are `labels`; `even`: the ranks share it without a
    remainder. For experts, `inputs` are those of the down projection (the intermediate size) and `outputs` the hidden
    size.
    """

    kind: Literal["column", "row", "experts"]
    parameter: Parameter
    inputs: int
    whole_inputs: int
    outputs: tuple[int, ...]
    labels: tuple[str, ...]
    even: bool

    @property
    def label(self) -> str:
        return ", ".join(self.labels)

    @property
    def is_fused(self) -> bool:
        return len(self.outputs) > 1


@of_model
def shards_of(model: Model, layout: Layout) -> tuple[Shard, ...]:
    """The different shards of a rank."""
    found: dict[tuple[object, ...], Shard] = {}
    for block in model.layers():
        for shard in _shards(block, layout):
            key = (shard.kind, shard.labels, shard.inputs, shard.whole_inputs, shard.outputs)
            found.setdefault(key, shard)
    return tuple(found.values())


def _shards(block: Block, layout: Layout) -> Iterator[Shard]:
    cut = layout.cut
    key_values = key_value_rows(block) if cut.tensor_parallel_size > 1 else {}
    columns: dict[tuple[int, int], Shard] = {}
    for op in block.ops:
        for parameter in op.parameters:
            if parameter.part not in CUT_PARTS or len(parameter.shape) < 2:
                continue
            if parameter.shard == "expert_row":
                yield _experts(parameter, cut)
            elif parameter.shard == "row" and isinstance(op, Linear):
                yield _row(parameter, cut)
            elif parameter.shard == "column" and isinstance(op, Linear):
                made = key_values.get(parameter.module)
                shape = cut.shape(parameter, key_values=made)
                even = made is not None or _divides(cut.tensor_parallel_size, parameter.shape[0])
                _join(
                    columns,
                    op,
                    Shard("column", parameter, shape[1], parameter.shape[1], (shape[0],), _labels(parameter), even),
                )
    yield from columns.values()


def _experts(parameter: Parameter, cut: ParallelCut) -> Shard:
    *_, hidden, inner = parameter.shape
    even = _divides(cut.expert_tensor_parallel_size, inner)
    return Shard("experts", parameter, cut.shape(parameter)[-1], inner, (hidden,), ("experts",), even)


def _row(parameter: Parameter, cut: ParallelCut) -> Shard:
    rows, columns = parameter.shape
    even = _divides(cut.tensor_parallel_size, columns)
    return Shard("row", parameter, cut.shape(parameter)[-1], columns, (rows,), _labels(parameter), even)


def _labels(parameter: Parameter) -> tuple[str]:
    """The layer's name without its place in the model."""
    return (parameter.name.removesuffix(".weight").rpartition(".")[2],)


def _divides(ranks: int, size: int) -> bool:
    return size % ranks == 0


def _join(columns: dict[tuple[int, int], Shard], op: Operation, shard: Shard) -> None:
    """Layers that read the same input and that models fuse are one layer of the engine; others stay by themselves."""
    family = next((i for i, names in enumerate(FUSED) if shard.label in names), len(FUSED) + op.outputs[0].id)
    key = (op.inputs[0].id, family)
    first = columns.get(key)
    if first is not None:
        outputs, labels = (*first.outputs, *shard.outputs), (*first.labels, *shard.labels)
        even = first.even and shard.even
        shard = Shard("column", first.parameter, first.inputs, first.whole_inputs, outputs, labels, even)
    columns[key] = shard
