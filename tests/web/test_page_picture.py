"""docs/page.png shows what the page says today: the words that it was taken with are inside of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "site"))
import page_picture


def test_the_picture_says_what_the_page_says(page: Any, address: str) -> None:
    page.goto(f"{address}{page_picture.ASKED}")
    said = page_picture.words_in(page_picture.PICTURE.read_bytes())
    assert page_picture.words_of(page) == said != "", "take it anew: python tools/site/page_picture.py"
