"""The counters of GPU exporters by what they mean, and the labels by which they name a GPU and a job.

Names and units: NVIDIA dcgm-exporter 4.5.3-4.8.2 (etc/default-counters.csv, etc/dcp-metrics-included.csv,
internal/pkg/rendermetrics/render_metrics.go, internal/pkg/transformation/const.go); the *_UTIL_RATIO names are those
of newer DCGM releases. AMD device-metrics-exporter at afd0fe8 (pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go,
pkg/exporter/proto/exporterconfig.proto); a site may have put a prefix before AMD's names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from vramwise.records import record
from vramwise.units import KB, MIB


@record
class Metric:
    """A metric and what its values are multiplied with to be in the unit of its role."""

    name: str
    scale: float = 1


@record
class Exporter:
    """An exporter's metrics by role, the better one first. Shares run from 0 to 1, memory is bytes, energy joules.

    `engine`: share of time with any kernel; `sm`: share of SMs with a warp; `link`: bytes a second to other GPUs, all
    of its metrics added; `energy`: a counter, `power`: watts.
    """

    title: str
    engine: Sequence[Metric]
    sm: Sequence[Metric]
    tensor: Sequence[Metric]
    dram: Sequence[Metric]
    link: Sequence[Metric]
    link_counter: Sequence[Metric]
    used: Sequence[Metric]
    rest: Sequence[Metric]
    total: Sequence[Metric]
    power: Sequence[Metric]
    energy: Sequence[Metric]
    gpu_labels: Sequence[str]
    card_labels: Sequence[str]

    @property
    def pattern(self) -> str:
        """A regular expression of every metric that is asked for, under any prefix."""
        roles = (
            self.engine, self.sm, self.tensor, self.dram, self.link, self.link_counter, self.used, self.rest,
            self.total, self.power, self.energy,
        )  # fmt: skip
        return f"[a-zA-Z0-9_]*({'|'.join(metric.name for role in roles for metric in role)})"


PERCENT: Final = 0.01
MILLI: Final = 1e-3
MICRO: Final = 1e-6

DCGM: Final = Exporter(
    title="dcgm-exporter",
    engine=(
        Metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), Metric("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
        Metric("DCGM_FI_DEV_GPU_UTIL", PERCENT),
    ),
    sm=(Metric("DCGM_FI_PROF_SM_ACTIVE"), Metric("DCGM_FI_PROF_SM_UTIL_RATIO")),
    tensor=(Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), Metric("DCGM_FI_PROF_TENSOR_UTIL_RATIO")),
    dram=(Metric("DCGM_FI_PROF_DRAM_ACTIVE"), Metric("DCGM_FI_PROF_DRAM_UTIL_RATIO")),
    link=(
        Metric("DCGM_FI_PROF_NVLINK_TX_BYTES"), Metric("DCGM_FI_PROF_NVLINK_RX_BYTES"),
        Metric("DCGM_FI_PROF_PCIE_TX_BYTES"), Metric("DCGM_FI_PROF_PCIE_RX_BYTES"),
    ),
    link_counter=(),
    used=(Metric("DCGM_FI_DEV_FB_USED", MIB),),
    rest=(Metric("DCGM_FI_DEV_FB_FREE", MIB), Metric("DCGM_FI_DEV_FB_RESERVED", MIB)),
    total=(),
    power=(Metric("DCGM_FI_DEV_POWER_USAGE"),),
    energy=(Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", MILLI),),
    gpu_labels=("UUID", "uuid", "GPU_I_ID", "gpu", "hostname", "Hostname"),
    card_labels=("modelName", "GPU_I_PROFILE"),
)  # fmt: skip

AMD: Final = Exporter(
    title="AMD device-metrics-exporter",
    engine=(Metric("gpu_gfx_activity", PERCENT),),
    sm=(),  # its gpu_prof_sm_active is the share of time in which vector instructions issue: another thing
    tensor=(Metric("gpu_prof_tensor_active_percent", PERCENT),),
    dram=(Metric("gpu_umc_activity", PERCENT),),
    link=(),
    link_counter=(Metric("gpu_xgmi_link_tx", KB),),
    used=(Metric("gpu_used_vram", MIB),),
    rest=(),
    total=(Metric("gpu_total_vram", MIB),),
    power=(Metric("gpu_package_power"), Metric("gpu_power_usage"), Metric("gpu_average_package_power")),
    energy=(Metric("gpu_energy_consumed", MICRO),),
    gpu_labels=("gpu_uuid", "gpu_id", "gpu_partition_id", "serial_number", "hostname"),
    card_labels=("card_series", "card_model"),
)  # fmt: skip

EXPORTERS: Final = (DCGM, AMD)


def present(role: Sequence[Metric], names: Collection[str], prefix: str = "") -> list[Metric]:
    """The metrics of a role that a server has, under a site's prefix."""
    return [Metric(prefix + one.name, one.scale) for one in role if prefix + one.name in names]


def prefix_of(exporter: Exporter, names: Collection[str]) -> str | None:
    """What a site put before an exporter's names; None where the exporter's metrics are not there."""
    for metric in exporter.engine:
        for name in sorted(names, key=len):
            if name.endswith(metric.name):
                return name.removesuffix(metric.name)
    return None
