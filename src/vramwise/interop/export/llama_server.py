"""`llama-server -m FILE …` of llama.cpp and ik_llama.cpp, by the table that the reader of that command has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from vramwise.engines import engine_named
from vramwise.errors import VramwiseError
from vramwise.hardware import find_gpu
from vramwise.interop.export.draft import Asked, Draft
from vramwise.interop.export.flag_words import flag_words
from vramwise.interop.launch.llama_cpp import MEANINGS
from vramwise.scenario import Scenario

_BACKENDS = {"NVIDIA": "CUDA", "AMD": "ROCm", "Intel": "SYCL"}  # llama-server --list-devices
_OFF = {"kv_unified": "--no-kv-unified", "mmproj_offload": "--no-mmproj-offload", "fused_moe": "--no-fused-moe"}


def as_llama_server_does(scenario: Scenario) -> Scenario:
    """The length of a request as the context that llama.cpp is given; where it is not stated, logits as the server
    keeps them: those of a slot's last token, whatever the library's other programs do."""
    serve = scenario.serve
    if not engine_named(serve.engine).reads_gguf:
        return scenario
    settled: dict[str, object] = {}
    if "max_model_len" in serve.explicit and "n_ctx" not in serve.explicit:
        settled |= {"max_model_len": None, "n_ctx": serve.max_model_len}
    if not {"logits_all", "engine_version"} & serve.explicit:
        settled["logits_all"] = False
    return scenario.replace(serve=serve.replace(**settled)).checked() if settled else scenario


def write(asked: Asked) -> Draft:
    """The command of a scenario whose engine is llama.cpp."""
    stated = asked.stated()
    unsaid: list[str] = []
    off = [flag for key, flag in _OFF.items() if stated.get(key) in (False, 0) and key in stated]
    said = {key: value for key, value in stated.items() if key != "fused_moe" and not (key in _OFF and value is False)}
    words = ["llama-server", *_model(asked.model, stated.get("gguf_quant"), unsaid)]
    words += flag_words("llama.cpp", MEANINGS, said)
    words += off
    if stated.get("fused_moe"):
        words.append("--fused-moe")
    for key, flag in (("n_ctx", "--ctx-size"), ("n_gpu_layers", "--n-gpu-layers")):
        if key in stated:
            words += [flag, str(stated[key])]
    rules = stated.get("override_tensor")
    for rule in rules if isinstance(rules, list | tuple) else ():
        words += ["--override-tensor", str(rule)]
    drafts = stated.get("speculative")
    if isinstance(drafts, Mapping):
        words += _draft(drafts, unsaid)
    words += _devices(asked.scenario, "tensor_split" in stated)
    return Draft(tuple(words), unsaid=tuple(unsaid))


def _model(model: str, kind: object, unsaid: list[str]) -> list[str]:
    """The file, or the repository that the name is, or the file's usual name."""
    if os.path.exists(model) or model.lower().endswith(".gguf"):
        return ["-m", model]
    repository, _, own = model.partition(":")
    if repository.lower().endswith("gguf") and "/" in repository:
        named = own or (str(kind) if kind else "")
        return ["-hf", f"{repository}:{named}" if named else repository]
    file = f"{model.rpartition('/')[2]}{f'-{kind}' if kind else ''}.gguf"
    unsaid.append(f"model: {file} stands for your own GGUF file of {model}")
    return ["-m", file]


def _draft(drafts: Mapping[str, object], unsaid: list[str]) -> list[str]:
    model = drafts.get("model")
    caches = [
        word
        for key, flag in (("cache_type_k", "--spec-draft-type-k"), ("cache_type_v", "--spec-draft-type-v"))
        if key in drafts
        for word in (flag, str(drafts[key]))
    ]
    if model is None:
        return caches
    words = _model(str(model), drafts.get("gguf_quant"), unsaid)
    flags = {"-m": "--model-draft", "-hf": "--hf-repo-draft"}
    layers = drafts.get("n_gpu_layers")
    return [flags[words[0]], words[1], *(["--gpu-layers-draft", str(layers)] if layers is not None else []), *caches]


def _devices(scenario: Scenario, is_split: bool) -> list[str]:
    """Which devices run it, by the names that the card's backend gives them; a split names them already."""
    if is_split or "num_gpus" not in scenario.explicit:
        return []
    if not scenario.num_gpus:
        return ["--device", "none"]
    backend = _BACKENDS["NVIDIA"]
    if scenario.gpu is not None:
        with suppress(VramwiseError):
            backend = _BACKENDS.get(find_gpu(scenario.gpu).gpu.vendor, backend)
    return ["--device", ",".join(f"{backend}{index}" for index in range(scenario.num_gpus))]
