"""What an engine or a framework does stands in its record or its package: nothing else asks for its name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from vramwise.engines import ENGINES, engine_named, engines, module_of
from vramwise.frameworks import framework_named
from vramwise.scenario.names import FRAMEWORKS, KERNELS, LAYERS

SOURCES = Path(__file__).parents[1] / "src/vramwise"
VARIANTS = tuple(variant for engine in engines() for variant in engine.variants)
ENGINE_NAMES = frozenset({*ENGINES, *VARIANTS})
ENGINE_ROOMS = frozenset(
    room
    for name in ENGINES
    for file in (module_of(name), engine_named(name).serving)
    for room in (
        f"engines/{file}.py",
        f"dryrun/{file}_serve.py",
        f"dryrun/{file}_start/",
        f"serving/{file}/",
        f"interop/launch/{file}.py",
        f"interop/launch/{file}_variables.py",
        f"interop/logs/{file}.py",
    )
)
ENGINE_REGISTRY = frozenset({"engines/__init__.py"})
# `transformers` names a library too: known versions of packages, and what a training runs on
OF_LIBRARIES = (
    "hardware/",
    "training/",
    "frameworks/",
    "measure/",
    "watching/",
    "models/",
    "sources/",
)

FRAMEWORK_NAMES = frozenset(FRAMEWORKS)
FRAMEWORK_ROOMS = frozenset(
    {"frameworks/", "scenario/names.py"}
    | {f"interop/launch/{command.reader}.py" for name in FRAMEWORKS for command in framework_named(name).commands}
)
# Names that are something else there too: a package, a launcher, a kernel library, an organization of the hub, a key
# of TrainingArguments (`deepspeed`), a way of checkpointing (`use_gradient_checkpointing="unsloth"`).
OF_OTHERS = {
    "transformers": ("measure/libraries.py", "engines/", "serving/"),
    "deepspeed": (
        "cli/mfu_answers.py",
        "dryrun/launchers.py",
        "interop/export/trainer_options.py",
        "interop/launch/command.py",
        "interop/launch/launchers.py",
    ),
    "unsloth": (
        "interop/export/llamafactory.py",
        "interop/files/training_code.py",
        "sources/known_names.py",
        "training/activations/kernels.py",
        "training/recipe/settings.py",
    ),
}


def names_asked_for(tree: ast.AST, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Lines that compare with a name, hold it in a set, or have it as the key of a dict or as a case."""
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Set):
            asked = node.elts
        elif isinstance(node, ast.Dict):
            asked = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("frozenset", "set"):
            asked = node.args
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fromkeys":
            asked = node.args[:1]
        for one in asked:
            parts = one.elts if isinstance(one, ast.Tuple | ast.List | ast.Set) else [one]
            for part in parts:
                if isinstance(part, ast.Constant) and part.value in names:
                    yield part.lineno, str(part.value)


def outside(rooms: frozenset[str], words: Iterable[str]) -> Iterator[tuple[str, ast.AST]]:
    """Files that are not in these rooms and have one of these words; the others need not be taken apart."""
    for path in sorted(SOURCES.rglob("*.py")):
        name, text = path.relative_to(SOURCES).as_posix(), path.read_text("utf-8")
        is_inside = any(name == room or (room.endswith("/") and name.startswith(room)) for room in rooms)
        if not is_inside and any(word in text for word in words):
            yield name, ast.parse(text)


def test_no_engine_is_asked_for_by_name() -> None:
    found = []
    for name, tree in outside(ENGINE_ROOMS | ENGINE_REGISTRY, [f'"{name}"' for name in ENGINE_NAMES]):
        names = ENGINE_NAMES - {"transformers"} if name.startswith(OF_LIBRARIES) else ENGINE_NAMES
        found += [f"{name}:{line} {what}" for line, what in names_asked_for(tree, names)]
    assert not found, "\n".join(found)


def uses_of_a_framework_name(tree: ast.AST) -> Iterator[int]:
    """Lines that compare `….framework` with anything, or look something up by it."""
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            asked = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            asked = node.args[:1]
        yield from (one.lineno for one in asked if isinstance(one, ast.Attribute) and one.attr == "framework")


