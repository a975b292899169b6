"""A rank of Megatron on the allocator: weights, the buffers around them, main gradients and the optimizer's copies.

Every weight has a tensor of its own until `DistributedDataParallel` has copied it into a buffer, which is made on a
stream of its own and so in segments of its own (core 0.16 training's `get_model`, `ddp_stream`; ms-swift 4.6
megatron/utils/megatron_lm_utils.py `wrap_model`). What those tensors leave is where activations come to lie. The
optimizer clones each weight of its share and widens the clone (optimizer/distrib_optimizer.py
`_build_model_and_main_param_groups`). Products add to main gradients, so that a gradient goes as soon as it is there.
"""

from __future__ import annotations

from vramwise.models.model import Model
from vramwise.training.activations.fp8 import dummy_gradient_bytes
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.main_buffers import main_buffers
from vramwise.training.model_states.states import (
    buffer_bytes,
    copies_gradients,
    master_bytes,
    quantizer,
    steps_narrow,
    stored,
)
from vramwise.training.model_states.trained import of_stage, stepped_sizes, trained_tensors
from vramwise.training.reserved_memory.loading import trained_sizes
from vramwise.training.reserved_memory.traces import Alone, Held, Memory
from vramwise.training.resolved import ResolvedTrain

WRAPPING = 1
"""The stream on which buffers are made."""


def is_described(train: ResolvedTrain, placement: Placement) -> bool:
    """Whether the rank allocates nothing else: one stage, products in 16 bits, no FSDP of Megatron's or torch's."""
    away = offloaded(train)
    moved = away.weights or away.gradients or away.activations
    return placement.stages == 1 and not moved and train.fsdp == "none" and train.precision != "fp8-mixed"


class MainBuffers(Alone):
    """What a rank has around its blocks: nothing is gathered, and gradients go where main gradients are."""

    adds_from_start = True

    def __init__(self, memory: Memory, model: Model, train: ResolvedTrain, placement: Placement) -> None:
        super().__init__(memory)
        self.model, self.train, self.placement = model, train, placement

    def load(self) -> bool:
        own = self._weights()
        self._wrap(own)
        if self.train.master_dtype and not offloaded(self.train).optimizer:
            self._copies()
        self.memory.some(dummy_gradient_bytes(self.model, self.train, self.placement))
        return True

    def backward_over(self) -> None:
        """Of a weight with two uses the first one's gradient waits for the second's."""
        self.zeroed()

    def step(self) -> bool:
        """Main gradients of 16 bits are copied to fp32 first, weight by weight; the copies go with `zero_grad`."""
        if copies_gradients(self.train):
            sizes = stepped_sizes(of_stage(self.model, self.train, self.placement), self.placement)
            self.gradients += self.memory.some(*(4 * numel for numel in sizes))
        return False

    def _weights(self) -> dict[bool, list[Held]]:
        """Allocate all weights; those that a buffer takes, of experts and of the rest."""
        memory, model, train, placement = self.memory, self.model, self.train, self.placement
        sizes, added = trained_sizes(model, train, placement)
        form = quantizer(model, train)
        own: dict[bool, list[Held]] = {False: [], True: []}
        for p in model.parameters:
            if p.tied_to is not None:
                continue
            frozen = sum(stored(p, placement.local_numel(p, p.numel), train, form))
            held = memory.some(sizes.get(p.name, frozen))
            if p.name in sizes:
                own[p.shard.startswith("expert")] += held
        for base, size in added:
            own[base.shard.startswith("expert")] += memory.some(size)
        memory.some(*buffer_bytes(model, train, placement))
        return own

    def _wrap(self, own: dict[bool, list[Held]]) -> None:
        for buffer in main_buffers(self.model, self.train, self.placement):
            self.memory.some(buffer.weights, buffer.gradients, stream=WRAPPING)
            if buffer.weights:
                self.memory.drop_all(own[buffer.of_experts])

    def _copies(self) -> None:
        """Master weights, each by way of a clone; a narrow step keeps them in its own optimizer, without one."""
        for tensor, base in trained_tensors(self.model, self.train):
            numel = self.placement.stepped_numel(base, self.placement.local_numel(base, tensor.numel))
            clone = [] if steps_narrow(self.train) else self.memory.some(numel * tensor.param_bytes)
            self.memory.some(numel * master_bytes(self.train))
            self.memory.drop_all(clone)
