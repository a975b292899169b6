"""The tests that a change needs first, one file a line: what `scripts/test --fast` runs.

Changed are the files that differ from where this branch left main, and new ones. A changed test runs itself; a changed
module brings the tests that import it, those beside its package's other tests first, then those that import what
imports it. Nearest first, since --fast stops when its time is up. Nothing changed: the quick tests of the whole.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = ("tests/test_imports.py", "tests/test_frozen_flags.py", "tests/test_units_live_only_in_units.py")
"""Cheap, and broken by changes anywhere."""
BY_DATA = {
    "src/vramwise/sources/": ("tests/sources/test_catalog.py",), "benchmarks/cases/": ("tests/accuracy/test_cases.py",),
    "src/vramwise/web/page/": ("tests/web/test_page_texts.py",), "docs/": ("tests/docs/test_site.py",),
    "mkdocs.yml": ("tests/docs/test_site.py",), "tools/site/": ("tests/docs/test_site.py",),
    "README": ("tests/docs/test_site.py",), "tools/packages/": ("tests/packages/test_packages.py",),
    "deploy/": ("tests/packages/test_packages.py",), "pyproject.toml": ("tests/packages/test_packages.py",),
    "src/vramwise/hardware/": ("tests/hardware/test_gpus.py",),
}  # fmt: skip
"""Tests of files that nobody imports, by how their paths begin."""


def changed(root: Path = ROOT) -> list[str]:
    """Paths that differ from the last commit that main has too, and new ones."""
    base = _git(root, "merge-base", "HEAD", "origin/main") or _git(root, "merge-base", "HEAD", "main") or "HEAD"
    names = _git(root, "diff", "--name-only", base).splitlines()
    return sorted({*names, *_git(root, "ls-files", "--others", "--exclude-standard").splitlines()})


def _git(root: Path, *words: str) -> str:
    asked = ["git", "-C", str(root), *words]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def nearest_tests(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """Test files for changed paths, nearest first."""
    paths = list(paths)
    found = [path for path in paths if _is_test(path) and (root / path).exists()]
    modules = {_module(path) for path in paths if path.startswith("src/vramwise/") and path.endswith(".py")}
    tests = {str(path.relative_to(root)): _imported(path) for path in sorted((root / "tests").rglob("test_*.py"))}
    found += _near_first((name for name, names in tests.items() if names & modules), modules)
    found += [name for path in paths for start, names in BY_DATA.items() if path.startswith(start) for name in names]
    if modules:
        users = {name for name, names in _sources(root).items() if names & modules} - modules
        found += _near_first((name for name, names in tests.items() if names & users), modules)
    return [name for name in dict.fromkeys((*found, *ALWAYS)) if (root / name).exists()]


def _near_first(names: Iterable[str], modules: set[str]) -> list[str]:
    packages = {module.split(".")[1] for module in modules if "." in module}
    return sorted(names, key=lambda name: (name.split("/")[1] not in packages, name))


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_") and path.endswith(".py")


def _module(path: str) -> str:
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _sources(root: Path) -> dict[str, set[str]]:
    """What each module of the package imports."""
    return {_module(str(path.relative_to(root))): _imported(path) for path in (root / "src/vramwise").rglob("*.py")}


@cache
def _imported(path: Path) -> set[str]:
    """Modules that a file imports, and `package.name` for each name, which may be a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vramwise"):
            names |= {str(node.module), *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            names |= {one.name for one in node.names if one.name.startswith("vramwise")}
    return names


if __name__ == "__main__":
    print(*nearest_tests(sys.argv[1:] or changed()), sep="\n")
