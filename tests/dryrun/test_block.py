"""`with vramwise.dry_run(...)` and `@pytest.mark.vram`, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SAMPLE = Path(__file__).with_name("in_a_block.py")


@pytest.fixture(scope="module")
def printed():
    words = ["-q", "-p", "vramwise.dryrun.pytest_plugin", "-p", "no:cacheprovider", "--import-mode=importlib", "-c",
             "/dev/null", "-rA", str(SAMPLE)]  # fmt: skip
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the installed package may bring the plugin too
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, timeout=300, check=False, env=alone
    )
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "test_fits",
        "test_a_block_says_what_it_took",
        "test_autocast_checkpointing_and_attention_run",
        "test_a_mask_of_ones_hides_nothing_until_something_is_written_to_it",
    ],
)
def test_what_fits_passes(printed, name):
    assert any(line.startswith("PASSED") and line.endswith(f"::{name}") for line in printed.splitlines()), printed


def test_what_does_not_fit_fails_with_the_places(printed):
    line = next(line for line in printed.splitlines() if line.startswith("FAILED") and "test_does_not_fit" in line)
    assert "vram: needs " in line
    assert "the limit is 2GiB" in printed


def test_deciding_by_a_value_names_the_line(printed):
    line = SAMPLE.read_text("utf-8").splitlines().index("    if a_step(64).item() > 3:") + 1
    assert f"in_a_block.py:{line}: this decides by the value of a tensor" in printed
