"""Which versions go together: torch's CUDA, the compiler, the driver, and packages' own stated requirements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from vramwise.records import record

PACKAGES = (
    "torch", "transformers", "accelerate", "peft", "deepspeed", "flash-attn", "bitsandbytes", "vllm", "sglang",
    "xformers", "triton", "liger-kernel", "transformer-engine", "torchvision", "torchaudio", "huggingface-hub",
    "nvidia-ml-py", "numpy", "msgspec",
)  # fmt: skip
LOW_SHARED_MEMORY_GB = 1.0


@record
class Software:
    """Versions that were found; None where a tool did not say."""

    torch: str | None = None
    torch_cuda: str | None = None
    nvcc: str | None = None
    driver_cuda: str | None = None
    driver: str | None = None
    shared_memory_gb: float | None = None


def conflicts(software: Software) -> list[str]:
    """What does not go together, one sentence each.

    A driver runs programs of its own CUDA major version and older ones (CUDA compatibility: minor versions of one major
    are compatible). Extensions are compiled by nvcc against torch's CUDA, so their majors must agree (torch
    utils/cpp_extension.py refuses otherwise). DataLoader workers and NCCL pass data through /dev/shm.
    """
    found = []
    torch_major, nvcc_major = _major(software.torch_cuda), _major(software.nvcc)
    driver_major = _major(software.driver_cuda)
    if torch_major and driver_major and torch_major > driver_major:
        found.append(
            f"torch is built for CUDA {software.torch_cuda}, the driver runs up to CUDA {software.driver_cuda}: "
            "torch.cuda will not be available: update the driver or take a torch build for that CUDA"
        )
    if torch_major and nvcc_major and torch_major != nvcc_major:
        found.append(
            f"nvcc is CUDA {software.nvcc}, torch is built for CUDA {software.torch_cuda}: extensions that compile on "
            "the spot (DeepSpeed's ops, flash-attn from source) will refuse"
        )
    if software.shared_memory_gb is not None and software.shared_memory_gb < LOW_SHARED_MEMORY_GB:
        found.append(
            f"/dev/shm has {software.shared_memory_gb:g} GB: DataLoader workers and NCCL can fail with a bus error "
            "(containers: --shm-size or --ipc=host)"
        )
    if software.torch is not None and software.torch.endswith("+cpu") and software.driver is not None:
        found.append(f"torch {software.torch} is a CPU build on a machine with an NVIDIA driver")
    return found


def installed_packages() -> dict[str, str]:
    """Versions of the packages that matter, where they are installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def torch_build_cuda() -> str | None:
    """The CUDA version in the installed torch's version.py, which is read, not imported; None for other builds."""
    from importlib.util import find_spec

    spec = find_spec("torch")
    try:
        text = (Path(spec.origin).parent / "version.py").read_text("utf-8") if spec and spec.origin else ""
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None


def unmet_requirements(installed: Mapping[str, str]) -> list[str]:
    """What the installed packages themselves require of one another and do not get (extras left out).

    Empty also where `packaging` is not installed to read the requirements.
    """
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:
        return []
    from importlib.metadata import requires

    found = []
    for name in installed:
        for text in requires(name) or []:
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            other = requirement.name.lower().replace("_", "-")
            marker = requirement.marker
            if other not in installed or (marker is not None and not marker.evaluate({"extra": ""})):
                continue
            if not requirement.specifier.contains(installed[other], prereleases=True):
                wants = f"{other}{requirement.specifier}"
                found.append(f"{name} {installed[name]} requires {wants}, installed is {installed[other]}")
    return found


def _major(version: str | None) -> int | None:
    found = re.match(r"\D*(\d+)", version or "")
    return int(found.group(1)) if found else None
