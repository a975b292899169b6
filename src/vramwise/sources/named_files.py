"""Models whose files a name tells with their type: repositories of GGUF files, and tags of ollama's library."""

from __future__ import annotations

import re
from dataclasses import replace

from vramwise.errors import Doubt, UsageError, clipped
from vramwise.scenario.names import GGUF_QUANT_OF_BITS
from vramwise.sources.catalog import written_behind_organisation
from vramwise.sources.gguf_names import file_type_named
from vramwise.sources.known_names import known, meant, spelled_alike
from vramwise.sources.ollama_library import QAT_TYPE, LibraryModel, library_model, type_of_tag
from vramwise.sources.quantized_names import OWN_GGUF_TYPES, nearest_type
from vramwise.sources.repository import ModelSource

_GGUF = re.compile(
    r"(?P<base>.+?)(?P<qat>-qat)?(?:[-_.](?P<type>I?Q\d\w*|MXFP4|BF16|F16|F32))?(?:[-_.]i1)?[-_.]GGUF(?::(?P<pick>[\w.-]+))?",
    re.IGNORECASE,
)
_WORDS = re.compile(r"(?P<base>[^/:]+?)[\s-]+(?P<type>gguf|i?q\d(?:_\w+)?)", re.IGNORECASE)


def of_gguf_files(name: str) -> ModelSource | None:
    """The known model whose GGUF files a repository of that name holds (`unsloth/Qwen3-8B-GGUF:Q4_K_M`), else None.

    A mix of its maker's own (UD-Q4_K_XL) is taken as llama.cpp's nearest type, and the note says so.
    """
    match = _GGUF.fullmatch(name)
    base = _model_called(match["base"]) if match is not None else None
    if match is None or base is None:
        return None
    stated = match["pick"] or match["type"] or (QAT_TYPE if match["qat"] else None)
    if stated is not None and stated.lower().endswith(".gguf"):
        stated = _type_in_file(stated)
    return _as_files(name, base, stated)


def of_words(name: str) -> ModelSource | None:
    """The known model of a name that people end with the type of its files (`llama 3.1 8b gguf`, `qwen3 8b q4`)."""
    match = _WORDS.fullmatch(name.strip())
    if match is None:
        return None
    inner = of_words(match["base"])
    base = inner or known(match["base"]) or meant(match["base"])
    if base is None:
        return None
    stated = GGUF_QUANT_OF_BITS.get(match["type"].lower(), match["type"]) if match["type"].lower() != "gguf" else None
    stated = stated or (inner.gguf_quant if inner is not None else None)
    return replace(_as_files(name, base, stated), others=base.others)


def of_a_tag(name: str) -> ModelSource | None:
    """The known model of a tag of ollama's library that names the type of its file (`qwen3:30b-a3b-q4_K_M`), or of a
    name with a type behind it (`qwen3-8b:Q4_K_M`)."""
    if "/" in name or ":" not in name:
        return None
    level = re.search(r"[:-](q\d)$", name.lower())
    try:
        stated = GGUF_QUANT_OF_BITS.get(level[1]) if level is not None else type_of_tag(name.partition(":")[2].lower())
    except UsageError:
        return None
    if stated is None:
        return None
    plain = re.sub(r"[-:][^-:]+$", "", name)  # llama3.1:8b-instruct of llama3.1:8b-instruct-q8_0
    base = (known(plain) or meant(plain)) if ":" in plain else None
    listed = _listed(name)
    if base is None or base.others:
        base = known(listed.model) if listed is not None else base
    if base is None and ":" not in plain:
        base = known(plain) or meant(plain)
    return None if base is None else _as_files(name, base, stated)


def of_the_library(name: str) -> ModelSource | None:
    """The known model that a name of ollama's library with a tag stands for (`phi4:14b`), else None."""
    listed = _listed(name) if "/" not in name and ":" in name else None
    base = known(listed.model) if listed is not None else None
    if base is None:
        return None
    return replace(base, note=Doubt(f'"{clipped(name)}" taken as {base.id}, as in ollama\'s library'))


def _listed(name: str) -> LibraryModel | None:
    try:
        return library_model(name)
    except UsageError:
        return None


def _as_files(name: str, base: ModelSource, stated: str | None) -> ModelSource:
    files = f"{clipped(name)}: sizes of {base.id} in GGUF files, as its name says"
    if stated is None:
        return replace(base, note=files)
    own = OWN_GGUF_TYPES.get(stated.upper())
    nearest = own or nearest_type(stated)
    if nearest is None:
        return replace(base, note=f"{files}; {clipped(stated)} is no type that is known here")
    if own:
        return replace(base, gguf_quant=own, note=f"{files}, {own}")
    mix = f"{clipped(stated)} is a mix of its maker's own, whose size the file alone tells: taken as {nearest}"
    return replace(base, gguf_quant=nearest, note=f"{files}; {mix}, the nearest of llama.cpp's own")


def _model_called(base: str) -> ModelSource | None:
    """`bartowski/google_gemma-3-4b-it` writes the organisation of the model before an underscore."""
    short = base.rpartition("/")[2]
    for spelling in (short, short.partition("_")[2]):
        found = written_behind_organisation(spelling) if spelling else ()
        alike = found[0] if found else spelled_alike(spelling) if spelling else None
        if alike is not None:
            return known(alike[1])
    return None


def _type_in_file(file: str) -> str | None:
    """The type that a file's name ends in: UD-Q4_K_XL of Qwen3-8B-UD-Q4_K_XL.gguf."""
    stem = re.sub(r"(?:-\d{5}-of-\d{5})?\.gguf$", "", file, flags=re.I)
    found = re.search(r"[-_.]((?:UD-)?(?:I?Q\d\w*|MXFP4|BF16|F16|F32))$", stem, re.I)
    return found[1] if found is not None and file_type_named(found[1]) is not None else None
