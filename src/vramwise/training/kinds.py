"""How the table of intervals tells estimates of training apart (`vramwise.intervals`, tools/build_intervals.py).

*Involved* is what hangs on compilers, on several streams, on where experts send their tokens, or on lengths that nobody
stated; the tensors of a *plain* run follow from its settings, and any version tells them. What the allocator holds
after samples of *unsaid lengths* hangs on these above all. All go by the versions that are named.
"""

from __future__ import annotations

from vramwise.frameworks.versions import names_a_version, stated
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.job import Job
from vramwise.training.layout.parallel import Placement
from vramwise.training.recipe.lengths import has_spread
from vramwise.training.recipe.settings import lengths_vary
from vramwise.training.resolved import ResolvedTrain


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
        or train.context_parallel_size > 1 or any(p.part == "experts" for p in model.parameters)
        or train.offload_params != "none" or train.offload_optimizer != "none" or train.offload_activations != "none"
        or has_unsaid_lengths(train)
    )  # fmt: skip


def has_unsaid_lengths(train: ResolvedTrain) -> bool:
    """Whether samples are of any length up to the limit, and nobody said of which."""
    return lengths_vary(train) and not has_spread(train.sample_lengths)


def _names_a_version(train: ResolvedTrain) -> bool:
    return bool(train.framework_version) and names_a_version(train)
