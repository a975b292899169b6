"""Jobs of several pods on Kubernetes: how many run one program, and what their operator tells them of each other.

Read in kubeflow/training-operator 1.9 (pkg/apis/kubeflow.org/v1, pkg/controller.v1/pytorch/envvar.go: WORLD_SIZE,
PET_NNODES, PET_NPROC_PER_NODE), kubeflow/trainer 2.1 (pkg/apis/trainer/v1alpha1: TrainJob, runtimes over JobSet),
kubernetes-sigs/jobset 0.10 (api/jobset/v1alpha2), volcano 1.13 (apis/batch/v1alpha1, its pytorch plugin),
kubernetes-sigs/lws 0.7 (api/leaderworkerset/v1), batch/v1 Job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from vramwise.interop.files.tables import Table, table_in, tables_in
from vramwise.records import record

_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
_MOST_PODS = 10_000
_RANKS_PLUGIN = "pytorch"  # of Volcano: sets ranks and the number of pods
_NODE = ("node", "trainer")
"""What kubeflow's runtimes call the job and the container that train."""


@record
class Group:
    """Pods that run one program together: how many, the processes of one where that is said, and variables that the
    operator sets."""

    pods: int
    processes: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


ALONE = Group(1)


def groups_of(document: object) -> dict[int, Group]:
    """The groups that the pods of a manifest belong to, by the identity of the pod's `spec`; a pod alone has none."""
    if not isinstance(document, Mapping):
        return {}
    kind, spec = str(document.get("kind") or ""), table_in(document.get("spec"))
    for reader in (_replicas, _volcano, _job_set, _leader_worker_set, _indexed):
        found = reader(kind, spec)
        if found:
            return found
    return {}


def gpus_of(container: Table) -> int | None:
    """The GPUs that a container may use."""
    resources = table_in(container.get("resources"))
    for table in (table_in(resources.get("limits")), table_in(resources.get("requests"))):
        for name in _GPUS:
            count = _count(table.get(name))
            if count:
                return count
    return None


def train_job(document: object, documents: Sequence[object]) -> tuple[Table, Table, Group] | None:
    """The container that a TrainJob runs, made of its runtime's in the same manifest and its own settings, the pod's
    spec and its group; None for other documents."""
    if not isinstance(document, Mapping) or document.get("kind") != "TrainJob":
        return None
    spec = table_in(document.get("spec"))
    trainer = table_in(spec.get("trainer"))
    named = table_in(spec.get("runtimeRef")).get("name")
    runtime = next((table_in(one.get("spec")) for one in documents if isinstance(one, Mapping)
                    and str(one.get("kind")) in ("ClusterTrainingRuntime", "TrainingRuntime")
                    and table_in(one.get("metadata")).get("name") == named), {})  # fmt: skip
    pod = _node_pod(table_in(table_in(runtime.get("template")).get("spec")))
    below = next((one for one in tables_in(pod.get("containers")) if one.get("name") in _NODE), {})
    container = {**below, **{key: trainer[key] for key in ("image", "command", "args") if trainer.get(key)}}
    container["env"] = [*tables_in(below.get("env")), *tables_in(trainer.get("env"))]
    if trainer.get("resourcesPerNode"):
        container["resources"] = trainer["resourcesPerNode"]
    nodes = _count(trainer.get("numNodes")) or _count(table_in(runtime.get("mlPolicy")).get("numNodes")) or 1
    each = _count(trainer.get("numProcPerNode")) or gpus_of(container)
    return container, pod, Group(nodes, each, _of_torch(nodes, each))


def _node_pod(job_set: Table) -> Table:
    jobs = tables_in(job_set.get("replicatedJobs"))
    job = next((one for one in jobs if one.get("name") in _NODE), jobs[0] if jobs else {})
    return _pod(table_in(table_in(job.get("template")).get("spec")))


