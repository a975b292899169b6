"""A Deployment of Kubernetes around an engine's own command, a Job around a trainer's with its configuration in a
ConfigMap: each in the image that stands in the engine's or framework's record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from vramwise.engines import engine_named
from vramwise.engines.engine import Container
from vramwise.errors import UsageError
from vramwise.frameworks import framework_named
from vramwise.hardware import find_gpu
from vramwise.interop.export.draft import Asked, Draft, File
from vramwise.interop.export.tools import TOOLS, Tool, draft_of, settled, tool_named
from vramwise.scenario import Scenario

_CONFIG, _OUTPUT, _CACHE = "/config", "/output", "/root/.cache/huggingface"


def write(asked: Asked) -> Draft:
    """The manifest of a scenario that vLLM, SGLang or llama.cpp serves. Raises UsageError for other engines."""
    scenario, engine = asked.scenario, engine_named(asked.scenario.serve.engine)
    writer = next((tool for tool in TOOLS if tool.runs == (engine.name,)), None)
    if writer is None or engine.container is None:
        named = ", ".join(engine_named(name).title for name in tool_named("k8s").runs)
        raise UsageError(f"--export k8s: runs {named}, not {engine.title}")
    _check_card(scenario)
    draft = draft_of(writer, asked)
    started = len(engine.command_line.server) if engine.command_line is not None else 1
    text, said = _manifest(asked, draft, engine.container, started)
    words = ("kubectl", "apply", "-f", asked.path)
    reads = draft.reads or draft.words
    file = File(asked.path, text, "the manifest")
    return Draft(words, (file,), draft.environment, (*draft.unsaid, *said), reads)


def write_job(asked: Asked) -> Draft:
    """The ConfigMap and Job of a scenario that axolotl, LLaMA-Factory or TRL trains on one machine's GPUs.

    Raises UsageError for other frameworks and for several machines, each of which would need an address of its own.
    """
    scenario = asked.scenario
    _check_card(scenario)
    if scenario.num_gpus > scenario.gpus_per_node:
        raise UsageError(
            f"--export k8s: a Job runs on one machine, and the scenario has {scenario.num_gpus} GPUs, "
            f"{scenario.gpus_per_node} each (--gpus-per-node): expected accelerate, deepspeed, axolotl or llamafactory"
        )
    writer = _trainer(scenario)
    inside = draft_of(writer, replace(asked, path=f"{_CONFIG}/{writer.file}", output=_OUTPUT))
    name = _name(asked.model, "train")
    files = {file.path.rpartition("/")[2]: file.text for file in inside.files}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": files}
    text = f"{_yaml(settings)}---\n{_yaml(_job(name, asked, inside))}"
    words = ("kubectl", "apply", "-f", asked.path)
    said = [*inside.unsaid, f"output: {_OUTPUT} is lost with the pod: name a PersistentVolumeClaim in its volume"]
    lacks = framework_named(scenario.train.framework).image_lacks
    said += [
        f"image: {package} is not in {_trainers_image(scenario)}: an image of your own with both, or pip install first"
        for key, package in lacks.items()
        if asked.settings.get(key)
    ]
    if asked.model.startswith(("/", "./", "../")):
        said.append(_OF_A_VOLUME)
    return Draft(words, (File(asked.path, text, "the manifest"),), unsaid=tuple(said), manifest=True)


def _yaml(document: Mapping[str, object]) -> str:
    """A document whose texts of several lines stand as they are."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def written(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, written)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, width=120))


_OF_A_VOLUME = "model: the pod needs a volume that holds this file or folder under the same path"


def as_its_trainer_does(scenario: Scenario) -> Scenario:
    """With what the program in the Job does unasked."""
    return settled(scenario, _trainer(scenario))


def _trainer(scenario: Scenario) -> Tool:
    """The program that the Job starts: the framework's own, or what its image has in its place."""
    framework = framework_named(scenario.train.framework)
    return tool_named(framework.image_runs or framework.name, "train")


