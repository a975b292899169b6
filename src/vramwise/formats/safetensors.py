"""Headers of safetensors files: names, dtypes and shapes of the tensors, without their data.

Format: eight bytes (length of the header, little endian), the header in JSON, the data. A folder holds one file, or
several that `model.safetensors.index.json` lists. Source: huggingface/safetensors README.md, "Format".
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn, TypeGuard

from vramwise.errors import SourceError, clipped
from vramwise.formats.ranged import LocalFiles, RangedFiles, shown_in
from vramwise.records import record, replace
from vramwise.units import KIB, MIB, format_bytes

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
LARGEST_HEADER_BYTES = 25_000_000
"""huggingface_hub 2.4.0 constants.py SAFETENSORS_MAX_HEADER_LENGTH."""
MOST_SHARDS = 4096
MOST_MOVED_BYTES = 4_600_000
"""Of headers over a network; files beyond are counted by their size, as those that were read are made up."""
_FEW_FILES = 16
LARGEST_AXIS = 2**40
MOST_TENSORS = 200_000
"""As of a GGUF file; a trillion parameters in 384 experts a layer are 140,000 tensors."""
MOST_AXES = 16
_LENGTH_BYTES = 8
_FIRST_READ_BYTES = 64 * KIB
_MARGIN_BYTES = 2 * KIB
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
WHOLE_NUMBERS = frozenset({"BOOL", "U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64"})
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
        """Values: the product of its sizes."""
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
    """All tensors under a path, the number of files that they lie in, and whether those hold their data too.

    Each of `unread_files`, whose headers would have been too much to move, is one tensor as large as the file.
    """

    path: str
    tensors: tuple[StoredTensor, ...]
    num_files: int
    is_whole: bool
    unread_files: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the data of all tensors; headers are not counted."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def note(self) -> str:
        """What was not read, empty where all was."""
        if not self.unread_files:
            return ""
        unread = sum(tensor.bytes for tensor in self.tensors[-self.unread_files :])
        return (
            f"{self.in_part} were read: the other {self.unread_files} are counted by their size "
            f"({format_bytes(unread)}), their values as if in one dtype"
        )

    @property
    def in_part(self) -> str:
        """Of how many files the headers were read, as a sentence's subject."""
        return f"headers of {self.num_files - self.unread_files} of {self.num_files} files"


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
    entry = weights_among(names)
    return None if entry is None else os.path.join(path, entry) if entry else path


def weights_among(names: Iterable[str]) -> str | None:
    """The index or file among `names` that says which tensors there are, "" for all the files, or None."""
    names = sorted(name for name in names if "/" not in name)
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    if indexes:
        return min(indexes, key=lambda name: (name != f"model{INDEX_SUFFIX}", name))
    return "" if _own_files(names) else None


def read_stored_weights(path: str) -> StoredWeights:
    """The tensors of a file, of the files that an index lists, or of a folder.

    Raises `SourceError` with one line for a file that is missing, cut off inside its header, or no safetensors file.
    """
    if os.path.isdir(path):
        return stored_weights(LocalFiles(path))
    folder, name = os.path.split(path)
    return replace(stored_weights(LocalFiles(folder), name), path=path)


def stored_weights(files: RangedFiles, entry: str = "") -> StoredWeights:
    """The tensors of one of the files, of those that an index lists, or ("") of all that are a model's own.

    An index is not read where all its numbered files are there: their headers say the same. Raises `SourceError`.
    """
    wanted = _wanted(files, entry)
    found: list[StoredTensor] = []
    is_whole = True
    unread = list(wanted)
    for file, (tensors, whole) in _headers(files, list(wanted)):
        names = wanted[file]
        unread.remove(file)
        missing = names - {tensor.name for tensor in tensors}
        if missing:
            _refuse(shown_in(files, entry), f"says that {file} holds {clipped(min(missing))}, which it does not")
        found += [tensor for tensor in tensors if tensor.name in names] if names else tensors
        is_whole = is_whole and whole
    found += [_by_size(files, name, found) for name in unread]
    return StoredWeights(shown_in(files, entry), tuple(found), len(wanted), is_whole, len(unread))


