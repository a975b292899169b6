"""A Deployment of Kubernetes around an engine's own command.

Images and what a pod needs beside GPUs are those that the engines document: vllm/vllm-openai (vLLM docs/deployment/
k8s.md: /dev/shm in memory for tensor parallelism, the Hugging Face cache on a volume), lmsysorg/sglang (SGLang
docs/get_started/install.md), ghcr.io/ggml-org/llama.cpp:server-cuda (llama.cpp docs/docker.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from vramwise.engines import engine_named
from vramwise.errors import UsageError
from vramwise.hardware import find_gpu
from vramwise.interop.export.draft import Asked, Draft, File

_WRITERS = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llama_server"}
_CACHES = {"llama.cpp": "/root/.cache"}
_CACHE = "/root/.cache/huggingface"
_PORTS = {"vllm": 8000, "sglang": 30000, "llama.cpp": 8080}


def write(asked: Asked) -> Draft:
    """The manifest of a scenario that vLLM, SGLang or llama.cpp serves. Raises UsageError for other engines."""
    settings, scenario = asked.scenario.serve, asked.scenario
    if settings.engine not in _WRITERS:
        named = ", ".join(engine_named(name).title for name in _WRITERS)
        raise UsageError(f"--export k8s: runs {named}, not {engine_named(settings.engine).title}")
    if scenario.gpu is not None and find_gpu(scenario.gpu).gpu.vendor != "NVIDIA":
        raise UsageError("--export k8s: the engines' images that are named here are for NVIDIA's cards")
    inner: Callable[[Asked], Draft] = import_module(f"vramwise.interop.export.{_WRITERS[settings.engine]}").write
    draft = inner(asked)
    text, said = _manifest(asked, draft)
    words = ("kubectl", "apply", "-f", asked.path)
    reads = draft.reads or draft.words
    file = File(asked.path, text, "the manifest")
    return Draft(words, (file,), draft.environment, (*draft.unsaid, *said), reads)


def _manifest(asked: Asked, draft: Draft) -> tuple[str, list[str]]:
    import yaml

    engine, said = asked.scenario.serve.engine, []
    port = _PORTS[engine]
    name = _name(asked.model)
    words = [*draft.words, *(["--host", "0.0.0.0", "--port", str(port)])]
    skipped = {"vllm": 2, "sglang": 3, "llama.cpp": 1}[engine]
    container: dict[str, object] = {"name": name, "image": _image(asked)}
    if engine != "llama.cpp":  # whose image starts the server by its entrypoint
        container["command"] = words[:skipped]
    container["args"] = words[skipped:]
    environment: list[dict[str, object]] = [{"name": key, "value": value} for key, value in draft.environment.items()]
    token = {"secretKeyRef": {"name": "hf-token", "key": "token", "optional": True}}
    container["env"] = [*environment, {"name": "HF_TOKEN", "valueFrom": token}]
    container["ports"] = [{"containerPort": port}]
    gpus = _gpus(asked)
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    mounts = [{"name": "cache", "mountPath": _CACHES.get(engine, _CACHE)}]
    volumes: list[dict[str, object]] = [{"name": "cache", "emptyDir": {}}]
    if engine != "llama.cpp":
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


def _gpus(asked: Asked) -> int:
    """GPUs of the pod: all that the engine's layout takes, or those that the scenario counts."""
    if asked.scenario.serve.engine == "llama.cpp":
        return asked.scenario.num_gpus
    sizes = [asked.settings.get(f"{kind}_parallel_size") for kind in ("tensor", "pipeline", "data")]
    found = 1
    for size in sizes:
        found *= size if isinstance(size, int) else 1
    return found


def _image(asked: Asked) -> str:
    settings = asked.scenario.serve
    version = settings.engine_version if "engine_version" in settings.explicit else None
    if settings.engine == "vllm":
        return f"vllm/vllm-openai:v{version}" if version else "vllm/vllm-openai:latest"
    if settings.engine == "sglang":
        return f"lmsysorg/sglang:v{version}" if version else "lmsysorg/sglang:latest"
    tag = f"server-cuda-{version}" if version and re.fullmatch(r"b\d+", version) else "server-cuda"
    return f"ghcr.io/ggml-org/llama.cpp:{tag}"


def _name(model: str) -> str:
    """A name that Kubernetes takes (RFC 1123): lower case, digits and dashes, at most 63."""
    plain = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].removesuffix(".gguf").lower()).strip("-")
    return (plain[:50].strip("-") or "model") + "-server"
