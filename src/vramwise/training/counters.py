"""What tools print around the tensors: workspace, process memory, capacity and verdict.

How the table of intervals tells estimates of training apart (`vramwise.intervals`, tools/build_intervals.py).

*Involved* is what hangs on compilers, on several streams, on where experts send their tokens, or on lengths that nobody
stated; the tensors of a *plain* run follow from its settings, and any version tells them. What the allocator holds
after samples of *unsaid lengths* hangs on these above all. All go by the versions that are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import loads_kernels_lazily, names_a_version, stated
from vramwise.hardware import context_of_torch
from vramwise.intervals import around, hypotenuse
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.result import Capacity, Node, Quantity, Verdict
from vramwise.site import learned
from vramwise.training.calibration import Calibrated, calibrated
from vramwise.training.components import CERTAIN, Component
from vramwise.training.job import Job
from vramwise.training.layout.parallel import Placement
from vramwise.training.recipe.attention import KEEPS_NO_SCORES
from vramwise.training.recipe.fp8_weights import has_transformer_engine
from vramwise.training.recipe.lengths import has_spread
from vramwise.training.recipe.precision import refused_in_fp16
from vramwise.training.recipe.settings import lengths_vary
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.state import Moment
from vramwise.units import KIB, MIB, format_bytes

if TYPE_CHECKING:
    from vramwise.hardware import Gpu

HALF_PRECISION_BYTES = 2
MOST_OF_A_CARD = 0.5
"""Share of a card from which weights alone are worth a sentence."""
HIPBLASLT_FIRST = ("gfx90a", "gfx942", "gfx950")
GROUPED_STREAMS = 4  # transformer_engine common/util/multi_stream.cpp nvte_get_num_compute_streams


def is_hopper_or_newer(gpu: Gpu) -> bool:
    """By compute capability; AMD's are names."""
    return gpu.compute_capability[:1].isdigit() and float(gpu.compute_capability) >= 9.0


def gemm_workspace(gpu: Gpu | None) -> Calibrated:
    """What torch keeps for matrix products: cuBLAS's, or hipBLASLt's on AMD's Instinct since MI200 (gfx90a).

    On AMD's other cards hipBLAS is what torch prefers in most versions (aten/src/ATen/Context.cpp
    blasPreferredBackend).
    """
    if gpu is not None and gpu.compute_capability.startswith(HIPBLASLT_FIRST):
        return calibrated("gemm_workspace_rocm")
    return calibrated("gemm_workspace_sm90" if gpu is not None and is_hopper_or_newer(gpu) else "gemm_workspace_sm80")


def workspace_node(gpu: Gpu | None, train: ResolvedTrain, model: Model) -> Node:
    """What cuBLAS or hipBLASLt keeps for forward and backward, and Transformer Engine for its own."""
    newer = gpu is not None and is_hopper_or_newer(gpu)
    found = gemm_workspace(gpu)
    own, source = 0, found.source
    if has_transformer_engine(train):
        own = (32 * MIB + KIB if newer else 4 * MIB) * (1 + (GROUPED_STREAMS if model.has_experts else 0))
        source += "; transformer_engine 2.14 pytorch/cpp_extensions/gemm.py get_cublas_workspace: one, and one a stream"
    low, size, high = (int(end) + own for end in (found.low, found.expected, found.high))
    return Node("library workspace", size, "calibrated", low, high, source=source)


def context_node(train: ResolvedTrain, gpu: Gpu | None) -> Node:
    """CUDA context and loaded kernels of the process; torch's counters do not see it."""
    found = context_of_torch(gpu, loads_kernels_lazily(train))
    return Node(
        "CUDA context", found.expected, "calibrated", found.low, found.high, formula=found.rule, source=found.source
    )


def outside_torch(train: ResolvedTrain, gpu: Gpu | None, engine: Sequence[Node] = ()) -> list[Node]:
    """The CUDA context and a rollout engine's nodes; an engine that is not counted brought the context with it."""
    uncounted = not engine and any(name.startswith("rollout") for name in train.extra_models)
    return [] if uncounted else [context_node(train, gpu), *engine]


def nccl_node(placement: Placement, gpu: Gpu | None) -> Node | None:
    """NCCL's buffers, one set for each dimension of parallelism in use; torch's counters do not see them."""
    cut = placement.cut
    sizes = (placement.data_parallel, cut.tensor_parallel_size, placement.stages, cut.expert_parallel_size)
    groups = sum(size > 1 for size in sizes)
    return nccl_of_groups(groups, gpu) if groups else None


def nccl_of_groups(groups: int, gpu: Gpu | None) -> Node:
    """The buffers of so many dimensions of process groups."""
    found = calibrated("nccl")
    shipped = found.low, found.expected, found.high
    here = learned("nccl", shipped, gpu=None if gpu is None else gpu.id, program="torch")
    low, size, high = (round(value * groups) for value in (shipped if here is None else here.ends))
    formula = f"{groups} process group dimensions{'' if here is None else f', {here.said}'}"
    source = found.source if here is None else here.source
    return Node("NCCL", size, "calibrated", low, high, formula=formula, source=source)


