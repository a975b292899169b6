"""`vramwise oom`: from a file or standard input to a screen, JSON and a picture; errors in one line."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from vramwise.cli.main import main

sys.path.insert(0, str(__import__("pathlib").Path(__file__).parents[1] / "measure"))
from snapshots import pickled, small_run

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 4.12 GiB is free. Including non-PyTorch memory, this process has 74.98 GiB memory in use. Of the "
    "allocated memory 72.01 GiB is allocated by PyTorch, and 2.18 GiB is reserved by PyTorch but unallocated."
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(f"step 1\n{MESSAGE}\n")
    return str(path)


@pytest.fixture
def snapshot(tmp_path):
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickled(small_run().snapshot()))
    return str(path)


def test_a_log_gives_numbers_cause_and_two_changes(log, capsys):
    assert main(["oom", log]) == 0
    printed = capsys.readouterr().out
    assert "torch · GPU 0   OUT OF MEMORY   asked for 7.83 GiB" in printed
    assert "fragmentation 2.18 GiB" in printed
    assert "outside torch 808.96 MiB" in printed
    assert "two smallest changes" in printed


def test_standard_input_is_read(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(MESSAGE.encode())))
    assert main(["oom", "-"]) == 0
    assert "asked for 7.83 GiB" in capsys.readouterr().out


def test_a_snapshot_gives_a_table_and_a_picture(snapshot, tmp_path, capsys):
    picture = tmp_path / "out.svg"
    assert main(["oom", snapshot, "--plot", str(picture), "--top", "2"]) == 0
    printed = capsys.readouterr().out
    assert "OUT OF MEMORY   asked for 40.00 MiB" in printed
    assert "60.00 MiB" in printed.split("largest live blocks")[1]
    assert printed.split("largest live blocks")[1].count("\n") == 3
    assert picture.read_text("utf-8").startswith("<svg")


def test_json_is_whole_numbers_and_nothing_else(snapshot, capsys):
    assert main(["oom", snapshot, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["failures"]
    assert found["asked_bytes"] == 40 * 2**20
    assert found["fragmentation_bytes"] == 8 * 2**20
    assert len(found["changes"]) == 2


def test_a_scenario_gives_full_estimates(log, tmp_path, capsys):
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 4, "vocab_size": 128_000}  # fmt: skip
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({"model": config, "task": "train", "train": {"micro_batch_size": 64}}))
    assert main(["oom", log, "--scenario", str(path)]) == 0
    tail = capsys.readouterr().out.split("full estimates of the scenario with one change")[1]
    assert tail.count("GiB") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["/does/not/exist"], 4, "No such file or directory"),
        (["{log}", "--plot", "x.svg"], 2, "--plot needs a memory snapshot"),
        (["{log}", "--top", "many"], 2, "--top: expected a whole number"),
        (["{snapshot}", "--plot", "x.svg", "--device", "3"], 2, "the snapshot tells of 0, not of 3"),
        (["{empty}"], 2, "no out-of-memory message found"),
        (["{hostile}"], 4, "refused: the pickle holds more than plain data"),
    ],
)
def test_what_cannot_be_read_is_one_line(arguments, code, said, log, snapshot, tmp_path, capsys):
    (tmp_path / "empty").write_text("")
    (tmp_path / "hostile").write_bytes(pickled(print))
    places = {"log": log, "snapshot": snapshot, "empty": tmp_path / "empty", "hostile": tmp_path / "hostile"}
    assert main(["oom", *(argument.format(**places) for argument in arguments)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1
