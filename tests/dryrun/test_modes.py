"""The quicker mode of fake tensors answers as torch's own does: event by event, byte by byte."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

HERE = Path(__file__).parent
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 256, "vocab_size": 1000}
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_local_experts": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 512,
}  # fmt: skip
BATCH = {"micro_batch_size": 2, "sequence_length": 128}
CASES = {
    "autocast, dropout, checkpointing": (
        GPT2,
        {"precision": "fp16-mixed", "checkpointing": "full", "optimizer_impl": "foreach", **BATCH},
    ),
    "experts with adapters": (MIXTRAL, {"precision": "bf16", "method": "lora", **BATCH}),
}


@pytest.fixture(scope="module")
def answered(tmp_path_factory, warm_python):
    path = tmp_path_factory.mktemp("modes") / "cases.json"
    path.write_text(json.dumps({name: {"config": c, "settings": s} for name, (c, s) in CASES.items()}), "utf-8")
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONHASHSEED": "0"}
    found = warm_python.run([sys.executable, str(HERE / "in_modes.py"), str(path)], env=quiet)
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout)


@pytest.mark.parametrize("name", CASES)
def test_both_see_the_same(answered, name):
    quicker, own = answered[name]
    assert quicker["failure"] == own["failure"] is None
    assert quicker == own
    assert quicker["peak_allocated"] > 2**20
