"""What imports what: the layers of pyproject.toml, and that an estimate needs no heavy library."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "pydantic", "huggingface_hub", "numpy", "rich", "fastapi", "yaml", "asyncio")
MOST_OF_LOAD, MOST_OF_TRAIN = 111, 139  # modules of vramwise that an estimate of a Llama imports
MOST_ANY = 8 / 1000  # of a line
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
}


def loaded_heavy_libraries(program, *arguments):
    program += "\nimport json, sys\n"
    program += f"print(json.dumps([n for n in {HEAVY!r} if n in sys.modules]), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=1800, check=True
    )
    return json.loads(done.stderr.splitlines()[-1])


def test_imports_go_down_only():
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken." in done.stdout


def test_no_module_imports_one_that_imports_it():
    """Neither at its top nor within a function, however long the way round is; names for type checkers do not count."""
    modules = {module_name(path): path for path in (ROOT / "src").rglob("*.py")}
    below = {name: imported_by(path, modules) - {name} for name, path in modules.items()}
    below = {name: [one for one in found if not name.startswith(f"{one}.")] for name, found in below.items()}
    assert list(TopologicalSorter(below).static_order())  # raises CycleError with the circle


def module_name(path):
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(path, modules):
    """Modules of ours that a file imports somewhere."""
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for child in ast.walk(statement)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else node.module for name in full}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules.keys()


def test_types_are_stated():
    """`Any` is for what other libraries make; and no file is longer than 400 lines."""
    texts = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    lines = [len(text.splitlines()) for text in texts]
    found = sum(isinstance(node, ast.Name) and node.id == "Any" for text in texts for node in ast.walk(ast.parse(text)))
    assert found / sum(lines) <= MOST_ANY
    assert max(lines) <= 400


def test_importing_any_module_loads_nothing_heavy():
    program = """
import importlib, pkgutil, vramwise
for module in pkgutil.walk_packages(vramwise.__path__, "vramwise."):
    alone = module.name.startswith(("vramwise.web.server.", "vramwise.dryrun.vllm_start."))  # in processes of their own
    if not module.name.endswith("__main__") and not alone:
        importlib.import_module(module.name)
assert "vramwise.cli.batch" in __import__("sys").modules
"""
    assert loaded_heavy_libraries(program) == []


@pytest.mark.skipif(find_spec("vramwise.cli.estimate") is None, reason="the command is not there yet")
def test_an_estimate_loads_nothing_heavy(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    for task in ("load", "serve", "train", "generate"):
        program = "import sys; from vramwise.cli.main import main; assert main(sys.argv[1:]) == 0"
        assert loaded_heavy_libraries(program, "estimate", str(config), "--task", task, "--json") == []


@pytest.mark.parametrize(("task", "most"), [("load", MOST_OF_LOAD), ("train", MOST_OF_TRAIN)])
def test_an_estimate_imports_no_more_of_its_own_modules_than_before(tmp_path, task, most):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    program = """
import sys
from vramwise.cli.main import main
assert main(sys.argv[1:]) == 0
print(sum(name.startswith("vramwise") for name in sys.modules), file=sys.stderr)
"""
    arguments = ["estimate", str(config), "--task", task, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=1800, check=True
    )
    assert int(done.stderr.splitlines()[-1]) <= most


@pytest.mark.skipif(find_spec("vramwise.estimation") is None, reason="estimates are not there yet")
def test_the_public_names_are_there_and_come_when_asked_for():
    program = """
import sys, vramwise
assert not [name for name in sys.modules if name.startswith("vramwise.")]
for name in vramwise.__all__:
    assert getattr(vramwise, name) is not None
assert set(vramwise.__all__) == set(dir(vramwise))
try:
    vramwise.nothing
except AttributeError as error:
    assert "has no attribute 'nothing'" in str(error)
else:
    raise SystemExit("vramwise.nothing is there")
"""
    assert loaded_heavy_libraries(program) == []


@pytest.mark.parametrize("package", ["engines", "formats", "hardware", "scenario", "sources"])
def test_names_of_packages_come_when_asked_for(package):
    module = import_module(f"vramwise.{package}")
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


def test_every_name_that_scripts_take_from_the_package_is_there():
    """Benchmarks, oracles and tools run by hand: nothing else notices a name that is gone."""
    missing = []
    for script in sorted(path for folder in ("benchmarks", "tools") for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(script.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("vramwise"):
                continue
            names = [alias.name for alias in node.names]
            missing += [
                f"{script.relative_to(ROOT)}: {node.module}.{name}" for name in names if not has(node.module, name)
            ]
    assert missing == []


def has(module, name):
    """Whether a name stands in a module, which is not imported, or is a module of a package."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return False
    is_package = spec.submodule_search_locations is not None
    return name in Path(spec.origin).read_text("utf-8") or (is_package and find_spec(f"{module}.{name}") is not None)
