"""KServe's InferenceService and LLMInferenceService: the engine that their templates start, with the model they name.

Read in kserve/kserve 0.18: config/llmisvcconfig/config-llm-template.yaml and config-llm-worker-data-parallel.yaml
(`vllm serve` with VLLM_ADDITIONAL_ARGS behind the layout), python/huggingfaceserver, whose arguments are its own and
vLLM's; in aaac4e294 pkg/controller/v1alpha2/llmisvc workload_lora.go (adapters of the model, before the container's own
arguments) and config_merge.go (a cache on the host and disks through a connector).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vramwise.engines.vllm import RECORD as VLLM
from vramwise.errors import clipped
from vramwise.interop.files.pods import gpus_of
from vramwise.interop.files.programs import Program, programs_in_words
from vramwise.interop.files.tables import Table, table_in, tables_in

KINDS = frozenset({"InferenceService", "LLMInferenceService"})
_HUBS = {"hf": "", "modelscope": "modelscope://"}
_PLACE = "/mnt/models"
_OWN = frozenset({"--model_name", "--model_id", "--model_dir", "--backend", "--task", "--model_revision"})
_LAYOUT = {"tensor": "--tensor-parallel-size", "pipeline": "--pipeline-parallel-size", "data": "--data-parallel-size"}
_FORMATS = frozenset({"huggingface", VLLM.name})


def kserve_programs(document: object, name: str) -> list[Program] | None:
    """The engines of a service; None for a document that is none, or one whose containers say all themselves."""
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(kind, str) or kind not in KINDS:
        return None
    spec = table_in(document.get("spec"))
    if kind == "LLMInferenceService":
        named = table_in(spec.get("model"))
        adapted = _adapters(table_in(named.get("lora")))
        model = _model(named.get("uri"), ())
        if "://" in model and "/" in str(named.get("name") or ""):
            model = str(named["name"])  # the weights lie in a volume or a bucket, under the name they are served by
        parts = ((spec, name), (table_in(spec.get("prefill")), f"{name}-prefill"))
        return [one for part, called in parts if part.get("template") or part is spec
                for one in _of_template(part, model, called, adapted)]  # fmt: skip
    predictor = table_in(spec.get("predictor"))
    served = table_in(predictor.get("model"))
    return list(_of_predictor(served, predictor, name)) if served else None


_ADAPTERS = {"maxRank": "--max-lora-rank", "maxAdapters": "--max-loras", "maxCpuAdapters": "--max-cpu-loras"}


def _adapters(given: Table) -> list[str]:
    """What the controller puts before the container's own arguments: limits that are not stated are vLLM's."""
    if not tables_in(given.get("adapters")):
        return []
    return ["--enable-lora", *(f"{flag}={given[key]}" for key, flag in _ADAPTERS.items() if given.get(key) is not None)]


def _of_template(part: Table, model: str, name: str, adapted: Sequence[str]) -> Iterator[Program]:
    """`vllm serve` of one role; a command of its own replaces the template's, and takes no adapters' flags."""
    container = next(iter(tables_in(table_in(part.get("template")).get("containers"))), {})
    environment = _environment(container)
    additional = environment.pop("VLLM_ADDITIONAL_ARGS", "")
    own = [*_words(container.get("command")), *_words(container.get("args"))]
    adapted = [] if "--lora-modules" in " ".join((additional, *own)) else adapted
    if container.get("command"):
        words = [model if word == _PLACE else word.replace(f" {_PLACE}", f" {model}") for word in own]
    else:
        layout = table_in(part.get("parallelism"))
        cut = [word for key, flag in _LAYOUT.items() if layout.get(key) for word in (flag, str(layout[key]))]
        cut += ["--enable-expert-parallel"] if layout.get("expert") is True else []
        words = ["vllm", "serve", model, *cut, *_split(additional), *adapted, *own]
    offloaded = table_in(table_in(part.get("workload")).get("kvCacheOffloading"))
    notes = ("workload.kvCacheOffloading is not counted: its cache lies on the host and on disks",) if offloaded else ()
    for one in programs_in_words(words, environment, name, image=str(container.get("image") or "")):
        yield replace(one, notes=(*one.notes, *notes))


def _of_predictor(served: Table, predictor: Table, name: str) -> Iterator[Program]:
    """KServe's Hugging Face server: vLLM where it can run the model, by vLLM's own arguments."""
    kind = str(table_in(served.get("modelFormat")).get("name") or "").lower()
    arguments = [*_words(served.get("command")), *_words(served.get("args"))]
    if kind not in _FORMATS:
        return
    words, backend = _of_vllm(arguments)
    worker = table_in(predictor.get("workerSpec"))
    for key, flag in (
        ("tensorParallelSize", "--tensor-parallel-size"),
        ("pipelineParallelSize", "--pipeline-parallel-size"),
    ):
        words += [flag, str(worker[key])] if worker.get(key) else []
    model = _model(served.get("storageUri"), arguments)
    notes = (
        () if backend in ("", "auto", VLLM.name) else (f"--backend={clipped(backend)}: read as vLLM's all the same",)
    )
    gpus = gpus_of(served)
    for one in programs_in_words(["vllm", "serve", model, *words], _environment(served), name):
        yield Program(one.name, one.words, (*notes, *one.notes), {"num_gpus": gpus} if gpus else {}, {}, {})


def _of_vllm(arguments: Sequence[str]) -> tuple[list[str], str]:
    """vLLM's arguments among the server's, with dashes, and the backend that is asked for."""
    words: list[str] = []
    backend = after = ""
    for word in arguments:
        flag, sign, value = word.partition("=")
        if after and not word.startswith("--"):
            backend = backend or (word if after == "--backend" else "")
        elif flag in _OWN:
            backend = value if flag == "--backend" and sign else backend
        else:
            words.append(f"{flag.replace('_', '-') if flag.startswith('--') else flag}{sign}{value}")
        after = flag if flag in _OWN and not sign else ""
    return words, backend


def _model(uri: object, arguments: Sequence[str]) -> str:
    """`hf://ORG/NAME[:REVISION]`, else `--model_id` of the arguments; anything else as it stands."""
    for place, word in enumerate(arguments):
        flag, sign, value = word.partition("=")
        if flag in ("--model_id", "--model-id"):
            return value if sign else arguments[place + 1] if place + 1 < len(arguments) else ""
    hub, mark, rest = str(uri or "").partition("://")
    if mark and hub in _HUBS:
        name, colon, revision = rest.partition(":")
        return f"{_HUBS[hub]}{name}@{revision}" if colon else f"{_HUBS[hub]}{name}"
    return str(uri or "")


def _environment(container: Table) -> dict[str, str]:
    return {str(one.get("name")): str(one["value"]) for one in tables_in(container.get("env")) if "value" in one}


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else [value] if isinstance(value, str) else []
