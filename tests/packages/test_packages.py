"""What strangers install: the same bytes from the same commit, everything in it, and recipes that ask for the same."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import vramwise

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools/packages"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel, built twice."""
    pytest.importorskip("hatchling", reason="packages are built with hatchling")
    found = []
    for _ in range(2):
        folder = tmp_path_factory.mktemp("dist")
        asked = [sys.executable, str(ROOT / "tools/packages/build.py"), str(folder)]
        subprocess.run(asked, check=True, timeout=300, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        found.append(folder)
    return found


def test_the_same_commit_gives_the_same_bytes(wheels):
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in wheels)
    assert len(first) == 2
    assert first == second


def test_a_wheel_holds_what_answers_need_and_answers_as_the_checkout_does(wheels, tmp_path):
    (wheel,) = wheels[0].glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path)
    ours = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/vramwise").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours - names == set()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith(".dist-info/licenses/src/vramwise/web/page/vendor/uPlot.LICENSE") for name in names)
    asked = ["-m", "vramwise", "estimate", "llama-3.1-8b", "--task", "load", "--json"]
    said = [
        subprocess.run(
            [sys.executable, *asked], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
            check=True, timeout=120,
        ).stdout
        for path in (str(tmp_path), str(ROOT / "src"))
    ]  # fmt: skip
    assert said[0] == said[1] != b""


def test_one_wheel_serves_every_platform(wheels):
    """Of Python alone: a compiled one could answer otherwise."""
    (wheel,) = wheels[0].glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith((".so", ".pyd", ".dylib"))] == []


def test_what_was_not_at_hand_stands_in_a_matrix_that_is_said_not_to_have_run():
    matrix = yaml.safe_load((ROOT / ".github/workflows/platforms.yml").read_text("utf-8"))["jobs"]["wheel"]["strategy"]
    systems, pythons = matrix["matrix"]["os"], matrix["matrix"]["python"]
    assert {name.partition("-")[0] for name in systems} == {"ubuntu", "macos", "windows"}
    assert f">={pythons[0]}" == PROJECT["requires-python"]
    page = (ROOT / "docs/install.md").read_text("utf-8")
    assert "`.github/workflows/platforms.yml`" in page
    assert "**were not run**" in page
    assert f"CPython {pythons[-1]}" in page


def test_every_extra_is_tried_in_an_environment_of_its_own():
    import check

    assert set(check.ASKED) == {check.PLAIN, *PROJECT["optional-dependencies"]}
    assert set(check.IMPORTED) == set(PROJECT["optional-dependencies"])


def test_the_bill_of_materials_names_what_is_asked_for():
    import sbom

    made = sbom.bill()
    scopes = {one["name"].lower(): one["scope"] for one in made["components"]}
    assert all(scopes[name] == "required" for name in ("numpy", "pyyaml", "rich"))
    assert scopes["fastapi"] == "optional"
    assert next(one["purl"] for one in made["components"] if one["name"] == "uPlot") == "pkg:npm/uplot@1.6.32"
    assert made["metadata"]["component"]["version"] == vramwise.__version__
    assert made == sbom.bill()


def test_other_peoples_files_are_those_that_were_released():
    folder = ROOT / "src/vramwise/web/page/vendor"
    named = json.loads((folder / "vendored.json").read_text("utf-8"))
    hashes = {name: sha256 for one in named for name, sha256 in one["sha256"].items()}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert found.pop("vendored.json")
    assert found == hashes
    for one in named:
        assert one["purl"].endswith(f"@{one['version']}")
        assert one["license_file"] in hashes


def test_recipes_ask_for_what_the_package_asks_for():
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text("utf-8"))
    asked = {line.replace(" ", "") for line in recipe["requirements"]["run"]}
    assert asked == {f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]}
    assert recipe["context"]["version"] == vramwise.__version__
    formula = (ROOT / "deploy/homebrew/vramwise.rb").read_text("utf-8")
    assert f'license "{PROJECT["license"]}"' in formula


def test_a_release_has_a_formula_with_its_hash(tmp_path):
    import formula

    sdist = tmp_path / "vramwise-0.1.0.tar.gz"
    sdist.write_bytes(b"")
    text = formula.formula("https://example.org/vramwise-0.1.0.tar.gz", sdist)
    assert '"https://example.org/vramwise-0.1.0.tar.gz"' in text
    assert "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" in text
    assert "SHA256" not in text


def test_versions_are_semantic_and_the_changelog_is_open():
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[\w.]+)?", vramwise.__version__)
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_templates_say_how_to_report():
    templates = ROOT / ".github/ISSUE_TEMPLATE"
    forms = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in templates.glob("*.yml")}
    assert {"wrong-number", "fault", "new-model-or-card", "config"} <= forms.keys()
    assert "--save-case" in json.dumps(forms["wrong-number"])
    assert "scripts/test" in (ROOT / ".github/pull_request_template.md").read_text("utf-8")
    assert json.loads((ROOT / ".devcontainer/devcontainer.json").read_text("utf-8"))["postCreateCommand"]
