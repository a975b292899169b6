"""A parameter on one rank of tensor and expert parallelism: which of its axes are cut, and over how many ranks.

    column          outputs: q, k, v, gate, up              over tensor_parallel_size
    row             inputs: o_proj, down_proj               over tensor_parallel_size
    vocab           rows, padded to a multiple              over tensor_parallel_size
    expert_column   experts, then each expert's outputs     over expert_parallel_size, expert_tensor_parallel_size
    expert_row      experts, then each expert's inputs      over expert_parallel_size, expert_tensor_parallel_size
    replicated      none: norms, routers, latent down-projections

(Shoeybi et al. 2019, arXiv 1909.08053; vLLM model_executor/layers/linear.py, vocab_parallel_embedding.py.) What does
not divide is rounded up. Key and value heads of which there are fewer than ranks are copied, so that each rank has one.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UnevenCutError
from vramwise.models.blocks import Block, Operation, Parameter
from vramwise.models.operations.attention import AnyRotary, Attention
from vramwise.models.operations.simple import Conv1dLinear, Linear
from vramwise.records import record
from vramwise.units import round_up


@record
class KeyValueRows:
    """Of a linear layer's outputs, how many belong to keys or values, and the number of their heads."""

    rows: int
    heads: int


@record
class ParallelCut:
    """Over how many ranks parameters are cut.

    `expert_parallel_size` ranks hold whole experts, `expert_tensor_parallel_size` ranks share each of them.
    `vocab_multiple`: rows that embedding and head are padded to before they are cut.
    """

    tensor_parallel_size: int = 1
    expert_parallel_size: int = 1
    expert_tensor_parallel_size: int = 1
    vocab_multiple: int = 1

    def ranks(self, parameter: Parameter) -> int:
        """Ranks that share a parameter: 1 where each has all of it, EP · expert TP for experts, TP for the rest."""
        if parameter.shard == "replicated":
            return 1
        if parameter.shard.startswith("expert"):
            return self.expert_parallel_size * self.expert_tensor_parallel_size
        return self.tensor_parallel_size

    def share(self, size: int, of: str) -> int:
        """One rank's share of a width that has to be the same on each. Raises `UnevenCutError` where it cannot be."""
        if size % self.tensor_parallel_size:
            raise UnevenCutError(f"{self.tensor_parallel_size} does not divide the {size} outputs of {of}")
        return size // self.tensor_parallel_size

    def shape(
        self, parameter: Parameter, *, inputs_first: bool = False, key_values: KeyValueRows | None = None
    ) -> tuple[int, ...]:
        """The parameter's shape on one rank.

        `inputs_first`: its layer stores (inputs, outputs), as GPT-2's `Conv1D` does. `key_values`: what of it belongs
        to keys or values (`key_value_rows`).
        """
        shape, tp = parameter.shape, self.tensor_parallel_size
        # Kimi Linear's decays have a shape that broadcasts, (1, 1, heads, 1).
        first, last = next((axis for axis, size in enumerate(shape) if size > 1), 0), len(shape) - 1
        if parameter.shard == "vocab":
            return _with(shape, first, round_up(shape[0], self.vocab_multiple * tp) // tp)
        if parameter.shard.startswith("expert"):
            dealt = _divided(shape, first, self.expert_parallel_size)
            axis = last if parameter.shard == "expert_row" else max(last - 1, first)
            return _divided(dealt, axis, self.expert_tensor_parallel_size)
        if parameter.shard == "row":
            return _divided(shape, first if inputs_first else last, tp)
        if parameter.shard == "replicated":
            return shape
        axis = last if inputs_first else first
        if key_values is None or key_values.heads % tp == 0:
            return _divided(shape, axis, tp)
        others = -(-(shape[axis] - key_values.rows) // tp)
        copied = key_values.rows // key_values.heads * max(1, key_values.heads // tp)
        return _with(shape, axis, others + copied)


WHOLE = ParallelCut()
"""Nothing is cut."""


def _divided(shape: tuple[int, ...], axis: int, ranks: int) -> tuple[int, ...]:
    return _with(shape, axis, -(-shape[axis] // ranks))


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def key_value_rows(block: Block) -> dict[str, KeyValueRows]:
    """The block's linear layers that make keys or values, by module.

    Found by following attention's k and v back to the layer that makes them.
    """
    maker = {output.id: op for op in block.ops for output in op.outputs}
    found: dict[str, KeyValueRows] = {}
    for op in block.operations(Attention):
        heads = op.num_key_value_heads
        for value in op.inputs[1:3]:
            linear = _made_by_linear(maker, value.id)
            if linear is not None and linear.parameters:
                module = linear.parameters[0].module
                before = found[module].rows if module in found else 0
                found[module] = KeyValueRows(before + heads * value.width, heads)
    return found


def _made_by_linear(maker: Mapping[int, Operation], value: int) -> Operation | None:
    for _ in range(32):
        op = maker.get(value)
        if op is None or isinstance(op, Linear | Conv1dLinear):
            return op
        if not op.inputs:
            return None
        # rotary makes one output for each input; everything else continues its first input
        place = next((i for i, output in enumerate(op.outputs) if output.id == value), 0)
        value = op.inputs[place if isinstance(op, AnyRotary) else 0].id
    return None


@record(eq=False)
class SharedHeads:
    """Products of queries, keys and values whose `groups` heads of keys several ranks share, and attention's module."""

    products: tuple[Operation, ...]
    groups: int
    module: str


def shared_heads(block: Block, ranks: int) -> list[SharedHeads]:
    """Attention with fewer heads of keys than ranks, where three products of one input make what it reads."""
    found: list[SharedHeads] = []
    maker: dict[int, Operation] = {}
    for op in block.operations(Attention):
        if op.num_key_value_heads >= ranks or ranks % op.num_key_value_heads:
            continue
        maker = maker or {output.id: one for one in block.ops for output in one.outputs}
        made = [_made_by_linear(maker, value.id) for value in op.inputs[:3]]
        products = tuple(one for one in made if one is not None)
        if len(set(products)) == 3 and len({one.inputs for one in products}) == 1:
            found.append(SharedHeads(products, op.num_key_value_heads, op.module))
    return found
