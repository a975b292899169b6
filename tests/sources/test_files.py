"""Configurations from files, folders, the Hugging Face cache and tables, friendly or not."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import SourceError
from vramwise.sources import resolve

TINY = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(TINY))
    return path


def test_a_folder_and_its_config_are_the_same(config: Path) -> None:
    for path in (config, config.parent):
        source = resolve(str(path))
        assert (source.id, source.config, source.origin) == ("my-model", TINY, str(config))


def test_a_file_of_another_name_and_a_home_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/tiny.json").id == "tiny"


def test_a_folder_in_the_working_directory_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("gpt2").origin.startswith("catalog")
    (tmp_path / "gpt2").mkdir()
    assert resolve("gpt2").origin.startswith("catalog")  # no config.json in it: not a model
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(TINY))
    assert resolve("gpt2").config == TINY


def test_a_changed_file_is_read_again(config: Path) -> None:
    resolve(str(config))
    config.write_text(json.dumps(TINY | {"hidden_size": 128}))
    assert resolve(str(config)).config["hidden_size"] == 128


def test_byte_order_mark_and_duplicate_keys_are_harmless(config: Path) -> None:
    config.write_bytes(b'\xef\xbb\xbf{"hidden_size": 1, "hidden_size": 2}')
    assert resolve(str(config)).config == {"hidden_size": 2}


def test_the_unbounded_time_step_of_mamba_2_is_accepted(config: Path) -> None:
    config.write_text('{"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}')
    assert resolve(str(config)).config["model_type"] == "mamba2"


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n ", "is empty"),
    "cut off": (b'{"hidden_size": 40', "no valid JSON"),
    "binary": (bytes(range(256)), r"is not text"),
    "a list": (b"[1, 2]", "expected a JSON object of hyperparameters, got a list"),
    "text": (b'"llama"', "got text"),
    "null": (b"null", "got null"),
    "a number": (b"7", "got a number"),
    "NaN": (b'{"hidden_size": NaN}', "hidden_size is nan, expected a finite number"),
    "Infinity": (b'{"text_config": {"hidden_size": -Infinity}}', r"text_config\.hidden_size is -inf"),
    "a float too large": (b'{"hidden_size": 1e999}', "hidden_size is inf"),
    "deep": (b'{"a":' * 100 + b"1" + b"}" * 100, "nested deeper"),
    "very deep": (b"[" * 200_000, "nested deeper"),
    "a long integer": (b'{"hidden_size": ' + b"9" * 10_000 + b"}", "too long"),
    "too large": (b'{"a": "' + b"x" * (11 * 1024 * 1024) + b'"}', "too large"),
    "NUL": (b'{"a": 1}\0', "no valid JSON"),
}


@pytest.mark.parametrize(("content", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_one_clear_line(config: Path, content: bytes, problem: str) -> None:
    config.write_bytes(content)
    with pytest.raises(SourceError, match=problem) as caught:
        resolve(str(config))
    assert str(config) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


PLACES: dict[str, tuple[Callable[[Path], str], str]] = {
    "missing file": (lambda folder: str(folder / "none" / "config.json"), "No such file"),
    "missing folder": (lambda folder: str(folder / "none"), "No such file"),
    "folder without config": (str, "the folder has no config.json"),
    "folder called config.json": (lambda folder: _made(folder / "config.json"), "folder has no config.json"),
    "device": (lambda folder: "/dev/zero", "is no regular file"),
    "NUL in the name": (lambda folder: "./a\0b", "is no file name|No such file"),
    "long name": (lambda folder: "./" + "a" * 5000, "File name too long"),
    "file as folder": (lambda folder: _file(folder) + "/config.json", "Not a directory"),
}


def _made(path: Path) -> str:
    path.mkdir()
    return str(path)


def _file(folder: Path) -> str:
    (folder / "plain").write_text("x")
    return str(folder / "plain")


@pytest.mark.parametrize(("place", "problem"), PLACES.values(), ids=PLACES)
def test_paths_that_lead_nowhere(tmp_path: Path, place: Callable[[Path], str], problem: str) -> None:
    with pytest.raises(SourceError, match=problem) as caught:
        resolve(place(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    with pytest.raises(SourceError, match="is no regular file"):
        resolve(str(pipe))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "hub" / "models--someone--tiny"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit + "\n")
    (repo / "snapshots" / commit).mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "blobs" / "b10b").write_text(json.dumps(TINY))
    (repo / "snapshots" / commit / "config.json").symlink_to("../../blobs/b10b")
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"])
def test_the_cache_on_disk_is_read(cache: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("HOME", str(cache / "nobody"))
    if variable in {"XDG_CACHE_HOME", "HOME"}:
        home = cache / ("huggingface" if variable == "XDG_CACHE_HOME" else ".cache/huggingface")
        home.mkdir(parents=True)
        (cache / "hub").rename(home / "hub")
    monkeypatch.setenv(variable, str(cache / "hub" if variable == "HF_HUB_CACHE" else cache))
    source = resolve("someone/tiny")
    assert (source.id, source.config) == ("someone/tiny", TINY)
    assert source.origin.startswith("Hugging Face cache: ")


@pytest.mark.parametrize("ref", ["../../../etc", "", "not a commit", "\xff"])
def test_a_broken_cache_is_as_good_as_none(cache: Path, monkeypatch: pytest.MonkeyPatch, ref: str) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache / "hub"))
    (cache / "hub" / "models--someone--tiny" / "refs" / "main").write_text(ref, encoding="latin-1")
    with pytest.raises(SourceError, match="unknown model"):
        resolve("someone/tiny")


def test_names_cannot_climb_out_of_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache / "hub"))
    with pytest.raises(SourceError):
        resolve("someone/../../tiny")


def test_a_table_is_a_configuration() -> None:
    source = resolve(TINY)
    assert (source.id, source.config, source.note) == ("llama", TINY, None)
    assert resolve(dict(TINY)) is source  # same content: read once
    assert resolve(OrderedDict(TINY)).config == TINY
    assert resolve(TINY | {"_name_or_path": "me/mine"}).id == "me/mine"


def test_a_table_is_not_changed_by_its_owner_afterwards() -> None:
    table = dict(TINY)
    source = resolve(table)
    table["hidden_size"] = 1
    assert source.config["hidden_size"] == 64


CYCLE: dict[str, Any] = {"model_type": "llama"}
CYCLE["text_config"] = CYCLE


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"hidden_size": float("nan")}, "hidden_size is nan"),
        ({"text_config": {"sizes": [1.0, float("inf")]}}, r"text_config\.sizes is inf"),
        ({1: 2}, "has the key 1, expected text"),
        (CYCLE, "nested deeper"),
    ],
)
def test_hostile_tables(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        resolve(table)


def test_other_things_are_no_model() -> None:
    with pytest.raises(SourceError, match="expected a name or a table, got int"):
        resolve(7)  # type: ignore[arg-type]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_configuration_or_a_clear_error(content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_bytes(content)
        try:
            assert isinstance(resolve(str(path)).config, dict)
        except SourceError as error:
            message = str(error)
            assert "\n" not in message


@pytest.mark.parametrize("name", ["train.yml", "run.sh", "job.sbatch", "scenario.toml"])
def test_a_tools_file_that_is_not_there_is_no_unknown_model(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=f"^{name}: No such file or directory$"):
        resolve(name, network=False)
