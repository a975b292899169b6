"""`WIDTHxHEIGHT`, as every flag and key that names pixels has it."""

from __future__ import annotations

import re

from vramwise.errors import ScenarioError, clipped

_SIDES = re.compile(r"([0-9]{1,7})\s*[x×]\s*([0-9]{1,7})", re.IGNORECASE)


def pixels_of(text: str, path: str) -> tuple[int, int]:
    """Width and height in pixels. Raises ScenarioError under `path` for what is no size."""
    found = _SIDES.fullmatch(text.strip())
    if found is None:
        raise ScenarioError(path, f'expected WIDTHxHEIGHT in pixels, such as 1024x768, got "{clipped(text)}"')
    return int(found[1]), int(found[2])
