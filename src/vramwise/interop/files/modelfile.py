"""ollama's Modelfile: its base and the parameters that move memory (docs/modelfile.mdx of ollama).

`FROM` names a model of ollama's library, a repository, or a GGUF file, a second one its projector; `PARAMETER num_ctx`,
`num_gpu` and `num_batch` are the runner's own; `ADAPTER` is a LoRA. Text in quotes goes on over lines
(parser/parser.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from vramwise.errors import clipped
from vramwise.files import is_there
from vramwise.interop.files.given import Given
from vramwise.interop.files.programs import Program
from vramwise.interop.launch.adapters import RANK_ASSUMED

_COUNTED = {"num_ctx": "-c", "num_gpu": "-ngl", "num_batch": "-b"}
_SHOWN = re.compile(r"(?m)^#[ \t]*FROM[ \t]+(\S+)[ \t]*$")
_BLOB = re.compile(r"(?:.*[\\/])?blobs[\\/]sha256[-:][0-9a-f]+")


def modelfile_programs(given: Given) -> list[Program]:
    """The model that a Modelfile makes, as ollama runs it, or as llama-server where its base is a GGUF file."""
    bases: list[str] = []
    adapters: list[str] = []
    parameters: dict[str, str] = {}
    passed: list[str] = []
    for name, value in _commands(given.text):
        if name == "FROM":
            bases.append(value)
        elif name == "ADAPTER":
            adapters.append(value)
        elif name == "DRAFT":
            passed.append(name)
        elif name.startswith("PARAMETER "):
            parameter = name.removeprefix("PARAMETER ")
            if parameter.lower() in _COUNTED:
                parameters[parameter.lower()] = value
            else:
                passed.append(parameter)
    if not bases:
        return []
    notes = _passed_over(passed)
    base, note = _base(bases[0], given.text)
    notes += [note] if note else []
    if _is_gguf(base):
        return [Program("", _llama_server(base, bases[1:], adapters, parameters), tuple(notes))]
    notes += [f"read from it: {', '.join(parameters)}"] if parameters else []
    notes += [f"ADAPTER: {len(adapters)} {RANK_ASSUMED}"] if adapters else []
    notes += [f"a further FROM is taken as the model's own projector: {clipped(one)}" for one in bases[1:]]
    settings = _settings(parameters, adapters)
    variables = [f"OLLAMA_CONTEXT_LENGTH={parameters['num_ctx']}"] if "num_ctx" in parameters else []
    return [Program("", (*variables, "ollama", "run", base), tuple(notes), serve=settings)]


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Names and values; a parameter's own name stands behind `PARAMETER`. What is in quotes ends where a line does."""
    lines = iter(text.splitlines())
    for line in lines:
        name, _, value = line.strip().replace("\t", " ").partition(" ")
        name, value = name.upper(), value.strip()
        if name in ("PARAMETER", "MESSAGE"):
            inner, _, value = value.partition(" ")
            name, value = f"{name} {inner}", value.strip()
        if name.startswith("#") or not value:
            continue
        quotes = next((mark for mark in ('"""', '"') if value.startswith(mark)), "")
        is_open = bool(quotes) and not (len(value) >= 2 * len(quotes) and value.endswith(quotes))
        while is_open:
            further = next(lines, quotes)
            is_open = not further.rstrip().endswith(quotes)
        yield name, value.removeprefix(quotes).removesuffix(quotes)


def _passed_over(names: list[str]) -> list[str]:
    quiet = list(dict.fromkeys(clipped(name) for name in names if name != "DRAFT"))
    notes = [f"parameters without effect on memory: {', '.join(quiet)}"] if quiet else []
    return notes + (["DRAFT is not counted: a draft model's weights and cache"] if "DRAFT" in names else [])


def _base(named: str, text: str) -> tuple[str, str]:
    """The base, and a note where it is a blob of another machine: `ollama show` names its model in a comment."""
    if not _BLOB.fullmatch(named) or is_there(named):
        return named, ""
    shown = _SHOWN.search(text)
    if shown is None:
        return named, ""
    return shown[1], f"FROM is a blob that is not here: taken as {clipped(shown[1])}, which a comment names"


def _is_gguf(base: str) -> bool:
    return PurePosixPath(base).suffix.lower() == ".gguf" or (bool(_BLOB.fullmatch(base)) and is_there(base))


def _llama_server(base: str, projectors: list[str], adapters: list[str], parameters: dict[str, str]) -> tuple[str, ...]:
    words = ["llama-server", "-m", base]
    words += [word for one in projectors[:1] for word in ("--mmproj", one)]
    words += [word for one in adapters for word in ("--lora", one)]
    words += [word for name, value in parameters.items() for word in (_COUNTED[name], value)]
    return tuple(words)


def _settings(parameters: dict[str, str], adapters: list[str]) -> dict[str, object]:
    """Keys of `serve` that `ollama run` has no flag for (llm/llama_server.go: -ngl, -b, -ub); -1 is its own choice."""
    settings: dict[str, object] = {}
    for name, key in (("num_gpu", "n_gpu_layers"), ("num_batch", "n_batch")):
        if parameters.get(name, "").isdecimal():
            settings[key] = int(parameters[name])
    if parameters.get("num_gpu") == "0":
        settings["mmproj_offload"] = False  # shouldDisableMMProjOffload: "cpu-only"
    if adapters:
        settings["max_loras"] = len(adapters)
    return settings
