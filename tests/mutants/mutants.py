"""Small faults put into the code one at a time: the tests must notice.

    python tests/mutants/mutants.py [--seed N] [--mutants N] [--only PACKAGE] [--jobs N]

A mutant changes one comparison, product, sum, truth value or whole number inside a function. Exit 0 when at least nine
in ten are noticed by tests that pass without them; those that are not are listed with their place, each a hole in the
tests or a change without effect.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "vramwise"
PACKAGES = tuple(sorted(folder.name for folder in SOURCES.iterdir() if (folder / "__init__.py").is_file()))
LEAST_SHARE = 0.9
PATIENCE_S = 3600  # a mutant that makes the tests run for ever was noticed

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
CAPACITIES = ("lru_cache", "cache", "_show", "print", "range", "zip", "clipped")  # calls whose numbers decide nothing


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
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CAPACITIES:
            continue
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if child is not getattr(node, "annotation", None)]


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


def _is_text(node: ast.BinOp) -> bool:
    """Sums of texts and lists: another operator is a plain error, which any test notices."""
    plain = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Dict)
    return any(isinstance(side, plain) or _is_word(side) for side in (node.left, node.right))


def _is_word(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _whole(node: ast.expr, new: ast.expr) -> Span:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset), end, f"({ast.unparse(new)})"


def drawn(count: int, seed: int, only: str | None) -> list[Mutant]:
    """`count` mutants, as many from each package."""
    chance = random.Random(seed)
    found: list[Mutant] = []
    packages = [only] if only else list(PACKAGES)
    for number, package in enumerate(packages):
        files = sorted((SOURCES / package).rglob("*.py"))
        every = [mutant for file in files for mutant in mutants_of(file)]
        found += chance.sample(every, min(len(every), count // len(packages) + (number < count % len(packages))))
    return found


def is_noticed(mutant: Mutant) -> bool:
    """Whether tests fail with the fault in a copy of the code: those of the package, else any others."""
    own = f"tests/{mutant.package}"
    others = ("tests", *(f"--ignore={folder}" for folder in (own, "tests/models", "tests/measure")))
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = copy / mutant.file.relative_to(ROOT / "src")
        lines = target.read_text("utf-8").splitlines(keepends=True)
        lines[mutant.line - 1] = mutant.after + "\n"
        target.write_text("".join(lines), "utf-8")
        return fails(copy, own) or fails(copy, *others)


def fails(sources: Path, *tests: str) -> bool:
    """Whether one of the tests fails with the code of that folder."""
    variables = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
            cwd=ROOT, env=variables, capture_output=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=52)
    parser.add_argument("--only", choices=PACKAGES)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    mutants = drawn(args.mutants, args.seed, args.only)
    missed = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for mutant, noticed in zip(mutants, pool.map(is_noticed, mutants), strict=True):
            print(f"{'noticed' if noticed else 'MISSED '} {mutant}", flush=True)
            missed += [] if noticed else [mutant]
    share = 1 - len(missed) / len(mutants)
    print(f"{len(mutants) - len(missed)} of {len(mutants)} mutants noticed ({share:.0%}), seed {args.seed}")
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    raise SystemExit(main())
