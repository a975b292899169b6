"""What SDPA is handed in versions of transformers: heads copied before 4.54, inputs laid out anew from 4.48 to 4.55.

What autograd keeps of two layers on CPU in bf16, a batch of 2 × 8 tokens, as the real classes of transformers 4.52.4
keep it with torch 2.13 (their models made anew by this file's configs, saved tensors counted by storage).
"""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward
from vramwise.scenario import Scenario
from vramwise.training.answer import job_of
from vramwise.training.recipe.settings import execution

DECODER: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
NARROW = {**DECODER, "head_dim": 16}
OPT = {
    "hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99,
    "max_position_embeddings": 128, "word_embed_proj_dim": 64, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
KEPT = {
    "llama": (DECODER, 93_956), "qwen2": (DECODER, 93_956), "mistral": ({**DECODER, "sliding_window": None}, 93_956),
    "olmo2": (DECODER, 129_540), "qwen3": (NARROW, 113_156), "opt": (OPT, 54_660),
}  # fmt: skip


@pytest.mark.parametrize("model_type", KEPT)
def test_transformers_4_52_keeps_what_its_classes_keep(model_type: str) -> None:
    config, kept = KEPT[model_type]
    assert saved_bytes({**config, "model_type": model_type}, "transformers 4.52.4, torch 2.13") == kept


def test_heads_are_copied_and_inputs_laid_out_by_version() -> None:
    llama = {**DECODER, "model_type": "llama"}
    versions = ("4.47.1", "4.53.3", "4.54.1", "4.55.4", "4.56.2")
    old, laid_out, grouped, last, today = (saved_bytes(llama, f"transformers {name}, torch 2.13") for name in versions)
    assert today < old < laid_out
    assert grouped == last
    assert today < grouped < laid_out
    assert saved_bytes(llama, "transformers 4.56.2, torch 2.4") == old  # whose SDPA takes no groups


def saved_bytes(config: dict[str, Any], version: str) -> int:
    table = {"framework_version": version, "precision": "bf16", "attention": "sdpa"}
    job = job_of(Scenario.from_dict({"model": config, "task": "train", "train": table}), describe(config), None)
    found = execution(job.structure, job.model)
    flags = ("sdpa_repeats_heads", "sdpa_copies_inputs")
    on_cpu = Execution(param_dtype="bf16", device="cpu", **{flag: getattr(found, flag) for flag in flags})
    forward = record_forward(job.model, on_cpu, batch=2, sequence=8)
    return int(evaluate(forward.saved_bytes, with_rounded_axes(batch=2, sequence=8)))
