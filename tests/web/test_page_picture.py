"""The pictures of the page in docs/ show what it says today: the words that they were taken with are inside of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "site"))
import page_picture


@pytest.mark.parametrize("name", page_picture.PICTURES)
def test_a_picture_says_what_the_page_says(page: Any, address: str, name: str) -> None:
    picture = page_picture.PICTURES[name]
    page.goto(f"{address}{picture.asked}")
    said = page_picture.words_in((page_picture.DOCS / name).read_bytes())
    assert page_picture.words_of(page, picture) == said != "", "take it anew: python tools/site/page_picture.py"
