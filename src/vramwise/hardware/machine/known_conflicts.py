"""Known conflicts: between packages, between a GPU and what torch was built for, between a driver and CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vramwise.releases import within


class Needs(NamedTuple):
    """`package` of the versions `when` needs `other` of the versions `wants`; else `what` happens."""

    package: str
    when: str
    other: str
    wants: str
    what: str
    source: str


_RESOLVER = "the package's own requirement"
_T5, _T4 = "transformers 5.23.0", "transformers 4.57.1"
KNOWN = (
    Needs("transformers", ">=5.23", "torch", ">=2.6", "models do not load", _T5),
    Needs("transformers", ">=5.23", "accelerate", ">=1.1", _RESOLVER, _T5),
    Needs("transformers", ">=5.23,<5.24", "peft", ">=0.20", "adapters do not load", f"{_T5}, integrations/peft.py"),
    Needs("transformers", ">=5.24", "peft", ">=0.22", "adapters do not load",
          "transformers 5.24.0, integrations/peft.py"),
    Needs("transformers", ">=5.23", "bitsandbytes", ">=0.46.1", "4- and 8-bit loading is refused",
          f"{_T5}, utils/import_utils.py"),
    Needs("transformers", ">=5.23", "flash-attn", ">=2.3.3", "attn_implementation=flash_attention_2 is refused",
          f"{_T5}, utils/import_utils.py"),
    Needs("transformers", ">=4.57.1", "torch", ">=2.2", "models do not load", _T4),
    Needs("transformers", ">=4.57.1,<5", "huggingface-hub", ">=0.34,<1", "import fails", _T4),
    Needs("transformers", ">=4.57.1", "deepspeed", ">=0.9.3", "ZeRO-3 loading is refused", _T4),
    Needs("bitsandbytes", ">=0.50", "torch", ">=2.4", _RESOLVER, "bitsandbytes 0.50.2 metadata"),
    Needs("xformers", ">=0.0.35", "torch", ">=2.10", _RESOLVER, "xformers 0.0.35 metadata"),
    Needs("vllm", "==0.33.0", "torch", "==2.14.0", "its kernels are built for that torch", "vllm 0.33.0 metadata"),
    Needs("vllm", "==0.33.0", "transformers", ">=5.16.1,<5.21", _RESOLVER, "vllm 0.33.0 metadata"),
    Needs("torch", "<2.3", "numpy", "<2", "tensors cannot become arrays: built against NumPy 1", "PyTorch 2.3 notes"),
)  # fmt: skip
VISION_AHEAD = 15
"""torchvision's minor version is torch 2's and 15 (pytorch/vision, README: 0.22 with 2.7, 0.29 with 2.14)."""
LAST_PAIRED_AUDIO = (2, 9)
"""Up to here torchaudio requires torch of its own version (metadata of 2.6 to 2.9); 2.11 goes with several."""
LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""Driver branch that a major version of CUDA needs (NVIDIA, CUDA compatibility, minor version compatibility)."""
LEAST_CUDA = {9: (11, 8), 10: (12, 8), 12: (12, 8)}
"""CUDA that first compiles for a major compute capability (CUDA toolkit release notes 11.8 and 12.8)."""
LAST_CUDA_OF_OLD_GPUS, LEAST_OF_CUDA_13 = 12, (7, 5)
"""CUDA 13 no longer compiles for Maxwell, Pascal and Volta (CUDA toolkit 13.0 release notes)."""
FLASH_ATTENTION_2 = (8, 0)
"""FlashAttention 2 runs on Ampere and newer (Dao-AILab/flash-attention, README)."""

_SPECIFIER = re.compile(r"(>=|==|<)([\d.]+)")


def package_conflicts(packages: Mapping[str, str]) -> list[str]:
    """What installed versions are known not to go together, one sentence each."""
    found = [
        f"{row.package} {packages[row.package]} needs {row.other} {row.wants.replace(',', ', ')}, "
        f"there is {packages[row.other]}: {row.what} ({row.source})"
        for row in KNOWN
        if row.package in packages
        and row.other in packages
        and _meets(packages[row.package], row.when)
        and not _meets(packages[row.other], row.wants)
    ]
    return [*found, *_companions(packages)]


def _companions(packages: Mapping[str, str]) -> list[str]:
    """torchvision and torchaudio, which are compiled against one version of torch."""
    torch = _release(packages.get("torch", ""))
    if len(torch) < 2 or torch[0] != 2:
        return []
    found = []
    vision, audio = _release(packages.get("torchvision", "")), _release(packages.get("torchaudio", ""))
    if len(vision) > 1 and vision[:2] != (0, torch[1] + VISION_AHEAD):
        found.append(
            f"torchvision {packages['torchvision']} is not built for torch {packages['torch']}, which goes with "
            f"0.{torch[1] + VISION_AHEAD}: “operator torchvision::nms does not exist” and the like"
        )
    if len(audio) > 1 and audio[:2] <= LAST_PAIRED_AUDIO and audio[:2] != torch[:2]:
        found.append(
            f"torchaudio {packages['torchaudio']} is not built for torch {packages['torch']}: its import fails"
        )
    return found


def gpu_conflicts(
    gpus: Iterable[tuple[str, str]], torch_cuda: str | None, packages: Mapping[str, str]
) -> list[str]:  # fmt: skip
    """What GPUs, by name and compute capability (“9.0”), cannot do with the software that is there."""
    found: dict[str, None] = {}
    cuda = _release(torch_cuda or "")
    for name, capability in gpus:
        level = _release(capability)
        if len(level) != 2:
            continue  # AMD's are gfx942 and the like
        least = LEAST_CUDA.get(level[0])
        if cuda and least and cuda < least:
            found[f"{name} (compute capability {capability}) needs a torch for CUDA {least[0]}.{least[1]} or newer, "
                  f"this one is for {torch_cuda}: “no kernel image is available”"] = None  # fmt: skip
        if cuda and cuda[0] > LAST_CUDA_OF_OLD_GPUS and level < LEAST_OF_CUDA_13:
            found[f"{name} (compute capability {capability}) needs a torch for CUDA 12, this one is for {torch_cuda}, "
                  "which no longer has kernels for it"] = None  # fmt: skip
        if "flash-attn" in packages and _release(packages["flash-attn"])[:1] >= (2,) and level < FLASH_ATTENTION_2:
            found[f"flash-attn {packages['flash-attn']} does not run on {name}: compute capability 8.0 or newer"] = None
    return list(found)


def driver_conflict(torch_cuda: str | None, driver: str | None) -> list[str]:
    """Whether a driver's version is too old for the CUDA that torch was built with, where only the version is known."""
    cuda, branch = _release(torch_cuda or ""), _release(driver or "")
    least = LEAST_DRIVER.get(cuda[0]) if cuda else None
    if least is None or not branch or branch[0] >= least:
        return []
    return [f"torch is built for CUDA {torch_cuda}, which needs driver {least} or newer: this one is {driver}"]


def _meets(version: str, wanted: str) -> bool:
    """Whether a version's numbers meet every condition; what cannot be read meets them."""
    given = _release(version)
    return not given or all(within(given, sign, _release(text)) for sign, text in _SPECIFIER.findall(wanted))


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers: 2.7.1+cu126 is (2, 7, 1)."""
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(map(int, found.group(1).split("."))) if found else ()
