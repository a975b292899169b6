"""Headers of safetensors files: names, dtypes and shapes of the tensors, without their data.

Format: eight bytes (length of the header, little endian), the header in JSON, the data. A folder holds one file, or
several that `model.safetensors.index.json` lists. Source: huggingface/safetensors README.md, "Format".
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import NoReturn, TypeGuard

from vramwise.errors import SourceError, clipped
from vramwise.files import open_to_read, shown_path
from vramwise.records import record
from vramwise.units import MIB, format_bytes

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
LARGEST_HEADER_BYTES = 32 * MIB
MOST_SHARDS = 4096
LARGEST_AXIS = 2**40
MOST_TENSORS = 200_000
"""As of a GGUF file; a trillion parameters in 384 experts a layer are 140,000 tensors."""
MOST_AXES = 16
_LENGTH_BYTES = 8
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
_ADAPTERS = "adapter_"  # peft's files lie beside the model's
_MISTRAL = "consolidated"  # the same weights again under Mistral's own names


@record
class StoredTensor:
    """A tensor as a file holds it; `dtype` is the format's word (`BF16`)."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def bytes(self) -> int:
        """Bytes of the data, ⌈elements · bits / 8⌉."""
        return -(-self.numel * _BITS[self.dtype] // 8)


@record
class StoredWeights:
    """All tensors under a path, the number of files that they lie in, and whether those hold their data too."""

    path: str
    tensors: tuple[StoredTensor, ...]
    num_files: int
    is_whole: bool

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)


def find_weights(path: str) -> str | None:
    """The file or index under `path` that says which tensors there are, or None.

    An index goes before files; of files without one, `model.safetensors` goes before a folder of several.
    """
    if path.lower().endswith((SUFFIX, INDEX_SUFFIX)):
        return path
    try:
        names = sorted(os.listdir(path))
    except (OSError, ValueError):
        return None
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    if indexes:
        return os.path.join(path, min(indexes, key=lambda name: (name != f"model{INDEX_SUFFIX}", name)))
    return path if _own_files(names) else None


def read_stored_weights(path: str) -> StoredWeights:
    """The tensors of a file, of the files that an index lists, or of a folder.

    Raises `SourceError` with one line for a file that is missing, cut off inside its header, or no safetensors file.
    """
    if path.lower().endswith(INDEX_SUFFIX):
        return _indexed(path)
    if not os.path.isdir(path):
        tensors, is_whole = read_header(path)
        return StoredWeights(path, tensors, 1, is_whole)
    files = _own_files(sorted(os.listdir(path)))
    if f"model{SUFFIX}" in files:
        files = [f"model{SUFFIX}"]
    headers = [read_header(os.path.join(path, name)) for name in files]
    together = tuple(tensor for tensors, _ in headers for tensor in tensors)
    return StoredWeights(path, together, len(files), all(whole for _, whole in headers))


def _own_files(names: list[str]) -> list[str]:
    files = [name for name in names if name.endswith(SUFFIX) and not name.startswith(_ADAPTERS)]
    return [name for name in files if not name.startswith(_MISTRAL)] or files


def _indexed(path: str) -> StoredWeights:
    folder, shown = os.path.dirname(path), shown_path(path)
    content = _json(_read(path, shown, 0, LARGEST_HEADER_BYTES + 1), shown)
    where = content.get("weight_map")
    if not isinstance(where, Mapping) or not where:
        _refuse(shown, "has no weight_map")
    files: dict[str, set[str]] = {}
    for name, file in where.items():
        if not isinstance(file, str) or os.path.basename(file) != file or not file.endswith(SUFFIX):
            _refuse(shown, f"names {clipped(str(file))!r}, expected the name of a {SUFFIX} file beside it")
        files.setdefault(file, set()).add(name)
    if len(files) > MOST_SHARDS:
        _refuse(shown, f"lists {len(files):,} files, expected at most {MOST_SHARDS:,}")
    found: list[StoredTensor] = []
    is_whole = True
    for file, names in sorted(files.items()):
        tensors, whole = read_header(os.path.join(folder, file))
        missing = names - {tensor.name for tensor in tensors}
        if missing:
            _refuse(shown, f"says that {file} holds {clipped(min(missing))}, which it does not")
        found += [tensor for tensor in tensors if tensor.name in names]
        is_whole = is_whole and whole
    return StoredWeights(path, tuple(found), len(files), is_whole)


