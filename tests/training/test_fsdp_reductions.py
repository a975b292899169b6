"""FSDP 2 as torch runs it: what waits for reductions, and the last of them.

The recorded bytes are those of live storages on one of eight ranks of a process group that exchanges nothing (torch
2.13, transformers 5.23 on CPU, checkpointed layers, eight tokens, so that activations are next to nothing), in the
second step. `tests/training/live_fsdp.py` records them.
"""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import job_of

TINY = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 16384, "tie_word_embeddings": False,
    "head_dim": 64, "max_position_embeddings": 512,
}  # fmt: skip
RECORDED = {
    # framework and version: largest moment of backward, memory when it is over (gradients sharded, nothing gathered)
    ("pytorch", ""): (70_785_256, 24_646_504),  # reduced in fp32
    ("transformers", "transformers 5.5.0, accelerate 1.13.0"): (55_978_728, 24_646_504),  # reduced in bf16
    ("transformers", "transformers 5.23.0, accelerate 1.15.0"): (42_472_292, 24_646_504),
    ("llamafactory", ""): (42_472_292, 24_646_504),
    ("transformers", ""): (42_472_292, 24_646_504),
}


def moments(
    framework: str, model: dict[str, Any] | str = TINY, gpus: int = 8, **train: Any
) -> dict[str, dict[str, int]]:
    settings = {"framework": framework, "fsdp": "full-shard", "checkpointing": "full", "loss": "standard",
                "sequence_length": 8, "precision": "bf16-mixed", "optimizer_impl": "foreach", "keeps_outputs": False,
                **train}  # fmt: skip
    found = resolve(model) if isinstance(model, str) else None
    described = describe(model) if isinstance(model, dict) else describe(found.config, found.id)  # type: ignore[union-attr]
    scenario = Scenario.from_dict({"model": "tiny", "task": "train", "num_gpus": gpus, "train": settings})
    made = job_of(scenario, described, None)
    return {moment.name: dict(moment.parts) for moment in made.moments(made.ranks[0])}


@pytest.mark.parametrize(("framework", "version"), RECORDED)
def test_the_last_unit_is_reduced_when_backward_is_over(framework: str, version: str) -> None:
    """The root unit, with embedding and output layer; accelerate makes units of these since 1.14."""
    found = moments(framework, framework_version=version or None)
    most, after = RECORDED[framework, version]
    in_backward = ("backward: head", "backward: layers", "gradient reduction")
    assert max(sum(found[name].values()) for name in in_backward) == pytest.approx(most, rel=0.002)
    assert sum(found["clipping"].values()) == pytest.approx(after, rel=0.002)


def test_the_output_layers_gathered_copy_is_there_at_the_loss() -> None:
    """Trainer's loss is part of the root's forward, which keeps the output of the last all-gather to its end."""
    loss = moments("transformers")["loss"]
    assert loss["gathered weights"] == 2 * 2 * (16384 * 256 + 256)
    recorded = 37_252_896  # an instant before, with the last layer's copy in place of logits
    assert sum(loss.values()) == pytest.approx(recorded, rel=0.02)


@pytest.mark.parametrize("framework", ["torchtitan", "torchtune"])
def test_units_of_their_own_are_reduced_before_the_layers(framework: str) -> None:
    found = moments(framework)
    recorded = found["gradient reduction"] | {"buffers": 0}  # of layers without torchtune's table of angles
    assert sum(recorded.values()) == pytest.approx(49_812_328, rel=0.002)
    assert not found["backward: layers"].get("unsharded gradients")


CHUNKS_RECORDED = {
    # length, GPUs: largest moment of forward with the loss, of backward (of eight GPUs' short one a reduction is)
    (1024, 8): (78_536_876, None),
    (4096, 8): (183_193_772, 115_678_756),
    (1024, 1): (117_212_908, 108_455_140),
    (4096, 1): (221_869_804, 167_950_564),
}


