"""What a launcher would start: torchrun's, accelerate's and deepspeed's own parsers read their words.

They are read in the process that runs the script, where these libraries are at hand and `torch.cuda` answers.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from vramwise.dryrun.fake_cuda import replaced
from vramwise.dryrun.ranks import MOST_RANKS, Ranks
from vramwise.errors import UsageError, clipped
from vramwise.measure.libraries import is_installed, library

TORCH_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
_ACCELERATE_MODULES: Final = ("accelerate.commands.launch",)
_PYTHON: Final = ("python", "python3")
_SWITCHES: Final = ("-u", "-B", "-O", "-P", "-I")


@dataclass(frozen=True, slots=True)
class Started:
    """What Python is to run (`[FILE, …]` or `["-m", MODULE, …]`), as which rank, with what in its environment."""

    command: list[str]
    ranks: Ranks | None = None
    environment: dict[str, str] = field(default_factory=dict)


def launcher_of(words: Sequence[str]) -> tuple[str, list[str]]:
    """`("python", what follows)`, or the launcher that is called and what follows it.

    Raises UsageError for a subcommand that starts no script.
    """
    program, rest = Path(words[0]).name, list(words[1:])
    if program in ("torchrun", "deepspeed"):
        return program, rest
    if program == "accelerate":
        if rest[:1] != ["launch"]:
            raise UsageError("accelerate: only accelerate launch starts a script")
        return "accelerate", rest[1:]
    if program == "accelerate-launch":
        return "accelerate", rest
    if program not in _PYTHON and not program.startswith("python3."):
        return "python", list(words)
    while rest and rest[0] in _SWITCHES:
        rest.pop(0)
    if rest[:1] == ["-m"] and len(rest) > 1:
        if rest[1] in TORCH_MODULES:
            return "torchrun", rest[2:]
        if rest[1] in _ACCELERATE_MODULES:
            return "accelerate", rest[2:]
    return "python", rest


def started(words: Sequence[str], rank: int | None) -> Started:
    """What a command starts. Raises UsageError for what is no script, and in the launcher's own words."""
    program, rest = launcher_of(words)
    if program == "python":
        return Started(script_of(rest, words))
    if program == "torchrun":
        return _torchrun(rest, rank or 0)
    if program == "accelerate":
        return _accelerate(rest, rank or 0)
    return _deepspeed(rest, rank or 0)


def script_of(rest: list[str], words: Sequence[str]) -> list[str]:
    """What Python is to run; raises UsageError where that is no Python file or module."""
    if len(rest) > 1 and rest[0] == "-m":
        return rest
    if not rest or not rest[0].endswith(".py"):
        raise UsageError(
            f'dry-run runs Python: expected python FILE.py … or python -m MODULE …, got "{clipped(words[0])}"'
        )
    if not Path(rest[0]).is_file():
        raise UsageError(f"{clipped(rest[0])}: no such file")
    return rest


def _torchrun(words: list[str], rank: int) -> Started:
    run = library("torch.distributed.run")
    found = _parsed(run.get_args_parser(), words, "torchrun")
    each, nodes = _processes(str(found.nproc_per_node)), _nodes(str(found.nnodes))
    return Started(_script(found, "torchrun"), _ranks(each * nodes, each, rank))


def _nodes(text: str) -> int:
    """The most machines of `N` or `LEAST:MOST`."""
    last = text.rpartition(":")[2]
    if not last.isdecimal():
        raise UsageError(f'torchrun: --nnodes: expected N or N:M, got "{clipped(text, 20)}"')
    return int(last)


def _processes(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(
            f"torchrun: --nproc-per-node {clipped(text, 20)} counts the cards of this machine, and a dry run has none: "
            "give their number"
        )
    return int(text)


def _accelerate(words: list[str], rank: int) -> Started:
    if not is_installed("accelerate"):
        raise UsageError("accelerate is not installed here, so that its words cannot be read: pip install accelerate")
    launch, utils = library("accelerate.commands.launch"), library("accelerate.utils.launch")
    found = _parsed(launch.launch_command_parser(), words, "accelerate launch")
    command = _script(found, "accelerate launch")
    with replaced(_one_free_card(utils)):
        try:
            found, _, _ = launch._validate_launch_command(found)
            if found.use_megatron_lm or found.tpu:
                raise UsageError("accelerate launch: dry-run starts scripts on CUDA cards, without Megatron-LM or TPUs")
            found.main_process_port, found.machine_rank = _ANY_PORT, found.machine_rank or 0
            every = _environment(found, utils)
        except (ValueError, RuntimeError, ImportError, OSError) as problem:
            raise UsageError(f"accelerate launch: {clipped(str(problem), 300)}") from None
    own = {name: value for name, value in every.items() if os.environ.get(name) != value and name != _THREADS}
    world, nodes = int(found.num_processes or 1), int(found.num_machines or 1)
    is_alone = world == 1 and not (found.use_fsdp or found.use_deepspeed or found.multi_gpu)
    return Started(command, None if is_alone else _ranks(world, max(1, world // nodes), rank), own)


def _environment(found: Any, utils: Any) -> dict[str, str]:
    """What accelerate tells its processes."""
    if not found.use_deepspeed:
        return dict(utils.prepare_multi_gpu_env(found))
    found.deepspeed_multinode_launcher = "standard"
    return dict(utils.prepare_deepspeed_cmd_env(found)[1])


def _one_free_card(utils: object) -> list[tuple[object, str, object]]:
    """accelerate looks at the machine that it starts on for what was not said."""
    cuda = library("torch").cuda
    return [
        (cuda, "is_available", lambda: True), (cuda, "device_count", lambda: 1),
        (cuda, "is_bf16_supported", lambda *_, **__: True), (utils, "is_port_in_use", lambda *_: False),
    ]  # fmt: skip


_ANY_PORT: Final = 29500
_THREADS: Final = "OMP_NUM_THREADS"


def _deepspeed(words: list[str], rank: int) -> Started:
    if not is_installed("deepspeed"):
        raise UsageError("deepspeed is not installed here, so that the script could not import it either")
    found = library("deepspeed.launcher.runner").parse_args(words)
    each = found.num_gpus if found.num_gpus > 0 else len(str(found.include or "0").split(","))
    nodes = max(1, found.num_nodes)
    command = _script_named(found.user_script, found.user_args, found.module, "deepspeed")
    if not found.no_local_rank:
        command.append("--local_rank=0")
    return Started(command, _ranks(each * nodes, each, rank))


def _script(found: Any, launcher: str) -> list[str]:
    return _script_named(found.training_script, found.training_script_args, found.module, launcher)


def _script_named(script: str, arguments: list[str], is_module: bool, launcher: str) -> list[str]:
    if is_module:
        return ["-m", script, *arguments]
    return script_of([script, *arguments], [f"{launcher} … {script}"])


def _ranks(world: int, of_a_node: int, rank: int) -> Ranks:
    if not 1 <= world <= MOST_RANKS:
        raise UsageError(f"dry-run stands in for 1 to {MOST_RANKS:,} ranks, and this starts {world:,}")
    if rank >= world:
        raise UsageError(f"--rank {rank}: the command starts ranks 0 to {world - 1}")
    return Ranks(world, of_a_node, rank)


def _parsed(parser: Any, words: list[str], launcher: str) -> Any:
    """A launcher's own reading of its words; its complaint as a UsageError."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            found = parser.parse_args(words)
    except SystemExit:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        raise UsageError(f"{launcher}: {clipped(lines[-1] if lines else 'nothing to start', 300)}") from None
    sys.stderr.write(said.getvalue())
    return found