def certain_bytes(moments: Sequence[Moment], least: Mapping[Component, int], workspace: Node) -> int:
    """The most that is held at a moment for what is exact, beside the least that the library's workspace takes.

    `least`: what is certain of components of which a moment holds more or less as its sizes have it.
    """
    always = [component for component in CERTAIN if component not in least]
    return max(sum(map(moment.of, always)) for moment in moments) + sum(least.values()) + int(workspace.low)


def allocated_with_errors(name: str, quantity: Quantity, kind: str, certain: int) -> Quantity:
    """A counter of tensors, with what such estimates miss by beside what the scenario leaves open."""
    return around(name, quantity, kind, quantity.expected, certain)


def kept_with_errors(name: str, quantity: Quantity, kind: str, certain: int, *, is_learned: bool = False) -> Quantity:
    """The same of what the allocator or the process holds.

    `is_learned`: runs on this site said how far it lies, which makes it no less sure than published runs do.
    """
    if not is_learned:
        return around(name, quantity, kind, quantity.expected, certain)
    published = around(name, Quantity.exact(quantity.expected), kind, quantity.expected, certain)
    return Quantity(max(quantity.low, published.low), quantity.expected, min(quantity.high, published.high))


def widened(size: int, low: float, high: float) -> Quantity:
    """An interval around a size from relative ends."""
    return Quantity.around(size * (1 + low), size, size * (1 + high))


def down_to(quantity: Quantity, smaller: int) -> Quantity:
    """A quantity that may also be a smaller one: the two distances below add up as squares do."""
    below = hypotenuse(quantity.expected - quantity.low, max(0, quantity.expected - smaller))
    return Quantity.around(quantity.expected - below, quantity.expected, quantity.high)


def up_to(quantity: Quantity, larger: int) -> Quantity:
    """A quantity that may also be a larger one: the two distances above add up as squares do."""
    above = hypotenuse(quantity.high - quantity.expected, max(0, larger - quantity.expected))
    return Quantity.around(quantity.low, quantity.expected, quantity.expected + above)


def scaled(quantity: Quantity, ratio: Calibrated) -> Quantity:
    """A quantity times a calibrated ratio. The two err independently: distances to the ends add up as squares do."""
    expected = quantity.expected * ratio.expected
    if not quantity.expected:
        return Quantity.exact(0)
    below = hypotenuse(1 - quantity.low / quantity.expected, 1 - ratio.low / ratio.expected)
    above = hypotenuse(quantity.high / quantity.expected - 1, ratio.high / ratio.expected - 1)
    return Quantity.around(expected * (1 - below), round(expected), expected * (1 + above))


def plus(quantity: Quantity, *nodes: Node) -> Quantity:
    """A quantity with terms added, each with an error of its own: distances to the ends add up as squares do."""
    expected = quantity.expected + sum(n.bytes for n in nodes)
    below = hypotenuse(quantity.expected - quantity.low, *(n.bytes - n.low for n in nodes))
    above = hypotenuse(quantity.high - quantity.expected, *(n.high - n.bytes for n in nodes))
    return Quantity.around(expected - below, expected, expected + above)


def no_less(quantity: Quantity, certain: int) -> Quantity:
    """A quantity whose low end is not below what is certain."""
    return Quantity(max(quantity.low, min(certain, quantity.expected)), quantity.expected, quantity.high)


def at_most(quantity: Quantity, limit: int) -> Quantity:
    """A counter of a run that fits: torch's allocator gives its free segments back before it runs out of memory."""
    return Quantity(min(quantity.low, limit), min(quantity.expected, limit), min(quantity.high, limit))


def cannot_run(train: ResolvedTrain, gpu: Gpu | None) -> str | None:
    """What was asked for and has no kernel on this card, or on any, or None.

    8-bit products: TransformerEngine pytorch/fp8.py `check_fp8_support` ("Device compute capability 8.9 or higher
    required for FP8 execution"), torchtitan 0.2 components/quantization/float8.py ("only supported on SM89 or later").
    bf16 gradients under fp16's scaler: recipe/precision.py.
    """
    if train.precision == "fp16-mixed" and refused_in_fp16(train):
        return "torch's scaler of fp16 has no kernel for the gradients of bf16 adapters: train in bf16-mixed instead"
    if gpu is not None and train.precision == "fp8-mixed" and gpu.supports("fp8_gemm") is False:
        return f"{gpu.name} ({gpu.arch}) does not multiply in fp8: train in bf16 instead"
    if framework_of(train).replaces_flash:
        return None
    if gpu is not None and train.attention == "flash" and gpu.supports("flash_attention_2") is False:
        why = f"flash-attention does not run on {gpu.name} ({gpu.arch}); it needs compute capability 8.0 or newer"
        return f"{why}: train without it, attention sdpa"
    return None


