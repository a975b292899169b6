"""DeepSpeed's `ds_report` and torch's `collect_env`, read from their text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from vramwise.errors import SourceError

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_OP = re.compile(r"^(\w+) \.{2,} \[(YES|NO)\] \.{2,} \[(OKAY|NO)\]")
_DOTS = re.compile(r" \.{3,} ")
_WARNING = re.compile(r"^\s*\[WARNING\]\s+(.*)$")
_PACKAGE = re.compile(r"^\[(?:pip3?|conda)\] ([A-Za-z0-9_.-]+)(?:==|\s+)(\S+)")
_GPU = re.compile(r"^GPU (\d+): (.+)$")
NOT_COLLECTED = ("Could not collect", "N/A", "None")


@dataclass(frozen=True)
class Report:
    """Facts by their printed names, packages by name, GPUs in order, and for DeepSpeed each op's state."""

    kind: str
    facts: dict[str, str]
    packages: dict[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    ops: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def torch_version(self) -> str | None:
        """The version of torch, as it calls itself."""
        return self.facts.get("torch version") or self.facts.get("PyTorch version") or self.packages.get("torch")

    @property
    def torch_cuda(self) -> str | None:
        """The CUDA version that torch was built with."""
        return _known(self.facts.get("torch cuda version") or self.facts.get("CUDA used to build PyTorch"))

    @property
    def nvcc(self) -> str | None:
        """The CUDA compiler on the path."""
        return _known(self.facts.get("nvcc version") or self.facts.get("CUDA runtime version"))

    @property
    def driver(self) -> str | None:
        """The NVIDIA driver."""
        return _known(self.facts.get("Nvidia driver version"))


def read_ds_report(text: str) -> Report:
    """`ds_report`'s output; linker noise and warnings between the rows are kept apart. Raises SourceError."""
    lines = [_ESCAPE.sub("", line).rstrip() for line in text.splitlines()]
    ops = {m.group(1): (m.group(2) == "YES", m.group(3) == "OKAY") for line in lines if (m := _OP.match(line))}
    facts = {name: value for name, value in map(_fact, lines) if name and not _is_op(name, value)}
    if not ops and "deepspeed info" not in facts:
        raise SourceError("no ds_report here: expected rows such as “fused_adam ......... [NO] ....... [OKAY]”")
    warnings = tuple(m.group(1) for line in lines if (m := _WARNING.match(line)))
    packages = {}
    if "torch version" in facts:
        packages["torch"] = facts["torch version"]
    if "deepspeed info" in facts:
        packages["deepspeed"] = facts["deepspeed info"].split(",")[0]
    return Report("ds_report", facts, packages, ops=ops, warnings=warnings)


def read_collect_env(text: str) -> Report:
    """The output of `python -m torch.utils.collect_env`. Raises SourceError."""
    lines = [_ESCAPE.sub("", line).rstrip() for line in text.splitlines()]
    if not any(line.startswith("PyTorch version:") for line in lines):
        raise SourceError("no collect_env here: expected a line “PyTorch version: …”")
    facts: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and value.strip() and name and not name.startswith((" ", "[", "<", "GPU ")):
            facts.setdefault(name.strip(), value.strip())
    packages: dict[str, str] = {}
    for line in lines:
        found = _PACKAGE.match(line)
        if found and found.group(1) != "Could":
            packages.setdefault(found.group(1), found.group(2))
    gpus = tuple(m.group(2) for line in lines if (m := _GPU.match(line)))
    return Report("collect_env", facts, packages, gpus)


def _fact(line: str) -> tuple[str, str]:
    """`nvcc version ..... 11.8` in its two parts; two empty ones for another line."""
    dots = _DOTS.search(line)
    name = line[: dots.start()] if dots else ""
    if dots is None or not name[:1].isalpha() or "." in name.removesuffix("w."):
        return "", ""
    return name, line[dots.end() :].strip()


def _is_op(name: str, value: str) -> bool:
    return name == "op name" or value.startswith(("[YES]", "[NO]", "[OKAY]"))


def _known(value: str | None) -> str | None:
    return None if value is None or value.startswith(NOT_COLLECTED) else value
