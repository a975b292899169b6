"""The page as a folder: what stands in it, and where its runtime comes from."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.web import image, static

PYODIDE = os.environ.get("VRAMWISE_PYODIDE")


@pytest.fixture
def runtime(tmp_path):
    folder = tmp_path / "pyodide"
    folder.mkdir()
    for name in static.RUNTIME_FILES:
        (folder / name).write_bytes(name.encode())
    return folder


def test_the_folder_holds_page_runtime_and_program(tmp_path, runtime, capsys):
    target = tmp_path / "site"
    assert main(["web", "--static", str(target), "--runtime", str(runtime)]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("wrote ")
    assert "without an image of the started program" in told.err  # this runtime is none
    said = json.loads((target / "back-end.json").read_text())
    package = (target / said["package"]["file"]).read_bytes()
    assert said["kind"] == "browser"
    assert said["image"] is None
    assert hashlib.sha256(package).hexdigest() == said["package"]["sha256"]
    assert (target / said["worker"]).is_file()
    assert (target / "vendor" / "uPlot.esm.js").read_bytes() == (static.PAGE / "vendor" / "uPlot.esm.js").read_bytes()
    assert "Copyright" in (target / "vendor" / "uPlot.LICENSE").read_text()
    assert (target / said["runtime"] / "pyodide.asm.wasm").read_bytes() == b"pyodide.asm.wasm"
    assert main(["web", "--static", str(target), "--runtime", str(runtime)]) == 0  # written again over itself


def test_the_program_is_whole_and_the_same_each_time():
    content = static.package_archive()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = set(archive.getnames())
    assert {"vramwise/web/api.py", "vramwise/hardware/gpus.csv", "vramwise/sources/catalog.jsonl"} <= names
    assert {"yaml/__init__.py", "vramwise/web/cases/serving.jsonl"} <= names
    assert not [name for name in names if "web/page" in name or "web/server" in name or "__pycache__" in name]
    assert static.package_archive() == content


@pytest.mark.skipif(PYODIDE is None or not shutil.which("node"), reason="Pyodide's files, and Node to run them")
def test_an_image_of_the_started_program_is_made_where_its_questions_have_answers():
    runtime = {name: Path(PYODIDE, name).read_bytes() for name in static.RUNTIME_FILES}
    made = image.memory_image(runtime, static.package_archive(), [("version", {})])
    assert made.why_not == ""
    assert b"vramwise.web.answers.catalogs" in gzip.decompress(made.content)
    refused = image.memory_image(runtime, static.package_archive(), [("result", {"model": "no such model"})])
    assert refused.content == b""
    assert "result: " in refused.why_not


def test_without_node_there_is_no_image(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert image.memory_image({}, b"", []) == image.Image(b"", "Node is not here")


def test_a_page_carries_its_policy():
    page = static._with_policy(b"<!doctype html><html><head><title>x</title></head></html>")
    assert page.count(b"Content-Security-Policy") == 1
    assert b"'wasm-unsafe-eval'" in page
    assert b"unsafe-inline" not in page


def test_a_runtime_of_another_hash_is_refused():
    with pytest.raises(SourceError, match="SHA-512 differs"):
        list(static.runtime_in_archive(b"something else"))


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["--static", "{full}", "--runtime", "{runtime}"], 2, "is not empty"),
        (["--static", "{new}", "--runtime", "{new}"], 4, "is no Pyodide: pyodide.mjs"),
        (["--static", "{new}", "--port", "1"], 2, "leave out the server's flags"),
        (["--runtime", "{runtime}"], 2, "--runtime is the runtime of --static"),
        (["--port", "99999"], 2, "--port: expected a number"),
        (["--allow-files", "{new}"], 2, "is no folder"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path, runtime, capsys, words, code, part):
    places = {"full": tmp_path, "new": tmp_path / "new", "runtime": runtime}
    assert main(["web", *(word.format(**places) for word in words)]) == code
    message = capsys.readouterr().err
    assert part in message
    assert message.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_without_npm_a_folder_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["web", "--static", str(tmp_path / "site")]) == 2
    assert "--runtime FOLDER" in capsys.readouterr().err


def test_without_fastapi_it_is_said_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["web", "--port", "0"]) == 2
    assert "pip install 'vramwise[web]'" in capsys.readouterr().err
