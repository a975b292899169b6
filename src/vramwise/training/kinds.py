"""How the table of intervals tells estimates of training apart (`vramwise.intervals`, tools/build_intervals.py).

What is allocated follows from the settings, so it counts how many of those that matter nobody stated. What the
allocator and the process hold hangs on the order of allocations too: on whether that was replayed, and on torch.
"""

from __future__ import annotations

from vramwise.frameworks.versions import names_a_version, stated
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.job import Job
from vramwise.training.layout.parallel import Placement
from vramwise.training.recipe.lengths import has_spread
from vramwise.training.recipe.settings import lengths_differ
from vramwise.training.resolved import ResolvedTrain

IN_FULL, MOSTLY, PARTLY = "in full", "mostly", "partly"
_GRADES = (IN_FULL, MOSTLY, PARTLY)


@record
class Kinds:
    """The cells of a training's counters: of what is allocated, and of what is held, by a replay or by a ratio."""

    allocated: str
    replayed: str
    by_ratio: str

    def kept(self, *, is_replayed: bool) -> str:
        """The cell of what the allocator or the process holds."""
        return self.replayed if is_replayed else self.by_ratio


def kinds_of_estimate(job: Job, placement: Placement) -> Kinds:
    """The cells of this job's counters on a rank; what is stated more fully lies in a cell of closer misses."""
    train = job.train
    if stated(train, "torch") is not None:
        named = "torch named"
    else:
        named = "version named" if names_a_version(train) else "no version named"
    involved = is_involved(train, placement, job.model)
    grade = _GRADES[min(open_points(job, is_involved=involved), len(_GRADES) - 1)]
    return Kinds(
        f"training allocated, {'involved' if involved else 'plain'}, {grade}",
        f"training kept, replayed, {named}",
        f"training kept, by ratio, {named}",
    )


def is_involved(train: ResolvedTrain, placement: Placement, model: Model) -> bool:
    """Whether memory hangs on compilers, on several streams, or on where experts send their tokens."""
    cut = placement.cut
    return bool(
        train.compile or train.zero_stage > 0 or placement.stages > 1 or cut.tensor_parallel_size > 1
        or train.context_parallel_size > 1 or any(p.part == "experts" for p in model.parameters)
        or train.offload_params != "none" or train.offload_optimizer != "none" or train.offload_activations != "none"
    )  # fmt: skip


def open_points(job: Job, *, is_involved: bool) -> int:
    """How many of these nobody stated: a version or month; how long rows are, where batches are padded to their
    longest; what decides the activations and states; and how the optimizer steps, which matters where it steps over
    buckets, stages and offloaded states."""
    given, train = job.scenario.train.explicit, job.train
    decides = {"attention", "optimizer"} <= given and ("checkpointing" in given or "recompute" in given)
    points = [
        names_a_version(train),
        not lengths_differ(train) or has_spread(train.sample_lengths),
        decides,
        "optimizer_impl" in given or not is_involved,
    ]
    return points.count(False)
