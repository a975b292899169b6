"""What starts a training script: `accelerate launch`, `torchrun`, `deepspeed` or python alone, and on how many GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from vramwise.errors import clipped
from vramwise.interop.beside import file_table
from vramwise.interop.deepspeed import deepspeed_table, is_accelerates
from vramwise.interop.deepspeed_listed import listed
from vramwise.interop.launch.command import Start
from vramwise.interop.launch.options import Options

_NESTED = ("fsdp_config", "deepspeed_config", "parallelism_config", "dynamo_config")
GPUS_UNSAID = "nothing says how many GPUs run it: --num-gpus does (before --)"
_GPUS_OF_A_NODE = 8
_MPI = frozenset({"mpirun", "mpiexec", "horovodrun"})
# trl 1.16 trl/accelerate_configs: names that `--accelerate_config` takes besides files.
_PRESETS: dict[str, dict[str, object]] = {
    "single_gpu": {"num_processes": 1},
    "multi_gpu": {"num_processes": 8},
    "zero1": {"num_processes": 8, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 1}},
    "zero2": {"num_processes": 8, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2}},
    "zero3": {"num_processes": 8, "distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 3}},
    "fsdp1": {"num_processes": 8, "distributed_type": "FSDP",
              "fsdp_config": {"fsdp_version": 1, "fsdp_cpu_ram_efficient_loading": True}},
    "fsdp2": {"num_processes": 8, "distributed_type": "FSDP",
              "fsdp_config": {"fsdp_version": 2, "fsdp_cpu_ram_efficient_loading": True}},
}  # fmt: skip


@dataclass(slots=True)
class Launcher:
    """GPUs in all (None: not said) and on a node; `accelerate` has what accelerate was told, its file included."""

    gpus: int | None = None
    per_node: int | None = None
    accelerate: Options | None = None
    notes: list[str] = field(default_factory=list)

    def table(self) -> dict[str, int]:
        """The scenario's keys; without a number the estimate takes as many GPUs as the layout needs."""
        if not self.gpus:
            return {}
        return {"num_gpus": self.gpus, "gpus_per_node": max(1, self.per_node or min(self.gpus, _GPUS_OF_A_NODE))}

    def said(self) -> list[str]:
        """Notes, of the launcher's own options too."""
        unsaid = [] if self.gpus else [GPUS_UNSAID]
        own = self.accelerate
        read = own.understood() if own is not None and own.first("config_file", "accelerate_config") else ()
        named = [f"accelerate: read from it: {', '.join(name for name in read if name[0] != '-')}"] if read else []
        return [*self.notes, *named, *(own.notes() if own is not None else ()), *unsaid]


def launcher_of(start: Start) -> Launcher:
    """The launcher among the words before a script. Raises SourceError for a configuration that is not there."""
    names = [re.split(r"[\\/]", word)[-1] for word in start.before]
    programs = [place for place, name in enumerate(names) if name in ("accelerate", "accelerate.commands.launch")]
    if programs:
        words = start.before[programs[-1] + 1 :]
        options = Options(("accelerate",), "accelerate")
        options.read_words(tuple(word for word in words if word != "launch"))
        return accelerated(options, start.environment)
    if "deepspeed" in names:
        return _deepspeed(start, names.index("deepspeed"))
    if {"torchrun", "torch.distributed.run", "torch.distributed.launch"} & set(names):
        return _torchrun(start)
    if _MPI & set(names):
        return Launcher(_ranks_of_mpi(start.before) or 1)
    world = start.environment.get("WORLD_SIZE", "")  # of a pod for each process (kubeflow's PyTorchJob)
    alone = int(world) if world.isdecimal() and 0 < len(world) < 6 else 1
    return Launcher(_visible(start.environment) or alone)


def _ranks_of_mpi(words: tuple[str, ...]) -> int | None:
    """`mpirun -np 16`, `mpiexec -n 16`."""
    for flag, value in pairwise(words):
        if flag in ("-np", "-n", "--np", "--n", "-c") and value.isdecimal() and len(value) < 6:
            return int(value)
    return None


