"""A hub on loopback for the tests of the network, and the environment that leads there and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fake_hub import FakeHub

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as server:
        yield server


@pytest.fixture
def network(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    """The hub, asked by this process: both hubs are it, caches are empty, nobody is logged in."""
    constants = pytest.importorskip("huggingface_hub.constants")
    for name, value in surroundings(hub, tmp_path).items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    return hub


@pytest.fixture
def vramwise(hub: FakeHub, tmp_path: Path) -> Run:
    """The command, run as people run it; keywords are environment variables."""

    def run(*arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        environment = {**kept, **surroundings(hub, tmp_path), **changed}
        program = [sys.executable, "-m", "vramwise", *arguments]
        return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=600, check=False)

    return run


def surroundings(hub: FakeHub, folder: Path) -> dict[str, str]:
    return {
        "HF_ENDPOINT": hub.endpoint, "MODELSCOPE_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(folder / "hf"), "HF_HUB_CACHE": str(folder / "hf" / "hub"),
        "VRAMWISE_CACHE": str(folder / "kept"), "MODELSCOPE_CACHE": str(folder / "ms"), "NO_PROXY": "127.0.0.1",
    }  # fmt: skip