def _by_size(files: RangedFiles, name: str, read: list[StoredTensor]) -> StoredTensor:
    """A file that was not read, as one tensor of the dtype that most bytes of the others are in."""
    sizes: dict[str, int] = {}
    for tensor in read:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.bytes
    kind = max(sizes, key=sizes.__getitem__, default="U8")
    return StoredTensor(f"not read: {name}", kind, ((files.size(name) or 0) * 8 // _BITS[kind],))


def _wanted(files: RangedFiles, entry: str) -> dict[str, set[str]]:
    """The files to read, each with the tensors that an index says are in it; an empty set means all of them."""
    if entry.endswith(INDEX_SUFFIX):
        numbered = _numbered(entry, files)
        if not numbered and files.at_once > 1 and (files.size(entry) or 0) > MOST_MOVED_BYTES // 2:
            folder = entry.rpartition("/")[0]
            numbered = _own_files(sorted(name for name in files.files() if name.rpartition("/")[0] == folder))
        return {name: set() for name in numbered} if numbered else _indexed(files, entry)
    if entry:
        return {entry: set()}
    own = _own_files(sorted(name for name in files.files() if "/" not in name))
    return {name: set() for name in ([f"model{SUFFIX}"] if f"model{SUFFIX}" in own else own)}


def _own_files(names: list[str]) -> list[str]:
    files = [name for name in names if name.endswith(SUFFIX) and not name.startswith(_ADAPTERS)]
    return [name for name in files if not name.startswith(_MISTRAL)] or files


def _numbered(index: str, files: RangedFiles) -> list[str]:
    """`model-00001-of-00163.safetensors` and so on where all of them stand beside the index; else nothing."""
    stem = re.escape(index.removesuffix(INDEX_SUFFIX))
    pattern = re.compile(rf"{stem}-(\d{{1,5}})-of-(\d{{1,5}}){re.escape(SUFFIX)}")
    matches = [match for name in files.files() if (match := pattern.fullmatch(name))]
    numbers, counts = {int(match[1]): match[0] for match in matches}, {int(match[2]) for match in matches}
    complete = len(counts) == 1 and len(numbers) == len(matches) <= MOST_SHARDS
    return [numbers[n] for n in sorted(numbers)] if complete and {*numbers} == {*range(1, counts.pop() + 1)} else []


def _indexed(files: RangedFiles, index: str) -> dict[str, set[str]]:
    """The files that an index lists, each with the tensors that it says are in it."""
    shown = shown_in(files, index)
    content = _json(files.read(index, LARGEST_HEADER_BYTES), shown)
    where = content.get("weight_map")
    if not isinstance(where, Mapping) or not where:
        _refuse(shown, "has no weight_map")
    folder = index.rpartition("/")[0]
    found: dict[str, set[str]] = {}
    for name, file in where.items():
        if not isinstance(file, str) or os.path.basename(file) != file or not file.endswith(SUFFIX):
            _refuse(shown, f"names {clipped(str(file))!r}, expected the name of a {SUFFIX} file beside it")
        found.setdefault(f"{folder}/{file}" if folder else file, set()).add(name)
    if len(found) > MOST_SHARDS:
        _refuse(shown, f"lists {len(found):,} files, expected at most {MOST_SHARDS:,}")
    return dict(sorted(found.items()))


_Read = tuple[tuple[StoredTensor, ...], bool]


def _headers(files: RangedFiles, names: list[str]) -> Iterator[tuple[str, _Read]]:
    """Files with their headers; the first one's length is what is asked of the others at once.

    Over a network as many of many files as may be moved, spread over all of them.
    """
    if not names:
        return
    first, length = _header(files, names[0], _FIRST_READ_BYTES)
    yield names[0], first
    others = names[1:]
    if files.at_once > 1 and len(names) > _FEW_FILES and all(files.size(name) for name in names):
        middle = names[len(names) // 2]  # a first file may hold few and large tensors
        read, other = _header(files, middle, _FIRST_READ_BYTES)
        yield middle, read
        length = max(length, other)
        others = [name for name in others if name != middle]
    at_first = min(max(length + _MARGIN_BYTES, _MARGIN_BYTES), MIB)
    if files.at_once == 1 or len(names) < 3:
        yield from ((name, _header(files, name, at_first)[0]) for name in others)
        return
    left = MOST_MOVED_BYTES - 2 * max(_FIRST_READ_BYTES, length)
    if len(names) > _FEW_FILES and len(others) * at_first > left and all(files.size(name) for name in names):
        others = _spread(others, max(1, left // at_first))
    if sys.platform == "emscripten":  # a browser has no threads
        yield from ((name, _header(files, name, at_first)[0]) for name in others)
        return
    from concurrent.futures import ThreadPoolExecutor  # over a network alone

    with ThreadPoolExecutor(files.at_once) as pool:
        under_way = {name: pool.submit(_header, files, name, at_first) for name in others}
        try:
            for name, one in under_way.items():
                yield name, one.result()[0]
        finally:
            for one in under_way.values():
                one.cancel()


def _spread(names: list[str], count: int) -> list[str]:
    """`count` of the names, the first and the last among them, as far apart as can be."""
    steps = max(1, count - 1)
    return list(dict.fromkeys(names[place * (len(names) - 1) // steps] for place in range(count)))


def read_header(path: str) -> tuple[tuple[StoredTensor, ...], bool]:
    """The tensors of one file, and whether the file is as long as its header says.

    Raises `SourceError` as `read_stored_weights` does.
    """
    folder, name = os.path.split(path)
    return _header(LocalFiles(folder), name, _FIRST_READ_BYTES)[0]


def _header(files: RangedFiles, name: str, at_first: int) -> tuple[_Read, int]:
    """The tensors of a file and whether it is whole, and the length of its header."""
    shown = shown_in(files, name)
    start = files.read_range(name, 0, at_first)
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if len(start) < _LENGTH_BYTES or not 2 <= length <= LARGEST_HEADER_BYTES:
        limit = format_bytes(LARGEST_HEADER_BYTES, "MB", 0)
        _refuse(shown, f"is no safetensors file: expected a header of at most {limit}")
    end = _LENGTH_BYTES + length
    if len(start) == at_first and at_first < end:
        start += files.read_range(name, at_first, end)
    text = start[_LENGTH_BYTES:end]
    if len(text) < length:
        _refuse(shown, f"ends inside its header: {len(text):,} of {length:,} bytes are there")
    tensors = tuple(_tensors(_json(text, shown), shown))
    size = files.size(name)
    is_whole = size is None or size >= end + sum(tensor.bytes for tensor in tensors)
    return (tensors, is_whole), length


def _json(text: bytes, shown: str) -> dict[str, object]:
    if len(text) > LARGEST_HEADER_BYTES:
        _refuse(shown, f"is larger than {format_bytes(LARGEST_HEADER_BYTES, 'MB', 0)}")
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
