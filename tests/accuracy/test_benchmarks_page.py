"""benchmarks/README.md: what its scripts print whatever the load; where published layouts stand and why."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from by_turns import is_thorough
from vramwise.planner.changes import changed
from vramwise.training_parts import parts_of_step, tokens_per_second

ROOT = Path(__file__).parents[2]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LAYOUTS = _script("published_layouts")
RUNS = {case.id: own for case, own in LAYOUTS.multi_node()}


@pytest.mark.skipif(not is_thorough(), reason="a minute and a half of CPU: in a thorough run")
@pytest.mark.parametrize("script", ["speed", "published_layouts"])
def test_the_page_shows_what_the_script_prints(script: str) -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    shown = page.partition(f"$ python benchmarks/{script}.py\n")[2].partition("```")[0]
    done = subprocess.run(
        [sys.executable, f"benchmarks/{script}.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(shown.splitlines()) <= set(done.stdout.splitlines())


@pytest.mark.skipif(not is_thorough(), reason="some seconds of CPU for each of 65 runs: in a thorough run")
@pytest.mark.parametrize("run", sorted(RUNS))
def test_a_published_layout_stands_among_the_best_tenth_or_a_note_says_why(run: str) -> None:
    found = LAYOUTS.judged(RUNS[run])
    low = sum(LAYOUTS.is_low(place) for place in (found.place, found.of_its_kind) if place[1])
    if not found.place[1]:
        assert found.notes
        return
    assert len(found.notes) == low
    for title, why, *left_out in found.notes:
        assert "with the same" not in title
        assert "preferred for" in why
        assert len(left_out) > 1
        assert all(line.startswith("        not counted: ") for line in left_out)


@pytest.mark.parametrize(
    ("run", "values", "gained", "left_out"),
    [
        ("speed-torchtitan-llama-3.1-70b-256-8192-829", {"tensor_parallel_size": 1, "micro_batch_size": 2},
         "layers' collectives (23% of the step, 0% of its)", "collectives of tensor parallelism that run beside"),
        ("speed-megatron-sc21-18.4b", {"tensor_parallel_size": 2, "pipeline_parallel_size": 4},
         "layers' collectives (14% of the step, 2% of its)", "sends between stages"),
    ],
)  # fmt: skip
def test_a_note_says_what_another_layout_gains_and_what_is_not_counted(run, values, gained, left_out):
    own = RUNS[run]
    made = changed(own, values)
    title, why, *missing = LAYOUTS.note("of all", own, tokens_per_second(own), tokens_per_second(made), made)
    assert all(f"{key} {value} for " in title for key, value in values.items())
    assert gained in why
    assert any(left_out in line for line in missing)


def test_the_parts_of_a_step_are_its_seconds():
    for own in list(RUNS.values())[:3]:
        rate, seconds = tokens_per_second(own), sum(parts_of_step(own).values())
        tokens = LAYOUTS.batch_of(own) * own.train.sequence_length
        assert rate == pytest.approx(tokens / seconds, rel=1e-4)
