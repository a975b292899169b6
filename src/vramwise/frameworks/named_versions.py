"""Whether the versions and dates of a `framework_version` can all be true of one run."""

from __future__ import annotations

import re
from functools import lru_cache

from vramwise.errors import ScenarioError
from vramwise.frameworks.versions import month_named, stated
from vramwise.releases import Version, packages, release, releases_of
from vramwise.scenario import TrainSettings

KEY = "train.framework_version"
NIGHTLY_MONTHS = 6
"""So long before a release people run what becomes it: nightly builds have its number after the last one is out."""
_MONTH = re.compile(r"(?<![\d.-])(20\d\d)-(\d\d)(?![\d.])")
_NUMBERED = r"(?<![\w-]){package}(?:\s*==\s*|[\s:=-]\s*)v?(\d+(?:\.\d+)+)"


def check_versions(train: TrainSettings) -> None:
    """Raises ScenarioError for a month that no calendar has, two versions of one package, a package that was not out in
    the month named, and a release that asks for a newer series of another than the one named (within a series people
    install over what is asked for).

    A version that no release has is fine: builds of a repository are none, and what is newer than all that are known
    follows the newest one.
    """
    text = train.framework_version
    if text:
        _check(text, _named(train), month_named(train))


def newer_than_known(train: TrainSettings) -> list[str]:
    """A note for each package of which a later version is named than is known, and for a month that is later still."""
    if not train.framework_version:
        return []
    notes = []
    for package, version in _named(train):
        newest = releases_of(package)[-1].version
        if version > newest:
            notes.append(
                f"{package} {_shown(version)} is newer than any that is known here: taken as {_shown(newest)}, check it"
            )
    month, last = month_named(train), max(releases_of(package)[-1].day for package in packages())
    if month is not None and f"{month[0]}-{month[1]:02}" > last[:7]:
        notes.append(f"{month[0]}-{month[1]:02} is later than all releases known here, the last of {last}: check it")
    return notes


def _named(train: TrainSettings) -> tuple[tuple[str, Version], ...]:
    found = ((package, stated(train, package)) for package in sorted(packages()))
    return tuple((package, version) for package, version in found if version is not None)


@lru_cache(maxsize=1024)
def _check(text: str, named: tuple[tuple[str, Version], ...], month: tuple[int, int] | None) -> None:
    for year, number in _MONTH.findall(text):
        if not 1 <= int(number) <= 12:
            raise ScenarioError(KEY, f"{year}-{number} is no month: expected one such as {year}-06")
    for package, version in named:
        again = re.findall(_NUMBERED.format(package=re.escape(package)), text, re.IGNORECASE)
        others = [each for each in again if tuple(map(int, each.split(".")))[: len(version)] != version]
        if others:
            raise ScenarioError(KEY, f"{package} {_shown(version)} and {package} {others[0]}: name one of them")
        if month is not None:
            _check_day(package, version, month)
    known = [(package, each) for package, version in named if (each := release(package, version)) is not None]
    for package, each in known:
        for other, version in named:
            least = max((bound for sign, bound in each.asks_for.get(other, ()) if sign in (">=", "==")), default=None)
            if least is not None and version[0] < least[0]:
                raise ScenarioError(
                    KEY,
                    f"{package} {_shown(each.version)} asks for {other} {_shown(least)} or newer, and {other} "
                    f"{_shown(version)} is named: name versions that go together, or leave one out",
                )


def _check_day(package: str, version: Version, month: tuple[int, int]) -> None:
    """A month is the last in which the run may have been made: what came out much later was not there."""
    found = release(package, version)
    if found is None:
        return
    year, number = int(found.day[:4]), int(found.day[5:7])
    if (year - month[0]) * 12 + number - month[1] > NIGHTLY_MONTHS:
        raise ScenarioError(
            KEY,
            f"{package} {_shown(found.version)} came out on {found.day}, long after {month[0]}-{month[1]:02}: "
            "name one of them",
        )


def _shown(version: Version) -> str:
    return ".".join(map(str, version))
