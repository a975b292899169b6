"""Runs of few layers that stand for all: the log that they are spliced into is that of the whole model."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from by_turns import is_thorough

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

HERE = Path(__file__).parent
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4096, "max_position_embeddings": 512,
    "head_dim": 32, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_layer": 8, "n_head": 4, "n_positions": 256, "vocab_size": 1000}
KINDS = ["sliding_attention", "full_attention"]
GEMMA2 = {**LLAMA, "model_type": "gemma2", "num_hidden_layers": 16, "layer_types": KINDS * 8, "sliding_window": 64}
BATCH = {"micro_batch_size": 2, "sequence_length": 128}
CASES = {
    "full": (LLAMA, "train", {"precision": "bf16", **BATCH}),
    "checkpointed adapters": (
        LLAMA, "train",
        {"precision": "bf16", "method": "lora", "checkpointing": "full", "optimizer_impl": "foreach", **BATCH},
    ),
    "accumulated and checkpointed": (
        GPT2, "train", {"precision": "fp16-mixed", "checkpointing": "full", "gradient_accumulation_steps": 2, **BATCH},
    ),
    "two kinds of layers": (GEMMA2, "train", {"precision": "bf16", **BATCH}),
    "a generation": (LLAMA, "generate", {"prompt_tokens": 64, "new_tokens": 40, "batch_size": 2}),
    "too few": ({**LLAMA, "num_hidden_layers": 6}, "load", {}),
}  # fmt: skip
if not is_thorough():  # two more trainings: with layers that are run whole, and of two micro-batches with fp16
    del CASES["checkpointed adapters"], CASES["accumulated and checkpointed"]

WHOLE = tuple({"checkpointed adapters", "too few"} & {*CASES})
"""Models whose layers are all run."""


@pytest.fixture(scope="module")
def answered(tmp_path_factory, warm_python):
    path = tmp_path_factory.mktemp("splice") / "cases.json"
    cases = {
        name: {"config": config, "task": task, "settings": own} for name, (config, task, own) in CASES.items()
    }  # fmt: skip
    path.write_text(json.dumps(cases), "utf-8")
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONHASHSEED": "0"}
    found = warm_python.run([sys.executable, str(HERE / "in_splice.py"), str(path)], env=quiet)
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout)


@pytest.mark.parametrize("name", [name for name in CASES if name not in WHOLE])
def test_few_layers_spliced_are_all_layers_run(answered, name):
    answer = answered[name]
    assert answer["all"]["failure"] is None
    assert answer["few"] == answer["all"]


def test_layers_that_take_turns_are_repeated_together(answered):
    assert answered["two kinds of layers"]["depth"] == [0, 2, 6, 5]
    assert answered["full"]["depth"] == [0, 1, 3, 5]


def test_a_model_by_name_does_not_wait_for_the_trainer(answered):
    assert answered["loads"] == ["transformers.masking_utils"]  # its import takes a second


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_short_or_not_known_to_go_on_is_run_as_it_is(answered, name):
    assert answered[name]["few"] is None
    assert answered[name]["all"]["failure"] is None
