"""Pictures hold whatever text they are given, and are read again."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from vramwise import svg


@pytest.mark.parametrize("foreign", ["a\x1b]0;title\x07b", "half \ud800", "\ufffe\uffff", "<&>\x00", "plain · 文"])
def test_foreign_text_leaves_a_picture_that_can_be_written_and_read(foreign: str) -> None:
    parts = [
        svg.text(0, 0, foreign),
        svg.box(0, 0, 1, 1, "#fff", title=foreign),
        svg.area([(0, 0), (1, 1)], "#fff", title=foreign),
    ]
    picture = ElementTree.fromstring(svg.document(9, 9, parts, title=foreign).encode("utf-8"))
    assert not any(character in "".join(picture.itertext()) for character in "\x00\x1b\x07")
