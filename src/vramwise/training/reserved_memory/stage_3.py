"""What a rank of ZeRO stage 3 keeps, gathers and reduces around its blocks, on DeepSpeed's streams.

    load                a flat piece of weights and one of master weights for each sub-group, its optimizer states, the
                        gradients' partition and the bucket
    gathering stream    what the coordinator keeps gathered by the running block (zero3/coordinator.py); what goes waits
                        for the compute stream, which has read it (`record_stream` in free_param): until that of some
                        blocks later goes, where the host runs ahead of the card in forward passes
    compute stream      gradients, until their block is done: copied into the bucket or, larger than it, until the next
    reducing stream     the bucket once more in the order of the ranks, each time it is full

DeepSpeed 0.14 and 0.19 runtime/zero/stage3.py (_create_fp16_partitions_with_defragmentation, __add_grad_to_ipg_bucket,
initialize_optimizer_states, __avg_scatter_grads), partitioned_param_coordinator.py, partition_parameters.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from vramwise.models.model import Model
from vramwise.models.step import runs_in
from vramwise.training.exchange.communication import buffers
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.trained import trained_tensors, width
from vramwise.training.recipe.settings import execution
from vramwise.training.recipe.zero import sub_group_numel, zero_settings
from vramwise.training.reserved_memory.gathers import GATHERING, REDUCING
from vramwise.training.reserved_memory.traces import Alone, Held, Memory
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.zero3 import BELOW, HEAD, NO_LAG, Lag
from vramwise.training.zero3.coordinator import Gathered


def is_described(train: ResolvedTrain, placement: Placement) -> bool:
    """Whether these settings of ZeRO are those of a rank of stage 3 that has all its weights on the GPU."""
    plain = train.method == "full" and train.optimizer == "adamw" and train.context_parallel_size == 1
    narrow = train.zero_hpz_partition_size > 1 or train.zero_quantized_weights
    return (
        train.zero_stage == 3 and placement.data_parallel > 1 and plain and not offloaded(train).weights and not narrow
    )


class Stage3(Alone):
    """A rank of stage 3 whose weights are all on its GPU, and its states there or on the host."""

    is_sharded = True

    def __init__(
        self, memory: Memory, model: Model, train: ResolvedTrain, placement: Placement, lag: Lag = NO_LAG
    ) -> None:
        super().__init__(memory)
        self.lag = lag
        self.marks: deque[int] = deque()
        found = buffers(model, train, placement).by_call
        assert found is not None
        self.kept: Gathered = found
        self.places = _places(model, train)
        self.held: list[tuple[Held, int]] = []
        self.own = [-(-t.numel // placement.data_parallel) for t, _ in trained_tensors(model, train)]
        self.zero, self.sub_group = zero_settings(train, model.hidden_size), sub_group_numel(train)
        self.width, self.state = width(train.param_dtype), width(train.optimizer_state_dtype)
        self.master = width(train.master_dtype) if train.master_dtype else 0
        self.steps_on_host = offloaded(train).optimizer
        self.in_bucket = 0
        self.waiting: list[Held] = []

    @property
    def sub_groups(self) -> list[int]:
        """Values of the rank's sub-groups: parameters in order, each group closed by the one that fills it."""
        groups = [0]
        for numel in self.own:
            if groups[-1] >= self.sub_group:
                groups.append(0)
            groups[-1] += numel
        return groups

    def load(self) -> bool:
        memory = self.memory
        for numel in self.sub_groups:
            memory.some(numel * self.width)
        if self.steps_on_host:  # with the gradients' partition
            memory.some(self.zero.reduce_bucket_size * self.width)
            return True
        for numel in self.sub_groups:
            memory.some(numel * self.master)
        memory.some(sum(self.own) * self.width, self.zero.reduce_bucket_size * self.width)
        for numel in self.sub_groups:
            zeros = memory.some(numel * (self.master or self.width))
            memory.some(numel * self.state, numel * self.state)
            memory.drop_all(zeros)
        return True

    def before_forward(self, index: int) -> None:
        place = self._place(index)
        self._gather(self.kept.forward.get(place, self.kept.persistent), self.lag.expected)
        if self.lag.expected and place >= 0:  # the weights of the layer before, which the card has not come past
            self.memory.drop_later(self.memory.some(*self.lag.sizes, stream=GATHERING))

    def forward_over(self) -> None:
        self._gather(self.kept.after_forward, self.lag.expected)

    def before_recomputing(self, index: int) -> None:
        self.before_backward(index)

    def before_backward(self, index: int) -> None:
        self._gather(self.kept.backward.get(self._place(index), self.kept.after_forward))

    def after_backward(self, index: int, gradients: list[Held]) -> None:
        for gradient in gradients:
            numel = gradient.block.size // self.width
            if self.in_bucket + numel > self.zero.reduce_bucket_size:
                self._reduce()
            self.in_bucket += numel
            if numel > self.zero.reduce_bucket_size:
                self.waiting.append(gradient)
            else:
                self.memory.drop(gradient)

    def backward_over(self) -> None:
        self._reduce()
        self._gather(self.kept.after_backward)
        self.memory.settle()

    def step(self) -> bool:
        """A sub-group after the other has its gradients in the master's dtype; on the host where it steps there."""
        for numel in () if self.steps_on_host else self.sub_groups:
            self.memory.drop_all(self.memory.some(numel * self.master))
        return True

    def _reduce(self) -> None:
        if self.in_bucket:
            copy = self.memory.hold(self.in_bucket * self.width, REDUCING)
            self.memory.drop(copy)
        self.memory.drop_all(self.waiting)
        self.waiting, self.in_bucket = [], 0

    def _gather(self, wanted: int, ahead: int = 0) -> None:
        """As many bytes gathered as the coordinator keeps now: the oldest go, and wait for the block that read them,
        which the card comes to `ahead` blocks later."""
        memory = self.memory
        self.marks.append(memory.mark)
        while len(self.marks) > ahead:
            memory.settle(self.marks.popleft())
        have = sum(size for _, size in self.held)
        while self.held and have > wanted:
            held, size = self.held.pop(0)
            memory.drop_later([held])
            have -= size
        if wanted > have:
            self.held.append((memory.hold(wanted - have, GATHERING), wanted - have))

    def _place(self, index: int) -> int:
        return self.places[index] if index < len(self.places) else HEAD


def _places(model: Model, train: ResolvedTrain) -> Sequence[int]:
    """The layer of every block that a batch runs, or whether it stands below or above the layers."""
    found, above = [], BELOW
    for block in model.blocks:
        if block.layer is not None:
            above = HEAD
        if runs_in(block, execution(train, model)):
            found.append(above if block.layer is None else block.layer)
    return found
