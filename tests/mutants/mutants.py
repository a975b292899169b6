"""Small faults put into the code one at a time: the tests must notice.

    python tests/mutants/mutants.py [--seed N] [--mutants N] [--only PACKAGE…] [--jobs N] [--ignore PATH]

A mutant changes one comparison, product, sum, truth value or whole number inside a function. Asked are the tests that
import its file, those of its package and those that use the package (TESTED_FROM), first the files that speak of what
the function speaks of, until one fails. That one must pass with the code as it is and fail again with the mutant: one
that does not is left out and the rest asked again, and exit is 2 in the end. Exit 0 when at least nine in ten are
noticed; those that are not are listed with their place, each a hole in the tests or a change without effect.
"""

from __future__ import annotations

import argparse
import ast
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from changed_tests import ALWAYS, nearest_tests

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "vramwise"
PACKAGES = tuple(sorted(folder.name for folder in SOURCES.iterdir() if (folder / "__init__.py").is_file()))
TESTED_FROM = {
    "accuracy": ("cli",),
    "checking": ("cli", "interop"),
    "cli": ("utilization", "interop", "hardware", "measure", "site", "checking", "planner", "accuracy", "hostile"),
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
BROAD = ("tests/frozen/test_frozen_answers.py", "tests/frozen/test_frozen.py")
NEAREST = 6
"""So many files are asked before those that hold a little of everything, and the others after them."""
LEAST_SHARE = 0.9
BUDGET_CPU_S = 900  # a test that would begin later is not asked
PATIENCE_CPU_S = 1800  # a mutant that makes a test run for ever was noticed
PATIENCE_S = 600  # one that makes it wait for ever too: so long nothing that the tests started used a processor

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
    """One fault: the file, the line, the text of the line before and after, and that of the function around it."""

    file: Path
    line: int
    before: str
    after: str
    function: str

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
        whole = "\n".join(lines[function.lineno - 1 : function.end_lineno])
        for node in _code_of(function):
            for start, end, new in _changes(node, text):
                line = lines[start[0] - 1]
                if start[0] == end[0]:
                    after = line.encode()[: start[1]] + new.encode() + line.encode()[end[1] :]
                    yield Mutant(file, start[0], line, after.decode(), whole)


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


def asked_of(mutant: Mutant) -> list[str]:
    """Files of tests, first those that speak of what the mutant's function speaks of.

    Files alone, no folder: pytest takes a file that stands in a folder named beside it for named once, in the
    folder's order.
    """
    changed = str(mutant.file.relative_to(ROOT))
    near = [name for name in nearest_tests([changed]) if name not in ALWAYS]
    named = (ROOT / "tests" / name for name in folders_of(mutant.package))
    files = [file for name in named for file in (sorted(name.rglob("test_*.py")) if name.is_dir() else [name])]
    asked = dict.fromkeys((*near, *(str(file.relative_to(ROOT)) for file in files)))
    wanted = _words(f"{changed} {mutant.function}")
    asked = dict.fromkeys(sorted(asked, key=lambda name: -_in_common(wanted, name) * (2 if name in near else 1)))
    return list(dict.fromkeys((*islice(asked, NEAREST), *BROAD, *asked)))


def _in_common(wanted: frozenset[str], test: str) -> float:
    """How much of what is wanted a file of tests speaks of: a word counts by how few files have it."""
    of_tests = _words_of_tests()
    found = wanted & of_tests[test]
    return sum(math.log(len(of_tests) / sum(word in words for words in of_tests.values())) for word in found)


@cache
def _words_of_tests() -> dict[str, frozenset[str]]:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {str(file.relative_to(ROOT)): _words(f"{file.name} {file.read_text('utf-8')}") for file in files}


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]{3,}|[0-9]{2,}", text.lower()))


def folders_of(package: str) -> list[str]:
    """The tests of a package and of those that use it."""
    own = [package] if (ROOT / "tests" / package).is_dir() else []
    return [*own, *TESTED_FROM[package]]


