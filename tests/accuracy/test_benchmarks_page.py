"""benchmarks/README.md: what its scripts print that does not hang on how busy a machine is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from by_turns import is_thorough

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not is_thorough(), reason="a minute and a half of CPU: in a thorough run")
@pytest.mark.parametrize("script", ["speed", "published_layouts"])
def test_the_page_shows_what_the_script_prints(script: str) -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    shown = page.partition(f"$ python benchmarks/{script}.py\n")[2].partition("```")[0]
    done = subprocess.run(
        [sys.executable, f"benchmarks/{script}.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert set(shown.splitlines()) <= set(done.stdout.splitlines())
