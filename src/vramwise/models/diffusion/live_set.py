"""What one call of a component holds beside its weights: its blocks on one tape, walked forward without gradients.

A frame names what it received until it returns; the modules of a list are frames of their own, the list is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import ITEM_BYTES, Storage, Tensor
from vramwise.models.blocks import Block
from vramwise.models.execution import Execution
from vramwise.models.forward_walk import last_uses_in, walk_forward
from vramwise.models.lowering import Lowering
from vramwise.models.operations.latents import whole
from vramwise.models.step import BlockRun
from vramwise.records import record

_IN_A_LIST = re.compile(r"\.(\d+)")
KEPT = "kept of "
"""What streams begin with that a list of the model's own holds from one call to the next."""
_RECORDED = 2
"""Equal layers in a row that are recorded: what the second holds, every later one holds."""


@record
class Given:
    """A tensor that a component is called with: its stream's name, shape and dtype."""

    stream: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Its size, as the allocator rounds it."""
        count = ITEM_BYTES[self.dtype]
        for side in self.shape:
            count *= side
        return -(-count // 512) * 512


@record
class LiveSet:
    """The fullest moment of a call: bytes beside weights and inputs, the operation, its module; bytes handed back."""

    bytes: int
    operation: str
    module: str
    left_bytes: int


def live_set(
    blocks: Sequence[Block], given: Sequence[Given], dtype: str, *, batch: int = 1, tokens: int = 1,
    unpacked_bytes: Mapping[str, int] | None = None, fetched: Mapping[str, int] | None = None, ahead: bool = False,
) -> LiveSet:  # fmt: skip
    """The fullest moment of one call in `dtype`; `tokens`: of each row of a text encoder.

    `unpacked_bytes`: of quantized weights by name, what their copy takes while their product runs.
    `fetched`: of weights by name, bytes, where each layer's come from host memory when it runs and go after it;
    `ahead`: those of the next layer come while one runs.
    """
    tape = Tape()
    padded = any(one.stream == "attention_mask" for one in given)
    execution = Execution(param_dtype=dtype, dropout=False, trainable=(), padding=padded)
    run = Lowering(tape, execution, batch, tokens, frozenset())
    inputs = {one.stream: tape.new(one.shape, one.dtype, kind="input", op="input") for one in given}
    run.streams.update(inputs)
    kept: set[Storage] = set()
    for block in _told_apart(blocks):
        first = len(tape.nodes)
        run.run(block)
        kept |= {run.streams[name].storage for name in block.outputs if name.startswith(KEPT)}
        for node in tape.nodes[first:]:
            node.module = _path(block.name, node.module)
    _unpack(run, tape, unpacked_bytes or {})
    _fetch(run, tape, fetched or {}, ahead=ahead)
    outputs = tuple(run.streams[name] for name in blocks[-1].outputs)
    whole_call = BlockRun("", None, tuple(tape.nodes), (), tuple(inputs.values()), outputs)
    last_uses = {**last_uses_in(whole_call), **_until_replaced(tape, kept)}
    walked = walk_forward(whole_call, kept=(), last_uses=last_uses)
    fullest = max(walked.moments, key=lambda moment: whole(moment.total))
    left = {tensor.storage: tensor for tensor in outputs}
    return LiveSet(whole(fullest.total), fullest.operation, fullest.module, sum(_size(x) for x in left.values()))


@cache
def _path(block: str, module: str) -> str:
    return _IN_A_LIST.sub(r"/\1", f"{block}.{module}" if block and module else block or module)


def _until_replaced(tape: Tape, kept: set[Storage]) -> dict[Storage, int]:
    """What a list of the model's own holds is no argument of a frame: it goes when another takes its place."""
    return {
        tensor.storage: i for i, node in enumerate(tape.nodes) for tensor in node.inputs if tensor.storage in kept
    }  # fmt: skip


def _told_apart(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks without those equal layers that follow two others."""
    signature: object = None
    count = 0
    for block in blocks:
        same = block.layer is not None and block.signature == signature
        count = count + 1 if same else 1
        signature = block.signature
        if count <= _RECORDED:
            yield block


def _unpack(run: Lowering, tape: Tape, unpacked: Mapping[str, int]) -> None:
    """A quantized weight is unpacked for its product or convolution, beside the result."""
    copies: dict[object, Dim] = {
        run.parameters[name].storage: size for name, size in unpacked.items() if name in run.parameters
    }
    for node in tape.nodes if copies else ():
        node.workspace_bytes = node.workspace_bytes + sum(whole(copies.get(one.storage, 0)) for one in node.inputs)


def _fetch(run: Lowering, tape: Tape, fetched: Mapping[str, int], *, ahead: bool) -> None:
    """Weights on the card while a layer runs, and with `ahead` those of the next layer from the last one on."""
    owners: dict[object, tuple[str, int]] = {}
    for name, size in fetched.items():
        if name in run.parameters:
            module = name.rpartition(".")[0]
            owners[run.parameters[name].storage] = module, size
    coming, current = 0, ""
    for node in reversed(tape.nodes) if owners else ():
        own = dict(owners[tensor.storage] for tensor in node.inputs if tensor.storage in owners)
        modules = {owners[tensor.storage][0] for tensor in node.inputs if tensor.storage in owners}
        here = sum(size for module, size in owners.values() if module in modules) if own else 0
        node.workspace_bytes = node.workspace_bytes + here + (coming if ahead else 0)
        if modules and current not in modules:
            coming, current = here, min(modules)


def _size(tensor: Tensor) -> int:
    return whole(tensor.storage.nbytes)
