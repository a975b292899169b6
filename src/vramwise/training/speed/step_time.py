"""Seconds of one optimizer step on the slowest rank, of the same recorded operations that its memory is read off.

    micro-batch   kernels of forward, backward and recomputation (kernels.py)
                  + collectives of tensor, context and expert parallelism, which the layers wait for
    step          (micro-batches + bubble) · micro-batch of the slowest stage
                  + what of gathers and reductions is longer than the work they hide behind
                  + optimizer (its bytes over the card's bandwidth), offloading (over PCIe)

    bubble        1F1B and GPipe: stages - 1 micro-batches; interleaved: (stages - 1) / virtual stages; zero-bubble:
                  none (Narayanan et al. 2021, arXiv 2104.04473, section 2.2; Qi et al. 2023, arXiv 2401.10241)

Not counted: loading of data, logging, checkpoints, evaluation, warm-up, a host that is slower than the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from vramwise.models.autograd.size import Axes, evaluate
from vramwise.models.model import Model
from vramwise.models.step import BlockRun
from vramwise.records import record
from vramwise.result import Quantity
from vramwise.training.activations.checkpointing import replayed_nodes
from vramwise.training.exchange.offload import host_parts
from vramwise.training.job import Job
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.trained import width
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.speed.kernels import BlockSeconds, KernelWork, block_seconds, block_work
from vramwise.training.speed.links import Links, links_of
from vramwise.training.speed.rates import Rates, rates_of

EXPOSED = "exposed gathers and reductions"
_ADAM_PASSES = 2  # states and master weights are read and written
_LAYER_REDUCTIONS = 2  # of tensor parallelism, in forward and in backward: behind attention and behind the MLP


@record
class StepTime:
    """Seconds of a step by what takes them, and the relative ends of their interval."""

    parts: Mapping[str, float]
    tokens: int
    low: float
    high: float

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def step_time_s(self) -> Quantity:
        return Quantity(*(_short(self.seconds * (1 + end)) for end in (self.low, 0.0, self.high)))

    @property
    def tokens_per_second(self) -> Quantity:
        """Tokens of the whole job, padding included."""
        return Quantity(*(_short(self.tokens / (self.seconds * (1 + end))) for end in (self.high, 0.0, self.low)))


def _short(value: float) -> float:
    """Six digits: the others say nothing."""
    return float(f"{value:.6g}")


def step_time(job: Job, links: Links | None = None) -> StepTime:
    """The time of a job's step on its slowest stage, over its own links or others.

    Raises ValueError without a card that `has_rates`.
    """
    if job.gpu is None:
        raise ValueError("a step has no time without a card")
    rates = rates_of(job.gpu, job.train.compute_dtype)
    links = links or links_of(job.gpu, job.scenario.gpus_per_node, job.scenario.network_gbit_s)
    layers = _layers(job)
    held = {tuple(map(id, _on(rank, layers))): rank for rank in reversed(job.ranks)}  # equal stages take equal time
    stages = [_stage(job, rank, rates, links) for rank in reversed(held.values())]
    parts = max(stages, key=lambda stage: sum(stage.values()))
    return StepTime(parts, _tokens(job), rates.low, rates.high)


def _tokens(job: Job) -> int:
    train = job.train
    sequences = train.micro_batch_size * micro_batches(job) * data_parallel(job)
    return sequences * train.sequence_length


def micro_batches(job: Job) -> int:
    """Micro-batches of a rank in one optimizer step."""
    train = job.train
    in_flight = train.num_microbatches if train.pipeline_parallel_size > 1 else None
    return max(in_flight or 1, train.gradient_accumulation_steps)


def data_parallel(job: Job) -> int:
    """Ranks that read samples of their own."""
    train = job.train
    together = train.tensor_parallel_size * train.pipeline_parallel_size * train.context_parallel_size
    return max(1, job.scenario.num_gpus // together)


def _stage(job: Job, rank: Placement, rates: Rates, links: Links) -> dict[str, float]:
    """Seconds of a step on one pipeline stage, by what takes them."""
    blocks = _on(rank, _layers(job))
    work = _work(job, blocks, rates)
    many = micro_batches(job)
    waits = _waits(job, links, [block for block in blocks if block.is_layer])
    one = work.whole + waits
    parts = {
        "forward": many * work.forward,
        "backward": many * work.backward,
        "recomputation": many * work.again,
        "layers' collectives": many * waits,
        "pipeline bubble": _bubble(job) * one,
        EXPOSED: _exposed(job, rank, work, links, many),
        "weights from the host": _streamed(job, work, _computed_weights(job.model, job.structure, rank), links, many),
        "optimizer": _optimizer(job, rank, rates, links),
    }
    return {name: seconds for name, seconds in parts.items() if seconds}


def _work(job: Job, blocks: list[Layer], rates: Rates) -> BlockSeconds:
    """The kernels of one micro-batch on a stage."""
    fp8, attended = job.train.precision == "fp8-mixed", float(job.train.context_parallel_size)
    each = {
        id(block): block_seconds(block.kernels, rates, fp8=fp8 and block.is_layer, attended=attended)
        for block in {id(block): block for block in blocks}.values()
    }
    all_blocks = [each[id(block)] for block in blocks]
    return BlockSeconds(
        sum(block.forward for block in all_blocks),
        sum(block.backward for block in all_blocks),
        sum(block.again for block in all_blocks),
    )


def _on(rank: Placement, blocks: tuple[Layer, ...]) -> list[Layer]:
    """The blocks of a pipeline stage."""
    if rank.stages == 1:
        return list(blocks)
    here, number = [], 0
    for block in blocks:
        if block.is_layer:
            is_here, number = rank.first_layer <= number <= rank.last_layer, number + 1
        else:
            is_here = rank.is_last if block.is_head else rank.is_first
        if is_here:
            here.append(block)
    return here


@record
class Layer:
    """A block: its kernels, and what its rank sends: keys and values of attention, and tokens for experts."""

    is_layer: bool
    is_head: bool
    kernels: tuple[KernelWork, ...]
    attended_bytes: int
    routed_bytes: int


@lru_cache(maxsize=64)
def _layers(job: Job) -> tuple[Layer, ...]:
    """Every block of the model in order; equal layers share one."""
    shape = job.shape(job.ranks[0])
    axes = job.step_axes
    known: dict[int, Layer] = {}
    found = []
    for run, sizes in zip(shape.recorded.runs, shape.runs, strict=True):
        if id(run) not in known:
            kernels = block_work(run, replayed_nodes(run, job.train), axes)
            known[id(run)] = Layer(run.layer is not None, sizes.is_head, kernels, *_sent(run, axes))
        found.append(known[id(run)])
    return tuple(found)


def _sent(run: BlockRun, axes: Axes) -> tuple[int, int]:
    """Bytes of keys and values of a block's attention, and of the tokens that its experts get."""
    attended = [tensor for node in run.nodes if node.primitive.is_attention for tensor in node.inputs[1:3]]
    grouped = [node.inputs[0] for node in run.nodes if node.primitive.product == "grouped"]
    return (
        sum(int(evaluate(tensor.nbytes, axes)) for tensor in attended),
        int(evaluate(grouped[0].nbytes, axes)) if grouped else 0,
    )


