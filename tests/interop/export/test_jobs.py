"""Trainings as Jobs of Kubernetes, and manifests whose containers find their configurations in ConfigMaps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import vramwise
from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files

_MODEL = "Qwen/Qwen3-8B"


def _scenario(framework: str | None = None, num_gpus: int = 1, **train: Any) -> dict[str, Any]:
    own = {"framework": framework} if framework else {}
    return {
        "model": "qwen3-8b",
        "task": "train",
        "num_gpus": num_gpus,
        "gpu": "h100-sxm-80gb",
        "train": {**own, **train},
    }


@pytest.mark.parametrize(
    ("framework", "image", "command"),
    [
        (None, "huggingface/trl:latest", ["trl", "sft", "--config", "/config/trl.yaml", "--num_processes", "2"]),
        ("axolotl", "axolotlai/axolotl:main-latest", ["axolotl", "train", "/config/axolotl.yaml"]),
        ("llamafactory", "hiyouga/llamafactory:latest", ["llamafactory-cli", "train", "/config/llamafactory.yaml"]),
    ],
)
def test_a_training_is_a_job_that_says_the_same(
    framework: str | None, image: str, command: list[str], tmp_path: Path
) -> None:
    scenario = _scenario(framework, 2, method="lora", lora_rank=16, sequence_length=1024, checkpointing="full")
    export = vramwise.export(scenario, "k8s", str(tmp_path / "job.yaml"))
    assert [line.partition(":")[0] for line in export.not_expressed] == ["data", "output"]
    settings, job = yaml.safe_load_all(export.text)
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    assert container["command"][: len(command)] == command
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert (
        yaml.safe_load(settings["data"][command[-1].rpartition("/")[2] if framework else "trl.yaml"])["output_dir"]
        == "/output"
    )
    (tmp_path / "job.yaml").write_text(export.text, "utf-8")
    found = read_files([str(tmp_path / "job.yaml")])[0].launch.scenario
    assert (found["model"], found["num_gpus"], found["train"]["lora_rank"]) == (_MODEL, 2, 16)


def test_an_images_missing_packages_and_a_release_are_said() -> None:
    quantized = vramwise.export(_scenario(method="qlora", zero_stage=2), "k8s").not_expressed
    assert [line.partition(" is not")[0] for line in quantized if line.startswith("image")] == [
        "image: deepspeed", "image: bitsandbytes",
    ]  # fmt: skip
    released = vramwise.export(_scenario("axolotl", framework_version="0.16.1"), "k8s").text
    assert "image: axolotlai/axolotl:0.16.1\n" in released


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (_scenario(num_gpus=16), "a Job runs on one machine"),
        (_scenario("torchtune"), "whose settings Kubernetes does not have"),
        ({**_scenario(), "gpu": "mi300x"}, "NVIDIA's cards"),
    ],
)
def test_what_no_job_runs_is_one_line(scenario: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        vramwise.export(scenario, "k8s")


def _manifest(data: dict[str, Any], command: list[str], mount: dict[str, str], **volume: Any) -> str:
    """A Job whose container mounts a ConfigMap; TRL's own start says nothing of its GPUs."""
    container = {"name": "train", "image": "mine", "command": command, "volumeMounts": [{"name": "files", **mount}],
                 "resources": {"limits": {"nvidia.com/gpu": "4"}}}  # fmt: skip
    spec = {"containers": [container], "volumes": [{"name": "files", "configMap": {"name": "run", **volume}}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "tune"}, "spec": {"template": {"spec": spec}}}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "run"}, "data": data}
    return f"{json.dumps(job)}\n---\n{json.dumps(settings)}\n"


_CONFIG = f"base_model: {_MODEL}\nadapter: lora\nlora_r: 24\nsequence_len: 512\n"


@pytest.mark.parametrize(
    ("data", "command", "mount", "volume"),
    [
        ({"run.yml": _CONFIG}, ["axolotl", "train", "/c/run.yml"], {"mountPath": "/c/"}, {}),
        ({"run.yml": _CONFIG}, ["axolotl", "train", "/c/x.yml"], {"mountPath": "/c/x.yml", "subPath": "run.yml"}, {}),
        (
            {"a": _CONFIG},
            ["axolotl", "train", "/c/b.yml"],
            {"mountPath": "/c"},
            {"items": [{"key": "a", "path": "b.yml"}]},
        ),
        (
            {"go.sh": "set -e\naxolotl train /c/run.yml\n", "run.yml": _CONFIG},
            ["bash", "/c/go.sh"],
            {"mountPath": "/c"},
            {},
        ),
        ({"run.yml": _CONFIG}, ["sh", "-c", "cd /w && axolotl train /c/run.yml"], {"mountPath": "/c"}, {}),
    ],
)
def test_files_of_a_config_map_are_read(
    data: dict[str, Any], command: list[str], mount: dict[str, str], volume: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(_manifest(data, command, mount, **volume), "utf-8")
    [one] = read_files([str(file)])
    assert one.launch.scenario["model"] == _MODEL
    assert one.launch.scenario["num_gpus"] == 4
    assert one.launch.scenario["train"]["lora_rank"] == 24
    assert "vramwise-" not in " ".join(one.launch.notes)


@pytest.mark.parametrize("key", ["../../run.yml", "..", "a/b.yml", "x" * 300, "nul\0.yml"])
def test_a_config_map_writes_nowhere_else(key: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(_manifest({key: _CONFIG}, ["axolotl", "train", f"/c/{key}"], {"mountPath": "/c"}), "utf-8")
    with pytest.raises(vramwise.VramwiseError) as raised:
        read_files([str(file)])
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.parent.glob("run.yml"))


def test_a_fault_within_names_the_path_that_the_pod_has(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(_manifest({"run.yml": "base_model: [\n"}, ["axolotl", "train", "/c/run.yml"], {"mountPath": "/c"}))
    with pytest.raises(vramwise.VramwiseError, match=r" /c/run\.yml") as raised:
        read_files([str(file)])
    assert "vramwise-" not in str(raised.value)
