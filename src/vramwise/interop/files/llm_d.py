"""llm-d: the decode and prefill pods that values of its chart of models (`llm-d-modelservice`) make.

Read in llm-d-incubation/llm-d-modelservice 3051935 charts/llm-d-modelservice/templates/_helpers.tpl: `modelCommand`
(`vllmServe`, `imageDefault`, `custom` where it is left out), the model by its URI's scheme, tensor and data parallelism
before a container's own arguments, TP_SIZE, DP_SIZE and DP_SIZE_LOCAL in its environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vramwise.engines.vllm import RECORD as VLLM
from vramwise.interop.files.programs import Program, programs_in_words
from vramwise.interop.files.tables import Table, table_in, tables_in, texts_in

_ROLES = ("decode", "prefill")
_TEMPLATE = re.compile(r'"?\{\{-?\s*\.Values\.modelArtifacts\.name\s*-?\}\}"?')
_OWN_COMMAND = "custom"


def model_service_programs(table: Table) -> list[Program]:
    """One program for each role that is created; its replicas need as much each."""
    model = _model(table_in(table.get("modelArtifacts")))
    return [one for role in _ROLES for one in _of_role(role, table_in(table.get(role)), model)]


def _model(artifacts: Table) -> str:
    """The hub's name; of weights in a volume the one that they are served by."""
    name = str(artifacts.get("name") or "")
    scheme, _, place = _TEMPLATE.sub(name, str(artifacts.get("uri") or "")).partition("://")
    if scheme == "hf":
        return place
    return "/".join(place.split("/")[-2:]) if scheme == "pvc+hf" else name


def _of_role(role: str, given: Table, model: str) -> Iterator[Program]:
    if given.get("create") is False:
        return
    layout = table_in(given.get("parallelism"))
    tensor, data, local, hosts = (_count(layout.get(key)) for key in ("tensor", "data", "dataLocal", "workers"))
    tensor, hosts = tensor or 1, hosts or 1
    data, local = data or (local * hosts or 1), local or data // hosts or 1
    sizes = {"TP_SIZE": str(tensor), "DP_SIZE": str(data), "DP_SIZE_LOCAL": str(local)}
    for container in tables_in(given.get("containers")):
        own = [word for key in ("command", "args") for word in texts_in(container.get(key))]
        if str(container.get("modelCommand") or _OWN_COMMAND) != _OWN_COMMAND:
            flags = {"tensor-parallel-size": tensor, "data-parallel-size": data, "data-parallel-size-local": local}
            cut = [word for flag, count in flags.items() if count > 1 for word in (f"--{flag}", str(count))]
            own = [VLLM.name, "serve", model, *cut, *texts_in(container.get("args"))]
        variables = tables_in(container.get("env"))
        environment = sizes | {str(one.get("name")): str(one["value"]) for one in variables if "value" in one}
        yield from programs_in_words(own, environment, role, image=str(container.get("image") or ""))


def _count(value: object) -> int:
    """A number of ranks, 0 where none is stated."""
    return int(value) if isinstance(value, int | str) and str(value).isdecimal() and len(str(value)) < 5 else 0
