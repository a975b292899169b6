"""Inference engines, one record each: NAME.py says what NAME does, and nothing else asks for its name.

`-` and `.` of a name are `_` in its file's. The record is the file's `RECORD`; what has a file is an engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from vramwise import come_when_asked_for, names_of_files

if TYPE_CHECKING:
    from vramwise.engines.engine import CommandLine, Container, Engine, Log, Shortage
else:
    __getattr__ = come_when_asked_for(
        __name__, dict.fromkeys(("CommandLine", "Container", "Engine", "Log", "Shortage"), "engine")
    )

__all__ = [
    "DEFAULT",
    "ENGINES",
    "PLAIN",
    "CommandLine",
    "Container",
    "Engine",
    "Log",
    "Shortage",
    "added_engines",
    "engine_named",
    "engine_of_files",
    "engine_titled",
    "engines",
    "module_of",
]

_KNOWN_FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": (),
    "sglang": (),
    "llama.cpp": ("llamacpp", "llama-cpp"),
    "tensorrt-llm": ("trt-llm",),
    "tgi": ("text-generation-inference",),
    "ollama": (),
    "mlx": ("mlx-lm",),
    "transformers": ("hf",),
}
_NO_RECORDS: Final = ("engine", *(re.sub("[-.]", "_", name) for name in _KNOWN_FIRST))

ENGINES: Final[Mapping[str, tuple[str, ...]]] = {
    **_KNOWN_FIRST, **dict.fromkeys(names_of_files("engines", but=_NO_RECORDS), ()),
}  # fmt: skip
"""Every engine with other spellings of its name, the default first."""

DEFAULT: Final = next(iter(ENGINES))

_OF_FILES = re.compile(r"gguf|mlx|:|q\d", re.I)  # without these no engine's `model_names` fits, and none is imported

PLAIN: Final = "transformers"
"""What runs a model where no engine is named: the library itself."""


@cache
def engine_named(name: str) -> Engine:
    """The record of an engine by its name in a scenario; its file is imported when it is first asked for."""
    module = f"vramwise.engines.{module_of(name)}" if name in ENGINES else added_engines()[name]
    record: Engine = import_module(module).RECORD
    return record


def added_engines() -> dict[str, str]:
    """Engines of plug-ins, each with its record's module."""
    from vramwise import plugins

    return plugins.engines(ENGINES)


def engines() -> Iterator[Engine]:
    """Every record of this package, in the order of their names."""
    return (engine_named(name) for name in ENGINES)


def engine_of_files(model: object) -> Engine | None:
    """The engine whose files a model's name means (`…-GGUF:Q4_K_M`, `qwen3:8b-q8_0`, `mlx-community/…`), else None."""
    if isinstance(model, Mapping) and "gguf_tensors" in model:  # what a file's header told
        return next(engine for engine in engines() if engine.reads_gguf)
    if not isinstance(model, str) or not _OF_FILES.search(model):
        return None
    patterns = ((engine, engine.model_names) for engine in engines())
    return next((one for one, names in patterns if names is not None and names.fullmatch(model.strip())), None)


def engine_titled(title: str) -> Engine | None:
    """The record of an engine by what its makers call it."""
    return next((engine for engine in engines() if engine.title == title), None)


def module_of(name: str) -> str:
    """What an engine's files are called: here, and those that read its command lines and logs."""
    return name.replace("-", "_").replace(".", "_")
