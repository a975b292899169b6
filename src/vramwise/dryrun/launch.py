"""Starting the process of dry runs, reading what it finds, and ending it in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from vramwise.errors import VramwiseError, clipped
from vramwise.measure.job import Job
from vramwise.measure.launch import job_environment
from vramwise.measure.libraries import is_installed

_KILLED: Final = -9
_LONGEST_ERROR: Final = 400


def need_torch(*names: str) -> None:
    """Raises VramwiseError where a library that a dry run needs is not installed."""
    for name in names:
        if not is_installed(name):
            raise VramwiseError(f"dry-run runs the real model and needs {name}: pip install 'vramwise[torch]'")


def answers_of(
    asked: Sequence[dict[str, Any]], job: Job, timeout_s: float
) -> Generator[dict[str, Any], None, None]:  # fmt: skip
    """Each question's answer as it comes, from one fresh process. Raises VramwiseError where it ends before the last.

    `timeout_s` is for all of them.
    """
    need_torch("torch", "transformers")
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        path, said = Path(folder) / "jobs.json", Path(folder) / "stderr"
        path.write_text(json.dumps(list(asked)), "utf-8")
        with open(said, "w", encoding="utf-8", errors="replace") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "vramwise.dryrun.worker", str(path)], stdout=subprocess.PIPE,
                stderr=errors, env=quiet_environment(job_environment(job)), text=True, start_new_session=True,
            )  # fmt: skip
            late = threading.Timer(timeout_s, end, (process,))
            late.daemon = True
            late.start()
            count = 0
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    count += 1
                    yield json.loads(line)
                process.wait()
            finally:
                timed_out = late.finished.is_set()
                late.cancel()
                end(process)
                if process.stdout is not None:
                    process.stdout.close()
        if count < len(asked):
            text = said.read_text("utf-8", errors="replace")
            raise VramwiseError(why(process.returncode, text, timeout_s if timed_out else None))


def output_of(
    module: str, question: Path, timeout_s: float, variables: Mapping[str, str], grace_s: float = 0.0
) -> tuple[str, str]:  # fmt: skip
    """What a module prints that is given the path of a question, and why it ended early, of use where that is nothing.

    It sees no GPU. `grace_s` is what it may take beyond `timeout_s`. Beside the question lies what it says of errors.
    """
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = quiet_environment({**os.environ, **variables, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""})
    said = question.with_name("stderr")
    with open(said, "w", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(question)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=errors, env=environment, text=True, start_new_session=True,
        )  # fmt: skip
        late = False
        try:
            out, _ = process.communicate(timeout=timeout_s + grace_s)
        except subprocess.TimeoutExpired:
            out, late = "", True
        finally:
            end(process)
            if process.stdout is not None:
                process.stdout.close()
    return out, why(process.returncode, said.read_text("utf-8", errors="replace"), timeout_s if late else None)


def quiet_environment(base: dict[str, str]) -> dict[str, str]:
    """Threads would only wait for one another: nothing is computed."""
    return {**base, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "TORCHDYNAMO_DISABLE": "1"}


def end(process: subprocess.Popen[str]) -> None:
    """Make sure that a process and its children are gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def why(code: int | None, said: str, timeout_s: float | None) -> str:
    """Why a process ended early, in one line."""
    if timeout_s is not None:
        return f"the dry run took longer than {timeout_s:.0f} seconds (--timeout)"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = clipped(lines[-1], _LONGEST_ERROR) if lines else "it said nothing"
    if code == _KILLED:
        return "the dry run was killed, most likely because this machine ran out of memory of its own"
    if code is not None and code < 0:
        return f"the dry run ended by signal {-code}: {last}"
    return f"the dry run ended early: {last}"
