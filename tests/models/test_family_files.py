"""Every family has a file of its own, which the registry reaches by the type's name."""

from __future__ import annotations

from pathlib import Path

from vramwise.models import registry

FILES = {path.stem: path for path in (Path(registry.__file__).parent / "families").glob("[!_]*.py")}
COMPOSING = {"language", "nested"}
"""Not families: what puts a language model into another model."""


def test_every_file_is_a_family() -> None:
    assert set(registry.FAMILY_OF_TYPE.values()) | COMPOSING == set(FILES)
