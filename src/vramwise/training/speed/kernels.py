"""Seconds of a block's kernels, each by a roofline: FLOPs over the card's rate, or bytes over its bandwidth.

    seconds = max(FLOPs / rate, (bytes read + bytes written) / bandwidth, least time of a kernel)

Views take none. Backward of a product is one product for each operand that needs a gradient; of any other operation it
reads and writes what forward did once more, and the incoming gradient. A causal mask hides half of the scores from
attention kernels. Not counted: gaps between kernels, the host.
"""

from __future__ import annotations

from vramwise.models.autograd.size import Axes, evaluate
from vramwise.models.step import BlockRun
from vramwise.records import record
from vramwise.training.speed.rates import Rates

_VISIBLE = 0.5  # of the pairs of tokens, under a causal mask
_KERNEL_BYTES = 1.5  # backward of a pointwise operation over its forward: the incoming gradient is one tensor more


@record
class KernelWork:
    """What one kernel of a block computes and moves, forward; `gradient_flops`: FLOPs of its backward pass."""

    flops: int
    gradient_flops: int
    moved_bytes: int
    is_attention: bool
    multiplies_by_weights: bool
    needs_gradient: bool
    is_repeated: bool


@record
class BlockSeconds:
    """Of one block and micro-batch: forward, backward, and what checkpointing runs again."""

    forward: float
    backward: float
    again: float

    @property
    def whole(self) -> float:
        return self.forward + self.backward + self.again


def block_work(run: BlockRun, replayed: frozenset[int], axes: Axes) -> tuple[KernelWork, ...]:
    """The kernels of a block at these sizes; `replayed`: places of those that run again in backward.

    A tensor takes no more bytes on this rank than its storage, which is smaller where it repeats what lies there, or
    where the sequence is cut between ranks.
    """
    sizes = [int(evaluate(size, axes)) for size in run.moved.sizes]
    return tuple(
        KernelWork(
            flops=int(evaluate(node.flops, axes)),
            gradient_flops=int(evaluate(node.backward_flops, axes)),
            moved_bytes=sum(min(sizes[own], sizes[storage]) for own, storage in moved.tensors),
            is_attention=node.primitive.is_attention,
            multiplies_by_weights=node.primitive.multiplies_by_weights,
            needs_gradient=any(tensor.requires_grad for tensor in node.inputs),
            is_repeated=place in replayed,
        )
        for place, (node, moved) in enumerate(zip(run.nodes, run.moved.nodes, strict=True))
        if moved.writes or node.flops
    )


def block_seconds(kernels: tuple[KernelWork, ...], rates: Rates, *, fp8: bool, attended: float) -> BlockSeconds:
    """A block's kernels on a card. `fp8`: products by weights run in 8 bits; `attended`: tokens that attention reads
    over those of one rank."""
    forward = backward = again = 0.0
    for kernel in kernels:
        first, second = _seconds(kernel, rates, fp8=fp8, attended=attended)
        forward += first
        backward += second
        again += first if kernel.is_repeated else 0.0
    return BlockSeconds(forward, backward, again)


def _seconds(kernel: KernelWork, rates: Rates, *, fp8: bool, attended: float) -> tuple[float, float]:
    memory = kernel.moved_bytes / rates.memory_bytes
    if not kernel.flops:
        forward = max(memory, rates.kernel_s)
        return forward, max(memory * _KERNEL_BYTES, rates.kernel_s) if kernel.needs_gradient else 0.0
    if kernel.is_attention:
        rate = rates.attention_flops / (_VISIBLE * attended)
    else:
        rate = rates.fp8_flops if fp8 and kernel.multiplies_by_weights else rates.product_flops
    forward = max(kernel.flops / rate, memory, rates.kernel_s)
    if not kernel.gradient_flops:
        return forward, 0.0
    times = kernel.gradient_flops / kernel.flops
    return forward, max(kernel.gradient_flops / rate, memory * times, rates.kernel_s)
