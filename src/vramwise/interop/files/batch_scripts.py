"""Shell scripts and Slurm's batch scripts: the programs they start, on the GPUs that `#SBATCH` asks for.

Options and variables: Slurm 24.05 sbatch (--nodes, --gpus, --gpus-per-node, --gres, --ntasks, --ntasks-per-node, their
short forms and SLURM_… in a job).
"""

from __future__ import annotations

import re
from dataclasses import replace

from vramwise.errors import VramwiseError, clipped
from vramwise.interop.files.programs import Program, programs_in_text

_DIRECTIVE = re.compile(r"^#SBATCH[ \t]+(.{1,500})$", re.M)
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch")
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-C": "--constraint"}
_MOST_DIRECTIVES = 200


def script_programs(text: str, name: str) -> list[Program]:
    """The known programs that a script starts, with the GPUs that Slurm gives them."""
    asked = _directives(text)
    nodes, per_node, tasks = _number(asked, "--nodes") or 1, _gpus_per_node(asked), _number(asked, "--ntasks")
    tasks_per_node = _number(asked, "--ntasks-per-node")
    tasks = tasks or (nodes * tasks_per_node if tasks_per_node else None)
    known = {
        "SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": tasks_per_node, "SLURM_GPUS_ON_NODE": per_node, "SLURM_GPUS_PER_NODE": per_node,
        "SLURM_GPUS": nodes * per_node if per_node else None,
    }  # fmt: skip
    variables = {key: str(value) for key, value in known.items() if value} if asked else {}
    found = [_without_slurm(one) for one in programs_in_text(text, variables, name)]
    if not asked or not per_node:
        return found
    total = nodes * per_node
    placed = [_alone_on_each(_on_gpus(one, total, per_node, tasks), nodes) for one in found]
    return [_on_card(one, _named_card(asked)) for one in placed]


def _alone_on_each(program: Program, nodes: int) -> Program:
    """torchrun that counts its processes and no nodes is a job of one node, on each of those that Slurm gives."""
    flags = {word.partition("=")[0].replace("_", "-") for word in program.words}
    if nodes < 2 or "torchrun" not in program.words or "--nproc-per-node" not in flags or "--nnodes" in flags:
        return program
    note = f"#SBATCH asks for {nodes} nodes, and torchrun without --nnodes starts a job of its own on each"
    return replace(program, notes=(*program.notes, note))


def _without_slurm(program: Program) -> Program:
    return replace(program, words=tuple(word for word in program.words if not word.startswith("SLURM_")))


def _on_gpus(program: Program, total: int, per_node: int, tasks: int | None) -> Program:
    """`srun python …` runs as many processes as tasks; launchers that do not say take every GPU of their nodes."""
    launched = any(launcher in word for word in program.words for launcher in _LAUNCHERS)
    if not launched and (tasks or 1) > 1 and "srun" in program.words:
        return replace(program, decided={"num_gpus": tasks, "gpus_per_node": per_node})
    return replace(program, settings={"num_gpus": total, "gpus_per_node": per_node})


def _on_card(program: Program, card: tuple[str, str] | None) -> Program:
    if card is None:
        return program
    named, gpu = card
    note = f"#SBATCH asks for {clipped(named, 40)}: taken as {gpu} (--gpu says another)"
    return replace(program, settings={**program.settings, "gpu": gpu}, notes=(*program.notes, note))


def _named_card(asked: dict[str, str]) -> tuple[str, str] | None:
    """The card that `gpu:a100:4` or a constraint names, as the site calls it and as it is known here."""
    from vramwise.hardware import find_gpu

    named = [
        part.split("(")[0].split(":")[-2]
        for option in ("--gpus-per-node", "--gres", "--gpus", "--gpus-per-task")
        for part in asked.get(option, "").split(",")
        if ":" in part
    ]
    for name in [*named, *re.split(r"[&|,\"' ]+", asked.get("--constraint", ""))]:
        try:
            if name and name != "gpu":
                return name, find_gpu(name.replace("_", "-")).gpu.id
        except VramwiseError:
            continue
    return None


def _directives(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in list(_DIRECTIVE.finditer(text))[:_MOST_DIRECTIVES]:
        words = match.group(1).split("#")[0].split()
        while words:
            option, sign, value = words.pop(0).partition("=")
            if not option.startswith("-"):
                continue
            if not option.startswith("--") and len(option) > 2:
                option, value, sign = option[:2], option[2:], "="
            if not sign and words and not words[0].startswith("-"):
                value = words.pop(0)
            found[_SHORT.get(option, option)] = value
    return found


def _number(asked: dict[str, str], option: str) -> int | None:
    text = asked.get(option, "").partition("-")[0]
    return int(text) if text.isdecimal() and len(text) < 7 else None


def _gpus_per_node(asked: dict[str, str]) -> int | None:
    """`--gpus-per-node=a100:4`, `--gres=gpu:a100:4`, `--gpus=8` over the nodes."""
    for option in ("--gpus-per-node", "--gres"):
        for part in asked.get(option, "").split(","):
            pieces = part.split("(")[0].split(":")
            if option == "--gres" and pieces[0] != "gpu":
                continue
            if pieces[-1].isdecimal() and len(pieces[-1]) < 5:
                return int(pieces[-1])
            if option == "--gres":
                return 1
    total = asked.get("--gpus", "").rpartition(":")[2]
    if total.isdecimal() and len(total) < 7:
        return max(1, int(total) // (_number(asked, "--nodes") or 1))
    return None
