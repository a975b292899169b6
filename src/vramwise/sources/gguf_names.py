"""Names of GGUF files and repositories: the model and the file type that they tell."""

from __future__ import annotations

import re

from vramwise.sources.quantized_names import OWN_GGUF_TYPES

_PART = re.compile(r"-\d{5}-of-\d{5}$")
_TYPE = re.compile(
    r"[-._]((?:UD-|APEX-|dynamic-)?(?:IQ\d|Q\d|TQ\d|BF16|F16|F32|FP16|FP32|MXFP4|NVFP4)[A-Za-z0-9_]*)$", re.I
)


def file_type_named(text: str) -> str | None:
    """The file type that a word means; `custom` for mixes of other makers (UD-Q4_K_XL), None for no type."""
    found = OWN_GGUF_TYPES.get(text.upper())
    if found is not None:
        return found
    return "custom" if _TYPE.search(f"-{text}") else None


def mix_named(text: str) -> str | None:
    """What a file's or repository's name calls a mix of its maker's own (UD-Q4_K_XL), None where it calls none."""
    name, _, kind = text.rpartition("/")[2].rpartition(":")
    match = _TYPE.search(f"-{kind}" if name else _PART.sub("", re.sub(r"[-_.]?gguf$", "", kind, flags=re.I)))
    found = match.group(1) if match is not None else None
    return found if found is not None and file_type_named(found) == "custom" else None


def model_of_file(path: str) -> tuple[str, str | None]:
    """Model and file type from a file's name: `Llama-3.1-8B-Instruct-Q4_K_M.gguf`."""
    name = re.split(r"[\\/]", path)[-1]
    name = _PART.sub("", name[:-5] if name.lower().endswith(".gguf") else name)
    match = _TYPE.search(name)
    if match is None:
        return name, None
    return name[: match.start()], file_type_named(match.group(1))


def model_of_repository(text: str) -> tuple[str, str | None]:
    """Model and file type from `USER/MODEL-GGUF:TYPE`."""
    name, _, kind = text.partition(":")
    plain = re.sub(r"[-_.]gguf$", "", name, flags=re.I)
    short, from_name = model_of_file(plain.rpartition("/")[2])
    return short, file_type_named(kind) if kind else from_name