def _waits(job: Job, links: Links, layers: list[Layer]) -> float:
    """Seconds that one micro-batch's layers wait for other ranks."""
    train = job.train
    tensor, context, expert = (
        train.tensor_parallel_size, train.context_parallel_size, train.expert_parallel_size,
    )  # fmt: skip
    computed = width(execution(train, job.model).autocast or train.compute_dtype)
    stream = job.axes["batch"] * job.local_sequence * job.model.hidden_size * computed
    passes = 2 + (train.checkpointing == "full")  # forward, backward and forward again
    seconds = _LAYER_REDUCTIONS * len(layers) * links.reduce_s(stream, tensor)
    # Keys and values of all ranks pass by; tokens go to their experts and come back.
    seconds += sum(links.gather_s(layer.attended_bytes * context, context, tensor) for layer in layers)
    seconds += sum(2 * links.gather_s(layer.routed_bytes, expert, tensor) for layer in layers)
    return passes * seconds


def _bubble(job: Job) -> float:
    """Micro-batches that a stage waits for."""
    train = job.train
    if train.pipeline_schedule == "zero-bubble":
        return 0.0
    waits = train.pipeline_parallel_size - 1
    return waits / (train.virtual_pipeline_parallel_size or 1)


@lru_cache(maxsize=4096)
def _computed_weights(model: Model, structure: ResolvedTrain, rank: Placement) -> int:
    """Bytes of a stage's weights as layers compute with them."""
    compute = execution(structure, model)
    held = (p for p in model.parameters if rank.holds(p))
    return sum(rank.local_numel(p, p.numel) for p in held) * width(compute.autocast or compute.param_dtype)


def _exposed(job: Job, rank: Placement, work: BlockSeconds, links: Links, many: int) -> float:
    """Gathers of weights and reductions of gradients, less the passes that they run beside."""
    train = job.train
    ranks = rank.data_parallel
    if ranks == 1:
        return 0.0
    states = job.states(rank)
    stride = train.tensor_parallel_size
    whole = _computed_weights(job.model, job.structure, rank)
    gradients = states.gradient_numel * width(train.grad_dtype)
    if rank.weight_shards > 1:
        gathers = links.gather_s(whole, rank.weight_shards, stride)
        again = gathers if train.zero_stage == 3 or train.reshard_after_forward else 0.0
        reduced = links.gather_s(gradients, rank.weight_shards, stride)
        before, after = gathers - work.forward, again + reduced - work.backward - work.again
        return many * (max(0.0, before) + max(0.0, after))
    reduced = links.reduce_s(gradients, ranks, stride)
    return max(0.0, reduced - work.backward - work.again)


def _optimizer(job: Job, rank: Placement, rates: Rates, links: Links) -> float:
    """States, master weights, weights and gradients through the memory that they lie in.

    An optimizer on the host steps there, on memory that the cards of a node share; gradients and weights cross PCIe.
    """
    states, train = job.states(rank), job.train
    stepped = _ADAM_PASSES * (states.optimizer + states.master) + states.gradients + states.weights
    if train.offload_optimizer == "none":
        return stepped / rates.memory_bytes
    kept = host_parts(states, train, 0, 0)
    moved = states.gradients + states.weights
    return moved / links.host + (_ADAM_PASSES * sum(kept.values()) + moved) * job.ranks_of_a_node / links.host_memory


def _streamed(job: Job, work: BlockSeconds, whole: float, links: Links, many: int) -> float:
    """Weights that lie on the host, of which every pass brings what it computes with, less the passes themselves."""
    if job.train.offload_params == "none":
        return 0.0
    once = whole / links.host
    return many * (max(0.0, once - work.forward) + max(0.0, once - work.backward - work.again))
