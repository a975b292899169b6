"""The wheel whose replaying loop is machine code: built where a compiler is, it gives the numbers that were frozen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("pyproject.toml", "README.md", "LICENSE", "src", "benchmarks/cases")

ANSWERS = """
import json, sys
from itertools import islice
sys.path.insert(0, sys.argv[1])
from freeze import differences, frozen, numbers_of, scenarios
from vramwise.training.reserved_memory import play
trained = {id_: one for id_, one in scenarios().items() if one.get("task") == "train"}
then, found, asked = frozen(), [], 0
for id_ in islice(trained, 8, None, 32):
    found += differences(id_, then[id_], numbers_of(trained[id_]))
    asked += 1
print(json.dumps([play.__file__, asked, found[:20]]))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A folder with what the compiled wheel holds."""
    pytest.importorskip("hatch_mypyc", reason="the compiled wheel is built with hatch-mypyc")
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which("cc") is None or not headers.is_file():
        pytest.skip("the compiled wheel needs a C compiler and Python's headers")
    folder = tmp_path_factory.mktemp("compiled")
    for name in COPIED:  # the build leaves its files beside the sources
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, folder / "tree" / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")],
        cwd=folder / "tree", env={**os.environ, "HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"}, check=True, capture_output=True,
        timeout=600,
    )  # fmt: skip
    (wheel,) = (folder / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def with_compiled(site: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True,
        check=True, timeout=600,
    ).stdout  # fmt: skip


def test_it_answers_as_was_frozen(compiled):
    play, asked, found = json.loads(with_compiled(compiled, "-c", ANSWERS, str(ROOT / "tests/frozen")))
    assert play.endswith((".so", ".pyd"))
    assert asked > 50
    assert found == []


def test_the_plain_file_stays_beside_the_compiled_one(compiled):
    names = {path.name.partition(".")[0] for path in compiled.rglob("*.so")}
    assert {name for name in names if not name.endswith("__mypyc")} == {"play"}  # a library of mypyc's own is beside it
    name = "vramwise/training/reserved_memory/play.py"
    assert (compiled / name).read_bytes() == (ROOT / "src" / name).read_bytes()


def test_its_card_can_be_full_too(compiled):
    """An exception leaves the compiled loop as it leaves the plain one, and a card that is full says so."""
    scenario = {
        "model": "llama-3.2-1b", "task": "train", "gpu_total_bytes": 6 * 2**30,
        "train": {"method": "full", "sequence_length": 4096},
    }  # fmt: skip
    asked = f"import json, vramwise; print(json.dumps(vramwise.estimate({scenario!r}).to_dict()))"
    plain, compiled_too = (json.loads(with_compiled(site, "-c", asked)) for site in (ROOT / "src", compiled))
    assert plain == compiled_too
    assert plain["verdict"]["fits"] is False
