"""`vramwise measure`: sweeps, searches, saved cases, refusals, and processes that end early."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import CONFIG, FLAGS, here

from vramwise.cli.main import main
from vramwise.measure import launch
from vramwise.measure.libraries import MissingLibraryError, is_installed
from vramwise.measure.supported import refuse_what_cannot_run
from vramwise.measure.sweep import fitted, largest_that_fits, parse_sweep

CASE_KEYS = {"id", "scenario", "measured", "source", "quote", "confidence", "specified", "engine_version", "extra",
             "notes"}  # fmt: skip


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    return str(tmp_path)


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(launch, "run_job", here)


def measured(capsys, *words, code=0):
    assert main(["measure", *words, "--device", "cpu", "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words, code=2):
    assert main(["measure", *words]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_fresh_process_is_measured_and_saved(model, tmp_path, capsys):
    cases = tmp_path / "cases.jsonl"
    answer = measured(capsys, model, *FLAGS, "--save", str(cases))
    rows = {row["name"]: row for row in answer["differences"] if not row["term"]}
    assert rows["peak_allocated"]["in_interval"] is True
    assert rows["backward"]["relative"] == pytest.approx(0, abs=0.005)
    assert answer["environment"]["versions"]["torch"]
    (kept,) = [share for share in answer["modules"] if share["name"] == "model.layers.*.mlp"]
    assert kept["count"] == 2
    assert kept["kept"] > 0

    (case,) = map(json.loads, cases.read_text("utf-8").splitlines())
    assert set(case) == CASE_KEYS
    assert case["measured"]["peak_allocated"] == answer["measured"]["quantities"]["peak_allocated"]["expected"]
    assert case["measured"]["oom"] is False
    assert main(["accuracy", str(cases), "--json"]) == 0
    printed = capsys.readouterr()
    assert "peak_allocated" in printed.out


@pytest.mark.usefixtures("in_this_process")
def test_a_sweep_goes_on_after_a_run_out_of_memory(model, tmp_path, capsys):
    cases = tmp_path / "cases.jsonl"
    words = (model, *FLAGS, "--sweep", "micro_batch_size=1,2,8", "sequence_length=64", "--memory-cap", "6MiB")
    answer = measured(capsys, *words, "--save", str(cases))
    peaks = [run["measured"]["quantities"].get("peak_allocated") for run in answer["runs"]]
    assert [run["sizes"]["micro_batch_size"] for run in answer["runs"]] == [1, 2, 8]
    assert [peak is None for peak in peaks] == [False, False, True]
    (failure,) = answer["runs"][-1]["failures"]
    assert failure["asked_bytes"] > 0
    assert "the cap of 6.00 MiB was reached at step" in answer["runs"][-1]["measured"]["notes"][0]
    fit = answer["fit"]
    assert len(fit["residual_bytes"]) == 2
    assert sum(fit["residual_bytes"]) == pytest.approx(0, abs=1)
    lines = [json.loads(line) for line in cases.read_text("utf-8").splitlines()]
    assert [case["measured"]["oom"] for case in lines] == [False, False, True]


@pytest.mark.usefixtures("in_this_process")
def test_the_largest_batch_is_found_by_bisection(model, capsys):
    answer = measured(capsys, model, *FLAGS, "--largest", "micro_batch_size", "--memory-cap", "6MiB")
    assert answer["largest"] == 3  # 4.2 MiB for two sequences of this model, 0.3 MiB of states and 1.3 MiB for each
    ran_out = {run["size"]: run["measured"]["quantities"]["oom"]["expected"] for run in answer["runs"]}
    assert ran_out[answer["largest"]] is False
    assert ran_out[answer["largest"] + 1] is True


def test_the_line_goes_through_what_is_linear():
    line = fitted("tokens", [(64, 1064), (128, 1128), (512, 1512)])
    assert (line.fixed, line.slope) == pytest.approx((1000, 1))
    assert line.largest_residual == pytest.approx(0, abs=1e-9)
    assert fitted("tokens", [(64, 1), (64, 2)]) is None


@pytest.mark.parametrize("largest", [0, 1, 7, 8, 1000])
@pytest.mark.parametrize("guess", [1, 6, 64])
def test_bisection_finds_the_largest(largest, guess):
    assert largest_that_fits(lambda size: size <= largest, guess, 1000) == largest


def test_ctrl_c_leaves_what_is_finished(model, tmp_path):
    cases = tmp_path / "cases.jsonl"
    sizes = list(range(1, 61))  # more than a busy machine lets it finish before the signal comes through
    sweep = f"micro_batch_size={','.join(map(str, sizes))}"
    words = [*FLAGS, "--device", "cpu", "--save", str(cases), "--sweep", sweep, "--steps", "5"]
    command = [sys.executable, "-m", "vramwise", "measure", model, *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where the tests run in background
    )  # fmt: skip
    while not cases.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=1800)
    assert process.returncode == 130
    found = [json.loads(line) for line in cases.read_text("utf-8").splitlines()]
    assert f"interrupted: {len(found)} of {len(sizes)} runs were finished" in printed
    assert [case["scenario"]["train"]["micro_batch_size"] for case in found] == sizes[: len(found)]
    assert 1 <= len(found) < len(sizes)


def test_every_rank_has_a_result(model, capsys):
    answer = measured(capsys, model, *FLAGS, "--num-gpus", "2")
    assert [rank["name"] for rank in answer["measured"]["ranks"]] == ["rank 0", "rank 1"]
    assert len(answer["ranks"]) == 2
    for rank in answer["ranks"]:
        moments = {phase["name"]: phase for phase in rank["phases"]}
        terms = {child["name"]: child["bytes"] for child in moments["optimizer step"]["components"]["children"]}
        assert terms["gradient buckets"] == pytest.approx(terms["gradients"], rel=0.02)
        assert "gradient buckets" not in {child["name"] for child in moments["load"]["components"]["children"]}
    rows = {row["name"]: row for row in answer["differences"] if not row["term"]}
    assert rows["peak_allocated"]["relative"] == pytest.approx(0, abs=0.005)


def test_without_a_gpu_one_line_says_so(model, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    said = refused(capsys, model, *FLAGS, code=1)
    assert "torch sees no GPU here" in said
    assert "vramwise estimate" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--task", "serve"), "an engine's own log"),
        ((*FLAGS, "--history", "h.pickle"), "--history is CUDA's"),
        ((*FLAGS, "--largest", "micro_batch_size"), "needs --memory-cap"),
        ((*FLAGS, "--largest", "micro_batch_size", "--sweep", "micro_batch_size=1"), "two questions"),
        ((*FLAGS, "--method", "qlora"), "bitsandbytes needs a GPU"),
        ((*FLAGS, "--steps", "2"), "--steps: expected a whole number from 3 on"),
        ((*FLAGS, "--sweep", "hidden_size=1,2"), "--sweep: expected KEY="),
        (("--task", "train", "--precision", "fp16"), "--device cpu computes in bf16 or fp32"),
        ((*FLAGS, "--zero-stage", "3"), "not something that measure runs"),
    ],
)
def test_what_it_does_not_run_is_refused_in_one_line(model, capsys, words, said):
    assert said in refused(capsys, model, *words, "--device", "cpu")


def test_qlora_without_bitsandbytes_says_what_to_install():
    if is_installed("bitsandbytes"):
        pytest.skip("bitsandbytes is here")
    table = {"task": "train", "train": {"method": "qlora", "quantization": "nf4", "precision": "bf16"}}
    with pytest.raises(MissingLibraryError, match=r"needs bitsandbytes.*pip install 'vramwise\[bitsandbytes\]'"):
        refuse_what_cannot_run(table, "cuda")


@pytest.mark.parametrize(
    ("text", "values"),
    [("1..8", [1, 2, 4, 8]), ("1..6", [1, 2, 4, 6]), ("3..3", [3]), ("3..5", [3, 5]), ("8,2,1..4", [1, 2, 4, 8])],
)
def test_a_range_doubles_from_its_first_to_its_last(text: str, values: list[int]) -> None:
    assert parse_sweep([f"micro-batch-size={text}"], "train") == {"micro_batch_size": values}
