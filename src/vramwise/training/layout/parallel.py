"""Which part of the model a rank holds: tensor, expert, pipeline and data parallelism.

Layouts of a model over GPUs that cannot run, refused with those that can.

    tensor parallel     divides the attention heads, and those of keys and values
    pipeline parallel   no more stages than layers; interleaved under Megatron: stages · virtual stages divide them
    context parallel    divides the sequence
    expert parallel     divides the experts, and the ranks that hold copies of the rest
    hybrid sharding     whole nodes

Megatron-LM core 0.14 transformer/transformer_config.py (`__post_init__`), parallel_state.py; torch 2.13
distributed/tensor/parallel, distributed/fsdp. GPUs that the sizes do not divide are refused before a model is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from vramwise.errors import ScenarioError
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


MOST_SHOWN = 12
LARGEST_OFFERED = 65_536  # more GPUs than any one job has


def check_layout(scenario: Scenario, train: ResolvedTrain, model: Model) -> None:
    """Raises `ScenarioError` for a layout that cannot run, with the sizes that can."""
    _check_tensor_parallel(scenario, train, model)
    _check_pipeline(scenario, train, model)
    _check_experts(scenario, train, model)
    cp, sequence = train.context_parallel_size, train.sequence_length
    if cp > 1 and sequence % cp:
        _refuse("context_parallel_size", f"{cp} does not divide the {sequence:,} tokens of a sequence",
                _valid(scenario, lambda n: sequence % n == 0, most=sequence), scenario.num_gpus)  # fmt: skip
    pieces = train.tensor_parallel_size * cp
    if train.sequence_parallel and sequence % pieces:
        # Megatron-LM core 0.14 tensor_parallel/mappings.py _split_along_first_dim: divisible by the ranks
        raise ScenarioError(
            "train.sequence_length",
            f"sequence_parallel cuts a sequence into {pieces:,} equal pieces: expected a multiple, such as "
            f"{max(1, sequence // pieces) * pieces:,}, got {sequence:,}",
        )
    heads = model.config.size("num_attention_heads", default=0)
    if cp > 1 and scenario.train.context_parallel_kind == "ulysses" and heads % cp:
        _refuse("context_parallel_size", f"{cp} does not divide {heads} attention heads, which Ulysses shares out",
                _valid(scenario, lambda n: heads % n == 0 and sequence % n == 0, most=heads),
                scenario.num_gpus)  # fmt: skip
    nodes = scenario.num_gpus / scenario.gpus_per_node
    if train.fsdp == "hybrid-shard" and nodes > 1 and nodes != int(nodes):
        raise ScenarioError(
            "train.fsdp",
            f"hybrid-shard needs whole nodes: {scenario.num_gpus} GPUs are not a multiple of {scenario.gpus_per_node}",
        )


def _check_tensor_parallel(scenario: Scenario, train: ResolvedTrain, model: Model) -> None:
    text = model.config.table("text_config") or model.config
    heads = text.size("num_attention_heads", default=0)
    shared = text.size("num_key_value_heads", default=heads) or heads
    if train.tensor_parallel_size == 1 or not heads:
        return

    spreads = framework_of(train).sharding.shares_key_heads(train)

    def divides(size: int) -> bool:
        return heads % size == 0 and (shared % size == 0 or (spreads and size % shared == 0))

    if not divides(train.tensor_parallel_size):
        what = f"{heads} attention heads" + (f" and {shared} key/value heads" if shared != heads else "")
        _refuse("tensor_parallel_size", f"{train.tensor_parallel_size} does not divide {what}",
                _valid(scenario, divides, most=heads), scenario.num_gpus)  # fmt: skip


def _check_pipeline(scenario: Scenario, train: ResolvedTrain, model: Model) -> None:
    stages, layers = train.pipeline_parallel_size, model.num_layers
    if stages > max(1, layers):
        _refuse("pipeline_parallel_size", f"{stages} stages are more than the {layers} layers",
                _valid(scenario, lambda n: n <= layers, most=layers), scenario.num_gpus)  # fmt: skip
    if train.pipeline_layers:
        _check_stages(train, layers)
        return
    virtual = train.virtual_pipeline_parallel_size

    def fits(n: int) -> bool:
        """Embedding and loss may stand for a layer each (account_for_embedding_in_pipeline_split and its like)."""
        even = any((layers + ends) % (stages * n) == 0 for ends in range(3))
        return stages * n <= max(1, layers) and (even or not framework_of(train).sharding.even_chunks)

    if virtual > 1 and train.pipeline_schedule == "interleaved-1f1b" and not fits(virtual):
        what = f"{stages} stages × {virtual} do not divide the {layers} layers"
        _refuse("virtual_pipeline_parallel_size", what, [n for n in range(1, max(1, layers // stages) + 1) if fits(n)])


def _check_stages(train: ResolvedTrain, layers: int) -> None:
    """Stated stages: one number each, and all layers in all."""
    stages, stated = train.pipeline_parallel_size, train.pipeline_layers
    if len(stated) != stages or sum(stated) != layers:
        even = ", ".join(str((stage + 1) * layers // stages - stage * layers // stages) for stage in range(stages))
        raise ScenarioError(
            "train.pipeline_layers",
            f"{', '.join(map(str, stated))}: {len(stated)} stages of {sum(stated)} layers in all; "
            f"expected {stages} of {layers}, such as {even}",
        )


def _check_experts(scenario: Scenario, train: ResolvedTrain, model: Model) -> None:
    size = train.expert_parallel_size
    if size == 1:
        return
    experts = {p.shape[0] for p in model.parameters if p.shard.startswith("expert") and len(p.shape) > 1}
    if not experts:
        raise ScenarioError("train.expert_parallel_size", f"{size} needs a model with experts; this one has none")
    ranks = max(1, scenario.num_gpus // train.pipeline_parallel_size)

    def divides(n: int) -> bool:
        each = n * train.expert_tensor_parallel_size
        return all(count % n == 0 for count in experts) and ranks % each == 0

    if not divides(size):
        counts = " and ".join(str(count) for count in sorted(experts))
        _refuse("expert_parallel_size", f"{size} does not divide {counts} experts over {ranks} ranks",
                _valid(scenario, divides, most=max(experts)), scenario.num_gpus)  # fmt: skip


def _valid(scenario: Scenario, accepted: Callable[[int], bool], most: int) -> list[int]:
    """The smallest divisors of the GPUs up to `most` that are accepted, one more than are shown."""
    gpus = max(1, scenario.num_gpus)
    sizes = (n for n in range(1, min(gpus, most, LARGEST_OFFERED) + 1) if gpus % n == 0 and accepted(n))
    return list(islice(sizes, MOST_SHOWN + 1))


def _refuse(key: str, problem: str, valid: list[int], gpus: int = 1) -> None:
    shown = ", ".join(str(value) for value in valid[:MOST_SHOWN]) or "another number of stages"
    if valid == [1] and gpus > 1:
        shown = f"1 (no other divides the {gpus:,} GPUs too)"
    raise ScenarioError(f"train.{key}", f"{problem}; expected {shown}{', …' if len(valid) > MOST_SHOWN else ''}")
