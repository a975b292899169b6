"""A file that was given, read once: its documents where it is YAML, JSON or TOML, else its text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath

from vramwise.errors import SourceError, VramwiseError
from vramwise.files import shown_path
from vramwise.records import record
from vramwise.scenario import read_table_file
from vramwise.scenario.files import parse_documents, read_text_file
from vramwise.units import MIB

_LARGEST_BYTES = MIB
_LARGEST_NOTEBOOK_BYTES = 16 * MIB
_YAML = (".yaml", ".yml")
_KOBOLD = (".kcpps", ".kcppt")
_TABLES = (*_YAML, *_KOBOLD, ".json", ".toml")
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".pkl", ".pickle", ".onnx")


@record
class Given:
    """One file: `documents` of a table file (one, or several of YAML), else `text`."""

    path: str
    documents: tuple[object, ...] = ()
    text: str = ""

    @property
    def suffix(self) -> str:
        return PurePath(self.path).suffix.lower()

    @property
    def name(self) -> str:
        return PurePath(self.path).name

    @property
    def table(self) -> Mapping[str, object]:
        """The first document that is a table, empty where none is."""
        return next((document for document in self.documents if isinstance(document, Mapping)), {})


def read_given(path: str) -> Given | None:
    """The file at `path`, or None for what is no file, no text, too large, or broken: others say so."""
    try:
        suffix = PurePath(path).suffix.lower()
        largest = _LARGEST_NOTEBOOK_BYTES if suffix == ".ipynb" else _LARGEST_BYTES
        if suffix in _WEIGHTS or not os.path.isfile(path) or os.path.getsize(path) > largest:
            return None
        if suffix in _YAML:
            return Given(path, tuple(parse_documents(read_text_file(path), path)))
        if suffix in _TABLES:
            return Given(path, (read_table_file(path, any_name=suffix in _KOBOLD),))
        return Given(path, text=read_text_file(path))
    except (OSError, VramwiseError):
        return None


def read_again(path: str) -> None:
    """Raises SourceError with what is wrong with a file that `read_given` did not take."""
    suffix = PurePath(path).suffix.lower()
    if os.path.isfile(path) and os.path.getsize(path) > _LARGEST_BYTES and suffix != ".ipynb":
        raise SourceError(f"{shown_path(path)}: larger than 1 MiB, which is no configuration")
    if suffix in _YAML:
        parse_documents(read_text_file(path), path)
    elif suffix in _TABLES:
        read_table_file(path, any_name=suffix in _KOBOLD)
    else:
        read_text_file(path)
