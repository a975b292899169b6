"""Every block of a replayed step is taken once and given back once, whatever is trained and however."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramwise import estimate
from vramwise.errors import VramwiseError
from vramwise.models.allocator import CachingAllocator
from vramwise.training.reserved_memory.step_replay import StepReplay
from vramwise.training.reserved_memory.traces import Memory

BERT = {
    "model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 1024,
    "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30522,
}  # fmt: skip
SHORT = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 99}
KV = {"num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512}
MODELS: tuple[Any, ...] = (
    {**BERT, **SHORT},
    {"model_type": "llama", **SHORT, **KV, "tie_word_embeddings": True},
    {"model_type": "gemma2", **SHORT, **KV, "head_dim": 16},
    {"model_type": "deberta", **SHORT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    {"model_type": "zamba", **SHORT, "num_hidden_layers": 12, "attention_hidden_size": 128, "attn_layer_period": 4,
     "attn_layer_offset": 2, "num_key_value_heads": 4, "mamba_d_state": 4, "n_mamba_heads": 2,
     "tie_word_embeddings": True},
    {"model_type": "recurrent_gemma", **SHORT, "num_hidden_layers": 3, "lru_width": 64, "attention_window_size": 32},
    {"model_type": "hrm_text", **SHORT, "head_dim": 16, "H_cycles": 2, "L_cycles": 2, "L_bp_cycles": [2, 1]},
    "google-t5/t5-small",
)  # fmt: skip
STEPS = {
    "method": st.sampled_from(["full", "lora", "qlora"]),
    "precision": st.sampled_from(["bf16-mixed", "fp16-mixed", "bf16", "fp32"]),
    "optimizer": st.sampled_from(["adamw", "adamw-8bit", "sgd"]),
    "micro_batch_size": st.sampled_from([1, 3]),
    "sequence_length": st.sampled_from([1, 40, 512]),
    "gradient_accumulation_steps": st.sampled_from([1, 4]),
    "checkpointing": st.sampled_from(["none", "full", "selective"]),
    "recompute": st.sampled_from([[], ["core_attn"], ["mlp"]]),
    "attention": st.sampled_from(["sdpa", "eager", "flash"]),
    "loss": st.sampled_from(["standard", "fused", "chunked", "fused-linear"]),
    "framework": st.sampled_from(["transformers", "pytorch", "llamafactory", "torchtune"]),
    "framework_version": st.sampled_from(["", "transformers 4.16, torch 1.10", "transformers 4.45"]),
    "kernels": st.sampled_from([[], ["liger"]]),
    "head": st.sampled_from([None, "sequence-classification", "none"]),
}
LAYOUTS: tuple[dict[str, Any], ...] = ({}, {"fsdp": "full-shard"}, {"fsdp": "full-shard", "fsdp_version": 1})


def ask(model: Any, num_gpus: int = 1, gpu: str = "v100-sxm2-16gb", **train: Any) -> int:
    given = {key: value for key, value in train.items() if value not in (None, "", [])}
    table = {"model": model, "task": "train", "gpu": gpu, "num_gpus": num_gpus, "train": given}
    return int(estimate(table).quantities["peak_reserved"].expected)


def test_a_classifier_s_logits_are_nobody_s_to_replace() -> None:
    """Autocast widens what cross entropy reads; BertForSequenceClassification has no line that keeps the copy."""
    assert ask(
        BERT, head="sequence-classification", precision="fp16-mixed", optimizer="adamw-8bit", checkpointing="full",
        gradient_accumulation_steps=4, micro_batch_size=1, sequence_length=512, attention="eager",
        framework_version="transformers 4.16, torch 1.10",
    )  # fmt: skip


@pytest.mark.parametrize("method", ["lora", "qlora"])
@pytest.mark.parametrize("version", [1, 2])
def test_adapters_on_shared_weights_lie_in_the_units_of_their_own_layers(method: str, version: int) -> None:
    assert ask("Zyphra/Zamba-7B-v1", 2, method=method, fsdp="full-shard", fsdp_version=version)


def test_a_copy_that_autograd_keeps_outlives_autocast() -> None:
    """Of a layer whose attention alone runs again autograd keeps the 16-bit copies of the other products' weights."""
    train = {"checkpointing": "selective", "recompute": ["core_attn"], "precision": "fp16-mixed", "sequence_length": 40}
    assert ask(MODELS[1], **train)
    whole = estimate({"model": MODELS[1], "task": "train", "gpu": "v100-sxm2-16gb", "train": train})
    ends = {phase.name: phase.components.find("weight casts") for phase in whole.phases}
    kept, most = ends["forward end"], ends["loss"]
    assert kept is not None
    assert most is not None
    assert most.bytes == kept.bytes  # not once more for autocast's own list


def test_blocks_are_given_back_once() -> None:
    memory = CachingAllocator()
    block = memory.take(1000)
    memory.free(block)
    with pytest.raises(AssertionError):
        memory.free(block)
    held = Memory().hold(10)
    held.holders = 0
    with pytest.raises(AssertionError):
        Memory().drop(held)


@given(model=st.sampled_from(MODELS), layout=st.sampled_from(LAYOUTS), train=st.fixed_dictionaries(STEPS))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_step_leaves_what_it_found(
    monkeypatch: pytest.MonkeyPatch, model: Any, layout: dict[str, Any], train: dict[str, Any]
) -> None:
    """After the first step, which makes the optimizer's states, each step ends with the bytes that it began with."""
    step = StepReplay._step

    def watched(self: Any, *, is_first: bool) -> None:
        before = self.memory.allocated
        step(self, is_first=is_first)
        assert is_first or self.memory.allocated == before

    train = train if train["checkpointing"] == "selective" else {**train, "recompute": []}
    if train["method"] != "full" and isinstance(model, dict) and model["model_type"] in ("bert", "deberta"):
        train = {**train, "lora_targets": ["query", "value"] if model["model_type"] == "bert" else ["in_proj"]}
    with monkeypatch.context() as patched:
        patched.setattr(StepReplay, "_step", watched)
        try:
            ask(model, 2 if layout else 1, **layout, **train)
        except VramwiseError:
            return
