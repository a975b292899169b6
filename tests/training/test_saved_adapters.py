"""Adapters keep, byte for byte, what autograd saves under peft's own layers."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.models.autograd.size import evaluate
from vramwise.models.execution import Execution, Lora
from vramwise.models.step import record_forward

TINY: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 128, "tie_word_embeddings": False,
    "attention_bias": True,
}  # fmt: skip
LINEAR = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
AXES = {"batch": 2, "sequence": 24}


def saved_by_peft(dora: bool, dropout: float, dtype: str, targets: Any = "all-linear") -> int:
    torch = pytest.importorskip("torch")
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    config = transformers.LlamaConfig(**TINY)
    base = transformers.LlamaForCausalLM._from_config(config, dtype=kind, attn_implementation="eager")
    adapters = {"r": 4, "target_modules": targets, "use_dora": dora, "lora_dropout": dropout}
    settings = peft.LoraConfig(task_type="CAUSAL_LM", **adapters)
    model = peft.get_peft_model(base, settings).train()
    parameters = {p.untyped_storage()._cdata for p in model.parameters()}

    class Held:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor.detach()

    held: weakref.WeakSet[Held] = weakref.WeakSet()

    def pack(tensor: Any) -> Held:
        packed = Held(tensor)
        held.add(packed)
        return packed

    tokens = torch.zeros(AXES["batch"], AXES["sequence"], dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.tensor):
        outputs = model(input_ids=tokens, labels=tokens, use_cache=False)
    sizes = {h.tensor.untyped_storage()._cdata: h.tensor.untyped_storage().nbytes() for h in held}
    del outputs
    return sum(size for storage, size in sizes.items() if storage not in parameters)


def saved_by_ours(dora: bool, dropout: float, dtype: str, targets: frozenset[str] = LINEAR) -> int:
    lora = Lora(4, targets, dropout, "fp32", dora)
    execution = Execution(param_dtype=dtype, attention="eager", device="cpu", lora=lora)
    forward = record_forward(describe({"model_type": "llama", **TINY}), execution, **AXES)
    storages = {storage for run in forward.runs for storage, _ in run.saved if storage.kind != "parameter"}
    return sum(evaluate(storage.nbytes, AXES) for storage in storages)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("dora", [False, True])
def test_what_is_saved_is_what_peft_saves(dora: bool, dropout: float, dtype: str) -> None:
    assert saved_by_ours(dora, dropout, dtype) == saved_by_peft(dora, dropout, dtype)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "targets", [("embed_tokens",), ("embed_tokens", "q_proj", "down_proj"), ("layers.1.mlp.up_proj",)]
)
def test_what_named_adapters_save_is_what_peft_saves(targets: tuple[str, ...], dtype: str) -> None:
    assert saved_by_ours(False, 0.1, dtype, frozenset(targets)) == saved_by_peft(False, 0.1, dtype, list(targets))


def peak(**train: Any) -> float:
    settings = {"method": "lora", "checkpointing": "full", "sequence_length": 512, **train}
    found = estimate({"model": "llama-3.1-8b", "task": "train", "train": settings})
    return next(phase.bytes for phase in found.phases if phase.name == "backward: layers")


def test_dora_needs_room_for_weights_in_the_adapters_dtype() -> None:
    """Weight, product, scaled product and sum of the widest layer in fp32: each 14336 · 4096 · 4 bytes."""
    assert peak(dora=True) - peak() > 3 * 14336 * 4096 * 4
