"""The model as one tensor-parallel rank runs it: every operation with the widths that are left.

Column-parallel layers keep 1/t of their outputs, row-parallel ones read 1/t of their inputs and give whole outputs;
what lies between works on the cut width (Shoeybi et al. 2019, arXiv 1909.08053). Experts are dealt out whole.
Sequence parallelism cuts what has the hidden size, outside those regions, along the sequence (arXiv 2205.05198).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from vramwise.errors import ScenarioError, UnevenCutError
from vramwise.models.autograd.gradients import divided_up
from vramwise.models.autograd.tensor import Storage, Tensor
from vramwise.models.blocks import Block, Operation, Parameter, Value
from vramwise.models.model import Model
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.simple import Conv1dLinear, Embedding, Heads, Linear, Split
from vramwise.models.parallel_cut import ParallelCut, SharedHeads, shared_heads
from vramwise.models.step import BlockRun, Forward

_COUNTED = ("num_heads", "num_key_value_heads")
_COUNTED_EVENLY = ("key_heads", "value_heads")
"""Heads of which every rank has as many: Megatron core 0.16.1 transformer/transformer_config.py __post_init__ asks that
tensor_model_parallel_size divide both (ssm/gated_delta_net.py has none of the copies that attention makes)."""


@lru_cache(maxsize=64)
def local_model(model: Model, tensor_parallel: int, expert_parallel: int) -> Model:
    """What one rank runs. Raises `ScenarioError` when a size does not divide."""
    if tensor_parallel == 1 and expert_parallel == 1:
        return model
    ranks = ParallelCut(tensor_parallel, expert_parallel)
    try:
        return replace(model, blocks=tuple(_Cutter(block, ranks).cut() for block in model.blocks))
    except UnevenCutError as error:
        raise ScenarioError("train.tensor_parallel_size", str(error)) from None


class _Cutter:
    def __init__(self, block: Block, ranks: ParallelCut) -> None:
        self.block = block
        self.ranks = ranks
        self.t = ranks.tensor_parallel_size
        self.values: dict[int, Value] = {}
        self.is_cut: set[int] = set()

    def cut(self) -> Block:
        for value in self.block.inputs.values():
            self._keep(value, value.width, cut=False)
        ops: list[Operation] = []
        joints = shared_heads(self.block, self.t)
        for op in self.block.ops:
            joint = next((one for one in joints if op in one.products), None)
            if joint is None:
                ops.append(self._op(op))
            elif op is joint.products[0]:
                ops += self._joint(joint)
        outputs = {name: self.values[value.id] for name, value in self.block.outputs.items()}
        return replace(self.block, ops=tuple(ops), outputs=outputs)

    def _joint(self, joint: SharedHeads) -> list[Operation]:
        """Products of queries, keys and values, a share of each, and what makes a rank's heads of them."""
        from vramwise.training.layout.gathered_heads import GatheredHeads

        parts = [self._op(op) for op in joint.products]
        shares = [op.outputs[0]._replace(id=-1 - op.outputs[0].id) for op in parts]
        products = [replace(op, outputs=(share,)) for op, share in zip(parts, shares, strict=True)]
        queries, *others = (op.outputs[0] for op in joint.products)
        heads = [self._keep(queries, self._share(queries.width, joint.products[0]), cut=True)]
        heads += [self._keep(value, value.width // joint.groups, cut=True) for value in others]
        gathered = GatheredHeads(
            module=joint.module, inputs=tuple(shares), outputs=tuple(heads), groups=joint.groups, ranks=self.t
        )
        return [*products, gathered]

    def _keep(self, value: Value, width: int, *, cut: bool) -> Value:
        self.values[value.id] = kept = value._replace(width=width)
        if cut:
            self.is_cut.add(value.id)
        return kept

    def _op(self, op: Operation) -> Operation:
        from vramwise.models.operations.relative_bias import RelativePositionBias, ZeroPositionBias

        inputs = tuple(self.values[value.id] for value in op.inputs)
        cut = any(value.id in self.is_cut for value in op.inputs)
        kind = op.parameters[0].shard if op.parameters else "replicated"
        parameters = tuple(self._parameter(p, op, cut) for p in op.parameters)
        narrower = any(self.values[value.id].width != value.width for value in op.inputs)
        counted = self._counted(op, narrower) if cut else {}
        if isinstance(op, Linear | Conv1dLinear):
            column = kind in ("column", "vocab")
            outputs = tuple(
                self._keep(v, self._share(v.width, op) if column else v.width, cut=column) for v in op.outputs
            )
        elif isinstance(op, Embedding):
            outputs = tuple(self._keep(value, value.width, cut=False) for value in op.outputs)
        elif isinstance(op, RelativePositionBias | ZeroPositionBias):  # each rank has the biases of its own heads
            outputs = tuple(self._keep(value, self._share(value.width, op), cut=True) for value in op.outputs)
        elif len(op.outputs) == len(op.inputs):  # each output is made of its own input (rotary positions of q and k)
            pairs = zip(op.inputs, op.outputs, strict=True)
            outputs = tuple(self._keep(v, self._width(v, (i,), op), cut=i.id in self.is_cut) for i, v in pairs)
        else:
            outputs = tuple(self._keep(v, self._width(v, op.inputs, op), cut=cut) for v in op.outputs)
        return replace(op, inputs=inputs, outputs=outputs, parameters=parameters, **counted)

    def _width(self, value: Value, sources: tuple[Value, ...], op: Operation) -> int:
        """A result's width: what is left of it where its sources are narrower than they were."""
        if isinstance(op, Attention):
            return self._share(value.width, op) if any(s.id in self.is_cut for s in sources) else value.width
        if isinstance(op, Heads):
            return value.width
        narrower = any(self.values[source.id].width != source.width for source in sources)
        return self._share(value.width, op) if narrower else value.width

    def _share(self, size: int, op: Operation) -> int:
        if op.parameters and op.parameters[0].shard == "vocab":  # padded to a multiple
            return -(-size // self.t)
        return self.ranks.share(size, self._named(op))

    def _named(self, op: Operation) -> str:
        return f"{self.block.name}.{op.module}".strip(".")

    def _parameter(self, p: Parameter, op: Operation, cut: bool) -> Parameter:
        if cut and p.shard == "replicated":  # what it works on is cut
            left = {value.width: self.values[value.id].width for value in op.inputs}
            return replace(p, shape=tuple(left.get(size, size) for size in p.shape))
        return replace(p, shape=self.ranks.shape(p, inputs_first=op.inputs_first))

    def _counted(self, op: Operation, narrower: bool) -> dict[str, Any]:
        """Settings of an operation on cut values that count heads or columns: a rank's share of them."""
        counts = ((name, getattr(op, name, 0)) for name in _COUNTED)
        changed: dict[str, object] = {name: max(1, count // self.t) for name, count in counts if count}
        for name in _COUNTED_EVENLY:
            heads = getattr(op, name, 0)
            if heads % self.t:
                of = f"{name.replace('_', ' ')} of {self._named(op)}"
                raise UnevenCutError(f"{self.t} does not divide the {heads} {of}")
            changed |= {name: heads // self.t} if heads else {}
        if isinstance(op, Split) and narrower:
            changed["pieces"] = tuple(piece // self.t for piece in op.pieces)
        return changed


# -- sequence parallelism ----------------------------------------------------------------------------------


def with_sequence_parallel(
    forward: Forward, model: Model, tensor_parallel: int, *, regathers: bool, experts_among: int = 1
) -> Forward:
    """What lies outside the cut layers and has the hidden size, and norms' statistics, hold 1/t of the sequence.

    Column-parallel layers read whole sequences. Megatron keeps the cut ones and gathers again in backward
    (`regathers`: tensor_parallel/layers.py LinearWithGradAccumulationAndAsyncCommunication); the styles of torch 2.13
    distributed/tensor/parallel gather in front of the layer, so that its products keep what was gathered. Megatron's
    experts have the tokens of one part of the sequence, or where `experts_among` ranks share each expert its width and
    those ranks' tokens. A loss that takes the output layer along holds gradients of its weight, which have no sequence.
    """
    if tensor_parallel == 1:
        return forward
    new: dict[Storage, Storage] = {}
    whole = _between_cut_layers(forward, model) | _of_weights_shapes(forward)
    if not regathers:
        whole |= _kept_by_products(forward) | _read_by_the_loss(forward)
    for run in _once(forward):
        if run.modality != "text":
            continue
        made = [(tensor, node.module, node.in_norm) for node in run.nodes for tensor in node.outputs]
        for tensor, module, in_norm in [*((tensor, "", False) for tensor in run.incoming), *made]:
            old = tensor.storage
            if old in new or old in whole:
                continue
            ranks = tensor_parallel if _along_sequence(tensor, in_norm, model.hidden_size) else 1
            if regathers and "experts" in module.split(".") and _is_activation(tensor):
                whole_tokens = tensor.shape[-1] == model.hidden_size
                ranks = tensor_parallel // experts_among if whole_tokens else tensor_parallel
            if ranks > 1:
                new[old] = Storage(divided_up(old.nbytes, ranks), old.kind, old.op, old.module)
    done: dict[int, BlockRun] = {}
    for run in forward.runs:
        if id(run) not in done:
            done[id(run)] = renewed_run(run, new)
    return Forward(tuple(done[id(run)] for run in forward.runs))


def _once(forward: Forward) -> list[BlockRun]:
    """Every recorded block, equal layers once."""
    return list({id(run): run for run in forward.runs}.values())


def _between_cut_layers(forward: Forward, model: Model) -> set[Storage]:
    """Activations between column- and row-parallel layers: cut by width, even where that is the hidden size again."""
    column, row = (_module_ends(model, shard) for shard in ("column", "row"))
    inside: set[Storage] = set()
    for run in _once(forward):
        for node in run.nodes:
            end = ".".join(node.module.split(".")[-2:])
            if node.primitive.product == "rows" and end in row:
                continue
            if (node.primitive.product == "rows" and end in column) or any(t.storage in inside for t in node.inputs):
                inside.update(t.storage for t in node.outputs if t.storage.kind == "activation")
    return inside


def _module_ends(model: Model, shard: str) -> frozenset[str]:
    """The last two components of the names of modules whose weights are cut this way."""
    return frozenset(".".join(p.name.split(".")[-3:-1]) for p in model.parameters if p.shard == shard)


def _kept_by_products(forward: Forward) -> set[Storage]:
    """Activations that a matrix product keeps."""
    products = (node for run in _once(forward) for node in run.nodes if node.primitive.product == "rows")
    return {storage for node in products for storage, _ in node.saved if storage.kind == "activation"}


def _of_weights_shapes(forward: Forward) -> set[Storage]:
    """What a block makes in the shape of a weight that it reads: that weight's gradients, parts and sums of them."""
    found: set[Storage] = set()
    for run in _once(forward):
        weights = {tensor.shape for node in run.nodes for tensor in node.inputs if tensor.is_parameter}
        made = (tensor for node in run.nodes for tensor in node.outputs)
        found |= {tensor.storage for tensor in made if tensor.ndim > 1 and tensor.shape in weights}
    return found


def _read_by_the_loss(forward: Forward) -> set[Storage]:
    """Hidden states that a loss takes through the output layer, and their gradients.

    torchtitan's last norm gathers them before they are cut in pieces (03be241a9 models/common/decoder_sharding.py
    pre_lm_head_norm_config; components/loss.py ChunkedLossWrapper).
    """
    found: set[Storage] = set()
    for run in _once(forward):
        reads_weights = any(tensor.is_parameter for node in run.nodes for tensor in node.inputs)
        if run.name == "loss" and reads_weights:
            tensors = [*run.incoming, *(tensor for node in run.nodes for tensor in node.outputs)]
            found |= {tensor.storage for tensor in tensors}
    return found


def _is_activation(tensor: Tensor) -> bool:
    return tensor.storage.kind == "activation" and tensor.ndim > 0 and not tensor.is_parameter


def _along_sequence(tensor: Tensor, in_norm: bool, hidden_size: int) -> bool:
    if not _is_activation(tensor) or tensor.ndim < 2:
        return False
    return tensor.shape[-1] == hidden_size or in_norm


def renewed_run(run: BlockRun, new: dict[Storage, Storage]) -> BlockRun:
    """A block with other storages in the place of its own."""
    tensors: dict[int, Tensor] = {}

    def renewed(tensor: Tensor) -> Tensor:
        if tensor.storage not in new:
            return tensor
        if id(tensor) not in tensors:
            tensors[id(tensor)] = replace(tensor, storage=new[tensor.storage])
        return tensors[id(tensor)]

    nodes = tuple(
        replace(
            node,
            inputs=tuple(renewed(t) for t in node.inputs),
            outputs=tuple(renewed(t) for t in node.outputs),
            saved=tuple((new.get(storage, storage), role) for storage, role in node.saved),
        )
        for node in run.nodes
    )
    return replace(
        run,
        nodes=nodes,
        saved=tuple((new.get(storage, storage), role) for storage, role in run.saved),
        incoming=tuple(renewed(t) for t in run.incoming),
        outgoing=tuple(renewed(t) for t in run.outgoing),
    )
