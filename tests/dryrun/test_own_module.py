"""`dry-run MODULE:CLASS`: a module of the user's own, its inputs by the command line, its open values by --assume."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from vramwise.cli.main import main
from vramwise.dryrun.assumed import Assumptions, read_assumptions
from vramwise.dryrun.outcome import workspace_bytes
from vramwise.dryrun.own_module import OwnModule, read_arguments, read_inputs
from vramwise.errors import UsageError
from vramwise.hardware import find_gpu

torch = pytest.importorskip("torch")
HERE = Path(__file__).parent
MIB = 2**20


@pytest.fixture
def asked(monkeypatch, capsys):
    monkeypatch.chdir(HERE)

    def ask(*words: str, rc: int = 0):
        code = main(["dry-run", *words, "--gpu", "4090", "--json"])
        printed = capsys.readouterr()
        assert code == rc, printed.err
        return json.loads(printed.out) if rc == 0 else printed.err

    return ask


def phases(result):
    return {phase["name"]: phase["bytes"] for phase in result["phases"]}


@pytest.mark.usefixtures("warm")
def test_a_training_step_of_a_class_holds_what_its_parameters_say(asked):
    of = ("own_modules:Net", "--task", "train", "--precision", "fp32", "--optimizer-impl", "fused")
    result = asked(*of, "--input", "x=float32[8,1024]", "--arg", "width=1024", "depth=4")
    parameters = 4 * (1024 * 1024 + 1024)
    assert result["model"]["num_parameters"] == parameters
    train = result["scenario"]["train"]
    assert (train["framework"], train["micro_batch_size"]) == ("pytorch", 8)
    quantities = result["quantities"]
    assert quantities["weights"]["expected"] == 4 * parameters
    # beside weights, gradients and two states of four bytes each: a workspace of cuBLAS for the thread of the step and
    # one for that of backward, and what autograd keeps of eight rows
    beside = quantities["peak_allocated"]["expected"] - 16 * parameters - 2 * workspace_bytes(find_gpu("4090").gpu)
    assert 0 < beside < MIB


@pytest.mark.usefixtures("warm")
def test_inputs_by_name_and_outputs_without_a_loss(asked):
    result = asked("own_modules:Picture", "--task", "generate", "--input", "pixels=bf16[2,3,224,224]",
                   "tokens=int[2,77]", "--dtype", "bf16")  # fmt: skip
    weights = 2 * (64 * 3 * 16 * 16 + 64 + 1000 * 64)
    assert weights <= result["quantities"]["weights"]["expected"] < weights + 2048


@pytest.mark.usefixtures("warm")
def test_what_hangs_on_values_is_refused_with_the_line_or_assumed(asked):
    of = ("own_modules:Deciding", "--task", "train", "--precision", "fp32", "--input", "x=float32[65536,64]")
    line = next(n for n, text in enumerate((HERE / "own_modules.py").read_text().splitlines(), 1) if "kept = x" in text)
    refused = asked(*of, rc=1)
    assert f"own_modules.py:{line}: how much nonzero finds is a matter of the values" in refused
    assert f"--assume own_modules.py:{line}=VALUE" in refused
    taken, left = (
        asked(*of, "--assume", f"own_modules.py:{line}=50%", f"item={value}", "unique=3") for value in (4, 2)
    )
    # the branch keeps eight copies of half of the rows; the two peaks lie a layer's gradients apart
    grown = taken["quantities"]["peak_allocated"]["expected"] - left["quantities"]["peak_allocated"]["expected"]
    assert grown == pytest.approx(8 * 32768 * 64 * 4, rel=1e-3)
    assert any(note == "assumed for nothing, since no code asked: unique" for note in taken["notes"])


@pytest.mark.parametrize(
    ("target", "arguments", "said"),
    [
        ("own_modules:Nat", {}, r"own_modules has no class Nat: did you mean Net\?"),
        ("own_modules:WIDTH", {}, "own_modules has no class WIDTH"),
        ("no_such:Net", {}, "no_such: no such module here"),
        ("own_modules:Net", {"foo": 1}, "unexpected keyword argument 'foo'"),
        ("own_modules:made", {}, "makes a list, expected a torch.nn.Module"),
    ],
)
def test_what_is_no_module_is_one_line(monkeypatch, target, arguments, said):
    monkeypatch.chdir(HERE)
    monkeypatch.setattr("sys.path", [*sys.path])
    wanted = {"target": target, "task": "load", "arguments": arguments, "settings": {}, "inputs": []}
    with pytest.raises(UsageError, match=said):
        OwnModule(wanted, SimpleNamespace()).run()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "needs what to feed it"),
        (("--input", "x=fp32[2]", "--lora-rank", "8"), "--lora-rank is not for a module"),
        (
            ("--input", "x=fp32[2]", "--gradient-accumulation-steps", "0"),
            "--gradient-accumulation-steps: expected a whole number",
        ),
    ],
)
def test_flags_that_say_nothing_of_a_module(asked, words, said):
    assert said in asked("own_modules:Net", "--task", "train", *words, rc=2)


def test_inputs_arguments_and_assumptions_are_read_strictly():
    assert read_inputs(["x=bf16[2, 3]", "y=int[]"]) == [
        {"name": "x", "dtype": "bfloat16", "shape": [2, 3]}, {"name": "y", "dtype": "int64", "shape": []},
    ]  # fmt: skip
    assert read_arguments(["a=1", "b=[1, 2]", "c=relu", "d=True", "e=none"]) == {
        "a": 1, "b": [1, 2], "c": "relu", "d": True, "e": None,
    }  # fmt: skip
    for bad in ("x=float3[2]", "x=[2]", "x=fp32[2", "x=fp32[-1]", "x=fp32[99999999999999]", "=fp32[2]"):
        with pytest.raises(UsageError, match="--input"):
            read_inputs([bad])
    for bad in ("item", "item=", "a=1", "item=nan", "nonzero=101%", "x.py:a=1", "item=1e300"):
        with pytest.raises(UsageError, match="--assume"):
            read_assumptions([bad])
    found = Assumptions(read_assumptions(["nonzero=25%", "train.py:7=true"]))
    assert found.value("nonzero", "/a/b.py:1", 400) == 100
    assert found.value("item", "/a/train.py:7") is True
    assert found.value("item", "/a/train.py:8") is None
    assert found.unused() == []
