"""The real program in a process of its own, its CPU time and memory bounded, and what every complaint looks like."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

MOST_CPU_SECONDS = 10  # none of these takes two, however busy the machine is
PATIENCE_S = 1800  # for one that waits for something and computes nothing
MOST_ADDRESS_BYTES = 2**30


class Outcome(NamedTuple):
    """What a person and a script see of one run."""

    code: int
    out: str
    err: str

    def complaint(self, code: int) -> str:
        """The one line that it complained with, once the exit code is `code` and nothing went to stdout."""
        assert self.code == code, self
        assert self.out == "", self.out[:500]
        return self.only_line()

    def only_line(self) -> str:
        """The one line on stderr; fails for a traceback, a bug of ours and a line that is no sentence."""
        assert "Traceback" not in self.err
        assert "internal error" not in self.err
        assert self.err.startswith("vramwise: "), self.err[:500]
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err[:500]
        assert len(self.err) < 700
        return self.err.removeprefix("vramwise: ").removesuffix("\n")


class Program:
    """`vramwise` in a folder of its own, with stdout where a test wants it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str | Path, stdin: bytes | None = None, stdout: int | None = None) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "vramwise", *map(str, arguments)],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_CACHE": str(self.folder / "no cache")},
            preexec_fn=_bounded,
            timeout=PATIENCE_S,
            check=False,
        )
        return Outcome(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_SECONDS, MOST_CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_BYTES, MOST_ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
