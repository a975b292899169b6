"""Which part of the model a rank holds: tensor, expert, pipeline and data parallelism."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.models.parallel_cut import WHOLE, ParallelCut
from vramwise.records import record
from vramwise.scenario import Scenario, TrainSettings
from vramwise.training.resolved import ResolvedTrain

if TYPE_CHECKING:
    from fractions import Fraction


@record
class Placement:
    """One kind of rank: its pipeline stage and the divisors of what it holds, `cut` those of every parameter.

    `*_shards` divide over data-parallel ranks: weights (ZeRO-3, FSDP), gradients (ZeRO-2, FSDP), what the
    optimizer steps (ZeRO-1, distributed optimizer); experts' tensors are divided over the ranks that hold the same
    experts: those that tensor parallelism does not cut experts over count among them.
    """

    cut: ParallelCut = WHOLE
    weight_shards: int = 1
    gradient_shards: int = 1
    step_shards: int = 1
    stages: int = 1
    stage: int = 0
    first_layer: int = 0
    last_layer: int = 1_000_000
    micro_batches_in_flight: int | Fraction = 1
    data_parallel: int = 1

    @property
    def is_first(self) -> bool:
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    def holds(self, parameter: Parameter) -> bool:
        """Whether this stage has the parameter's layer (embeddings first, norm and head last)."""
        return self.holds_layer(parameter.layer, first=parameter.part == "embedding")

    def holds_layer(self, layer: int | None, *, first: bool) -> bool:
        """Whether this stage has a layer, or what stands before the first of them or behind the last."""
        if self.stages == 1:
            return True
        if layer is None:
            return self.is_first if first else self.is_last
        return self.first_layer <= layer <= self.last_layer

    def local_numel(self, parameter: Parameter, numel: int) -> int:
        """Elements left after tensor and expert parallelism."""
        return -(-numel // self.cut.ranks(parameter))

    def _shards(self, shards: int, parameter: Parameter) -> int:
        if shards > 1 and parameter.shard.startswith("expert"):
            return max(1, shards * self.cut.tensor_parallel_size // self.cut.ranks(parameter))
        return shards

    def weight_shards_of(self, parameter: Parameter) -> int:
        """Ranks that a weight is cut over between uses."""
        return self._shards(self.weight_shards, parameter)

    def gradient_shards_of(self, parameter: Parameter) -> int:
        """Ranks that a finished gradient is cut over."""
        return self._shards(self.gradient_shards, parameter)

    def weight_numel(self, parameter: Parameter, local: int) -> int:
        """Elements of the weight that stay on the rank between uses."""
        return -(-local // self._shards(self.weight_shards, parameter))

    def gradient_numel(self, parameter: Parameter, local: int) -> int:
        """Elements of the finished gradient."""
        return -(-local // self._shards(self.gradient_shards, parameter))

    def stepped_numel(self, parameter: Parameter, local: int) -> int:
        """Elements that this rank's optimizer steps."""
        return -(-local // self._shards(self.step_shards, parameter))


ALONE = Placement()
"""The only rank."""


def cuts_weights(train: TrainSettings) -> bool:
    """Whether FSDP cuts weights too; shard-grad-op does, but for frameworks that leave them whole."""
    whole = train.fsdp == "shard-grad-op" and framework_of(train).sharding.leaves_weights_whole
    return train.fsdp != "none" and not whole


def placements(scenario: Scenario, train: ResolvedTrain, model: Model) -> tuple[Placement, ...]:
    """One placement for every pipeline stage."""
    tp, pp, cp = train.tensor_parallel_size, train.pipeline_parallel_size, train.context_parallel_size
    data = max(1, scenario.num_gpus // (tp * pp * cp))
    sharding_group = data * cp
    if train.fsdp == "hybrid-shard":
        sharding_group = min(sharding_group, max(1, scenario.gpus_per_node // tp))
    fsdp = train.fsdp != "none"
    weights = sharding_group if cuts_weights(train) or train.zero_stage == 3 else 1
    gradients = sharding_group if fsdp or train.zero_stage >= 2 else 1
    stepped = sharding_group if fsdp or train.zero_stage >= 1 or train.distributed_optimizer else 1
    result = []
    ends = stage_ends(train, max(1, model.num_layers))
    for stage in range(pp):
        first, last = ends[stage], ends[stage + 1] - 1
        result.append(
            Placement(
                cut=ParallelCut(tp, train.expert_parallel_size, train.expert_tensor_parallel_size),
                weight_shards=weights,
                gradient_shards=gradients, step_shards=stepped, stages=pp, stage=stage, first_layer=first,
                last_layer=last, micro_batches_in_flight=in_flight(train, stage), data_parallel=data * cp,
            )
        )  # fmt: skip
    return tuple(result)


def stage_ends(train: ResolvedTrain, layers: int) -> list[int]:
    """The first layer of every stage, and the number of layers: as stated (`pipeline_layers`), else even shares."""
    stages = train.pipeline_parallel_size
    if train.pipeline_layers:
        return [0, *accumulate(train.pipeline_layers)]
    return [stage * layers // stages for stage in range(stages + 1)]


def in_flight(train: ResolvedTrain, stage: int) -> int | Fraction:
    """Micro-batches whose activations a stage holds at once.

    1F1B: min(stages - stage, micro-batches) (PipeDream-Flush, arXiv 2104.04473); GPipe: all of them. Interleaved, with
    v virtual stages: 2 (stages - stage - 1) + (v - 1) stages + 1 chunks of 1/v of the stage each, at most all
    (Megatron-LM core/pipeline_parallel/schedules.py, warm-up of forward_backward_pipelining_with_interleaving).
    """
    pp = train.pipeline_parallel_size
    if pp == 1:
        return 1
    micro_batches = train.num_microbatches or train.gradient_accumulation_steps
    if micro_batches == 1:
        micro_batches = pp
    if train.pipeline_schedule == "gpipe":
        return micro_batches
    virtual = train.virtual_pipeline_parallel_size
    if train.pipeline_schedule == "interleaved-1f1b" and virtual is not None and virtual > 1:
        chunks = 2 * (pp - stage - 1) + (virtual - 1) * pp + 1
        from fractions import Fraction  # 5 ms, which plain schedules do not take

        return Fraction(min(chunks, micro_batches * virtual), virtual)
    return min(pp - stage, micro_batches)
