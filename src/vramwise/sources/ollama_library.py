"""ollama's own library: the model, tensor types and default size behind NAME[:TAG].

ollama_library.csv has one row for each tag of a size, with what the library prints as its size; `latest` is the tag
that a name without one takes. The sizes were held against the quantizer's own (tests/interop/test_ollama_library.py):
they tell the types apart, as files from before September 2024 are Q4_0 and later ones Q4_K_M.
"""

from __future__ import annotations

import re
from functools import cache

from vramwise.errors import UsageError, clipped, nearest
from vramwise.records import record
from vramwise.sources.gguf_names import file_type_named
from vramwise.tables import Row, table

_TYPE_AT_END = re.compile(r"(?:^|-)(i?q\d\w*|[bm]?x?fp?(?:4|8|16|32)|nvfp4|int\d|qat)$", re.I)
QAT_TYPE = "Q4_0"  # what models trained for quantization are published in (google/gemma-3-4b-it-qat-q4_0-gguf)
_ELSEWHERE = "vramwise estimate MODEL --task serve --engine ollama describes any model"


@record
class LibraryModel:
    """What a name of the library stands for: the model, its file type, and the library's size where none was named."""

    model: str
    gguf_quant: str
    note: str


def library_model(named: str) -> LibraryModel:
    """The model of `NAME[:TAG]`. Raises UsageError with the nearest names or the tags that are known."""
    name, _, tag = named.lower().partition(":")
    if tag.endswith("cloud"):
        raise UsageError(f'ollama: "{clipped(named)}" runs on ollama\'s servers and takes no memory here')
    rows = _library().get(name)
    if rows is None:
        close = nearest(name, _library())[:3]
        meant = f": did you mean {', '.join(close)}?" if close else ""
        raise UsageError(f'ollama: "{clipped(named)}" is not in the table of its library{meant} ({_ELSEWHERE})')
    row = _row(rows, tag)
    if row is None:
        known = ", ".join(each["tag"] for each in rows)
        what = f'tag of "{clipped(named)}" is not in the table' if tag else f'default of "{name}" is not known'
        raise UsageError(f"ollama: the {what}: expected one of {name}:{{{known}}} ({_ELSEWHERE})")
    kind = type_of_tag(tag)
    shown = f"{name}:{row['tag']}"
    if kind is not None:
        return LibraryModel(row["model"], kind, f"ollama's {shown} is taken as {row['model']}, {kind}")
    published = "MXFP4 experts and BF16" if "gpt-oss" in row["model"] else row["gguf_quant"]
    size = float(row["size_gb"])
    library = f"{size:g} GB" if size >= 1 else f"{1000 * size:g} MB"
    note = f"ollama's {shown} is taken as {row['model']}, {published} (its library prints {library})"
    return LibraryModel(row["model"], row["gguf_quant"], note)


def _row(rows: list[Row], tag: str) -> dict[str, str] | None:
    """The row of a tag, or of the size with which a longer tag begins; the default without a tag."""
    if tag in ("", "latest"):
        return next((row for row in rows if row["latest"]), None)
    fitting = [row for row in rows if tag == row["tag"] or tag.startswith(f"{row['tag']}-")]
    if not fitting and type_of_tag(tag) is not None and len(rows) == 1:  # `phi4:q8_0` of a name with one size
        return rows[0]
    return max(fitting, key=lambda row: len(row["tag"]), default=None)


def type_of_tag(tag: str) -> str | None:
    """The file type that a tag ends in, None for none. Raises UsageError for one that is not llama.cpp's."""
    match = _TYPE_AT_END.search(tag)
    if match is None:
        return None
    kind = QAT_TYPE if match.group(1) == "qat" else file_type_named(match.group(1))
    if kind is None or kind == "custom":
        raise UsageError(f'ollama: the type of "{clipped(tag)}" is not known here: expected one such as q4_K_M or fp16')
    return kind


@cache
def _library() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in table(__file__):
        found.setdefault(row["name"], []).append(row)
    return found
