"""A command that starts a script, as a question to the process that runs it without a GPU."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from vramwise.dryrun.launch import need_torch, output_of
from vramwise.dryrun.launchers import launcher_of, script_of
from vramwise.dryrun.outcome import context_node, result_of, workspace_bytes
from vramwise.dryrun.scenario import TIMEOUT_S, card_of
from vramwise.errors import UsageError, VramwiseError
from vramwise.hardware import find_gpu
from vramwise.hardware.room import room_of
from vramwise.result import Result
from vramwise.scenario import Scenario

_GRACE_S: Final = 60.0
"""For importing what the script's own time does not count."""
_QUIET: Final = {
    "WANDB_MODE": "disabled", "WANDB_DISABLED": "true", "COMET_MODE": "disabled", "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "MLFLOW_TRACKING_URI": "",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1", "DS_ACCELERATOR": "cuda",
}  # fmt: skip


def _name_of(words: Sequence[str], rank: int | None) -> str:
    """The script's name; raises UsageError for what is no script at all. A launcher's words are read in its process."""
    program, rest = launcher_of(words)
    if program == "python":
        command = script_of(rest, words)
        if rank is not None:
            raise UsageError("--rank is for a script that a launcher starts: -- torchrun --nproc-per-node N FILE.py …")
        return Path(command[1] if command[0] == "-m" else command[0]).name
    script = next((word for word in rest if word.endswith(".py")), program)
    return Path(script).name


@dataclass(frozen=True, slots=True)
class Run:
    """How somebody's own code runs: on which card, how long, what is assumed, which files are wanted."""

    gpu: str | None = None
    total_bytes: int | None = None
    timeout_s: float = TIMEOUT_S
    snapshot: str | None = None
    flame: str | None = None
    allow_writes: bool = False
    assumed: Mapping[str, str] = field(default_factory=dict)


def dry_run_of_command(words: Sequence[str], run: Run, rank: int | None = None) -> Result:
    """The result of a script's first two steps, of one rank where a launcher starts several.

    Raises VramwiseError with the script's line where it stops.
    """
    name = _name_of(words, rank)
    facts = {"task": "script", "script": {"command": list(words)}}
    return _result({"command": list(words), "rank": rank}, name, facts, run)


def dry_run_of_module(
    target: str,
    task: str,
    settings: Mapping[str, object],
    arguments: Mapping[str, object],
    inputs: Sequence[object],
    run: Run,
) -> Result:
    """The result of two steps (`train`), a forward pass (`generate`) or loading of a module of the user's own.

    `settings`: the task's table; `arguments` and `inputs` as `own_module` reads them. Raises VramwiseError with the
    module's line where it stops.
    """
    asked = {"target": target, "task": task, "settings": dict(settings), "arguments": dict(arguments),
             "inputs": list(inputs)}  # fmt: skip
    own = {"arguments": dict(arguments), "inputs": list(inputs)}
    return _result({"module": asked}, target, {"model": target, "task": task, task: {**settings, **own}}, run)


def _result(what: Mapping[str, object], name: str, facts: Mapping[str, Any], run: Run) -> Result:
    need_torch("torch")
    row = find_gpu(run.gpu).gpu if run.gpu is not None else None
    named = {"model": name, "task": "load", "gpu": run.gpu, "gpu_total_bytes": run.total_bytes}
    known = {key: value for key, value in named.items() if value is not None}
    room = room_of(Scenario.from_dict(known), row) if row is not None or run.total_bytes is not None else None
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        asked = {
            **what, "card": card_of(row, run.total_bytes), "workspace_bytes": workspace_bytes(row),
            "timeout_s": run.timeout_s, "folder": str(Path(folder) / "files"), "allow_writes": run.allow_writes,
            "snapshot": run.snapshot, "flame": run.flame, "assumed": dict(run.assumed),
            "room_bytes": None if room is None else room.usable_bytes - context_node(row).bytes,
        }  # fmt: skip
        found = _answer(asked, Path(folder))
    if "usage" in found:
        raise UsageError(found["usage"])
    ranks = found["ranks"] or {"world": 1}
    resolved = {**facts, "gpu": run.gpu, "num_gpus": ranks["world"]}
    return result_of(found, resolved, name, row, room, _notes(found, run), groups=int(ranks["world"] > 1))


def _notes(found: Mapping[str, Any], run: Run) -> list[str]:
    notes = [] if run.allow_writes else ["files that the code wrote lay in a temporary folder, which is gone"]
    ranks = found["ranks"]
    if ranks:
        notes.append(
            f"rank {ranks['rank']} of {ranks['world']:,} ran, with a process group that moves nothing; NCCL's buffers "
            "are the estimate's for one dimension of parallelism"
        )
    notes += found.get("remarks", ())
    used = [f"{key} = {value}" for key, value in run.assumed.items() if key not in found["unused"]]
    if used:
        notes.append(f"assumed: {', '.join(used)}")
    if found["unused"]:
        notes.append(f"assumed for nothing, since no code asked: {', '.join(found['unused'])}")
    return notes


def _answer(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    question = folder / "asked.json"
    question.write_text(json.dumps(asked), "utf-8")
    out, early = output_of("vramwise.dryrun.script", question, asked["timeout_s"], _QUIET, _GRACE_S)
    try:
        found: dict[str, object] = json.loads(out)
    except ValueError:
        raise VramwiseError(early) from None
    return found
