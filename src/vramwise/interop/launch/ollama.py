"""`ollama run NAME[:TAG]`."""

from __future__ import annotations

import re
from typing import Any

from vramwise.errors import UsageError
from vramwise.interop.launch.command import Launch, Start, one_model
from vramwise.interop.launch.gguf_names import file_type_named, model_of_repository
from vramwise.interop.launch.values import whole

_TYPE_IN_TAG = re.compile(r"(?:^|-)(i?q\d\w*|fp16|f16|bf16)$", re.I)


def read(start: Start) -> Launch:
    """The scenario of an ollama command: name and tag, and the two variables that move memory."""
    named = next((word for word in start.words if not word.startswith("-")), None)
    named = one_model("ollama", named, "ollama run NAME")
    settings: dict[str, Any] = {"engine": "ollama"}
    if named.startswith(("hf.co/", "huggingface.co/")):
        model, kind = model_of_repository(named.partition("/")[2])
    else:
        model, kind = _of_tag(named.rpartition("/")[2])
    if kind is not None:
        settings["gguf_quant"] = kind
    for variable, key in (("OLLAMA_CONTEXT_LENGTH", "n_ctx"), ("OLLAMA_NUM_PARALLEL", "n_parallel")):
        if start.environment.get(variable):
            settings[key] = whole(start.environment[variable])
    if start.environment.get("OLLAMA_KV_CACHE_TYPE"):
        settings["cache_type_k"] = settings["cache_type_v"] = start.environment["OLLAMA_KV_CACHE_TYPE"]
    if not model:
        raise UsageError("ollama: expected a name such as llama3.1:8b")
    return Launch("ollama", {"model": model, "task": "serve", "serve": settings}, ())


def _of_tag(name: str) -> tuple[str, str | None]:
    """`llama3.1:8b-instruct-q4_K_M` is the words llama 3.1 8b instruct and Q4_K_M."""
    family, _, tag = name.partition(":")
    match = _TYPE_IN_TAG.search(tag)
    kind = file_type_named(match.group(1)) if match else None
    tag = tag[: match.start()] if match else tag
    words = re.sub(r"([a-z])(\d)", r"\1 \2", family.lower())
    tag = "" if tag == "latest" else tag.replace("-", " ")
    return " ".join(f"{words} {tag}".split()), kind
