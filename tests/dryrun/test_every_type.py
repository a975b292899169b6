"""The estimate beside dry runs of every type's own class (every_type.py records the rows)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from agreement import deviations

from by_turns import has_turn

TABLE = Path(__file__).parents[1] / "golden" / "agreement_of_types.jsonl"
ROWS = {row["id"]: row for row in map(json.loads, TABLE.read_text("utf-8").splitlines())}
WITHIN = 0.01
WHOLE_STEP = {"backward end", "clipping", "optimizer step"}
UNTIL_BACKWARD = {"forward", "forward end", "backward: head", "backward: layers", "peak"}
OPEN = {
    # a batch of text reaches no expert and no layer of images, and a decoder alone no attention to an encoder
    "ernie4_5_vl_moe/a": WHOLE_STEP | UNTIL_BACKWARD | {"loss", "forward return"},
    "ernie4_5_vl_moe/b": WHOLE_STEP | UNTIL_BACKWARD | {"loss", "forward return"},
    "mllama/b": WHOLE_STEP | UNTIL_BACKWARD | {"loss", "forward return"},
    "trocr/a": WHOLE_STEP | UNTIL_BACKWARD,
    "trocr/b": WHOLE_STEP | UNTIL_BACKWARD,
    "trocr/c": WHOLE_STEP,
    # the class runs images before texts, and what is behind the layers of images is not behind those of texts
    "siglip/a": {"backward: head"},
    "siglip/b": {"backward: head", "first step"},
}  # fmt: skip
"""Moments in which the two are known to differ, and why (docs/dry-run.md)."""


@pytest.mark.parametrize("name", sorted(name for name in OPEN if has_turn(name, 4)))
def test_what_is_open_is_still_open(name: str) -> None:
    assert set(deviations(ROWS[name], WITHIN)) == OPEN[name]


@pytest.mark.parametrize("name", [name for name in ROWS if name not in OPEN and has_turn(name, 4)])
def test_every_moment_is_within_a_percent(name: str) -> None:
    assert deviations(ROWS[name], WITHIN) == {}


@pytest.mark.parametrize("kind", ["axk2", "deepseek_v32", "deepseek_v4", "dots3_note_text", "glm_moe_dsa", "hy_v4"])
def test_an_indexer_has_no_gradients_and_no_states(kind: str) -> None:
    assert not WHOLE_STEP & deviations(ROWS[f"{kind}/a"], 0.0002).keys()


def test_the_table_has_most_types() -> None:
    assert len({name.partition("/")[0] for name in ROWS}) >= 200
