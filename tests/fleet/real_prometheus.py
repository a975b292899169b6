"""A real Prometheus for tests. Without one these are skipped for a person, and fail in CI."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from urllib.error import URLError
from urllib.request import urlopen

import pytest

STARTING_S = 600


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
                with urlopen(ready, timeout=60):
                    break
            except (URLError, OSError):
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(STARTING_S)


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
