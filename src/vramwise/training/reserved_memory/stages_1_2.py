"""What a rank of ZeRO's stages 1 and 2 allocates around its blocks: buckets, its slice of the gradients, its step.

    load        all weights in one piece; the rank's slice of them in fp32, and zeros as large for a moment. Offloaded:
                a buffer of the largest weight
    backward    buckets; a gradient goes when it is copied into one, or, larger than it, when the next one comes. Each
                full bucket is copied in the order of the ranks, and the rank's slice of it goes into its partition, in
                stage 1 in the order of weights when backward is over. Offloaded: see exchange/zero_buffers.py
    step        the norm, one gradient at a time; the slice in one piece, then in fp32; states in the first step

DeepSpeed 0.14 and 0.19 runtime/zero/stage_1_and_2.py (__init__, reduce_independent_p_g_buckets_and_remove_grads,
reduce_ipg_grads, copy_grads_in_partition, independent_gradient_partition_epilogue, step).
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.model import Model
from vramwise.training.exchange.communication import buffers
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.zero_buffers import offload_staging_bytes, pieces_in_turn, returned_weight_bytes
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import model_states
from vramwise.training.model_states.trained import trained_tensors, width
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.recipe.zero import buckets_come_first, zero_settings
from vramwise.training.reserved_memory.gathers import COMPUTE, REDUCING
from vramwise.training.reserved_memory.traces import Alone, Held, Memory
from vramwise.training.resolved import ResolvedTrain


def is_described(train: ResolvedTrain) -> bool:
    """Whether these settings are those of a rank of stages 1 or 2 that trains all its weights."""
    plain = train.method == "full" and train.optimizer == "adamw" and train.context_parallel_size == 1
    contiguous = train.contiguous_gradients is not False
    return train.zero_stage in (1, 2) and plain and contiguous and not gradient_life(train).summed_in_fp32


class Stages1And2(Alone):
    """A rank of stages 1 or 2 whose optimizer is on its GPU or on the host."""

    def __init__(self, memory: Memory, model: Model, train: ResolvedTrain, placement: Placement) -> None:
        super().__init__(memory)
        self.train = train
        self.zero, self.states = zero_settings(train, model.hidden_size), model_states(model, train, placement)
        self.away, self.at_once = offloaded(train).optimizer, gradient_life(train).reduced_at_once
        self.is_sharded = self.at_once
        self.ranks, self.width = placement.data_parallel, width(train.param_dtype)
        self.numel = sum(placement.local_numel(base, tensor.numel) for tensor, base in trained_tensors(model, train))
        self.staged = offload_staging_bytes(model, train, placement)
        self.check_before_step = buffers(model, train, placement).check_before_step
        self.buckets: list[Held] = []
        self.in_bucket: list[int] = []
        self.waiting: list[Held] = []
        self.partition: list[Held] = []
        self.averaged: list[Held] = []
        self.has_states = False

    @property
    def slice_bytes(self) -> int:
        return -(-self.numel // self.ranks) * self.width

    def load(self) -> bool:
        memory, wide = self.memory, self.states.master
        memory.some(self.numel * self.width)
        memory.drop_all(memory.some(self.slice_bytes))
        if self.away:
            memory.some(self.staged)
        else:
            memory.some(wide)
            memory.drop_all(memory.some(wide or self.slice_bytes))
        return True

    def before_backward(self, index: int) -> None:
        if buckets_come_first(self.train):
            self._make_buckets()

    def after_backward(self, index: int, gradients: list[Held]) -> None:
        self._make_buckets()
        if self.at_once:
            self._fill(gradients)
        else:
            self.gradients += gradients

    def backward_over(self) -> None:
        if self.at_once:
            self._finish()

    def step(self) -> bool:
        if not self.at_once:
            self._fill(list(reversed(self.gradients)))
            self.gradients = []
            self._finish()
        if self.away:
            self._pass(returned_weight_bytes(self.train, self.states.master))
        else:
            self._step_here()
        return True

    def _step_here(self) -> None:
        memory, states = self.memory, self.states
        self._pass(self.check_before_step)
        flat = memory.some(states.flat_gradients)
        wide = memory.some(states.fp32_gradients) if states.fp32_gradients != states.flat_gradients else []
        memory.drop_all(self.averaged)
        self.averaged = []
        if wide:
            memory.drop_all(flat)
        if not self.has_states:
            memory.some(states.optimizer)
            self.has_states = True
        self._pass(states.step_transient)
        memory.drop_all(wide or flat)

    def _make_buckets(self) -> None:
        if not self.buckets:
            size = self.zero.reduce_bucket_size * self.width
            self.buckets = self.memory.some(*[size] * (2 if self.zero.overlap_comm else 1))

    def _fill(self, gradients: Sequence[Held]) -> None:
        for gradient in gradients:
            numel = gradient.block.size // self.width
            if sum(self.in_bucket) + numel > self.zero.reduce_bucket_size:
                self._reduce()
            self.in_bucket.append(numel)
            if numel > self.zero.reduce_bucket_size:
                self.waiting.append(gradient)
            else:
                self.memory.drop(gradient)

    def _reduce(self) -> None:
        """A full bucket goes to its ranks, and this rank's slice of it into the partition or to the host."""
        memory = self.memory
        if self.in_bucket and self.zero.reduce_scatter and self.ranks > 1:
            stream = REDUCING if self.zero.overlap_comm else COMPUTE
            memory.drop(memory.hold(min(sum(self.in_bucket), self.zero.reduce_bucket_size) * self.width, stream))
        if self.in_bucket and self.away:
            for numel in self.in_bucket:
                for pieces in pieces_in_turn(self.train, numel):
                    self._pass(*pieces)
        elif self.in_bucket and not self.partition:
            self.partition = memory.some(self.slice_bytes)
        memory.drop_all(self.waiting)
        self.waiting, self.in_bucket = [], []

    def _finish(self) -> None:
        """The last bucket of a micro-batch; what an earlier one left is added to."""
        self._reduce()
        self.memory.drop_all(self.buckets)
        if self.averaged:
            self.memory.drop_all(self.partition)
        else:
            self.averaged = self.partition
        self.buckets, self.partition = [], []

    def _pass(self, *sizes: int) -> None:
        """Temporaries."""
        self.memory.drop_all(self.memory.some(*sizes))
