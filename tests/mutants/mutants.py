"""Small faults put into the code one at a time: the tests must notice.

    python tests/mutants/mutants.py [--seed N] [--mutants N] [--only PACKAGE…] [--jobs N] [--ignore PATH]

A mutant changes one comparison, product, sum, truth value or whole number inside a function. The tests of its package
are asked first, and those that use the package (TESTED_FROM) where these notice nothing. Exit 0 when at least nine in
ten are noticed; those that are not are listed with their place, each a hole in the tests or a change without effect.
Exit 2 where tests fail without a mutant: they would notice every one.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "vramwise"
PACKAGES = tuple(sorted(folder.name for folder in SOURCES.iterdir() if (folder / "__init__.py").is_file()))
TESTED_FROM = {
    "accuracy": ("cli",),
    "checking": ("cli", "interop"),
    "cli": ("utilization", "interop", "hardware", "measure", "hostile"),
    "dryrun": ("measure", "cli"),
    "engines": ("serving", "interop"),
    "fleet": ("cli",),
    "formats": ("sources", "hostile"),
    "frameworks": ("training", "interop"),
    "hardware": ("cli",),
    "interop": ("seed",),
    "kernels": ("training", "models"),
    "measure": ("cli",),
    "models": ("training", "serving"),
    "planner": ("cli", "invariants"),
    "points": ("test_points.py", "planner"),
    "scenario": ("cli", "training"),
    "serving": ("interop", "cli"),
    "site": ("cli",),
    "sources": ("formats", "cli"),
    "training": ("planner", "invariants"),
    "utilization": ("cli",),
    "watching": (),
    "web": ("cli",),
}
"""Tests that use a package, beside those of its own folder; the first stand for that where it has none."""
LEAST_SHARE = 0.9
PATIENCE = 10  # times as long as without a mutant: one that makes the tests run for ever was noticed
LEAST_PATIENCE_S = 300

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BOUNDARIES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
PRODUCTS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
SHOWN_ONLY = frozenset(
    {
        "cache", "center", "clipped", "get_close_matches", "ljust", "lru_cache", "print", "rjust", "shorten", "sleep",
        "_show", "wrap",
    }
)  # fmt: skip
"""Calls whose numbers decide no answer: how much is kept, shown or waited for."""
WAITING = frozenset({"indent", "maxsize", "stacklevel", "timeout"})
"""Arguments of that kind."""
TEXTS = frozenset({"format", "join", "ljust", "lower", "removeprefix", "removesuffix", "rjust", "strip", "str"})
"""Calls that give a text."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the file, the line, and the text of the line before and after."""

    file: Path
    line: int
    before: str
    after: str

    @property
    def package(self) -> str:
        return self.file.relative_to(SOURCES).parts[0]

    def __str__(self) -> str:
        place = f"{self.file.relative_to(ROOT)}:{self.line}"
        return f"{place}\n  - {self.before.strip()}\n  + {self.after.strip()}"


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Every fault that this script knows to make in a file."""
    text = file.read_text("utf-8")
    lines = text.splitlines()
    for function in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)):
        for node in _code_of(function):
            for start, end, new in _changes(node, text):
                line = lines[start[0] - 1]
                if start[0] == end[0]:
                    after = line.encode()[: start[1]] + new.encode() + line.encode()[end[1] :]
                    yield Mutant(file, start[0], line, after.decode())


def _code_of(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Expressions of a function, without inner functions, annotations, texts and calls whose numbers decide nothing."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.JoinedStr | ast.Assert | ast.Raise | ast.Subscript):
            continue
        if (isinstance(node, ast.Call) and _called(node) in SHOWN_ONLY) or _is_waiting(node):
            continue
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if child is not getattr(node, "annotation", None)]


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _is_waiting(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg in WAITING


Span = tuple[tuple[int, int], tuple[int, int], str]


def _changes(node: ast.AST, text: str) -> Iterator[Span]:
    """Where a node's operator or number stands, and what to write there."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for table in (COMPARISONS, BOUNDARIES):
            if type(node.ops[0]) in table:
                new = ast.Compare(node.left, [table[type(node.ops[0])]()], node.comparators)
                yield _whole(node, new)
    elif isinstance(node, ast.BinOp) and type(node.op) in PRODUCTS and not _is_text(node):
        yield _whole(node, ast.BinOp(node.left, PRODUCTS[type(node.op)](), node.right))
    elif isinstance(node, ast.BoolOp):
        yield _whole(node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield _whole(node, node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1:
        yield _whole(node, ast.Constant(node.value + 1))


def _is_text(node: ast.expr) -> bool:
    """Sums of texts and lists: another operator is a plain error, which any test notices."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.Call):
        return _called(node) in TEXTS
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp | ast.Dict)


def _whole(node: ast.expr, new: ast.expr) -> Span:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset), end, f"({ast.unparse(new)})"


def own_tests(package: str) -> str:
    """The tests that are asked first: the package's own folder, else the first that use it."""
    return package if (ROOT / "tests" / package).is_dir() else TESTED_FROM[package][0]


def other_tests(package: str) -> list[str]:
    """The tests that are asked where its own notice nothing."""
    return [one for one in TESTED_FROM[package] if one != own_tests(package)]


def drawn(count: int, seed: int, packages: list[str]) -> list[Mutant]:
    """`count` mutants, as many from each package; a package's are the same whichever others are asked for."""
    found: list[Mutant] = []
    for number, package in enumerate(packages):
        files = sorted((SOURCES / package).rglob("*.py"))
        every = [mutant for file in files for mutant in mutants_of(file)]
        random.Random(f"{seed} {package}").shuffle(every)
        found += every[: count // len(packages) + (number < count % len(packages))]
    return found


Item = TypeVar("Item")
Found = TypeVar("Found")


class Judge:
    """Folders of tests, which must pass with the code as it is, and what they say of a mutant."""

    def __init__(self, ignored: list[str], jobs: int) -> None:
        self.ignored = [f"--ignore={path}" for path in ignored]
        self.jobs = jobs
        self.patience_s: dict[str, float] = {}

    def check(self, folders: list[str]) -> None:
        """Runs tests without a mutant, once. SystemExit 2 where they fail."""

        def passed(folder: str) -> tuple[str, str, float]:
            begin = time.monotonic()
            return folder, self._failure(folder, None), time.monotonic() - begin

        new = [folder for folder in dict.fromkeys(folders) if folder not in self.patience_s]
        for folder, failure, seconds in self._each("without a mutant", passed, new):
            if failure:
                print(f"mutants: tests/{folder} fails without a mutant: {failure}", file=sys.stderr)
                raise SystemExit(2)
            self.patience_s[folder] = max(LEAST_PATIENCE_S, PATIENCE * seconds)

    def missed(self, mutants: list[Mutant], folders: Callable[[Mutant], list[str]]) -> list[Mutant]:
        """Those mutants that the tests in their folders do not notice."""

        def noticing(mutant: Mutant) -> tuple[Mutant, str | None]:
            return mutant, next((folder for folder in folders(mutant) if self._failure(folder, mutant)), None)

        left = []
        for mutant, folder in self._each("mutants", noticing, mutants):
            print(f"noticed by tests/{folder}: {mutant}" if folder else f"missed by its tests: {mutant}", flush=True)
            left += [] if folder else [mutant]
        return left

    def _each(self, what: str, work: Callable[[Item], Found], items: list[Item]) -> Iterator[Found]:
        with ThreadPoolExecutor(self.jobs) as pool:
            for number, found in enumerate(pool.map(work, items), 1):
                yield found
                print(f"{what}: {number} of {len(items)}", file=sys.stderr, flush=True)

    def _failure(self, folder: str, mutant: Mutant | None) -> str:
        """What fails first in a copy of the code, "" if nothing; a mutant that takes too long fails too."""
        with TemporaryDirectory() as place:
            sources = Path(place) / "src"
            shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
            if mutant is not None:
                target = sources / mutant.file.relative_to(ROOT / "src")
                lines = target.read_text("utf-8").splitlines(keepends=True)
                lines[mutant.line - 1] = mutant.after + "\n"
                target.write_text("".join(lines), "utf-8")
            return first_failure(sources, [f"tests/{folder}", *self.ignored], self.patience_s.get(folder))


def first_failure(sources: Path, tests: list[str], patience_s: float | None) -> str:
    """The first test that fails with the code of a folder, or why none ran; "" where all pass."""
    variables = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    with subprocess.Popen(
        command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    ) as running:  # fmt: skip
        try:
            printed, _ = running.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with the programs that the tests started
            return "no end"
    if running.returncode == 0:
        return ""
    named = (line for line in printed.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return next(named, printed.strip().rpartition("\n")[2] or f"pytest ended with {running.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=52)
    parser.add_argument("--only", choices=PACKAGES, nargs="+", default=list(PACKAGES), metavar="PACKAGE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ignore", action="append", default=[], metavar="PATH", help="tests that are left out")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it; tests send it
    mutants = drawn(args.mutants, args.seed, args.only)
    judge = Judge(args.ignore, args.jobs)
    judge.check([own_tests(mutant.package) for mutant in mutants])
    missed = judge.missed(mutants, lambda mutant: [own_tests(mutant.package)])
    judge.check([tests for mutant in missed for tests in other_tests(mutant.package)])
    missed = judge.missed(missed, lambda mutant: other_tests(mutant.package))
    share = 1 - len(missed) / len(mutants)
    print(f"{len(mutants) - len(missed)} of {len(mutants)} mutants noticed ({share:.0%}), seed {args.seed}")
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    raise SystemExit(main())
