"""Headers of files that are read by ranges: the same tensors as from a disk, and little more than them is asked for."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import pytest

from vramwise.errors import SourceError
from vramwise.formats.ranged import LocalFiles, RangedStream
from vramwise.formats.safetensors import stored_weights


class Counted:
    """Files in memory that remember which ranges they were asked for."""

    name, at_once = "org/name", 4

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self.contents = contents
        self.asked: list[tuple[str, int, int]] = []

    def files(self) -> Mapping[str, int | None]:
        return {path: len(content) for path, content in self.contents.items()}

    def size(self, path: str) -> int | None:
        return self.files().get(path)

    def read(self, path: str, most_bytes: int) -> bytes:
        return self.read_range(path, 0, most_bytes)

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        self.asked.append((path, start, stop))
        return self.contents[path][start:stop]


def safetensors(name: str, *, length: int = 0) -> bytes:
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header += b" " * (length - len(header))
    return struct.pack("<Q", len(header)) + header + bytes(1_000_000)


def test_numbered_files_need_no_index() -> None:
    files = Counted({
        "model.safetensors.index.json": b"never read",
        **{f"model-{n:05}-of-00005.safetensors": safetensors(f"t{n}") for n in range(1, 6)},
    })  # fmt: skip
    found = stored_weights(files, "model.safetensors.index.json")
    assert [tensor.name for tensor in found.tensors] == ["t1", "t2", "t3", "t4", "t5"]
    assert (found.num_files, found.is_whole) == (5, True)
    assert len(files.asked) == 5
    assert sum(stop - start for _, start, stop in files.asked) < 100_000


def test_a_missing_number_is_not_passed_over() -> None:
    index = json.dumps({"weight_map": {"t1": "model-00001-of-00002.safetensors"}}).encode()
    files = Counted({
        "model.safetensors.index.json": index, "model-00001-of-00002.safetensors": safetensors("t1"),
    })  # fmt: skip
    assert [tensor.name for tensor in stored_weights(files, "model.safetensors.index.json").tensors] == ["t1"]


def test_a_long_header_is_asked_for_in_two_parts() -> None:
    files = Counted({"model.safetensors": safetensors("t", length=200_000)})
    assert stored_weights(files).bytes == 8
    (_, _, first), (_, second, end) = files.asked
    assert second == first
    assert end == 200_008


def test_a_stream_reads_on_and_passes_over(tmp_path: pytest.TempPathFactory) -> None:
    content = bytes(range(256)) * 4000
    stream = RangedStream(Counted({"a": content}), "a")
    assert stream.read(10) == content[:10]
    stream.skip(900_000)
    assert (stream.read(5), stream.tell()) == (content[900_010:900_015], 900_015)
    stream.skip(len(content))
    assert stream.read(5) == b""


def test_a_small_file_is_refused_when_it_is_large(tmp_path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "config.json").write_bytes(bytes(100))
    files = LocalFiles(str(tmp_path))
    assert files.files() == {"sub/config.json": 100}
    assert len(files.read("sub/config.json", 100)) == 100
    with pytest.raises(SourceError, match=r"config\.json: is larger than"):
        files.read("sub/config.json", 99)
    with pytest.raises(SourceError, match="there is no such file"):
        files.read("config.json", 100)
