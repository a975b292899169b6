"""The header of a GGUF file, read with bounds: metadata, and name, shape, type and bytes of every tensor.

Layout: magic `GGUF`, version 2 or 3, counts of tensors and of metadata, the metadata, then name, dimensions, type and
offset of each tensor (ggml-org/llama.cpp gguf-py, docs/gguf.md in ggml). Only the header is read. Lists of more than
MOST_KEPT values (tokens, merges) are passed over; their length stays. Counts, lengths and sums are checked before
memory is taken, so that a broken or hostile file costs one line.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from math import prod
from typing import Any

from vramwise.errors import SourceError, clipped
from vramwise.formats.gguf import gguf_type
from vramwise.formats.ranged import LocalFiles, RangedFiles, RangedStream, shown_in
from vramwise.records import record
from vramwise.units import KIB, MIB, format_bytes

MOST_TENSORS = 200_000
MOST_PAIRS = 100_000
MOST_PARTS = 1000
MOST_KEPT = 4096
LONGEST_NAME = 64 * KIB
LARGEST_HEADER = 512 * MIB
MOST_DIMENSIONS = 8
DEEPEST_ARRAY = 3
DEFAULT_ALIGNMENT = 32

# ggml_type -> name (gguf 0.19.0 GGMLQuantizationType)
TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}  # fmt: skip
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


@record
class FileTensor:
    """One tensor: `shape` with columns last, `type` (`type 137` where it has no name here), bytes in the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    bytes: int


@record
class GgufHeader:
    """Metadata and tensors of a file, or of all parts of a split one. Lists that are not kept are their length."""

    metadata: Mapping[str, object]
    tensors: tuple[FileTensor, ...]

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, without the alignment between them."""
        return sum(tensor.bytes for tensor in self.tensors)


def read_gguf(path: str) -> GgufHeader:
    """The header of `path`, with those of its other parts where it is `…-00001-of-00005.gguf`.

    Raises SourceError with one line for what cannot be read.
    """
    folder, name = os.path.split(path)
    return gguf_header(LocalFiles(folder), name)


def gguf_header(files: RangedFiles, name: str) -> GgufHeader:
    """As `read_gguf`, of one of the files of a folder or repository. Raises SourceError."""
    shown = shown_in(files, name)
    split = _PART.search(name)
    if split is None:
        header = _read(files, name)
        if not header.tensors:
            raise SourceError(f"{shown}: holds no tensors")
        return header
    count = int(split.group(2))
    if not 0 < count <= MOST_PARTS:
        raise SourceError(f"{shown}: names {count:,} parts, expected 1 to {MOST_PARTS:,}")
    parts = [_read(files, f"{name[: split.start()]}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    tensors = tuple(tensor for part in parts for tensor in part.tensors)  # the first part may hold metadata alone
    if not tensors:
        raise SourceError(f"{shown}: its parts hold no tensors")
    return GgufHeader(parts[0].metadata, tensors)


def _read(files: RangedFiles, name: str) -> GgufHeader:
    return _Reader(RangedStream(files, name), shown_in(files, name), files.size(name)).header()


class _Reader:
    def __init__(self, file: RangedStream, shown: str, size: int | None) -> None:
        self.file, self.shown, self.size = file, shown, size
        self.end = LARGEST_HEADER if size is None else min(size, LARGEST_HEADER)
        self.order = "<"

    def header(self) -> GgufHeader:
        if self.take(4) != b"GGUF":
            raise SourceError(f"{self.shown}: is no GGUF file")
        version = self.number("I")
        if version > 0xFFFF:  # written on a big-endian machine
            self.order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in (2, 3):
            raise SourceError(f"{self.shown}: GGUF version {version}, expected 2 or 3")
        tensors = self.count("tensors", MOST_TENSORS)
        pairs = self.count("metadata pairs", MOST_PAIRS)
        metadata: dict[str, object] = {}
        for _ in range(pairs):
            key = self.text()
            metadata[key] = self.value(self.number("I"), 0)
        infos = [self.info() for _ in range(tensors)]
        alignment = metadata.get("general.alignment")
        step = alignment if isinstance(alignment, int) and 0 < alignment <= MIB else DEFAULT_ALIGNMENT
        start = -(-self.file.tell() // step) * step
        return GgufHeader(metadata, self.sized(infos, start))

    def take(self, length: int) -> bytes:
        data = self.file.read(length) if self.file.tell() + length <= self.end else b""
        if len(data) < length:
            raise SourceError(f"{self.shown}: the header is cut off or broken")
        return data

    def number(self, form: str) -> Any:
        return struct.unpack(self.order + form, self.take(struct.calcsize("<" + form)))[0]

    def count(self, what: str, most: int) -> int:
        count: int = self.number("Q")
        if count > most:
            raise SourceError(f"{self.shown}: {count:,} {what}, expected at most {most:,}")
        return count

    def text(self) -> str:
        length = self.number("Q")
        if length > LONGEST_NAME:
            self.skip(length)
            return ""
        return self.take(length).decode("utf-8", errors="replace")

    def skip(self, length: int) -> None:
        if self.file.tell() + length > self.end:
            raise SourceError(f"{self.shown}: the header is cut off or broken")
        self.file.skip(length)

    def value(self, kind: int, depth: int) -> object:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array(depth + 1)
        if kind not in _SCALARS:
            raise SourceError(f"{self.shown}: unknown kind of metadata {kind}")
        return self.number(_SCALARS[kind])

    def array(self, depth: int) -> object:
        """A list, or its length where it is long."""
        if depth > DEEPEST_ARRAY:
            raise SourceError(f"{self.shown}: metadata is nested too deep")
        kind, count = self.number("I"), self.number("Q")
        if kind in _SCALARS and count > MOST_KEPT:
            self.skip(count * struct.calcsize("<" + _SCALARS[kind]))
            return count
        if count > self.end:
            raise SourceError(f"{self.shown}: the header is cut off or broken")
        if count <= MOST_KEPT:
            return [self.value(kind, depth) for _ in range(count)]
        for _ in range(count):
            self.value(kind, depth)
        return count

    def info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        dimensions = self.number("I")
        if dimensions > MOST_DIMENSIONS:
            raise SourceError(f"{self.shown}: a tensor of {dimensions} dimensions")
        shape = tuple(self.number("Q") for _ in range(dimensions))
        return name, shape[::-1], self.number("I"), self.number("Q")

    def sized(self, infos: list[tuple[str, tuple[int, ...], int, int]], start: int) -> tuple[FileTensor, ...]:
        """Bytes by type; of types that are not known here by the distance to the next tensor."""
        if not infos:
            return ()
        offsets = sorted({offset for _, _, _, offset in infos})
        following = dict(zip(offsets, [*offsets[1:], max(0, (self.size or 0) - start)], strict=True))
        found = []
        for name, shape, kind, offset in infos:
            known = TYPE_NAMES.get(kind)
            room = following[offset] - offset
            size = gguf_type(known).bytes_for(shape) if known is not None else room
            if size < 0 or prod(shape) >= 2**63:
                raise SourceError(f"{self.shown}: tensor {clipped(name)} has an impossible size")
            found.append(FileTensor(name, shape, known or f"type {kind}", size))
        total = sum(tensor.bytes for tensor in found)
        if self.size is not None and self.size < start + max(offsets):
            held, whole = (format_bytes(size, "MiB") for size in (self.size, start + total))
            raise SourceError(f"{self.shown}: is cut off: {held} of a file of {whole}")
        return tuple(found)
