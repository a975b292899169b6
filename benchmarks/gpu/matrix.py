"""The cases of a matrix file, in the order in which they are measured."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from vramwise.sources import resolve

HERE = Path(__file__).parent
PRESETS = {"full": HERE / "matrix.toml", "tiny": HERE / "tiny.toml"}
SIZES = {
    "train": ("micro_batch_size", "sequence_length"),
    "generate": ("batch_size", "prompt_tokens"),
    "load": (),
}
TABLES = {"train": "train", "generate": "generate", "load": "serve"}


@dataclass(frozen=True)
class Case:
    """One measurement: its name, which is its id in the file of cases, and the scenario."""

    name: str
    wave: int
    scenario: Mapping[str, Any]


def cases_of(path: Path) -> list[Case]:
    """Every case of a file: wave after wave, within a wave one case of each group in turn."""
    table = tomllib.loads(path.read_text("utf-8"))
    models = {name: _model(entry) for name, entry in table["models"].items()}
    groups = [(group["wave"], list(_cases(group, models))) for group in table["group"]]
    found = []
    for wave in sorted({wave for wave, _ in groups}):
        turns = zip_longest(*(cases for number, cases in groups if number == wave))
        found += [case for case in chain.from_iterable(turns) if case is not None]
    return found


def _model(entry: Mapping[str, Any]) -> str | dict[str, Any]:
    """A catalog name, or a config: the one given, or a catalog model's with other values."""
    if "config" in entry:
        return dict(entry["config"])
    changes = {key: value for key, value in entry.items() if key != "like"}
    return {**resolve(entry["like"]).config, **changes} if changes else entry["like"]


def _cases(group: Mapping[str, Any], models: Mapping[str, Any]) -> Iterator[Case]:
    """A group's cases, the models of one size after another, so that no model comes twice in a row."""
    task = group["task"]
    for sizes in group["sizes"]:
        for model in group["models"]:
            named = dict(zip(SIZES[task], sizes, strict=True))
            kind = group["name"] if group["name"].startswith(task) else f"{task}-{group['name']}"
            name = "-".join(filter(None, [model, kind, "x".join(map(str, sizes))]))
            scenario = {"model": models[model], "task": task, TABLES[task]: {**group["settings"], **named}}
            yield Case(name, group["wave"], scenario)