def test_no_framework_is_asked_for_by_name() -> None:
    found = []
    for name, tree in outside(FRAMEWORK_ROOMS, [f'"{name}"' for name in FRAMEWORK_NAMES] + [".framework"]):
        names = FRAMEWORK_NAMES - {other for other, rooms in OF_OTHERS.items() if name.startswith(rooms)}
        found += [f"{name}:{line} {what}" for line, what in names_asked_for(tree, names)]
        found += [f"{name}:{line} .framework" for line in uses_of_a_framework_name(tree)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_has_a_record_whose_readers_are_there(name: str) -> None:
    record = framework_named(name)
    assert record.name == name
    assert all((SOURCES / f"interop/launch/{command.reader}.py").is_file() for command in record.commands)
    assert all(command.program or command.module for command in record.commands)


@pytest.mark.parametrize(
    ("folder", "names"), [("frameworks", FRAMEWORKS), ("engines", ENGINES), ("kernels", (*KERNELS, *LAYERS))]
)
def test_every_record_is_named_and_nothing_else(folder: str, names: Iterable[str]) -> None:
    files = {path.stem for path in SOURCES.glob(f"{folder}/*.py") if "RECORD = " in path.read_text("utf-8")}
    assert files == {module_of(name) for name in names}


@pytest.mark.parametrize(
    "text", ["train.framework == other", "TABLE[train.framework]", "TABLE.get(train.framework, 1)"]
)
def test_a_use_of_a_frameworks_name_is_seen(text: str) -> None:
    assert [*uses_of_a_framework_name(ast.parse(text))]


@pytest.mark.parametrize(
    "text",
    [
        'engine == "vllm"', 'engine in ("vllm", "sglang")', 'frozenset({"tgi"})', '{"ollama": 1}[engine]',
        'match engine:\n    case "sglang":\n        pass', 'dict.fromkeys(("vllm", "tgi"), 1)',
    ],
)  # fmt: skip
def test_a_name_that_is_asked_for_is_seen(text: str) -> None:
    assert [*names_asked_for(ast.parse(text), ENGINE_NAMES)]


def types_asked_for(tree: ast.AST) -> Iterator[int]:
    """Lines that compare a `model_type`, or look it up, with a type that stands there or in a constant of the file."""
    yield from types_compared(tree, frozenset())
    for function in ast.walk(tree):
        others = names_given_to_types(function) if isinstance(function, ast.FunctionDef) else frozenset()
        if others:
            yield from types_compared(function, others)


def names_given_to_types(function: ast.FunctionDef) -> frozenset[str]:
    """What a function calls a `model_type`."""
    return frozenset(
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and is_model_type(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def types_compared(tree: ast.AST, others: frozenset[str]) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            stated = [part for side in sides for part in ast.walk(side) if is_stated(part)]
            if stated and any(is_model_type(side, others) for side in sides):
                yield node.lineno
        elif isinstance(node, ast.Subscript) and is_model_type(node.slice, others):
            yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_type = node.func.attr == "startswith" and is_model_type(node.func.value, others)
            in_table = node.func.attr == "get" and bool(node.args) and is_model_type(node.args[0], others)
            if of_type or in_table:
                yield node.lineno


def is_stated(node: ast.AST) -> bool:
    """Whether it is a text, or the name of a constant."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.Name) and node.id.isupper()


def is_model_type(node: ast.expr, others: frozenset[str] = frozenset()) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "model_type" or (isinstance(node, ast.Name) and name in others)


def test_what_a_program_does_with_a_type_of_model_is_a_row() -> None:
    """Outside the families: rows of models/type_facts.csv, or a framework's record."""
    found = []
    for name, tree in outside(frozenset({"models/", "sources/", "frameworks/"}), ["model_type"]):
        found += [f"{name}:{line}" for line in types_asked_for(tree)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        'config.model_type == "llama"', 'model_type in ("llama", "gpt2")', 'config.model_type in _TYPES',
        '{"llama": 1}.get(config.model_type)', 'TABLE[config.model_type]', 'config.model_type.startswith("qwen")',
        'def asks(config):\n    kind = config.model_type\n    return kind in ("llama", "gpt2")',
    ],
)  # fmt: skip
def test_a_type_that_is_asked_for_is_seen(text: str) -> None:
    assert [*types_asked_for(ast.parse(text))]
