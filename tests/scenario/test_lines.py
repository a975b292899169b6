"""JSON Lines read with bounded memory."""

from __future__ import annotations

import io

import pytest

from vramwise.scenario import files


@pytest.mark.parametrize(
    ("line", "is_read"),
    [(b"x" * 99 + b"\n", True), (b"x" * 100, True), (b"x" * 100 + b"\n", False), (b"x" * 101, False)],
)
def test_the_longest_line_is_read_and_one_byte_more_is_not(
    monkeypatch: pytest.MonkeyPatch, line: bytes, is_read: bool
) -> None:
    """The end of the line counts."""
    monkeypatch.setattr(files, "LONGEST_LINE_BYTES", 100)
    assert list(files.numbered_lines(io.BytesIO(line))) == [(1, line if is_read else None)]
    behind = list(files.numbered_lines(io.BytesIO(line.rstrip(b"\n") + b"\nnext")))
    assert behind[-1] == (2, b"next")
