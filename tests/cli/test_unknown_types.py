"""A model type that nobody described, on the command line: what its files say, or what to say instead."""

from __future__ import annotations

import json
import struct

import pytest

from vramwise.cli.main import main
from vramwise.sources import resolve

GPT2 = resolve("gpt2").config


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**GPT2, "model_type": "gpt2_renamed", "auto_map": {"A": "b.C"}}))
    return tmp_path


def with_weights(folder):
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2**20], "data_offsets": [0, 2**21]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


@pytest.mark.parametrize("arguments", [[], ["--task", "load"], ["--task", "train"], ["--task", "serve", "--gpu", "t4"]])
def test_the_screen_says_what_is_not_known_and_claims_nothing_more(folder, capsys, arguments):
    with_weights(folder)
    assert main(["estimate", str(folder), *arguments]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert ("activations are not known" if arguments else "no activations") in screen
    assert "what saves most" not in screen
    assert "saved activations" not in screen
    if "load" not in arguments and arguments:
        assert "at least " in screen


def test_like_describes_the_config_as_another_type(folder, capsys):
    assert main(["estimate", str(folder), "--task", "load", "--json"]) == 1
    complaint = capsys.readouterr().err
    assert "its code comes with the checkpoint and is never run" in complaint
    assert "say --like gpt" in complaint
    assert main(["estimate", str(folder), "--task", "load", "--like", "gpt2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["model"]["num_parameters"] == 124_439_808
    assert answer["model"]["id"] == folder.name
    assert answer["notes"][0] == "described as gpt2, because --like says so"


def test_the_overview_of_a_known_type_tells_the_files_on_disk(folder, capsys):
    (folder / "config.json").write_text(json.dumps(GPT2))
    with_weights(folder)
    assert main(["estimate", str(folder)]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "on disk: 1,048,576 values in 1 tensor (BF16), 0.00 GiB, says" in screen
    assert main(["estimate", str(folder), "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert (files["on_disk"]["num_values"], files["on_disk"]["bytes"]) == (2**20, 2**21)
    (folder / "model.safetensors").write_bytes(b"broken")
    assert main(["estimate", str(folder)]) == 4


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gpt2", "--like", "gtp2"], 'unknown model type "gtp2": did you mean gpt2'),
        (["--hidden-size", "8", "--like", "gpt2"], "--like describes MODEL"),
    ],
)
def test_like_names_a_described_type(capsys, arguments, problem):
    assert main(["estimate", *arguments, "--task", "load"]) == 2
    assert problem in capsys.readouterr().err
