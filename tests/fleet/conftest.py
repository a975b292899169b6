"""Seven planted days of 64 GPUs in a real Prometheus."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made_fleet import ASKED, DAYS, day_of_metrics
from real_prometheus import program, prometheus


@pytest.fixture(scope="session")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The seven days as OpenMetrics files."""
    folder = tmp_path_factory.mktemp("days")
    files = [folder / f"{day}.om" for day in range(DAYS)]
    for day, file in enumerate(files):
        file.write_text("\n".join(day_of_metrics(day)) + "\n")
    return files


@pytest.fixture(scope="session")
def seven_days(days: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus with the seven days."""
    promtool, folder = program("promtool"), tmp_path_factory.mktemp("prometheus")
    (folder / "tsdb").mkdir()
    for file in days:
        words = [promtool, "tsdb", "create-blocks-from", "openmetrics", "-q", str(file), str(folder / "tsdb")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    with prometheus(folder) as address:
        yield address


@pytest.fixture
def ask(seven_days: str):
    """Runs the command on the seven days."""
    from vramwise.cli.main import main

    return lambda *words: main(["fleet", "--prometheus", seven_days, *ASKED, *words])
