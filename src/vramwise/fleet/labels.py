"""Whose a GPU was: the job that labels name, as Kubernetes and Slurm write them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from vramwise.errors import UsageError, clipped, nearest
from vramwise.records import record

SLURM: Final = ("hpc_job", "job_id")
"""dcgm-exporter's label for --hpc-job-mapping-dir, AMD's of its Slurm client."""
POD: Final = ("exported_pod", "pod", "pod_name")
NAMESPACE: Final = ("exported_namespace", "namespace", "pod_namespace")
"""`exported_…` is what Prometheus makes of an exporter's label that the scraped pod has too (honor_labels: false)."""
PEOPLE: Final = ("job_user",)
_EXPORTERS_OWN: Final = re.compile(r"dcgm-exporter|metrics-exporter|gpu-exporter")
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@record
class JobLabels:
    """Labels of one metric that say whose a GPU is; `given` are the ones that a person chose instead."""

    slurm: tuple[str, ...] = ()
    namespace: str | None = None
    pod: str | None = None
    user: str | None = None
    given: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What a query groups by."""
        found = (*self.given, *self.slurm, self.namespace, self.pod, self.user)
        return tuple(dict.fromkeys(name for name in found if name is not None))


@record
class Owner:
    """Whose a GPU was: `id` is empty for a GPU that no job had."""

    id: str
    kind: str = ""
    namespace: str = ""
    pod: str = ""
    user: str = ""


def job_labels(present: Collection[str], given: Sequence[str] = ()) -> JobLabels:
    """The labels among those of a metric. Raises UsageError for a chosen one that the metric does not have."""
    for name in given:
        check_label(name, "--job-label")
        if name not in present:
            near = nearest(name, present)
            meant = f"did you mean {', '.join(near)}?" if near else f"they are {', '.join(sorted(present)[:20])}"
            raise UsageError(f'--job-label: the GPUs\' series have no label "{clipped(name)}": {meant}')
    user = next((name for name in PEOPLE if name in present), None)
    if given:
        return JobLabels(user=user, given=tuple(given))
    pod = next((name for name in POD if name in present), None)
    namespace = next((name for name in NAMESPACE if name in present), None)
    return JobLabels(tuple(name for name in SLURM if name in present), namespace, pod, user)


def check_label(name: str, flag: str) -> None:
    """Raises UsageError for what cannot be the name of a label."""
    if not _LABEL.fullmatch(name):
        raise UsageError(f'{flag}: expected the name of a label such as hpc_job, got "{clipped(name)}"')


def owner_of(labels: Mapping[str, str], known: JobLabels, owners: Mapping[tuple[str, str], str]) -> Owner:
    """Whose a series is; `owners` names the workload of a pod (namespace, name), which then stands for its pods."""
    user = labels.get(known.user or "", "")
    if known.given:
        values = [labels.get(name, "") for name in known.given]
        return Owner("/".join(values) if any(values) else "", "label", user=user)
    job = next((labels[name] for name in known.slurm if labels.get(name)), "")
    if job:
        return Owner(job, "slurm", user=user)
    pod, namespace = labels.get(known.pod or "", ""), labels.get(known.namespace or "", "")
    if not pod or _EXPORTERS_OWN.search(pod):
        return Owner("")
    workload = owners.get((namespace, pod), pod)
    return Owner(f"{namespace}/{workload}" if namespace else workload, "kubernetes", namespace, pod, user)


def workloads(rows: Collection[Mapping[str, str]]) -> dict[tuple[str, str], str]:
    """The workload of each pod, from the labels of kube-state-metrics' `kube_pod_owner`.

    A Deployment's pods belong to a ReplicaSet, which is named after it and a hash.
    """
    found = {}
    for labels in rows:
        namespace = next((labels[name] for name in NAMESPACE if labels.get(name)), "")
        pod = next((labels[name] for name in POD if labels.get(name)), "")
        owner = labels.get("owner_name", "")
        if pod and owner and owner != "<none>" and labels.get("owner_kind") != "Node":
            stem = owner.rpartition("-")[0] if labels.get("owner_kind") == "ReplicaSet" else owner
            found[namespace, pod] = stem or owner
    return found
