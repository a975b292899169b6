"""The page as a folder: what stands in it, and where its runtime comes from."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile

import pytest

from vramwise.cli.main import main
from vramwise.errors import SourceError
from vramwise.web import static


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
    assert capsys.readouterr().out.startswith("wrote ")
    said = json.loads((target / "back-end.json").read_text())
    package = (target / said["package"]).read_bytes()
    assert said["kind"] == "browser"
    assert hashlib.sha256(package).hexdigest() == said["package_sha256"]
    assert (target / said["worker"]).is_file()
    assert (target / said["runtime"] / "pyodide.asm.wasm").read_bytes() == b"pyodide.asm.wasm"
    assert main(["web", "--static", str(target), "--runtime", str(runtime)]) == 0  # written again over itself


def test_the_program_is_whole_and_the_same_each_time():
    content = static.package_zip()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = set(archive.namelist())
    assert {"vramwise/web/api.py", "vramwise/hardware/gpus.csv", "vramwise/sources/catalog.jsonl"} <= names
    assert {"yaml/__init__.py", "vramwise/web/cases/serving.jsonl"} <= names
    assert not [name for name in names if "web/page" in name or "web/server" in name or "__pycache__" in name]
    assert static.package_zip() == content


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
