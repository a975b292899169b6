"""Parquet files of whole numbers, texts and truth values, written with NumPy: pyarrow would take 40 MiB a process.

Format: apache/parquet-format 2.10 (parquet.thrift, Encodings.md). Every column may have nulls; a row group is what was
added at once; numbers are differences to the one before (times and ids grow), texts a dictionary, pages gzip.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from vramwise.utilization.job.schema import TEXT, WHOLE, YES_NO
from vramwise.utilization.job.thrift import Long, struct, varint, zigzag

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers

MAGIC: Final = b"PAR1"
TYPES: Final = {YES_NO: 0, WHOLE: 2, TEXT: 6}
UTF8, OPTIONAL, GZIP = 0, 1, 2
PLAIN, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY = 0, 3, 5, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
BLOCK, MINIBLOCK = 128, 32
GZIP_BITS, LEVEL = 31, 1
"""zlib's number for gzip; the fastest level: what is packed hardly shrinks any more."""


class Named(NamedTuple):
    """A column of text of which few differ: their places among the different ones."""

    places: Integers
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.places)


class ParquetFile:
    """One file in memory. `kinds`: the kind of each column (schema.TEXT, WHOLE or YES_NO)."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._written = [MAGIC]
        self._size = len(MAGIC)
        self._rows = 0
        self._groups: list[dict[int, object]] = []

    def add(self, columns: Mapping[str, Any]) -> None:
        """Rows: equally long columns, each a list (None for a null), an array or Named; one that lacks has nulls."""
        count = len(next(iter(columns.values()), ()))
        if not count:
            return
        begin, chunks = self._size, []
        for name, kind in self._kinds.items():
            values = columns.get(name)
            chunks.append(self._chunk(name, kind, [None] * count if values is None else values))
        self._rows += count
        self._groups.append({1: chunks, 2: Long(self._size - begin), 3: Long(count)})

    def content(self) -> bytes:
        """The whole file."""
        root = {4: b"schema", 5: len(self._kinds)}
        leaves = [
            {1: TYPES[kind], 3: OPTIONAL, 4: name.encode()} | ({6: UTF8} if kind == TEXT else {})
            for name, kind in self._kinds.items()
        ]
        about = struct({1: 1, 2: [root, *leaves], 3: Long(self._rows), 4: self._groups, 6: b"vramwise"})
        return b"".join((*self._written, about, len(about).to_bytes(4, "little"), MAGIC))

    def _chunk(self, name: str, kind: str, values: Any) -> dict[int, object]:
        """Write the pages of one column, and say where they are."""
        begin, count = self._size, len(values)
        levels, present = _without_nulls(values)
        about: dict[int, object] = {}
        unpacked = 0
        if not len(present):
            encoding, packed = PLAIN, b""
        elif kind == WHOLE:
            encoding, packed = DELTA_BINARY_PACKED, _deltas(present)
        elif kind == YES_NO:
            encoding, packed = PLAIN, _bits(present, 1)
        else:
            named = present if isinstance(present, Named) else _named(present)
            dictionary = b"".join(len(text).to_bytes(4, "little") + text for text in map(_utf8, named.names))
            unpacked += self._page(DICTIONARY_PAGE, dictionary, {7: {1: len(named.names), 2: PLAIN}})
            about[11] = Long(begin)
            encoding, packed = RLE_DICTIONARY, _places(named)
        data = self._size
        said = {5: {1: count, 2: encoding, 3: RLE, 4: RLE}}
        unpacked += self._page(DATA_PAGE, len(levels).to_bytes(4, "little") + levels + packed, said)
        encodings = [PLAIN, RLE, encoding]
        return {2: Long(begin), 3: {
            1: TYPES[kind], 2: encodings, 3: [name.encode()], 4: GZIP, 5: Long(count), 6: Long(unpacked),
            7: Long(self._size - begin), 9: Long(data), **about,
        }}  # fmt: skip

    def _page(self, kind: int, content: bytes, said: Mapping[int, object]) -> int:
        """Write a page; its size before it was packed."""
        packer = zlib.compressobj(LEVEL, wbits=GZIP_BITS)
        packed = packer.compress(content) + packer.flush()
        header = struct({1: kind, 2: len(content), 3: len(packed), **said})
        self._written += [header, packed]
        self._size += len(header) + len(packed)
        return len(header) + len(content)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a trace may have half of a surrogate pair


def _without_nulls(values: Any) -> tuple[bytes, Any]:
    """Which are no nulls, as one run of ones or as bits; and these."""
    if not isinstance(values, list) or None not in values:
        return varint(len(values) << 1) + b"\1", values
    there = [value is not None for value in values]
    return _packed_run(there, 1), [value for value in values if value is not None]


def _named(values: Sequence[str]) -> Named:
    import numpy as np

    names: dict[str, int] = {}
    return Named(np.array([names.setdefault(one, len(names)) for one in values], dtype=np.int64), list(names))


def _places(named: Named) -> bytes:
    """Places in a dictionary: how many bits each takes, and a single run of them."""
    width = max(1, (len(named.names) - 1).bit_length())
    return bytes([width]) + _packed_run(named.places, width)


def _packed_run(values: Any, width: int) -> bytes:
    """A bit-packed run of the hybrid encoding, in groups of eight."""
    groups = -(-len(values) // 8)
    return varint(groups << 1 | 1) + _bits(values, width, 8 * groups)


def _bits(values: Any, width: int, count: int = 0) -> bytes:
    """The lowest bits of each, one behind the other, zeros up to `count` of them."""
    import numpy as np

    padded = np.zeros(max(count, len(values)), dtype=np.uint64)
    padded[: len(values)] = values
    return bytes(_packed(padded.reshape(1, -1), width).tobytes())


def _packed(rows: Any, width: int) -> Any:
    """Each row's numbers by so many bits, the lowest first."""
    import numpy as np

    size = next(size for size in (1, 2, 4, 8) if 8 * size >= width)
    octets = rows.astype(f"<u{size}").view(np.uint8).reshape(*rows.shape, size)
    bits = np.unpackbits(octets, axis=-1, count=width, bitorder="little")
    return np.packbits(bits.reshape(len(rows), -1), axis=-1, bitorder="little")


