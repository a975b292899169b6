"""KubeAI's models: an engine, the URL of its model and arguments, as manifests and as values of its chart of models.

Read in substratusai/kubeai 2f32ef4: api/k8s/v1/model_types.go, internal/modelcontroller/engine_vllm.go (the engine's
arguments behind `--model`, `--enable-lora` where adapters are named), engine_ollama.go (`ollama run`),
model_source.go (URLs), charts/models/templates/models.yaml (`catalog`, of which the enabled are made),
charts/kubeai/values.yaml (resource profiles, each of one GPU of the name that it ends in).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

from vramwise.engines.ollama import RECORD as OLLAMA
from vramwise.engines.vllm import RECORD as VLLM
from vramwise.errors import VramwiseError, clipped
from vramwise.interop.files.programs import Program
from vramwise.interop.files.tables import Table, table_in, tables_in
from vramwise.interop.launch.options import NO_EFFECT

_READ = frozenset({"url", "engine", "args", "env", "adapters", "resourceProfile", "enabled"})
_ON_GPUS = ("nvidia-gpu-", "amd-gpu-")
_IN_THE_CLUSTER = ("pvc",)


def kubeai_model(document: object, name: str) -> list[Program] | None:
    """The engine of a `Model` of kubeai.org; None for other documents."""
    if not isinstance(document, Mapping) or document.get("kind") != "Model":
        return None
    if not str(document.get("apiVersion") or "").startswith("kubeai.org/"):
        return None
    return _programs(table_in(document.get("spec")), name)


def catalog_programs(table: Table) -> list[Program]:
    """The models that the values enable; of values that enable none, as the chart's own, every one."""
    catalog = {str(name): table_in(one) for name, one in table_in(table.get("catalog")).items()}
    enabled = {name: one for name, one in catalog.items() if one.get("enabled") is True}
    everything = table_in(table.get("all")).get("enabled") is True
    taken = catalog if everything or not enabled else enabled
    return [program for name, spec in taken.items() for program in _programs(spec, name)]


def _programs(spec: Table, name: str) -> list[Program]:
    """None for what is neither vLLM nor ollama: KubeAI's speech and embedding servers."""
    engine = str(spec.get("engine") or "").lower()
    written = _ENGINES.get(engine)
    if written is None:
        return []
    variables = [f"{key}={value}" for key, value in table_in(spec.get("env")).items()]
    card, said = _card(str(spec.get("resourceProfile") or ""))
    passed = [clipped(str(key), 40) for key in spec if key not in _READ]
    notes = [f"{NO_EFFECT}{', '.join(passed)} (each replica needs this much)"] if passed else []
    return [Program(name, (*variables, *written(spec)), (*said, *notes), card)]


def _of_vllm(spec: Table) -> tuple[str, ...]:
    scheme, reference, _ = _url(spec)
    model = reference if scheme == "hf" else str(spec.get("url") or "")
    if scheme in _IN_THE_CLUSTER:
        model = "/model"
    adapted = ("--enable-lora",) if tables_in(spec.get("adapters")) else ()
    return (VLLM.name, "serve", model, *adapted, *_words(spec.get("args")))


def _of_ollama(spec: Table) -> tuple[str, ...]:
    scheme, reference, named = _url(spec)
    return (OLLAMA.name, "run", named if scheme in _IN_THE_CLUSTER else reference)


_ENGINES: Mapping[str, Callable[[Table], tuple[str, ...]]] = {VLLM.name: _of_vllm, OLLAMA.name: _of_ollama}


def _url(spec: Table) -> tuple[str, str, str]:
    """Scheme, what stands behind it, and the model that a query names within a volume."""
    scheme, _, rest = str(spec.get("url") or "").partition("://")
    reference, _, query = rest.partition("?")
    return scheme, reference, (parse_qs(query).get("model") or [""])[0]


def _card(profile: str) -> tuple[dict[str, object], tuple[str, ...]]:
    """The card of `nvidia-gpu-l4:2`; what runs on none is said."""
    from vramwise.hardware import find_gpu

    name = profile.rpartition(":")[0] or profile
    start = next((one for one in _ON_GPUS if name.startswith(one)), None)
    if start is None:
        said = f"resourceProfile {clipped(profile, 40)} names no card known here: the numbers are those of a GPU"
        return {}, (said,) if profile else ()
    try:
        return {"gpu": find_gpu(name.removeprefix(start)).gpu.id}, ()
    except VramwiseError:
        return {}, ()


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list) else ()
