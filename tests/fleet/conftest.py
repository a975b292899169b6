"""A real Prometheus over seven planted days of 64 GPUs. Without one these tests are skipped for a person, not in CI."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from urllib.error import URLError
from urllib.request import urlopen

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made_fleet import DAYS, day_of_metrics

STARTING_S = 60
ASKED = ("--since", "7d", "--until", "2026-01-12", "--step", "1h")
"""The seven days, at the resolution in which they were made."""


def program(name: str) -> str:
    """Where a program is; a test without it is skipped, or fails where CI is set."""
    found = which(name)
    if found is None:
        said = f"needs {name} (Debian's package prometheus)"
        pytest.fail(said) if os.environ.get("CI") else pytest.skip(said)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def running(words: list[str], log: Path, ready: str) -> Iterator[None]:
    """A server while the block runs, from the moment on that it answers."""
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + STARTING_S
        while True:
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            try:
                with urlopen(ready, timeout=5):
                    break
            except (URLError, OSError):
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The seven days as OpenMetrics files."""
    folder = tmp_path_factory.mktemp("days")
    files = [folder / f"{day}.om" for day in range(DAYS)]
    for day, file in enumerate(files):
        file.write_text("\n".join(day_of_metrics(day)) + "\n")
    return files


@contextmanager
def prometheus(folder: Path, config: str = "global: {}\n", blocks: Path | None = None) -> Iterator[str]:
    """The address of a Prometheus with a configuration, over blocks that are there."""
    settings, port = folder / "prometheus.yml", free_port()
    settings.write_text(config)
    words = [
        program("prometheus"), f"--config.file={settings}", f"--storage.tsdb.path={blocks or folder / 'tsdb'}",
        "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    with running(words, folder / "prometheus.log", f"{address}/-/ready"):
        yield address


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