def _deltas(given: object) -> bytes:
    """DELTA_BINARY_PACKED: the first number, then blocks of differences less the least of each block."""
    import numpy as np

    values = np.asarray(given, dtype=np.int64)
    head = varint(BLOCK) + varint(BLOCK // MINIBLOCK) + varint(len(values)) + zigzag(int(values[0]))
    deltas = np.diff(values)
    blocks = -(-len(deltas) // BLOCK)
    if not blocks:
        return head
    padded: Any = np.empty((blocks, BLOCK), dtype=np.int64)
    padded.flat[: len(deltas)] = deltas
    padded.flat[len(deltas) :] = deltas[-1]
    least = padded.min(axis=1)
    rest = (padded - least[:, None]).view(np.uint64).reshape(-1, MINIBLOCK)
    widths = _widths(rest.max(axis=1))
    widths[-(-len(deltas) // MINIBLOCK) :] = 0  # miniblocks beyond the last value have no bytes
    pieces = [b""] * len(widths)
    for width in np.unique(widths).tolist():
        if width:
            (alike,) = np.nonzero(widths == width)
            for place, row in zip(alike.tolist(), _packed(rest[alike], width), strict=True):
                pieces[place] = row.tobytes()
    each = BLOCK // MINIBLOCK
    stated = widths.reshape(blocks, each).astype(np.uint8)
    out = [head]
    for place, low in enumerate(least.tolist()):
        out += [zigzag(low), stated[place].tobytes(), *pieces[place * each : (place + 1) * each]]
    return b"".join(out)


def _widths(most: Any) -> Any:
    """How many bits each number takes."""
    import numpy as np

    widths = np.zeros(len(most), dtype=np.int64)
    left = most.copy()
    while left.any():
        widths += left > 0
        left >>= np.uint64(1)
    return widths