def drawn(count: int, seed: int, packages: list[str]) -> list[Mutant]:
    """`count` mutants, as many from each package; a package's are the same whichever others are asked for."""
    found: list[Mutant] = []
    for number, package in enumerate(packages):
        files = sorted((SOURCES / package).rglob("*.py"))
        every = [mutant for file in files for mutant in mutants_of(file)]
        random.Random(f"{seed} {package}").shuffle(every)
        found += every[: count // len(packages) + (number < count % len(packages))]
    return found


class Judge:
    """What the tests say of a mutant: the one that notices it passes without the mutant and fails again with it."""

    def __init__(self, ignored: list[str]) -> None:
        self.ignored = ignored
        self.sound: set[str] = set()
        self.left_out: set[str] = set()
        """Tests that failed and say nothing of a mutant: beside the others only, once only, or always."""

    def noticed_by(self, mutant: Mutant) -> str:
        """The first test that fails because of the mutant, "" if none."""
        while True:
            failing = self._failure(asked_of(mutant), mutant)
            test = failing.removeprefix("FAILED ").removeprefix("ERROR ").split(" - ")[0]
            if not test.startswith("tests/") or self._is_sound(test, mutant):
                return test
            self.left_out.add(test)
            print(f"mutants: left out, since it fails without a mutant or once only: {failing}", file=sys.stderr)

    def _is_sound(self, test: str, mutant: Mutant) -> bool:
        if test not in self.sound and not self._failure([test], None):
            self.sound.add(test)
        return test in self.sound and bool(self._failure([test], mutant))

    def _failure(self, tests: list[str], mutant: Mutant | None) -> str:
        """What fails first in a copy of the code, "" if nothing; a mutant that takes too long fails too."""
        with TemporaryDirectory() as place:
            sources = Path(place) / "src"
            shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
            (Path(place) / "benchmarks").symlink_to(ROOT / "benchmarks")  # the measured cases, which a clone has
            if mutant is not None:
                target = sources / mutant.file.relative_to(ROOT / "src")
                lines = target.read_text("utf-8").splitlines(keepends=True)
                lines[mutant.line - 1] = mutant.after + "\n"
                target.write_text("".join(lines), "utf-8")
            # pytest collects a file that is named, ignored or not
            out = (*self.ignored, *self.left_out)
            asked = [name for name in tests if not any(Path(name).is_relative_to(path) for path in out)]
            return first_failure(sources, [*asked, *(f"--deselect={name}" for name in self.left_out if "::" in name)])


def first_failure(sources: Path, tests: list[str]) -> str:
    """The first test that fails with the code of a folder, or why none ran; "" where all pass."""
    variables = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    limited = ("prlimit", f"--cpu={PATIENCE_CPU_S}", sys.executable, "-m", "pytest")
    asked = ("-x", "-q", "-p", "no:cacheprovider", "--budget-cpu-s", str(BUDGET_CPU_S))
    with subprocess.Popen(
        [*limited, *asked, *tests], cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    ) as running:  # fmt: skip
        used, since = 0, time.monotonic()
        while True:
            try:
                printed, _ = running.communicate(timeout=30)
                break
            except subprocess.TimeoutExpired:
                ticks = _ticks(running.pid)
                if ticks != used:
                    used, since = ticks, time.monotonic()
                elif time.monotonic() - since > PATIENCE_S:
                    os.killpg(running.pid, signal.SIGKILL)  # with the programs that the tests started
                    return "no end"
    if running.returncode == 0:
        return ""
    named = (line for line in printed.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return next(named, printed.strip().rpartition("\n")[2] or f"pytest ended with {running.returncode}")


def _ticks(session: int) -> int:
    """Processor time of all processes of a session (proc_pid_stat(5): fields 6, 14 and 15)."""
    found = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("utf-8").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[3]) == session:
            found += (int(fields[11]) + int(fields[12])) // 100
    return found


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
    judge, missed = Judge(args.ignore), 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for number, (mutant, test) in enumerate(zip(mutants, pool.map(judge.noticed_by, mutants), strict=True), 1):
            missed += not test
            print(f"noticed by {test}: {mutant}" if test else f"missed by its tests: {mutant}", flush=True)
            print(f"mutants: {number} of {len(mutants)}", file=sys.stderr, flush=True)
    share = 1 - missed / len(mutants)
    print(f"{len(mutants) - missed} of {len(mutants)} mutants noticed ({share:.0%}), seed {args.seed}")
    if judge.left_out:
        print(f"left out, since they failed without a mutant or once only: {', '.join(sorted(judge.left_out))}")
        return 2
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    raise SystemExit(main())