def _replicas(kind: str, spec: Table) -> dict[int, Group]:
    """PyTorchJob and MPIJob: Master and Worker of one, the workers alone of the other, whose launcher starts them."""
    roles = table_in(spec.get("pytorchReplicaSpecs")) or table_in(spec.get("mpiReplicaSpecs"))
    pods = {str(name): table_in(role) for name, role in roles.items()}
    counted = {name: role for name, role in pods.items() if name != "Launcher"}
    nodes = sum(_count(role.get("replicas")) or 1 for role in counted.values())
    if not nodes:
        return {}
    elastic = table_in(spec.get("elasticPolicy"))
    each = _count(spec.get("nprocPerNode")) or _count(elastic.get("nProcPerNode")) or _count(spec.get("slotsPerWorker"))
    each = each or next(filter(None, (_gpus_in(_pod(role)) for role in counted.values())), None)
    variables = _of_torch(nodes, each) if kind == "PyTorchJob" else {}
    return {id(_pod(role)): Group(nodes, each, variables) for role in pods.values()}


def _volcano(kind: str, spec: Table) -> dict[int, Group]:
    """Tasks of a Volcano job; those with GPUs run one program."""
    tasks = [(_pod(task), _count(task.get("replicas")) or 1) for task in tables_in(spec.get("tasks"))]
    if kind != "Job" or not tasks:
        return {}
    nodes = sum(count for pod, count in tasks if _gpus_in(pod)) or sum(count for _, count in tasks)
    plugins = table_in(spec.get("plugins"))
    variables = {"WORLD_SIZE": str(nodes)} if _RANKS_PLUGIN in plugins else {}
    return {id(pod): Group(nodes, _gpus_in(pod), variables) for pod, _ in tasks}


def _job_set(kind: str, spec: Table) -> dict[int, Group]:
    """Replicated jobs, each of `replicas` jobs with `parallelism` pods."""
    found = {}
    for job in tables_in(spec.get("replicatedJobs")):
        inner = table_in(table_in(job.get("template")).get("spec"))
        nodes = (_count(job.get("replicas")) or 1) * (_count(inner.get("parallelism")) or 1)
        pod = _pod(inner)
        found[id(pod)] = Group(min(nodes, _MOST_PODS), _gpus_in(pod))
    return found if kind == "JobSet" else {}


def _leader_worker_set(kind: str, spec: Table) -> dict[int, Group]:
    """A leader and its workers serve together; without a template of its own the leader is as the workers."""
    outer = table_in(spec.get("leaderWorkerTemplate"))
    nodes = _count(outer.get("size")) or 1
    pods = [table_in(table_in(outer.get(name)).get("spec")) for name in ("leaderTemplate", "workerTemplate")]
    variables = {"LWS_GROUP_SIZE": str(nodes)}
    return {id(pod): Group(nodes, _gpus_in(pod), variables) for pod in pods if pod} if outer else {}


def _indexed(kind: str, spec: Table) -> dict[int, Group]:
    """A Job whose pods run at the same time and know their place."""
    nodes = _count(spec.get("parallelism"))
    if kind != "Job" or not nodes or nodes < 2 or str(spec.get("completionMode")) != "Indexed":
        return {}
    pod = _pod(spec)
    return {id(pod): Group(nodes, _gpus_in(pod))}


def _of_torch(nodes: int, processes: int | None) -> dict[str, str]:
    each = {"PET_NPROC_PER_NODE": str(processes)} if processes else {}
    return {"WORLD_SIZE": str(nodes), "PET_NNODES": str(nodes), **each}


def _gpus_in(pod: Table) -> int | None:
    return next(filter(None, map(gpus_of, tables_in(pod.get("containers")))), None)


def _pod(outer: Table) -> Table:
    return table_in(table_in(outer.get("template")).get("spec"))


def _count(value: object) -> int | None:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if re.fullmatch(r"[1-9]\d{0,3}", text) else None
