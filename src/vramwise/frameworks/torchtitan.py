"""torchtitan: pretraining under FSDP 2, tensor, pipeline and expert parallelism."""

from __future__ import annotations

from vramwise.frameworks.framework import Casts, Framework, Quantizing, Sharding
from vramwise.frameworks.versions import month_named, stated
from vramwise.scenario import TrainSettings

HEAD_APART_SINCE, FROM_AUGUST_2025 = (0, 2), (2025, 8)


def _has_outer_units(train: TrainSettings) -> bool:
    """Since pull request 1094 of July 2025; before it both were in the root unit (parallelize.py, apply_fsdp)."""
    version, month = stated(train, "torchtitan"), month_named(train)
    return (version or HEAD_APART_SINCE) >= HEAD_APART_SINCE and (month or FROM_AUGUST_2025) >= FROM_AUGUST_2025


RECORD = Framework(
    name="torchtitan",
    title="torchtitan",
    package="torchtitan",
    casts=Casts(autocast="never"),  # FSDP's mixed precision casts whole units
    quantizing=Quantizing(keeps_originals=False),
    sharding=Sharding(
        outer_units=_has_outer_units,
        last_unit_stays=True,  # parallelize.py: reshard_after_forward, but for the last
        loss_after_root=True,
        sequence_with_tensors=True,
    ),
)