def by_environment(start: Start) -> Launcher:
    """The launcher of programs that start torchrun themselves: NPROC_PER_NODE, or all GPUs that are visible."""
    each = start.environment.get("NPROC_PER_NODE", "")
    nodes = start.environment.get("NNODES", "1")
    found = int(each) if each.isdecimal() else _visible(start.environment)
    return Launcher(found * int(nodes) if found and nodes.isdecimal() else found, found)


def accelerated(options: Options, environment: Mapping[str, str]) -> Launcher:
    """The launcher of accelerate's options, its configuration file read."""
    named = options.first("config_file", "accelerate_config")
    if named:
        _read_accelerates(options, _PRESETS[named] if named in _PRESETS else file_table(named))
    gpus = options.number("num_processes") or _listed_gpus(options.first("gpu_ids") or "") or _visible(environment)
    nodes = options.number("num_machines") or 1
    return Launcher(gpus, gpus // nodes if gpus and nodes > 1 else None, options)


def _read_accelerates(options: Options, table: Mapping[str, object]) -> None:
    """What accelerate's configuration sets, that of its plugins among it."""
    options.read_table({key: value for key, value in table.items() if key not in _NESTED})
    for key in _NESTED:
        inner = table.get(key)
        if isinstance(inner, Mapping):
            options.read_table(inner)


def notes_of_zero_file(path: str) -> list[str]:
    """What DeepSpeed's file or accelerate's sets, name by name. Raises SourceError for one that cannot be read."""
    table, _ = deepspeed_table(path)
    if not is_accelerates(table):
        return [f"{clipped(path)} is a configuration of DeepSpeed", *(f"DeepSpeed: {note}" for note in listed(table))]
    options = Options(("accelerate",), "accelerate")
    _read_accelerates(options, table)
    read = ", ".join(options.understood())
    notes = [f"{clipped(path)} is a configuration of accelerate", f"accelerate: read from it: {read}", *options.notes()]
    named = options.first("deepspeed_config_file")
    beside = os.path.join(os.path.dirname(path), named) if named else ""
    return notes + (notes_of_zero_file(beside if os.path.exists(beside) else named) if named else [])


def torchrun_gpus(words: tuple[str, ...], environment: Mapping[str, str]) -> tuple[int, int]:
    """Processes of a node and nodes, by torchrun's words or by its variables (torch 2.13 distributed/argparse_util.py:
    PET_…); 0 where neither says it."""
    from vramwise.interop.launch.flags import cut

    found = cut("torchrun", words)

    def count(*flags: str) -> int:
        texts = [found.given[flag][-1].rpartition(":")[2] for flag in flags if found.given.get(flag)]
        return int(texts[0]) if texts and texts[0].isdecimal() else 0

    def told(name: str) -> int:
        text = environment.get(f"PET_{name}", "").rpartition(":")[2]
        return int(text) if text.isdecimal() and len(text) < 6 else 0

    each, nodes = count("--nproc-per-node", "--nproc"), count("--nnodes")
    return each or told("NPROC_PER_NODE"), nodes or told("NNODES") or 1


def _torchrun(start: Start) -> Launcher:
    each, nodes = torchrun_gpus(start.before, start.environment)
    each = each or _visible(start.environment) or 0
    return Launcher(each * nodes or None, each or None)


def _deepspeed(start: Start, place: int) -> Launcher:
    options = Options(("deepspeed",), "deepspeed")
    options.read_words(start.before[place + 1 :])
    each = options.number("num_gpus")
    nodes = options.number("num_nodes") or 1
    included = options.first("include", "i")
    if included:
        hosts = [host for host in included.split("@") if host]
        each, nodes = _listed_gpus(hosts[0].rpartition(":")[2]) if hosts else 0, max(1, len(hosts))
    each = each or _visible(start.environment)
    return Launcher(each * nodes if each else None, each, None, options.notes())


def _visible(environment: Mapping[str, str]) -> int | None:
    return _listed_gpus(environment.get("CUDA_VISIBLE_DEVICES", ""))


def _listed_gpus(text: str) -> int | None:
    """How many GPUs `0,1,2` names."""
    names = [name for name in text.split(",") if name.strip().isdecimal()]
    return len(names) or None