def left_out_by_the_card(train: ResolvedTrain, gpu: Gpu | None) -> list[str]:
    """Ways of saving memory that this card does not offer; worth saying where memory is short."""
    if gpu is None:
        return []
    found = []
    if train.attention not in KEEPS_NO_SCORES and gpu.supports("flash_attention_2") is False:
        found.append(f"flash-attention, which would keep less, does not run on {gpu.name} ({gpu.arch})")
    if "bf16" in (train.compute_dtype, train.param_dtype) and gpu.supports("bf16") is False:
        narrow = train.method == "full" and train.param_dtype == "bf16" and train.master_dtype is None
        sizes = "whose weights that train stay in fp32" if narrow else "the same sizes"
        advice = "torch emulates it" if refused_in_fp16(train) else f"use an fp16 precision ({sizes})"
        found.append(f"{gpu.name} does not compute in bf16: {advice}")
    return found


def full_host(needed: Quantity | None, memory_bytes: int | None) -> str | None:
    """Why a host cannot hold what is offloaded to it, or None; programs and copies while loading need more still."""
    if needed is None or memory_bytes is None or needed.expected <= memory_bytes:
        return None
    need, there = format_bytes(int(needed.expected)), format_bytes(memory_bytes)
    return f"offloading takes at least {need} of host memory on a node, which has {there}"


def weights_alone(train: ResolvedTrain, parameters: int, num_gpus: int, usable: int) -> list[str]:
    """Of full training: what 16-bit weights, shared evenly by all cards, take of the room of one, where it is much."""
    whole = HALF_PRECISION_BYTES * parameters
    each = whole // num_gpus
    if train.method != "full" or train.offload_params != "none" or each < MOST_OF_A_CARD * usable:
        return []
    size, share, room = format_bytes(whole), format_bytes(each), format_bytes(usable)
    shared = f", {share} on each of {num_gpus:,} cards" if num_gpus > 1 else ""
    if each > usable:
        return [f"16-bit weights alone are {size}{shared}: more than the {room} of a card"]
    left = format_bytes(usable - each)
    return [f"16-bit weights alone are {size}{shared}: {left} are left for gradients, optimizer and activations"]


def judged(
    needed: Quantity, capacity: Capacity, peak_phase: str, train: ResolvedTrain, gpu: Gpu | None,
    alone: Sequence[str] = (), wanted: int = 0, host: str | None = None,
) -> Verdict:  # fmt: skip
    """The verdict with its reasons: memory first, then what has no kernel on the card, then what weights take `alone`.

    `wanted`: bytes of a segment for which torch's allocator has no room although all tensors together have. `host`: why
    the host has no room for what is offloaded to it.
    """
    from vramwise.verdict import verdict_of

    headroom = int(capacity.usable_bytes - needed.expected)
    what = "to spare" if headroom >= 0 else "too little"
    of = f"{format_bytes(int(needed.expected))} needed, {format_bytes(capacity.usable_bytes)} usable"
    reasons = [f"{format_bytes(abs(headroom))} {what}: {of}; the peak is at: {peak_phase}"]
    if wanted:
        reasons.append(
            f"all tensors together fit, but no free piece is as large as the {format_bytes(wanted)} that the allocator "
            f"asks for next; with them it holds {format_bytes(int(needed.expected))} (expandable segments leave larger "
            "pieces)"
        )
    obstacle = cannot_run(train, gpu)
    if host is not None:
        reasons.insert(0, host)
    if obstacle is not None:
        reasons.append(obstacle)
    elif headroom < 0:
        reasons += left_out_by_the_card(train, gpu)
    if headroom < 0:
        reasons += alone
    return verdict_of(needed, capacity.usable_bytes, reasons, runs=obstacle is None and host is None)


@record
class Kinds:
    """The cells of a training's counters: of what is allocated, and of what the allocator and the process hold."""

    allocated: str
    kept: str


def kinds_of_estimate(job: Job, placement: Placement) -> Kinds:
    """The cells of this job's counters on a rank; what is named more closely lies in a cell of closer misses."""
    train = job.train
    any_version = "version named" if _names_a_version(train) else "no version named"
    closest = "torch named" if stated(train, "torch") is not None else any_version
    if is_involved(train, placement, job.model):
        layout = "unsaid lengths" if has_unsaid_lengths(train) else "involved"
        return Kinds(f"training allocated, involved, {closest}", f"training kept, {layout}, {closest}")
    return Kinds(f"training allocated, plain, {any_version}", f"training kept, plain, {closest}")


def is_involved(train: ResolvedTrain, placement: Placement, model: Model) -> bool:
    """Whether memory hangs on more than the tensors of a step in their order."""
    cut = placement.cut
    return bool(
        train.compile or train.zero_stage > 0 or placement.stages > 1 or cut.tensor_parallel_size > 1
        or train.context_parallel_size > 1 or model.has_experts
        or train.offload_params != "none" or train.offload_optimizer != "none" or train.offload_activations != "none"
        or has_unsaid_lengths(train)
    )  # fmt: skip


def has_unsaid_lengths(train: ResolvedTrain) -> bool:
    """Whether samples are of any length up to the limit, and nobody said of which."""
    return lengths_vary(train) and not has_spread(train.sample_lengths)


def _names_a_version(train: ResolvedTrain) -> bool:
    return bool(train.framework_version) and names_a_version(train)
