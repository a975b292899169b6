"""vramwise: how much GPU memory a model needs to train, fine-tune or serve, and why.

>>> import vramwise
>>> vramwise.parse_bytes("80 GiB")
85899345920
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vramwise.checking import check as check
    from vramwise.dryrun.block import dry_run as dry_run
    from vramwise.errors import VramwiseError as VramwiseError
    from vramwise.estimation import estimate as estimate
    from vramwise.hardware import find_gpu as find_gpu
    from vramwise.interop.export import export as export
    from vramwise.models import describe as describe
    from vramwise.planner.catalog_fit import fit as fit
    from vramwise.planner.grid import grid as grid
    from vramwise.planner.option import Wishes as Wishes
    from vramwise.planner.plan import plan as plan
    from vramwise.planner.suggestions import suggestion_tables as suggestion_tables
    from vramwise.result import Result as Result
    from vramwise.scenario import Scenario as Scenario
    from vramwise.units import format_bytes as format_bytes
    from vramwise.units import parse_bytes as parse_bytes
    from vramwise.watching.watch import watch as watch

# Imported when first asked for, so that `import vramwise` and every command stay quick (PEP 562).
_HOME = {
    "Result": "result",
    "Scenario": "scenario",
    "VramwiseError": "errors",
    "Wishes": "planner.option",
    "check": "checking",
    "describe": "models",
    "estimate": "estimation",
    "export": "interop.export",
    "fit": "planner.catalog_fit",
    "find_gpu": "hardware",
    "format_bytes": "units",
    "grid": "planner.grid",
    "parse_bytes": "units",
    "suggestion_tables": "planner.suggestions",
    "plan": "planner.plan",
    "watch": "watching",
    "dry_run": "dryrun.block",
}
__all__ = [  # noqa: RUF022 - the version first
    "__version__",
    "Result",
    "Scenario",
    "VramwiseError",
    "Wishes",
    "check",
    "dry_run",
    "describe",
    "estimate",
    "export",
    "find_gpu",
    "fit",
    "format_bytes",
    "grid",
    "parse_bytes",
    "plan",
    "watch",
]


def come_when_asked_for(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose names are imported from their modules, `homes`, when first asked for.

    A name must not be that of a module of the package: once that is imported, the name means the module.
    """

    def found(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        value: object = getattr(import_module(f"{package}.{home}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return found


def names_of_files(folder: str, but: Collection[str]) -> tuple[str, ...]:
    """Names of the modules in a folder of this package, `_` written `-`, but for those files; none is imported.

    For records that are named by their files: to add one is to write its file.
    """
    from os import listdir
    from os.path import dirname, join

    found = (file.removesuffix(".py") for file in listdir(join(dirname(__file__), folder)) if file.endswith(".py"))
    return tuple(sorted(name.replace("_", "-") for name in found if not name.startswith("_") and name not in but))


__getattr__ = come_when_asked_for(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
