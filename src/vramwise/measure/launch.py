"""Starting the process of a job, following it, and ending it well: an interrupt leaves what is finished."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from vramwise.errors import VramwiseError
from vramwise.measure.job import Job, Report
from vramwise.measure.libraries import is_installed

_LOOKS_A_SECOND: Final = 10
_GRACE_SECONDS: Final = 20
_KILLED: Final = -9
_TOO_LONG: Final = "it took longer than"
Progress = Callable[[int, int], None]
"""Called with the steps that are done and all steps."""


def devices() -> dict[str, Any]:
    """What torch sees, asked in a process of its own: {"gpus": [{name, total_bytes}], "versions": {...}}.

    Raises VramwiseError when torch is missing or does not start.
    """
    _need_torch()
    done = subprocess.run(
        _command("probe"), capture_output=True, text=True, errors="replace", timeout=300, check=False,
        env=_safe_environment(),
    )  # fmt: skip
    if done.returncode:
        raise VramwiseError(f"torch does not start: {_last_line(done.stderr)}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_job(job: Job, progress: Progress, timeout_s: float = 3600.0) -> list[Report]:
    """Run a job in a fresh process (under torchrun for several ranks); one report a rank.

    Out of memory is a report. Raises VramwiseError when torch is missing. An interrupt ends the process and gives the
    reports that it managed to write, marked `interrupted`.
    """
    _need_torch()
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        where = Path(folder)
        job.write(where / "job.json")
        with open(where / "stderr", "w+", encoding="utf-8", errors="replace") as errors:
            process = subprocess.Popen(
                _job_command(job, where), stdout=errors, stderr=errors, env=job_environment(job), text=True,
                start_new_session=True,  # an interrupt reaches it through `_interrupt`, once
            )  # fmt: skip
            interrupted, timed_out = False, False
            try:
                timed_out = not _follow(process, where, progress, time.monotonic() + timeout_s)
            except KeyboardInterrupt:
                interrupted = True
                _interrupt(process)
            finally:
                _end(process, 0 if timed_out else _GRACE_SECONDS)
            errors.seek(0)
            said = f"{_TOO_LONG} {timeout_s:.0f} seconds (--timeout)" if timed_out else errors.read()
        return _reports(job, where, process.returncode, said, interrupted)


def _need_torch() -> None:
    for name in ("torch", "transformers"):
        if not is_installed(name):
            raise VramwiseError(f"measure runs the real model and needs {name}: pip install 'vramwise[torch]'")


def _command(*arguments: str) -> list[str]:
    # -P: `-m` puts the working folder first on the path, and a downloaded folder may hold a torch.py of its own
    return [sys.executable, "-P", "-m", "vramwise.measure.worker", *arguments]


def _job_command(job: Job, folder: Path) -> list[str]:
    arguments = [str(folder / "job.json"), str(folder)]
    if job.num_processes == 1:
        return _command(*arguments)
    return [
        sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.num_processes}",
        "-m", "vramwise.measure.worker", *arguments,
    ]  # fmt: skip


def job_environment(job: Job) -> dict[str, str]:
    """No network for the hub, no advice on standard error, expandable segments where the scenario has them."""
    found = _safe_environment()
    if job.settings.get("expandable_segments"):
        found["PYTORCH_CUDA_ALLOC_CONF"] = found["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    return found


def _safe_environment() -> dict[str, str]:
    """PYTHONSAFEPATH is for torchrun's children, started without -P; an empty part of PYTHONPATH is this folder."""
    path = [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip


def _follow(process: subprocess.Popen[str], folder: Path, progress: Progress, until: float) -> bool:
    """Pass progress on until the process ends (true) or its time is up (false)."""
    seen = 0
    while process.poll() is None and time.monotonic() < until:
        for event in list(_events(folder / "rank-0.jsonl"))[seen:]:
            seen += 1
            if event.get("event") == "step":
                progress(int(event["done"]), int(event["of"]))
        time.sleep(1 / _LOOKS_A_SECOND)
    return process.poll() is not None


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Let every process of the run write its report."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGINT)


def _end(process: subprocess.Popen[str], patience_s: int) -> None:
    """Let an interrupted process write its report, then make sure that it is gone."""
    with _patience():
        process.wait(patience_s if process.poll() is None else 0)
    for stop in (process.terminate, process.kill):
        if process.poll() is None:
            stop()
            with _patience():
                process.wait(_GRACE_SECONDS)


@contextmanager
def _patience() -> Iterator[None]:
    try:
        yield
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        return


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:  # a line that is being written
            return


def _reports(job: Job, folder: Path, code: int | None, said: str, interrupted: bool) -> list[Report]:
    found = []
    for rank in range(job.num_processes):
        data = [event for event in _events(folder / f"rank-{rank}.jsonl") if event.get("event") == "report"]
        if data:
            report = Report.from_dict(data[-1])
            found.append(replace(report, interrupted=report.interrupted or interrupted))
        else:
            found.append(Report(failure=None if interrupted else _why(code, said), interrupted=interrupted))
    return found


def _why(code: int | None, said: str) -> str:
    if said.startswith(_TOO_LONG):
        return said
    if code == _KILLED:
        return "the process was killed, most likely because the machine ran out of memory of its own"
    if code is not None and code < 0:
        return f"the process ended by signal {-code}: {_last_line(said)}"
    return _last_line(said) or "the process ended without a report"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("USDT:")]
    return lines[-1][:500] if lines else ""
