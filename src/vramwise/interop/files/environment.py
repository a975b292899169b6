"""A file of variables alone (`.env`): those that stand for an engine's whole command, and what else to give.

llama.cpp's server starts by `LLAMA_ARG_…` alone, text-generation-inference by `MODEL_ID` and its other flags' names;
what `OLLAMA_…` sets holds for whatever model is asked for, which the file does not say.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from vramwise.errors import UsageError, clipped
from vramwise.interop.files.compose_variables import variables_of
from vramwise.interop.files.given import Given
from vramwise.interop.files.programs import Program
from vramwise.interop.launch.flags import flags_of

_NAME = re.compile(r"(?:.*\.)?env(?:\.[\w-]{1,40})?|.*\.env", re.I)
_LINE = re.compile(r"\s*(?:(?:#.*)?|(?:export\s+)?[A-Za-z_]\w*\s*=.*)")
_MODELS_OF_LLAMA_CPP = ("LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_MODEL_URL", "LLAMA_ARG_HF_FILE")
_ANYBODYS = frozenset({"API_KEY", "DTYPE", "ENV", "HOSTNAME", "HUGGINGFACE_HUB_CACHE", "KV_CACHE_DTYPE", "MASTER_ADDR",
                       "MASTER_PORT", "MAX_BATCH_SIZE", "PORT", "REVISION", "TRUST_REMOTE_CODE"})  # fmt: skip
"""Names of flags of text-generation-inference that files of other services have beside a MODEL_ID too."""
_SHOWN = 8


def is_of_variables(given: Given) -> bool:
    """Whether it is a file of variables, by its name and its lines."""
    if not _NAME.fullmatch(given.name):
        return False
    lines = given.text.splitlines()
    return any("=" in line for line in lines) and all(_LINE.fullmatch(line) for line in lines)


def variable_programs(given: Given) -> list[Program]:
    """The engine that the variables start. Raises UsageError that says what to give beside them."""
    variables = variables_of(given.text)
    own = tuple(f"{name}={value}" for name, value in variables.items())
    stem = PurePath(given.path).stem
    if any(name in variables for name in _MODELS_OF_LLAMA_CPP):
        return [Program(stem, (*own, "llama-server"))]
    flags = flags_of("tgi")
    own_names = variables.keys() - _ANYBODYS - {"MODEL_ID"}
    if "MODEL_ID" in variables and any(f"--{name.lower().replace('_', '-')}" in flags for name in own_names):
        return [Program(stem, (*own, "text-generation-launcher"))]
    if any(name.startswith("OLLAMA_") for name in variables):
        return [Program(stem, (*own, "ollama", "serve"))]
    named = ", ".join(clipped(name, 40) for name in list(variables)[:_SHOWN])
    hint = "give the Compose file, script or unit that uses them, or a command: vramwise estimate -- vllm serve MODEL"
    alone = f"sets variables alone ({named})" if named else "has every variable in a comment"
    raise UsageError(f"{clipped(given.name)} {alone} and starts nothing: {hint}")
