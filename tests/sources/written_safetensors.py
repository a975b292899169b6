"""Safetensors files written by hand, with any header."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any


def header_of(tensors: dict[str, tuple[str, list[int], int]]) -> dict[str, Any]:
    """A header of tensors by name: dtype, shape, bytes of the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (kind, shape, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    return header


def write(path: Path, header: Any, data: int) -> str:
    """The file at `path`, with so many bytes of data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    return str(path)