def read_header(path: str) -> tuple[tuple[StoredTensor, ...], bool]:
    """The tensors of one file, and whether the file is as long as its header says.

    Raises `SourceError` as `read_stored_weights` does.
    """
    shown = shown_path(path)
    start = _read(path, shown, 0, _LENGTH_BYTES)
    length = int.from_bytes(start, "little")
    if len(start) < _LENGTH_BYTES or not 2 <= length <= LARGEST_HEADER_BYTES:
        limit = format_bytes(LARGEST_HEADER_BYTES, "MiB", 0)
        _refuse(shown, f"is no safetensors file: expected a header of at most {limit}")
    text = _read(path, shown, _LENGTH_BYTES, length)
    if len(text) < length:
        _refuse(shown, f"ends inside its header: {len(text):,} of {length:,} bytes are there")
    tensors = tuple(_tensors(_json(text, shown), shown))
    end = sum(tensor.bytes for tensor in tensors)
    return tensors, os.path.getsize(path) >= _LENGTH_BYTES + length + end


def _read(path: str, shown: str, start: int, count: int) -> bytes:
    try:
        if not os.path.isfile(path):
            raise SourceError(f"{shown}: there is no such file")
        with open_to_read(path) as file:
            file.seek(start)
            return file.read(count)
    except OSError as problem:
        raise SourceError(f"{shown}: {problem.strerror or problem}") from None
    except ValueError:  # a NUL character in the name
        raise SourceError(f"{shown}: is no file name") from None


def _json(text: bytes, shown: str) -> dict[str, object]:
    if len(text) > LARGEST_HEADER_BYTES:
        _refuse(shown, f"is larger than {format_bytes(LARGEST_HEADER_BYTES, 'MiB', 0)}")
    try:
        table = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        _refuse(shown, "holds a header that is no JSON")
    if not isinstance(table, dict):
        _refuse(shown, "holds a header that is no table of tensors")
    return table


def _tensors(header: Mapping[str, object], shown: str) -> Iterator[StoredTensor]:
    """The header's entries, checked; their data follows one after another without holes."""
    spans: list[tuple[int, int]] = []
    if len(header) > MOST_TENSORS:
        _refuse(shown, f"has {len(header):,} tensors, expected at most {MOST_TENSORS:,}")
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor, span = _tensor(name, entry, shown)
        spans.append(span)
        yield tensor
    position = 0
    for first, last in sorted(spans):
        if first != position:
            _refuse(shown, "is no safetensors file: the data of its tensors overlaps or has holes")
        position = last


def _tensor(name: str, entry: object, shown: str) -> tuple[StoredTensor, tuple[int, int]]:
    if not isinstance(entry, Mapping):
        _refuse(shown, f"{_quoted(name)} has no table")
    kind, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(kind, str) or kind not in _BITS:
        kinds = ", ".join(_BITS)
        _refuse(shown, f"{_quoted(name)} has the dtype {clipped(str(kind))!r}, expected one of {kinds}")
    if not _whole_numbers(shape) or len(shape) > MOST_AXES or max(shape, default=0) > LARGEST_AXIS:
        _refuse(shown, f"{_quoted(name)} has no shape of whole numbers")
    if not _whole_numbers(offsets) or len(offsets) != 2:
        _refuse(shown, f"{_quoted(name)} has no data_offsets")
    tensor = StoredTensor(name, kind, tuple(shape))
    size, stated = tensor.bytes, offsets[1] - offsets[0]
    if stated != size:
        _refuse(shown, f"{_quoted(name)} should take {size:,} bytes, its data_offsets say {stated:,}")
    return tensor, (offsets[0], offsets[1])


def _quoted(name: str) -> str:
    return f"the tensor {clipped(name)!r}"


def _whole_numbers(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _refuse(shown: str, problem: str) -> NoReturn:
    raise SourceError(f"{shown}: {problem}")
