"""Versions of what runs a training: `framework_version` as people write it.

"transformers 4.46, torch 2.5.1", pip's "transformers==4.46.0", or a number alone, which is the framework's own.
What is not stated is the newest that is described.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from vramwise.frameworks import framework_named, framework_of
from vramwise.scenario import TrainSettings

MET_LIGER_0_6_2 = (4, 56)  # transformers of 29 August 2025; Liger 0.6.2 is of 21 August
_BARE = re.compile(r"v?\d+(\.\d+)*\S*")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def stated(train: TrainSettings, package: str) -> tuple[int, ...] | None:
    """The version of a package that the scenario names, or None."""
    return _stated(train.framework_version or "", framework_of(train).package, package)


@lru_cache(maxsize=1024)
def _stated(text: str, own_package: str, package: str) -> tuple[int, ...] | None:
    if _BARE.fullmatch(text.strip()):
        text = f"{own_package} {text.strip()}"
    found = re.search(rf"(?<![\w-]){package}(?:\s*[=>~]=\s*|[\s:=-]\s*)v?(\d+(?:\.\d+)*)", text, re.IGNORECASE)
    return tuple(int(piece) for piece in found[1].split(".")) if found else None


def names(train: TrainSettings, package: str) -> bool:
    """Whether the scenario names a package, with a version or without."""
    return re.search(rf"\b{package}\b", train.framework_version or "", re.IGNORECASE) is not None


def names_a_version(train: TrainSettings) -> bool:
    """Whether `framework_version` has a number anywhere."""
    return train.framework_version is None or re.search(r"\d", train.framework_version) is not None


def month_named(train: TrainSettings) -> tuple[int, int] | None:
    """Year and month that the scenario names in place of a version ("2024-06", "March 2025"), or None."""
    text = train.framework_version or ""
    found = re.search(r"\b(20\d\d)-(\d\d)\b", text)
    if found:
        return int(found[1]), int(found[2])
    found = re.search(rf"\b({'|'.join(_MONTHS)})[a-z]* (20\d\d)\b", text, re.IGNORECASE)
    return (int(found[2]), _MONTHS.index(found[1].lower()) + 1) if found else None


def titled(train: TrainSettings) -> str:
    """The framework as its users call it, with the version whose rules are taken; a month stands for none."""
    framework = framework_of(train)
    if month_named(train):
        return framework.title
    version = stated(train, framework.package)
    return f"{framework.title} {'.'.join(map(str, version)) if version else framework.newest}".rstrip()


def library_version(train: TrainSettings) -> tuple[int, int]:
    """The transformers version that the scenario names; the described one without."""
    return _two(stated(train, "transformers") or described("transformers"))


def liger_version(train: TrainSettings) -> tuple[int, int, int]:
    """The Liger kernels' version that the scenario names, else the newest that its transformers version met."""
    found = stated(train, r"liger(?:[-_ ]kernel)?")
    return _three(found or ((0, 8, 5) if library_version(train) >= MET_LIGER_0_6_2 else (0, 6, 1)))


def torch_version(train: TrainSettings) -> tuple[int, int]:
    """The torch version that the scenario names; the described one without."""
    return _two(stated(train, "torch") or described("pytorch"))


def loads_kernels_lazily(train: TrainSettings) -> bool:
    """Whether the process loads a kernel when it first runs it: torch 1.13 sets CUDA_MODULE_LOADING (PR 86509)."""
    return torch_version(train) >= (1, 13)


def bitsandbytes_version(train: TrainSettings) -> tuple[int, int, int]:
    """The bitsandbytes version that the scenario names; the described one without."""
    return _three(stated(train, "bitsandbytes") or (0, 50, 2))


@cache
def described(framework: str) -> tuple[int, ...]:
    """The version of a framework's package that is described."""
    return tuple(int(piece) for piece in framework_named(framework).newest.split("."))


def _two(version: tuple[int, ...]) -> tuple[int, int]:
    first, second, *_ = (*version, 0)
    return first, second


def _three(version: tuple[int, ...]) -> tuple[int, int, int]:
    first, second, third, *_ = (*version, 0, 0)
    return first, second, third
