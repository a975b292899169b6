"""Versions of what runs a training: `framework_version` as people write it.

"transformers 4.46, torch 2.5.1", pip's "transformers==4.46.0", or a number alone, which is the framework's own.
A package that is not named is the one that those named run with: the version that one of them pins, else the newest
that was out when the last of them came out (releases.py), within what they ask for. Where nothing is stated, what is
described.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_named, framework_of
from vramwise.scenario import TrainSettings

if TYPE_CHECKING:
    from vramwise.releases import Release, Version

NEWEST_TORCH = "2.13"
"""The torch that is described: what runs where nothing names another."""
_BARE = re.compile(r"v?\d+(\.\d+)*\S*")
_SPELLED = {"liger-kernel": r"liger(?:[-_ ]kernel)?", "flash-attn": r"flash[-_]attn", "ms-swift": r"(?:ms-)?swift"}
"""Packages that people write otherwise than pip."""
_NO_COMMIT = r"(?!\d+[a-f][\da-f]{4,38}\b)"
"""A commit's short name begins with a digit as a version does ("torchtitan 03be241")."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def stated(train: TrainSettings, package: str) -> Version | None:
    """The version of a package that the scenario names, or None."""
    return _stated(train.framework_version or "", framework_of(train).package, package)


def followed(train: TrainSettings, package: str) -> Version | None:
    """The version of a package that the scenario names, else the one that runs with what it names; None: says nothing.

    `package`: as pip names it.
    """
    if not train.framework_version:
        return None
    return _followed(train.framework_version, framework_of(train).package, package)


@lru_cache(maxsize=1024)
def _followed(text: str, own_package: str, package: str) -> Version | None:
    from vramwise.releases import newest_by

    own, month = _stated(text, own_package, package), _month(text)
    if own is not None or (month and package == own_package):  # a month is the repository's state, ahead of releases
        return own
    named = _named_releases(text, own_package)
    pinned = next(filter(None, (each.pinned(package) for each in named)), None)
    calendar = _stated(text, own_package, own_package)
    if month is None and calendar and len(calendar) > 1 and calendar[0] > 2000:  # "unsloth 2024.8"
        month = calendar[0], calendar[1]
    days = [each.day for each in named] + ([f"{month[0]}-{month[1]:02}-15"] if month else [])
    return pinned or newest_by(max(days, default=""), package, named)


@lru_cache(maxsize=256)
def _named_releases(text: str, own_package: str) -> tuple[Release, ...]:
    """Releases that a text names, of the packages whose releases are known."""
    from vramwise.releases import packages, release

    named = ((package, _stated(text, own_package, package)) for package in sorted(packages()))
    found = (release(package, version) for package, version in named if version is not None)
    return tuple(each for each in found if each is not None)


@lru_cache(maxsize=1024)
def _stated(text: str, own_package: str, package: str) -> Version | None:
    if _BARE.fullmatch(text.strip()) and not _month(text):
        text = f"{own_package} {text.strip()}"
    package = _SPELLED.get(package, package)
    found = re.search(
        rf"(?<![\w-]){package}(?:\s*[=>~]=\s*|[\s:=-]\s*)v?{_NO_COMMIT}(\d+(?:\.\d+)*)", text, re.IGNORECASE
    )
    return tuple(int(piece) for piece in found[1].split(".")) if found else None


def reaches(version: tuple[int, ...] | None, since: tuple[int, ...]) -> bool:
    """Whether a version, or a month, is `since` or later: the newest where None says nothing."""
    return version is None or (*version, 0, 0) >= since


def makes_caches(train: TrainSettings) -> bool:
    """Whether transformers' classes fill a cache of keys and values while they train: not in 4.43 and 4.44.

    There modeling_llama.py makes one where `use_cache and … not self.training`; others ask for `use_cache` alone.
    """
    return not (4, 43) <= library_version(train) < (4, 45)


def names(train: TrainSettings, package: str) -> bool:
    """Whether the scenario names a package, with a version or without."""
    return re.search(rf"\b{package}\b", train.framework_version or "", re.IGNORECASE) is not None


def names_a_version(train: TrainSettings) -> bool:
    """Whether `framework_version` has a number anywhere."""
    return train.framework_version is None or re.search(r"\d", train.framework_version) is not None


def month_named(train: TrainSettings) -> tuple[int, int] | None:
    """Year and month that the scenario names in place of a version ("2024-06", "March 2025"), or None."""
    return _month(train.framework_version or "")


@lru_cache(maxsize=1024)
def _month(text: str) -> tuple[int, int] | None:
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
    """The transformers version that the scenario names or that runs with what it names; the described one without."""
    return _two(followed(train, "transformers") or described("transformers"))


def liger_version(train: TrainSettings) -> tuple[int, int, int]:
    """The Liger kernels' version that the scenario names or that runs with what it names; the described one without."""
    return _three(followed(train, "liger-kernel") or (0, 8, 5))


def torch_version(train: TrainSettings) -> tuple[int, int]:
    """The torch version that the scenario names or that runs with what it names; the described one without."""
    return _two(followed(train, "torch") or _numbers(NEWEST_TORCH))


def loads_kernels_lazily(train: TrainSettings) -> bool:
    """Whether the process loads a kernel when it first runs it: torch 1.13 sets CUDA_MODULE_LOADING (PR 86509)."""
    return torch_version(train) >= (1, 13)


def bitsandbytes_version(train: TrainSettings) -> tuple[int, int, int]:
    """The bitsandbytes version that the scenario names or that runs with what it names; the described one without."""
    return _three(followed(train, "bitsandbytes") or (0, 50, 2))


@cache
def described(framework: str) -> tuple[int, ...]:
    """The version of a framework's package that is described."""
    return _numbers(framework_named(framework).newest)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(piece) for piece in version.split("."))


def _two(version: tuple[int, ...]) -> tuple[int, int]:
    first, second, *_ = (*version, 0)
    return first, second


def _three(version: tuple[int, ...]) -> tuple[int, int, int]:
    first, second, third, *_ = (*version, 0, 0)
    return first, second, third