def _trainers_image(scenario: Scenario) -> str:
    """Its newest image, or a stated release's: the three tag these alike."""
    image = framework_named(scenario.train.framework).image
    stated = scenario.train.framework_version if "framework_version" in scenario.train.explicit else None
    release = re.fullmatch(r"(?:(?:trl|axolotl|llamafactory)[ =]+)?v?(\d+\.\d+\.\d+)", str(stated))
    return f"{image.partition(':')[0]}:{release.group(1)}" if release else image


def _job(name: str, asked: Asked, inside: Draft) -> dict[str, object]:
    environment: list[dict[str, object]] = [{"name": key, "value": value} for key, value in inside.environment.items()]
    environment.append({"name": "HF_TOKEN", "valueFrom": _TOKEN})
    volumes: dict[str, tuple[str, dict[str, object]]] = {
        "config": (_CONFIG, {"configMap": {"name": name}}),
        "cache": (_CACHE, {"emptyDir": {}}),
        "output": (_OUTPUT, {"emptyDir": {}}),
        "shm": ("/dev/shm", {"emptyDir": {"medium": "Memory"}}),
    }
    container = {
        "name": "train", "image": _trainers_image(asked.scenario), "command": list(inside.words), "env": environment,
        "resources": {"limits": {"nvidia.com/gpu": asked.scenario.num_gpus}},
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, (path, _) in volumes.items()],
    }  # fmt: skip
    pod = {
        "restartPolicy": "Never", "containers": [container],
        "volumes": [{"name": volume, **kind} for volume, (_, kind) in volumes.items()],
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}},
    }  # fmt: skip


def _check_card(scenario: Scenario) -> None:
    if scenario.gpu is not None and find_gpu(scenario.gpu).gpu.vendor != "NVIDIA":
        raise UsageError("--export k8s: the images that are named here are for NVIDIA's cards")


_TOKEN = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}


def _manifest(asked: Asked, draft: Draft, image: Container, started: int) -> tuple[str, list[str]]:
    """The manifest, and what it leaves to its reader; the first words of the draft are what is `started`."""
    said = []
    name = _name(asked.model, "server")
    words = [*draft.words, *(["--host", "0.0.0.0", "--port", str(image.port)])]
    container: dict[str, object] = {"name": name, "image": _image(asked, image)}
    if not image.starts_server:
        container["command"] = words[:started]
    container["args"] = words[started:]
    environment: list[dict[str, object]] = [{"name": key, "value": value} for key, value in draft.environment.items()]
    container["env"] = [*environment, {"name": "HF_TOKEN", "valueFrom": _TOKEN}]
    container["ports"] = [{"containerPort": image.port}]
    gpus = _gpus(asked, image)
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    mounts = [{"name": "cache", "mountPath": image.cache}]
    volumes: list[dict[str, object]] = [{"name": "cache", "emptyDir": {}}]
    if image.ranks:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    if asked.model.startswith(("/", "./", "../")) or "-m" in words:
        said.append(_OF_A_VOLUME)
    container["volumeMounts"] = mounts
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "volumes": volumes}}
    manifest = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod},
    }  # fmt: skip
    return _yaml(manifest), said


def _gpus(asked: Asked, image: Container) -> int:
    """GPUs of the pod: all that the engine's layout takes, or those that the scenario counts."""
    if not image.ranks:
        return asked.scenario.num_gpus
    sizes = [asked.settings.get(f"{kind}_parallel_size") for kind in ("tensor", "pipeline", "data")]
    found = 1
    for size in sizes:
        found *= size if isinstance(size, int) else 1
    return found


def _image(asked: Asked, image: Container) -> str:
    settings = asked.scenario.serve
    version = settings.engine_version if "engine_version" in settings.explicit else None
    has_tag = version and re.fullmatch(image.versions, version)
    return f"{image.image}:{image.version_tag.format(version) if has_tag else image.tag}"


def _name(model: str, use: str) -> str:
    """A name that Kubernetes takes (RFC 1123): lower case, digits and dashes, at most 63."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].removesuffix(".gguf").lower()).strip("-")
    return f"{plain[:50].strip('-') or 'model'}-{use}"
