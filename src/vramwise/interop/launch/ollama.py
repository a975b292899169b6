"""`ollama run NAME[:TAG]`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vramwise.errors import UsageError
from vramwise.interop.launch.command import Launch, Start, one_model
from vramwise.interop.launch.values import switch, whole
from vramwise.sources.gguf_names import model_of_repository
from vramwise.sources.ollama_library import library_model

_VALUED = frozenset({"--format", "--keepalive", "--think", "--dimensions"})  # ollama cmd/cmd.go

_DONE = frozenset({"ollama", "run", "pull", "show", "launch"})


def read(start: Start) -> Launch:
    """The scenario of an ollama command: name and tag, and the variables that move memory.

    A vision model's projector is part of its file, and ollama loads it (llm/llama_server.go appendMMProjArgs).
    Raises UsageError without a model's name.
    """
    named = one_model("ollama", _named(start.words), "ollama run NAME (ollama serve loads what is asked for later)")
    settings: dict[str, object] = {"engine": "ollama"}
    kind: str | None
    notes: tuple[str, ...] = ()
    if named.startswith(("hf.co/", "huggingface.co/")):
        model, kind = model_of_repository(named.partition("/")[2])
    else:
        found = library_model(re.sub(r"^(?:registry\.ollama\.ai/)?library/", "", named, flags=re.I))
        model, kind, notes = found.model, found.gguf_quant, (found.note,)
    if kind is not None:
        settings["gguf_quant"] = kind
    _environment(start.environment, settings)
    if not model:
        raise UsageError("ollama: expected a name such as llama3.1:8b")
    return Launch("ollama", {"model": model, "task": "serve", "serve": settings}, notes)


def _named(words: Sequence[str]) -> str | None:
    """The first word that is neither a flag, a flag's value nor what is done with the model (`pull`, `launch APP`); the
    container of `docker exec ollama ollama run NAME` is passed over too."""
    after = ""
    launched = False
    for word in words:
        if launched and after == "--model":
            return word
        if not (launched or word.startswith("-") or after in _VALUED or word in _DONE):
            return word
        launched = launched or word == "launch"
        after = word
    return None


def _environment(given: Mapping[str, str], settings: dict[str, object]) -> None:
    """Variables that move memory; the context is that of one slot."""
    slots = _number(given, "OLLAMA_NUM_PARALLEL")
    context = _number(given, "OLLAMA_CONTEXT_LENGTH")
    if slots:
        settings["n_parallel"] = slots
    if context:
        settings["n_ctx"] = context * (slots or 1)
    kind = given.get("OLLAMA_KV_CACHE_TYPE")
    if kind:
        settings["cache_type_k"] = settings["cache_type_v"] = kind.lower()
    if given.get("OLLAMA_FLASH_ATTENTION"):
        settings["flash_attn"] = switch(given["OLLAMA_FLASH_ATTENTION"])


def _number(given: Mapping[str, str], variable: str) -> int | None:
    try:
        return whole(given[variable]) if given.get(variable) else None
    except UsageError as problem:
        raise UsageError(f"{variable}: {problem}") from None
