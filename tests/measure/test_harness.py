"""The harness on CPU: fresh processes, moments, what was measured beside the estimate, saved cases."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from vramwise import describe
from vramwise.cli.main import main

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip
WEIGHT_BYTES = 4 * describe(CONFIG).num_parameters
TRAIN = ("--task", "train", "--precision", "fp32", "--sequence-length", "64", "--micro-batch-size", "2")


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    return str(tmp_path)


def measured(capsys, *words, code=0):
    assert main(["measure", *words, "--device", "cpu", "--json"]) == code
    return json.loads(capsys.readouterr().out)


def parts(result, moment):
    (tree,) = (phase["components"]["children"] for phase in result["phases"] if phase["name"] == moment)
    return {child["name"]: child["bytes"] for child in tree}


def test_training_is_measured_by_moments(model, tmp_path, capsys):
    cases = tmp_path / "cases.jsonl"
    answer = measured(capsys, model, *TRAIN, "--save", str(cases))
    result = answer["measured"]
    step = parts(result, "optimizer step")
    assert step["weights"] == pytest.approx(WEIGHT_BYTES, rel=0.01)
    assert step["gradients"] == pytest.approx(WEIGHT_BYTES, rel=0.01)
    assert step["optimizer states"] == pytest.approx(2 * WEIGHT_BYTES, rel=0.01)
    assert "gradients" not in parts(result, "loss")
    rows = {row["name"]: row for row in answer["differences"]}
    assert rows["optimizer step"]["relative"] == pytest.approx(0, abs=0.01)
    # The CPU keeps other things than CUDA does, so the two differ, but not by much.
    assert rows["backward"]["relative"] == pytest.approx(0, abs=0.15)

    (case,) = map(json.loads, cases.read_text("utf-8").splitlines())
    assert main(["accuracy", str(cases), "--json"]) == 0
    assert case["measured"]
    capsys.readouterr()


def test_loading_takes_the_weights(model, capsys):
    result = measured(capsys, model, "--task", "load", "--dtype", "fp32")["measured"]
    assert parts(result, "load")["weights"] == pytest.approx(WEIGHT_BYTES, rel=0.01)


def test_without_a_gpu_one_line_says_so(model, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    assert main(["measure", model, *TRAIN]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "no GPU" in printed.err


def test_what_it_does_not_run_is_refused(model, capsys):
    assert main(["measure", model, "--task", "serve", "--device", "cpu"]) == 2
    assert "an engine's own log" in capsys.readouterr().err
