"""S4 to S9, S11, S17, S20, S21, S28 from the command line, and what it says to wrong questions."""

from __future__ import annotations

import json

import pytest

from vramwise.cli.main import main

BERT = ["--model-type", "bert", "--num-hidden-layers", "12", "--hidden-size", "768", "--num-attention-heads", "12",
        "--vocab-size", "30522", "--sequence-length", "512", "--micro-batch-size", "1", "--dtype", "fp32"]  # fmt: skip
LLAMA_SHAPE = ["--hidden-size", "4096", "--num-hidden-layers", "32"]


def simple(capsys, *arguments, code=0):
    assert main(["estimate", *arguments, "--style", "simple"]) == code
    return capsys.readouterr()


def row(screen, label):
    line = next(line for line in screen.splitlines() if line.startswith(label))
    return [cell.strip() for cell in line.removeprefix(label).split("  ") if cell.strip()]


@pytest.mark.parametrize("size", [["7b"], ["--num-parameters", "7e9"]])
def test_s6_s7_s8_s17_weights_in_every_unit(size, capsys):
    screen = simple(capsys, *size).out
    assert row(screen, "weights = file") == ["bytes each", "GB", "GiB", "MiB", "KiB"]
    assert row(screen, "fp32") == ["4", "28.0000", "26.0770", "26,702.8809", "27,343,750.0"]
    assert row(screen, "fp16, bf16") == ["2", "14.0000", "13.0385", "13,351.4404", "13,671,875.0"]
    assert row(screen, "int8, fp8")[:2] == ["1", "7.0000"]
    assert row(screen, "int4, nf4, fp4")[:2] == ["0.5", "3.5000"]


def test_s4_s11_s20_training(capsys):
    screen = simple(capsys, "7b").out
    assert row(screen, "16-bit weights, fp32 gradients, fp32 Adam") == ["2 + 4 + 8", "98.00", "91.27"]
    assert row(screen, "everything fp32, AdamW (16 a parameter)")[1:] == ["112.00", "104.31"]
    assert row(screen, "everything 16 bit, AdamW (8 a parameter)")[1:] == ["56.00", "52.15"]
    assert row(screen, "rule of thumb: serve 2n GB")[1] == "14.00"
    assert row(screen, "rule of thumb: train 16n GB + activations")[1] == "112.00"
    assert row(screen, "rule of thumb: 20n GB to be safe")[1] == "140.00"
    assert "never the answer" in screen


def test_s12_an_articles_lora_beside_what_holds(capsys):
    """4 bytes a parameter are 26 GiB, 8 for 0.4785 % of them 0.25 GiB; frozen weights have no gradient."""
    screen = simple(capsys, "7b").out
    assert row(screen, "LoRA, as an article has it: base") == ["2 + 2", "28.00", "26.08"]
    assert row(screen, "LoRA, its adapters of 0.4785 %") == ["2 + 2 + 4", "0.27", "0.25"]
    assert row(screen, "LoRA in truth: no frozen gradients") == ["2", "14.00", "13.04"]


def test_s4_s5_98_gb_and_the_activations_are_about_100_gb(capsys):
    screen = simple(capsys, "7b", *LLAMA_SHAPE, "--sequence-length", "8192").out
    assert row(screen, "16-bit training with them")[1:] == ["100,147.48", "100.15", "93.27"]


def test_s5_activations(capsys):
    screen = simple(capsys, "7b", *LLAMA_SHAPE, "--sequence-length", "8192").out
    assert row(screen, "activations")[1:] == ["2,147.48", "2.15", "2.00"]


def test_s9_inference(capsys):
    screen = simple(capsys, "7b", *LLAMA_SHAPE, "--sequence-length", "8192", "--dtype", "fp32").out
    assert row(screen, "inference")[-1] == "26.33"


def test_s21_int8_training_and_its_largest_batch(capsys):
    shape = [*LLAMA_SHAPE, "--intermediate-size", "11008", "--sequence-length", "2048"]
    screen = simple(capsys, "6b", *shape, "--gpu", "a100-sxm-80gb").out
    assert row(screen, "int8 with 1.3 GB of CUDA kernels")[1] == "25.30"
    assert row(screen, "intermediate of a sample")[1] == "989.86"
    assert "(80.0 GB − 25.30 GB) / 0.99 GB = 55 samples" in screen


def test_s28_hyperparameters_alone_with_the_true_count_beside(capsys):
    screen = simple(capsys, *BERT).out
    assert "108,768,768 parameters (12·L·h² + (V + s)·h)" in screen
    assert row(screen, "fp32")[1] == "435.08"
    assert row(screen, "hidden states of a layer")[1] == "1.57"
    assert row(screen, "keys and values of a layer")[1] == "3.15"
    assert row(screen, "weights, activations, cache")[1] == "491.70"
    assert "109,514,298 parameters (109,482,240 without the language-model head" in " ".join(screen.split())


def test_json_holds_bytes(capsys):
    answer = json.loads(simple(capsys, "7b", *LLAMA_SHAPE, "--sequence-length", "8192", "--json").out)
    assert answer["num_parameters"] == 7_000_000_000
    assert answer["with_shape"]["activations"] == 2_147_483_648
    assert "true" not in answer


def test_a_named_model_gets_its_true_figures(capsys):
    answer = json.loads(simple(capsys, "gpt2", "--json").out)
    assert answer["num_parameters"] == answer["true"]["num_parameters"] == 124_439_808
    assert answer["true"]["full training, fp32"] > answer["rules_of_thumb"]["train 16n"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-parameters", "seven"], '--num-parameters: expected a size such as 7e9, 7b or 350M, got "seven"'),
        (["--num-parameters", "0"], 'expected from 1 to 10^15 parameters, got "0"'),
        (["gpt2", "--num-parameters", "7b"], "--num-parameters stands for a model: leave out MODEL"),
        (["7b", "--zero-stage", "3"], "--zero-stage does not enter --style simple: leave one of them out"),
        (["7b", "--sequence-length", "-1"], "--sequence-length: expected a whole number ≥ 1, got -1"),
        (["7b", "--dtype", "fp15"], 'unknown dtype "fp15": did you mean'),
        (["--hidden-size", "768"], "--num-hidden-layers is missing: the formula needs layers, hidden size, vocabulary"),
        ([], "no model: give MODEL, --num-parameters N, or --hidden-size and its like"),
    ],
)
def test_wrong_questions_are_one_line(arguments, message, capsys):
    captured = simple(capsys, *arguments, code=2)
    assert captured.out == ""
    assert captured.err.startswith(f"vramwise: {message}")
    assert captured.err.count("\n") == 1
