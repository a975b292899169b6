"""A Deployment of Kubernetes around an engine's own command, in the image that stands in the engine's record."""

from __future__ import annotations

import re

from vramwise.engines import Container, engine_named
from vramwise.errors import UsageError
from vramwise.hardware import find_gpu
from vramwise.interop.export.draft import Asked, Draft, File
from vramwise.interop.export.tools import TOOLS, draft_of, tool_named


def write(asked: Asked) -> Draft:
    """The manifest of a scenario that vLLM, SGLang or llama.cpp serves. Raises UsageError for other engines."""
    scenario, engine = asked.scenario, engine_named(asked.scenario.serve.engine)
    writer = next((tool for tool in TOOLS if tool.runs == (engine.name,)), None)
    if writer is None or engine.container is None:
        named = ", ".join(engine_named(name).title for name in tool_named("k8s").runs)
        raise UsageError(f"--export k8s: runs {named}, not {engine.title}")
    if scenario.gpu is not None and find_gpu(scenario.gpu).gpu.vendor != "NVIDIA":
        raise UsageError("--export k8s: the engines' images that are named here are for NVIDIA's cards")
    draft = draft_of(writer, asked)
    started = len(engine.command_line.server) if engine.command_line is not None else 1
    text, said = _manifest(asked, draft, engine.container, started)
    words = ("kubectl", "apply", "-f", asked.path)
    reads = draft.reads or draft.words
    file = File(asked.path, text, "the manifest")
    return Draft(words, (file,), draft.environment, (*draft.unsaid, *said), reads)


def _manifest(asked: Asked, draft: Draft, image: Container, started: int) -> tuple[str, list[str]]:
    """The manifest, and what it leaves to its reader; the first words of the draft are what is `started`."""
    import yaml

    said = []
    name = _name(asked.model)
    words = [*draft.words, *(["--host", "0.0.0.0", "--port", str(image.port)])]
    container: dict[str, object] = {"name": name, "image": _image(asked, image)}
    if not image.starts_server:
        container["command"] = words[:started]
    container["args"] = words[started:]
    environment: list[dict[str, object]] = [{"name": key, "value": value} for key, value in draft.environment.items()]
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    container["env"] = [*environment, {"name": "HF_TOKEN", "valueFrom": token}]
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
        said.append("model: the pod needs a volume that holds this file or folder under the same path")
    container["volumeMounts"] = mounts
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "volumes": volumes}}
    manifest = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod},
    }  # fmt: skip
    return str(yaml.safe_dump(manifest, sort_keys=False)), said


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


def _name(model: str) -> str:
    """A name that Kubernetes takes (RFC 1123): lower case, digits and dashes, at most 63."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].removesuffix(".gguf").lower()).strip("-")
    return (plain[:50].strip("-") or "model") + "-server"
