"""Headers that a stranger wrote: too many tensors, names twice, links in a circle, pipelines naming folders above."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import pytest

from vramwise import estimate
from vramwise.errors import SourceError, UndescribedTypeError, VramwiseError


def header(path: Path, text: bytes) -> None:
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def test_too_many_tensors_are_refused_in_seconds(tmp_path: Path) -> None:
    entry = b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    header(tmp_path / "model.safetensors", b"{" + b",".join(entry % i for i in range(400_000)) + b"}")
    start = time.process_time()
    with pytest.raises(SourceError, match="expected at most 200,000"):
        estimate({"model": str(tmp_path / "model.safetensors"), "task": "load"})
    assert time.process_time() - start < 20


def test_a_name_that_is_there_twice_leaves_a_hole(tmp_path: Path) -> None:
    one = '"x":{"dtype":"U8","shape":[4],"data_offsets":[%d,%d]}'
    header(tmp_path / "model.safetensors", ("{" + one % (0, 4) + "," + one % (4, 8) + "}").encode())
    with pytest.raises(SourceError, match="overlaps or has holes"):
        estimate({"model": str(tmp_path / "model.safetensors"), "task": "load"})


def test_links_in_a_circle_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "zzz"}))
    with pytest.raises(VramwiseError) as caught:
        estimate({"model": str(tmp_path), "task": "load"})
    assert "\n" not in str(caught.value)


def test_a_pipeline_reads_no_folder_but_its_own(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    header(secret / "model.safetensors", b'{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')
    inside = tmp_path / "pipe"
    inside.mkdir()
    names = {name: ["diffusers", "Model\x1b[31m\n"] for name in ("../secret", "/etc", "..", "a\x1b]0;b\x07")}
    (inside / "model_index.json").write_text(json.dumps({"_class_name": "P\x1b[2J" + "p" * 999, **names}))
    with pytest.raises(UndescribedTypeError) as caught:
        estimate({"model": str(inside), "task": "load"})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