@pytest.mark.parametrize(("length", "gpus"), CHUNKS_RECORDED)
def test_torchtitans_chunks_pass_the_output_layer_forward_and_backward(length: int, gpus: int) -> None:
    """A few small copies of hidden states, and the reduced share of the output layer's gradient, are not counted."""
    many: dict[str, Any] = {"fsdp": "full-shard", "precision": "bf16-mixed"}
    one: dict[str, Any] = {"fsdp": "none", "precision": "bf16"}
    sizes = {"loss": "chunked", "sequence_length": length, "gpus": gpus, "set_to_none": True}  # as what was recorded
    found = {
        name: sum(parts.values())
        for name, parts in moments("torchtitan", **(many if gpus > 1 else one), **sizes).items()
    }
    of_loss, of_backward = CHUNKS_RECORDED[length, gpus]
    assert max(found["forward"], found["loss"]) == pytest.approx(of_loss, rel=0.015)
    backward = max(found[name] for name in found if name.startswith("backward: "))
    assert of_backward is None or backward == pytest.approx(of_backward, rel=0.015)


def test_sums_of_the_output_layers_gradients_are_not_cut_along_the_sequence() -> None:
    """Of a rank's rows of it: a sum in fp32 and the copy that is reduced, and the whole hidden states' own sum."""
    asked: dict[str, Any] = {"loss": "chunked", "sequence_length": 256, "micro_batch_size": 1, "set_to_none": True}
    of_loss = moments("torchtitan", gpus=4, tensor_parallel_size=2, **asked)["loss"]["logits and loss"]
    rows_of_rank, hidden_states = 16384 // 2 * 256, 256 * 256
    chunk_of_logits = 2 * 256 // 8 * (16384 // 2)
    assert of_loss == pytest.approx((4 + 4) * rows_of_rank + 4 * hidden_states + chunk_of_logits, rel=0.001)


def test_older_torchtitans_chunk_logits_alone() -> None:
    older = moments("torchtitan", loss="chunked", sequence_length=1024, framework_version="torchtitan of 2025-03")
    newer = moments("torchtitan", loss="chunked", sequence_length=1024)
    assert older["loss"]["logits and loss"] > 2 * newer["loss"]["logits and loss"]


def test_torchtunes_embedding_and_output_layer_are_whole_only_while_they_run() -> None:
    layer = 2 * (256 * (4 * 64) * 2 + 256 * (2 * 64) * 2 + 3 * 256 * 1024 + 2 * 256)
    assert moments("torchtune")["evaluation"]["gathered weights"] == 2 * layer
    shared = {**TINY, "tie_word_embeddings": True}
    tied = moments("torchtune", shared, framework_version="torchtune 0.6.1, torch 2.7")
    assert tied["loss"]["gathered weights"] == layer + 2 * (16384 * 256 + 256)
    assert "gathered weights" not in moments("torchtune", shared)["loss"]  # free since torch 2.8


def test_trainer_keeps_gradients_of_earlier_micro_batches_whole() -> None:
    """accelerate's no_sync; a published run of a 7B model over two cards needs 36.4 GiB, 33.7 at the optimizer step."""
    at_once = {"fsdp_version": 1, "precision": "bf16", "framework_version": "transformers 4.45.2, torch 2.4.1"}
    whole = 2 * (2 * 16384 * 256)
    found = moments("transformers", gradient_accumulation_steps=2, **at_once)
    assert found["forward end"]["unsharded gradients"] >= whole
    assert "unsharded gradients" not in found["optimizer step"]
    assert "unsharded gradients" not in moments("transformers", **at_once)["forward end"]
    second = {**at_once, "fsdp_version": 2}
    assert "unsharded gradients" not in moments("transformers", gradient_accumulation_steps=2, **second)["forward end"]
    second["framework_version"] = "transformers 5.1.0"
    assert moments("transformers", gradient_accumulation_steps=2, **second)["forward end"]["unsharded gradients"]


@pytest.mark.parametrize("tensor_parallel_size", [1, 4])
def test_experts_gradients_are_cut_over_the_ranks_that_hold_their_copies(tensor_parallel_size: int) -> None:
    """Experts lie on fewer or more ranks than the rest: while backward runs there is no more than when it is over."""
    layout = {"fsdp": "full-shard", "expert_parallel_size": 2, "tensor_parallel_size": tensor_parallel_size}
    scenario = {"model": "deepseek-ai/DeepSeek-V3.1", "task": "train", "gpu": "b200", "num_gpus": 16}
    found = estimate({**scenario, "train": {"checkpointing": "full", **layout}})
    held = {phase.name: phase.components.find("gradients") for phase in found.phases}
    inside, over = held["backward: layers"], held["backward end"]
    assert inside is not None
    assert over is not None
    assert 0.95 * over.bytes < inside.bytes <= over.bytes
