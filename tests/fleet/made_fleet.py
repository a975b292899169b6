"""A cluster of eight nodes with eight GPUs each, seven days long, with planted waste, as OpenMetrics text.

One sample an hour, at hours 1 to 168: with steps of an hour every sample counts for one GPU-hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

START = 1_767_571_200  # 2026-01-05 00:00 UTC, a Monday
HOUR, DAY = 3_600, 86_400
DAYS = 7
END = START + DAYS * DAY
ASKED = ("--since", "7d", "--until", "2026-01-12", "--step", "1h")
"""The seven days, at the resolution in which they are made."""
HOSTILE = '</script><script>alert(1)</script>\x1b[31m"} or vector(1) #'
CHAT_COMMAND = "vllm serve gpt2 --max-model-len 1024 --gpu-memory-utilization 0.5"
RESET_HOUR = 60
"""When counters start anew."""


@dataclass(frozen=True)
class Planted:
    """What the GPUs of a node did while one job had them."""

    node: int
    labels: dict[str, str]
    engine: float = 0.0
    sm: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    link: float = 0.0
    used_mib: int = 0
    power_w: float = 100.0
    hours: tuple[range, ...] = (range(1, DAYS * 24 + 1),)
    card: tuple[str, int] = ("NVIDIA H100 80GB HBM3", 81_559)
    one_pod_a_gpu: bool = False
    gpus: range = field(default=range(8))


GOOD = Planted(0, {"hpc_job": "1001"}, 0.98, 0.92, 0.45, 0.5, 5e10, 70_000, 650.0)
IDLE = Planted(1, {"hpc_job": "1002"}, 0.0, 0.0, 0.0, 0.0, 0.0, 60_000, 120.0)
COMMUNICATION = Planted(2, {"hpc_job": "1003"}, 1.0, 0.45, 0.2, 0.3, 1e11, 70_000, 400.0)
LAUNCH_BOUND = Planted(3, {"hpc_job": "1004"}, 0.35, 0.30, 0.05, 0.1, 0.0, 50_000, 200.0, (range(25, 97),))
CHAT = Planted(
    4, {"exported_namespace": "serving", "exported_pod": "chat-7d9f8c6b5-abcd"}, 0.95, 0.85, 0.3, 0.6, 0.0, 9_000,
    300.0, one_pod_a_gpu=True,
)  # fmt: skip
RESEARCH = Planted(
    5, {"exported_namespace": "research", "exported_pod": "llama-worker-0"}, 0.97, 0.9, 0.4, 0.5, 2e10, 70_000, 600.0,
    (range(1, 73), range(85, 169)),
)  # fmt: skip
STRANGE = Planted(6, {"hpc_job": HOSTILE}, 0.9, 0.9, 0.1, 0.1, 0.0, 30_000, 250.0, gpus=range(1))
NOBODY = Planted(7, {}, 0.0, 0.0, 0.0, 0.0, 0.0, 4, 80.0)
AFTER = Planted(3, {}, 0.0, 0.0, 0.0, 0.0, 0.0, 4, 80.0, (range(1, 25), range(97, 169)))
EMPTY = Planted(6, {}, 0.0, 0.0, 0.0, 0.0, 0.0, 4, 80.0, gpus=range(1, 8))
NODES = (GOOD, IDLE, COMMUNICATION, LAUNCH_BOUND, CHAT, RESEARCH, STRANGE, NOBODY, AFTER, EMPTY)

HELP = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "gauge", "DCGM_FI_PROF_SM_ACTIVE": "gauge",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "gauge", "DCGM_FI_PROF_DRAM_ACTIVE": "gauge",
    "DCGM_FI_PROF_NVLINK_TX_BYTES": "gauge", "DCGM_FI_DEV_FB_USED": "gauge", "DCGM_FI_DEV_FB_FREE": "gauge",
    "DCGM_FI_DEV_POWER_USAGE": "gauge", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "unknown",
}  # fmt: skip


def value_of(metric: str, one: Planted, hour: int) -> float:
    """A metric of a GPU at an hour; the counter of energy starts anew at RESET_HOUR."""
    since = hour - RESET_HOUR if hour >= RESET_HOUR else hour
    return {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": one.engine,
        "DCGM_FI_PROF_SM_ACTIVE": one.sm,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": one.tensor,
        "DCGM_FI_PROF_DRAM_ACTIVE": one.dram,
        "DCGM_FI_PROF_NVLINK_TX_BYTES": one.link,
        "DCGM_FI_DEV_FB_USED": one.used_mib,
        "DCGM_FI_DEV_FB_FREE": one.card[1] - one.used_mib,
        "DCGM_FI_DEV_POWER_USAGE": one.power_w,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": one.power_w * since * HOUR * 1000,
    }[metric]


def labels_of(one: Planted, gpu: int) -> str:
    """The labels that dcgm-exporter and a scrape without honor_labels give a GPU."""
    own = dict(one.labels)
    if one.one_pod_a_gpu:
        own["exported_pod"] += str(gpu)
    every = {
        "gpu": str(gpu), "UUID": f"GPU-{one.node}-{gpu}", "modelName": one.card[0], "hostname": f"node{one.node}",
        "pod": f"dcgm-exporter-{one.node}", "namespace": "monitoring", "instance": f"node{one.node}:9400", **own,
    }  # fmt: skip
    return ",".join(f'{name}="{escaped(text)}"' for name, text in every.items())


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def day_of_metrics(day: int) -> Iterator[str]:
    """The OpenMetrics text of one day (0 to 6)."""
    hours = range(24 * day + 1, 24 * day + 25)
    for metric, kind in HELP.items():
        yield f"# TYPE {metric} {kind}"
        for one in NODES:
            for gpu in one.gpus:
                labels = labels_of(one, gpu)
                for hour in hours:
                    if any(hour in part for part in one.hours):
                        yield f"{metric}{{{labels}}} {value_of(metric, one, hour):g} {START + hour * HOUR}"
    yield from _beside(hours)
    yield "# EOF"


TOKENS_AN_HOUR = 1_000_000


def _beside(hours: range) -> Iterator[str]:
    """kube-state-metrics' owners and annotations; tokens of the chat pods and steps of a training."""
    pods = [f"chat-7d9f8c6b5-abcd{gpu}" for gpu in range(8)]
    yield "# TYPE kube_pod_owner gauge"
    for pod in pods:
        owner = 'owner_kind="ReplicaSet",owner_name="chat-7d9f8c6b5",owner_is_controller="true"'
        for hour in hours:
            yield f'kube_pod_owner{{namespace="serving",pod="{pod}",{owner}}} 1 {START + hour * HOUR}'
    for hour in hours:
        owner = 'owner_kind="PyTorchJob",owner_name="llama",owner_is_controller="true"'
        yield f'kube_pod_owner{{namespace="research",pod="llama-worker-0",{owner}}} 1 {START + hour * HOUR}'
    yield "# TYPE kube_pod_annotations gauge"
    for pod in pods:
        told = f'annotation_vramwise_command="{CHAT_COMMAND}"'
        for hour in hours:
            yield f'kube_pod_annotations{{namespace="serving",pod="{pod}",{told}}} 1 {START + hour * HOUR}'
    yield "# TYPE vllm:generation_tokens unknown"
    for pod in pods:
        for hour in hours:
            since = hour - RESET_HOUR if hour >= RESET_HOUR else hour
            told = f'namespace="serving",pod="{pod}",model_name="gpt2"'
            yield f"vllm:generation_tokens_total{{{told}}} {since * TOKENS_AN_HOUR} {START + hour * HOUR}"
    yield "# TYPE trainer_steps unknown"
    for hour in hours:
        yield f'trainer_steps{{hpc_job="1001"}} {hour * 100} {START + hour * HOUR}'
