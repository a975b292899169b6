"""Every family has a file of its own, which the registry reaches by the type's name."""

from __future__ import annotations

from pathlib import Path

from vramwise.models import families
from vramwise.models.family_of_type import FAMILY_OF_TYPE

FILES = {path.stem: path for path in (Path(families.__file__).parent).glob("[!_]*.py")}
COMPOSING = {"language", "nested"}
"""Not families: what puts a language model into another model."""


def test_every_file_is_a_family() -> None:
    assert set(FAMILY_OF_TYPE.values()) | COMPOSING == set(FILES)
