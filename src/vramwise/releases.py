"""Releases of the packages that training and serving run on: when each came out, and which others it asks for.

`releases.csv` is made by tools/build_releases.py from the package index: one row a release, its `asks_for` the
requirements of its wheel for Linux. Pre-releases and builds from a repository are not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from vramwise.records import record
from vramwise.tables import table

Version = tuple[int, ...]
_ASKED = re.compile(r"([a-z0-9-]+?)((?:[=<>!~]=?=?[^,\s]+,?)+)$")
_BOUND = re.compile(r"(==|>=|<=|!=|~=|<|>)\s*(\d+(?:\.\d+)*)")


@record
class Release:
    """One version of a package: the day (ISO) of its first file, and bounds (sign, version) on other packages."""

    version: Version
    day: str
    asks_for: Mapping[str, tuple[tuple[str, Version], ...]]

    def allows(self, package: str, version: Version) -> bool:
        """Whether a version of another package is within what this release asks for."""
        return all(within(version, sign, bound) for sign, bound in self.asks_for.get(package, ()))

    def pinned(self, package: str) -> Version | None:
        """The one version of another package that this release runs with; None where it takes several."""
        return next((bound for sign, bound in self.asks_for.get(package, ()) if sign == "=="), None)


@cache
def packages() -> frozenset[str]:
    """Packages that the table knows, as pip names them."""
    return frozenset(row["package"] for row in table(__file__))


@cache
def releases_of(package: str) -> tuple[Release, ...]:
    """Releases of a package, versions ascending; none of one that the table does not have."""
    return tuple(
        Release(version_of(row["version"]), row["day"], _asked(row["asks_for"]))
        for row in table(__file__)
        if row["package"] == package
    )


def release(package: str, version: Version) -> Release | None:
    """The release of a version; of one that names no patch, the first. None where there is none."""
    return next((each for each in releases_of(package) if each.version[: len(version)] == version), None)


def newest_by(day: str, package: str, asked_by: tuple[Release, ...] = ()) -> Version | None:
    """The newest version of a package that was out on a day (ISO) and that the releases `asked_by` take.

    None where the package had none by then, or none that all of them take.
    """
    out = (
        each.version
        for each in releases_of(package)
        if each.day <= day and all(other.allows(package, each.version) for other in asked_by)
    )
    return max(out, default=None)


def version_of(text: str) -> Version:
    """`"2.9.0.post1"` -> (2, 9, 0): the numbers that a version begins with."""
    return tuple(int(piece) for piece in re.findall(r"^\d+|(?<=\.)\d+", text.partition("+")[0]))


def _asked(text: str) -> dict[str, tuple[tuple[str, Version], ...]]:
    found = (_ASKED.match(word) for word in text.split())
    return {
        each[1]: tuple((sign, version_of(number)) for sign, number in _BOUND.findall(each[2])) for each in found if each
    }


def within(version: Version, sign: str, bound: Version) -> bool:
    """Whether a version meets one condition, as PEP 440 compares them: pieces that are not there are 0."""
    size = max(len(version), len(bound))
    ours, other = (each + (0,) * (size - len(each)) for each in (version, bound))
    match sign:
        case "==":
            return ours == other
        case "!=":
            return ours != other
        case "~=":
            return ours >= other and version[: len(bound) - 1] == bound[:-1]
        case ">=":
            return ours >= other
        case "<=":
            return ours <= other
        case "<":
            return ours < other
        case _:
            return ours > other
