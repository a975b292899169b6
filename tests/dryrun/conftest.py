"""What several tests of this folder share lies beside them; what they start has torch and transformers imported."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from warm_python import WarmPython

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def warm(warm_python: WarmPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of dry runs are forks; what is asked of the process itself, a test without this asks of a real one."""
    real = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "TimeoutExpired")}
    monkeypatch.setattr("vramwise.dryrun.launch.subprocess", SimpleNamespace(Popen=warm_python.popen, **real))
