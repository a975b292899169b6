"""A config.json that is missing, cut off, binary, huge, or no config at all: one line that names the file."""

from __future__ import annotations

import json
import os

import pytest

from vramwise.units import MIB

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
WHOLE = json.dumps(LLAMA).encode()

CONTENTS = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t ", "is empty"),
    "cut off": (WHOLE[:40], "no valid JSON"),
    "cut off in a name": (WHOLE[:6], "no valid JSON"),
    "binary": (bytes(range(256)) * 8, "is not text (UTF-8)"),
    "zeros": (b"\0" * 4096, "no valid JSON"),
    "a weight file": (b"GGUF\x03\0\0\0" + b"\xff" * 64, "is not text (UTF-8)"),
    "another encoding": (json.dumps(LLAMA).encode("utf-16"), "is not text (UTF-8)"),
    "a list": (b"[1, 2, 3]", "expected a JSON object of hyperparameters, got a list"),
    "a number": (b"7", "expected a JSON object of hyperparameters, got a number"),
    "null": (b"null", "expected a JSON object of hyperparameters, got null"),
    "no model type": (b'{"hidden_size": 64}', "a config without model_type is not described yet"),
    "nothing in it": (b"{}", "a config without model_type is not described yet"),
    "two documents": (WHOLE + WHOLE, "no valid JSON: Extra data"),
    "deep": (b'{"a": ' * 50_000, "nested deeper"),
    "deeper than it may be": (b'{"a": ' * 60 + b"1" + b"}" * 60, "is nested deeper than 40 levels"),
    "NaN": (WHOLE.replace(b"64", b"NaN"), "hidden_size is nan, expected a finite number"),
    "infinite": (WHOLE.replace(b"64", b"-Infinity"), "hidden_size is -inf, expected a finite number"),
    "overflows": (WHOLE.replace(b"64", b"1e999"), "hidden_size is inf, expected a finite number"),
    "thousands of digits": (WHOLE.replace(b"64", b"9" * 5000), "holds a number that is too long to read"),
}
EXIT_CODES = {"no model type": 1, "nothing in it": 1}


@pytest.mark.parametrize("what", CONTENTS)
def test_a_file_that_is_no_config(what, program):
    content, problem = CONTENTS[what]
    (program.folder / "config.json").write_bytes(content)
    line = program("estimate", "config.json", "--task", "load", "--json").complaint(EXIT_CODES.get(what, 4))
    assert problem in line
    if EXIT_CODES.get(what, 4) == 4:
        assert line.startswith("config.json: ")


def test_a_file_of_100_mb_is_refused_unread(program):
    with (program.folder / "config.json").open("wb") as file:
        file.truncate(100 * MIB)
    line = program("estimate", "config.json", "--task", "load").complaint(4)
    assert line == "config.json: 100.00 MiB is too large for a config.json (at most 10 MiB)"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("./gone.json", "./gone.json: No such file or directory"),
        ("./gone/config.json", "./gone/config.json: No such file or directory"),
        ("./Qwen3-9B-it", "No such file or directory; known by their names are Qwen/Qwen3.5-9B"),
        ("./folder", "./folder: the folder has no config.json"),
        (".", ".: the folder has no config.json"),
        ("./" + "a" * 300, "File name too long"),
        ("weights.gguf", "there is no such file"),
        ("https://example.org/a/b", "expected the page of a model"),
        ("https://huggingface.co/datasets/a/b", "is no model"),
    ],
)
def test_a_model_that_is_not_there(name, problem, program):
    (program.folder / "folder").mkdir()
    assert problem in program("estimate", name, "--task", "load").complaint(4)


@pytest.mark.parametrize("name", ["", "   ", "a" * 5000, "./" + "a" * 5000])
def test_a_name_that_is_no_name(name, program):
    assert program("estimate", name, "--task", "load").complaint(2).startswith("model: expected a model's name")


def test_a_file_without_permission(program):
    path = program.folder / "config.json"
    path.write_bytes(WHOLE)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads every file")
    assert program("estimate", "config.json", "--task", "load").complaint(4) == "config.json: Permission denied"


def test_a_pipe_in_place_of_a_file_does_not_hang(program):
    os.mkfifo(program.folder / "config.json")
    line = program("estimate", "./config.json", "--task", "load").complaint(4)
    assert line == "./config.json: is no regular file, expected a config.json"


def test_an_endless_device_is_not_read(program):
    line = program("estimate", "/dev/zero", "--task", "load").complaint(4)
    assert line == "/dev/zero: is no regular file, expected a config.json"


def test_a_whole_file_works_however_it_is_named(program):
    (program.folder / "config.json").write_bytes(b"\xef\xbb\xbf" + WHOLE)
    answers = [program("estimate", name, "--task", "load", "--json") for name in (".", "config.json", "./config.json")]
    assert [answer.code for answer in answers] == [0, 0, 0]
    assert len({json.loads(answer.out)["quantities"]["weights"]["expected"] for answer in answers}) == 1
