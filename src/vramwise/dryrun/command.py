"""A command that starts a script, as a question to the process that runs it without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from vramwise.dryrun.launch import end, need_torch, quiet_environment, why
from vramwise.dryrun.outcome import context_node, result_of, workspace_bytes
from vramwise.dryrun.scenario import card_of
from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.hardware import find_gpu
from vramwise.hardware.room import room_of
from vramwise.result import Result
from vramwise.scenario import Scenario

_GRACE_S: Final = 60.0
"""For importing what the script's own time does not count."""
_QUIET: Final = {
    "WANDB_MODE": "disabled", "WANDB_DISABLED": "true", "COMET_MODE": "disabled", "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "MLFLOW_TRACKING_URI": "",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
}  # fmt: skip
_PYTHON: Final = ("python", "python3")
_SEVERAL: Final = ("torchrun", "accelerate", "deepspeed")


def script_of(words: Sequence[str]) -> list[str]:
    """What Python is to run: `[FILE, …]` or `["-m", MODULE, …]`. Raises UsageError for another program."""
    program = Path(words[0]).name
    if program in _SEVERAL:
        raise UsageError(
            f"dry-run runs a script in one process: give it as python FILE …, without {program}; for several ranks "
            "estimate answers"
        )
    rest = list(words[1:]) if program in _PYTHON or program.startswith("python3.") else list(words)
    while rest and rest[0] in ("-u", "-B", "-O", "-P", "-I"):
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m":
        return rest
    if not rest or not rest[0].endswith(".py"):
        raise UsageError(
            f'dry-run runs Python: expected python FILE.py … or python -m MODULE …, got "{clipped(words[0])}"'
        )
    if not Path(rest[0]).is_file():
        raise UsageError(f"{clipped(rest[0])}: no such file")
    return rest


def dry_run_of_command(
    words: Sequence[str], gpu: str | None, total_bytes: int | None, *, timeout_s: float, snapshot: str | None = None,
    flame: str | None = None, allow_writes: bool = False,
) -> Result:  # fmt: skip
    """The result of a script's first two steps. Raises VramwiseError with the script's line where it stops."""
    command = script_of(words)
    need_torch("torch")
    row = find_gpu(gpu).gpu if gpu is not None else None
    named = {
        "model": command[-1 if command[0] == "-m" else 0],
        "task": "load",
        "gpu": gpu,
        "gpu_total_bytes": total_bytes,
    }
    known = {key: value for key, value in named.items() if value is not None}
    room = room_of(Scenario.from_dict(known), row) if row is not None or total_bytes is not None else None
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        asked = {
            "command": command, "card": card_of(row, total_bytes), "workspace_bytes": workspace_bytes(row),
            "timeout_s": timeout_s, "folder": str(Path(folder) / "files"), "allow_writes": allow_writes,
            "snapshot": snapshot, "flame": flame,
            "room_bytes": None if room is None else room.usable_bytes - context_node(row).bytes,
        }  # fmt: skip
        found = _answer(asked, Path(folder))
    facts = {"task": "script", "gpu": gpu, "num_gpus": 1, "script": {"command": list(words)}}
    name = Path(command[0] if command[0] != "-m" else command[1]).name
    notes = [] if allow_writes else ["files that the script wrote lay in a temporary folder, which is gone"]
    return result_of(found, facts, name, row, room, notes)


def _answer(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    question, said = folder / "asked.json", folder / "stderr"
    question.write_text(json.dumps(asked), "utf-8")
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = quiet_environment({**os.environ, **_QUIET, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""})
    with open(said, "w", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "vramwise.dryrun.script", str(question)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=errors, env=environment, text=True, start_new_session=True,
        )  # fmt: skip
        late = False
        try:
            out, _ = process.communicate(timeout=asked["timeout_s"] + _GRACE_S)
        except subprocess.TimeoutExpired:
            out, late = "", True
        finally:
            end(process)
            if process.stdout is not None:
                process.stdout.close()
    try:
        found: dict[str, Any] = json.loads(out)
    except ValueError:
        text = said.read_text("utf-8", errors="replace")
        raise VramwiseError(why(process.returncode, text, asked["timeout_s"] if late else None)) from None
    return found
