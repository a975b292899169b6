"""`vramwise oom`: from a file or standard input to a screen, JSON and a picture; errors in one line."""

from __future__ import annotations

import io
import json
import re
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


def test_a_scenario_gives_full_estimates(log, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")  # in fewer a cost stands below its change
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 4, "vocab_size": 128_000}  # fmt: skip
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({"model": config, "task": "train", "train": {"micro_batch_size": 64}}))
    assert main(["oom", log, "--scenario", str(path)]) == 0
    head, *rows = capsys.readouterr().out.partition("full estimates of the scenario, changed")[2].splitlines()
    assert head.split() == ["needs", "verdict", "cost"]
    assert rows
    for row in rows:
        assert re.fullmatch(r"  \S.*? +\d+\.\d\d GiB   (fits|tight, \d+ %|does not fit) +\S.*", row)


CAUSES = {
    "fragmentation": MESSAGE.replace("7.83 GiB", "2.00 GiB"),
    "another process": MESSAGE.replace("this process has 74.98", "this process has 4.98"),
    "vLLM": "the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available",
    "llama.cpp": "allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory",
    "bare": "RuntimeError: CUDA error: out of memory",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_scenario_gives_full_estimates_whatever_the_cause(cause, tmp_path, capsys):
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({"model": "gpt2", "task": "train", "train": {"micro_batch_size": 64}}))
    assert main(["oom", CAUSES[cause], "--scenario", str(path)]) == 0
    assert "full estimates of the scenario, changed" in capsys.readouterr().out
    assert main(["oom", CAUSES[cause], "--scenario", str(path), "--json"]) == 0
    estimated = json.loads(capsys.readouterr().out)["estimated"]
    assert all(one["total_needed"]["expected"] > 0 for one in estimated)
    assert estimated


@pytest.mark.parametrize(("own_gib", "is_the_cause"), [("71.00", True), ("72.00", True), ("73.00", False)])
def test_other_processes_are_the_cause_where_ending_them_is_enough(own_gib, is_the_cause, capsys):
    """8 GiB asked, 4 of 80 free: 4 more are needed."""
    message = (
        MESSAGE.replace("7.83", "8.00").replace("79.11", "80.00").replace("4.12", "4.00").replace("74.98", own_gib)
    )
    assert main(["oom", message]) == 0
    assert ("other processes hold" in capsys.readouterr().out) == is_the_cause


def test_the_message_itself_is_understood(capsys):
    assert main(["oom", MESSAGE]) == 0
    assert "asked for 7.83 GiB" in capsys.readouterr().out
    assert main(["oom", "no such file.log"]) == 4
    assert "No such file" in capsys.readouterr().err


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
