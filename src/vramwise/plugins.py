"""What other packages add: model families, GPUs, frameworks, kernel libraries, engines, measured cases.

A package names a `Plugin` in the entry point group `vramwise.plugins`:

    [project.entry-points."vramwise.plugins"]
    quartz = "vramwise_quartz:PLUGIN"

Plug-ins are looked for when a name is not known here, and where names are listed: what is known costs nothing more. A
plug-in that cannot be imported is named on standard error, and left out. docs/plugins.md has a worked example.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING

from vramwise.errors import VramwiseError, clipped
from vramwise.records import record

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

GROUP = "vramwise.plugins"


@record(kw_only=True)
class Plugin:
    """What one package adds.

    `families`: `model_type` of a config -> module whose `blocks(config)` describes it, as those of
    vramwise.models.families do. `frameworks`, `engines`: a scenario's name -> module whose `RECORD` is a
    vramwise.frameworks.Framework or vramwise.engines.Engine. `kernels`: the same for a vramwise.kernels.Kernels,
    which a scenario names in `kernels` and a framework in its record. `gpus`: tables with the columns of
    hardware/gpus.csv. `cases`: files of measured cases.
    """

    families: Mapping[str, str] = field(default_factory=dict)
    frameworks: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[Path, ...] = ()
    cases: tuple[Path, ...] = ()


@record
class Installed:
    """A plug-in that was imported, its name, and the package that brings it with its version."""

    name: str
    package: str
    plugin: Plugin

    def __str__(self) -> str:
        return f"{self.name} ({self.package})"

    def summary(self) -> str:
        """One line of all that it adds."""
        plugin = self.plugin
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (
                ("model types", plugin.families), ("frameworks", plugin.frameworks), ("engines", plugin.engines),
                ("kernels", plugin.kernels),
                ("GPUs of", [path.name for path in plugin.gpus]), ("cases of", [path.name for path in plugin.cases]),
            )
            if names
        ]  # fmt: skip
        return f"plug-in {self}: {'; '.join(parts) or 'nothing'}"


@cache
def installed() -> tuple[Installed, ...]:
    """Every plug-in that can be imported, by name; of each other one line on standard error says why it is left out.

    Raises VramwiseError where two have one name.
    """
    from importlib.metadata import entry_points  # 20 ms, which only a name that is not known here costs

    found: dict[str, Installed] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, _package(point))):
        loaded = _loaded(point)
        if loaded is None:
            continue
        if point.name in found:
            raise VramwiseError(
                f"two plug-ins are called {point.name}: {found[point.name]} and {loaded}; uninstall one"
            )
        found[point.name] = loaded
    return tuple(found.values())


def families(known: Collection[str]) -> dict[str, str]:
    """Model types that plug-ins describe, each with its module. Raises VramwiseError for one that is known already."""
    return _added("families", "the model type", known)


def frameworks(known: Collection[str]) -> dict[str, str]:
    """Frameworks of plug-ins, each with its record's module. Raises VramwiseError for one that is known already."""
    return _added("frameworks", "the framework", known)


def engines(known: Collection[str]) -> dict[str, str]:
    """Engines of plug-ins, each with its record's module. Raises VramwiseError for one that is known already."""
    return _added("engines", "the engine", known)


def kernels(known: Collection[str]) -> dict[str, str]:
    """Kernels of plug-ins, each with its record's module. Raises VramwiseError for a name that is known already."""
    return _added("kernels", "the kernel library", known)


def plugin_named(name: str) -> Plugin | None:
    """The plug-in of a name, where one is installed."""
    return next((one.plugin for one in installed() if one.name == name), None)


def check_names(names: Mapping[str, Installed], name: str, what: str, new: Installed, known: Collection[str]) -> None:
    """Raise VramwiseError where what a plug-in adds has a name already, here or in another plug-in."""
    if name in known:
        raise VramwiseError(f"plug-in {new} adds {what} {clipped(name)}, which vramwise has itself: uninstall it")
    if name in names:
        raise VramwiseError(f"two plug-ins add {what} {clipped(name)}: {names[name]} and {new}; uninstall one")


def _added(field_name: str, what: str, known: Collection[str]) -> dict[str, str]:
    modules: dict[str, str] = {}
    owners: dict[str, Installed] = {}
    for one in installed():
        named: Mapping[str, str] = getattr(one.plugin, field_name)
        for name, module in named.items():
            check_names(owners, name, what, one, known)
            owners[name], modules[name] = one, module
    return modules


def _loaded(point: EntryPoint) -> Installed | None:
    try:
        plugin = point.load()
    except Exception as problem:  # whatever another's package raises when it is imported
        _leave_out(point, f"{type(problem).__name__}: {problem}")
        return None
    if not isinstance(plugin, Plugin):
        _leave_out(point, f"{point.value} is no vramwise.plugins.Plugin")
        return None
    return Installed(point.name, _package(point), plugin)


def _leave_out(point: EntryPoint, why: str) -> None:
    line = clipped(" ".join(why.split()), 200)
    print(f"vramwise: plug-in {point.name} ({_package(point)}) is left out: {line}", file=sys.stderr)


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "a package without a name"
