"""Sizes that cannot be, names that nobody knows, flags that contradict one another: one line, exit code 2."""

from __future__ import annotations

import json

import pytest

TINY = {
    "--hidden-size": "64",
    "--intermediate-size": "128",
    "--num-hidden-layers": "2",
    "--num-attention-heads": "4",
    "--vocab-size": "1000",
}


def described(**changed):
    """Flags that describe a tiny model, some of them changed."""
    flags = {**TINY, **{"--" + key.replace("_", "-"): value for key, value in changed.items()}}
    return [part for pair in flags.items() for part in pair]


@pytest.mark.parametrize("value", ["-1", "0", "1e30", "1" + "0" * 30, "NaN", "inf", "1.5", "many", "", "٣", "9" * 5000])
@pytest.mark.parametrize("flag", ["num_hidden_layers", "hidden_size"])
def test_a_size_that_is_no_size(flag, value, program):
    done = program("estimate", *described(**{flag: value}), "--task", "load", "--json")
    assert done.code in (2, 4)
    assert done.out == ""
    assert flag in done.only_line().replace("-", "_")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"num_attention_heads": "5"}, "num_attention_heads (5) does not divide hidden_size (64)"),
        ({"num_key_value_heads": "3"}, "num_key_value_heads (3) does not divide num_attention_heads (4)"),
        ({"num_hidden_layers": "1000000000"}, "num_hidden_layers: expected a whole number from 1 to 4,096"),
    ],
)
def test_sizes_that_do_not_go_together(changed, problem, program):
    assert problem in program("estimate", *described(**changed), "--task", "load").complaint(4)


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        ("estimate nobody/knows-this --task load", 4, 'unknown model "nobody/knows-this"'),
        ("estimate lama-3.1-8b --task load", 4, "did you mean"),
        ("estimate gpt2 --task load --gpu 4900", 2, 'unknown GPU "4900": did you mean rtx-4090'),
        ("estimate gpt2 --task load --gpu NaN", 2, "NaN"),
        ("estimate gpt2 --task lode", 2, "lode"),
        ("estimate gpt2 --task load --gpu-total-bytes -1", 2, "--gpu-total-bytes"),
        ("estimate gpt2 --task load --gpu-total-bytes 80G", 2, "80 GB"),
        ("estimate gpt2 --task load --num-gpus 1e30", 2, "--num-gpus"),
        ("estimate gpt2 --task train --micro-batch-size two", 2, "--micro-batch-size"),
        ("estimate gpt2 --task train --micro-batch-size 0", 2, "--micro-batch-size"),
        ("estimate gpt2 --task train --zero-stage 4", 2, "--zero-stage"),
        ("estimate gpt2 --task train --learning-rate nan", 2, 'unknown flag "--learning-rate"'),
        ("estimate gpt2 --task train --optimizer adamm", 2, "adamw"),
        (
            "estimate gpt2 --task train --method full --lora-rank 16",
            2,
            "--lora-rank: needs method lora or qlora; it is full",
        ),
        ("estimate gpt2 --task train --zero-stage 3 --fsdp full-shard", 2, "fsdp"),
        ("estimate gpt2 --task train --tensor-parallel-size 3 --num-gpus 8", 2, "tensor"),
        ("estimate gpt2 --task serve --zero-stage 3", 2, "--zero-stage belongs to --task train"),
        ("estimate gpt2 --task load --micro-batch-size 1", 2, "--micro-batch-size belongs to --task train"),
        ("estimate gpt2 --hidden-size 64 --task load", 2, "--hidden-size describes a model of its own"),
        ("estimate --task load", 2, "no model"),
        ("estimate", 2, "no model"),
        ("estimate gpt2 gpt2 --task load", 2, 'unexpected argument "gpt2"'),
        ("estimate gpt2 --style pretty", 2, "--style: expected one of huggingface"),
        ("estimate --scenario gone.toml", 4, "gone.toml"),
        ("estimate --scenario cut.toml", 4, "cut.toml"),
        ("estimate --scenario odd.json", 2, 'train.micro_batch_size: expected a whole number ≥ 1, got "two"'),
        ("estimate --scenario typo.json", 2, "micro_batch_size"),
        ("estimate --scenario binary.json", 4, "binary.json"),
        ("accuracy gone.jsonl", 4, "gone.jsonl"),
        ("accuracy typo.json --worst -1", 2, "--worst"),
        ("models --limit", 2, "--limit"),
    ],
)
def test_a_question_that_has_no_answer(arguments, code, problem, program):
    write = (program.folder / "cut.toml").write_text, (program.folder / "odd.json").write_text
    write[0]('model = "gpt2\ntask =')
    write[1](json.dumps({"model": "gpt2", "task": "train", "train": {"micro_batch_size": "two"}}))
    typo = {"model": "gpt2", "task": "train", "train": {"micro_batchsize": 2}}
    (program.folder / "typo.json").write_text(json.dumps(typo))
    (program.folder / "binary.json").write_bytes(bytes(range(256)))
    assert problem in program(*arguments.split()).complaint(code)
