"""Jobs of several pods: the GPUs of all of them, one answer for one program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vramwise.interop.files.launches import FileLaunch, read_files
from vramwise.scenario import Scenario

TRAIN = "train.py, --model_name_or_path, Qwen/Qwen3-8B, --bf16, 'true'"
GPUS = "resources: {limits: {nvidia.com/gpu: 8}}"


def read(tmp_path: Path, text: str) -> list[FileLaunch]:
    file = tmp_path / "job.yaml"
    file.write_text(text, "utf-8")
    answers = read_files([str(file)])
    for one in answers:
        Scenario.from_dict(one.launch.scenario)
    return answers


def pytorch_job(command: str, *, master: int = 1, workers: int = 3, more: str = "") -> str:
    return f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: sft}}
spec:
  {more}
  pytorchReplicaSpecs:
    Master:
      replicas: {master}
      template: &pod
        spec:
          nodeSelector: {{nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
          containers: [{{name: pytorch, image: me/train, command: [{command}], {GPUS}}}]
    Worker: {{replicas: {workers}, template: *pod}}
"""


VOLCANO = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: sft}
spec:
  plugins: {pytorch: [--master=master, --worker=worker]}
  tasks:
  - name: master
    replicas: 1
    template: &pod
      spec:
        containers:
        - name: c
          image: me/train
          command: [sh, -c, "python -m torch.distributed.run --nnodes=$WORLD_SIZE --nproc_per_node=8 COMMAND"]
          resources: {limits: {nvidia.com/gpu: 8}}
  - {name: worker, replicas: 3, template: *pod}
""".replace("COMMAND", "train.py --model_name_or_path Qwen/Qwen3-8B --bf16 true")

JOB_SET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: sft}}
spec:
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 2
        template:
          spec:
            containers:
            - {{name: c, image: me/train, command: [mpirun, -x, A, python, {TRAIN}], {GPUS}}}
""".replace("mpirun, -x, A, python", "torchrun, --nnodes=4, --nproc-per-node=gpu")

TRAIN_JOB = f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: ours}}
spec:
  mlPolicy: {{numNodes: 1, torch: {{}}}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec:
            template:
              spec:
                containers:
                - {{name: node, image: me/train, command: [torchrun, {TRAIN}], {GPUS}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: sft}}
spec:
  runtimeRef: {{name: ours}}
  trainer: {{numNodes: 4}}
"""

MPI = f"""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: sft}}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template: {{spec: {{containers: [{{name: l, image: i, command: [mpirun, -np, '32', python, {TRAIN}]}}]}}}}
    Worker: {{replicas: 4, template: {{spec: {{containers: [{{name: w, image: i, {GPUS}}}]}}}}}}
"""

INDEXED = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: sft}}
spec:
  completionMode: Indexed
  parallelism: 4
  template: {{spec: {{containers: [{{name: c, image: i, command: [torchrun, {TRAIN}], {GPUS}}}]}}}}
"""


@pytest.mark.parametrize(
    "manifest",
    [
        pytorch_job(f"torchrun, {TRAIN}"), pytorch_job(f"torchrun, --nproc_per_node=8, {TRAIN}"),
        pytorch_job(f"torchrun, --nnodes=$(PET_NNODES), {TRAIN}", more="nprocPerNode: '8'"),
        VOLCANO, JOB_SET, TRAIN_JOB, MPI, INDEXED,
    ],
    ids=["pytorch-job", "of-a-node", "by-variables", "volcano", "job-set", "train-job", "mpi-job", "indexed-job"],
)  # fmt: skip
def test_a_training_has_the_gpus_of_all_its_pods(manifest: str, tmp_path: Path) -> None:
    (answer,) = read(tmp_path, manifest)
    assert answer.name == "sft"
    assert (answer.launch.scenario["num_gpus"], answer.launch.scenario["gpus_per_node"]) == (32, 8)
    assert not any("nothing says how many GPUs" in note for note in answer.launch.notes)


def test_a_pod_for_each_process(tmp_path: Path) -> None:
    text = pytorch_job(f"python, {TRAIN}").replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 1")
    (answer,) = read(tmp_path, text)
    assert answer.launch.scenario["num_gpus"] == 4
    assert answer.launch.scenario["gpu"] == "h100-sxm-80gb"


def test_a_train_job_replaces_what_its_runtime_says(tmp_path: Path) -> None:
    own = "trainer: {numNodes: 4, numProcPerNode: 2, command: [torchrun, train.py, --model_name_or_path=gpt2]}"
    (answer,) = read(tmp_path, TRAIN_JOB.replace("trainer: {numNodes: 4}", own))
    assert (answer.launch.scenario["model"], answer.launch.scenario["num_gpus"]) == ("gpt2", 8)


def test_a_runtime_alone_is_read_as_it_stands(tmp_path: Path) -> None:
    (answer,) = read(tmp_path, TRAIN_JOB.partition("---")[0])
    assert (answer.name, answer.launch.scenario["num_gpus"]) == ("ours", 8)


def test_a_leader_and_its_workers_serve_one_model(tmp_path: Path) -> None:
    words = "python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-32B, --tp, '16', --nnodes, $(LWS_GROUP_SIZE)"
    pod = f"""
      spec:
        containers:
        - name: c
          image: lmsysorg/sglang:v0.5.3
          command: [{words}, --node-rank, NUMBER]
          {GPUS}"""
    text = f"""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: sgl}}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate: {pod.replace("NUMBER", "'0'")}
    workerTemplate: {pod.replace("NUMBER", "$(LWS_WORKER_INDEX)")}
"""
    (answer,) = read(tmp_path, text)
    serve: Any = answer.launch.scenario["serve"]
    assert serve["tensor_parallel_size"] == 16


@pytest.mark.parametrize("value", ["-1", "many", "[8]", "{}", "99999999", "null", "true"])
def test_counts_that_are_none_are_left_out(value: str, tmp_path: Path) -> None:
    (answer,) = read(tmp_path, pytorch_job(f"torchrun, {TRAIN}").replace("replicas: 3", f"replicas: {value}"))
    assert answer.launch.scenario["num_gpus"] == 16
