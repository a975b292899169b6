"""Reserved memory beside allocated, and what recipes leave open."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.result import Result

GIB = 2**30


def titan(model: str, num_gpus: int, **train: Any) -> Result:
    settings = {"framework": "torchtitan", "precision": "bf16-mixed", "fsdp": "full-shard", "fsdp_version": 2, **train}
    card = {"gpu": "H100-80GB", "gpu_total_bytes": 102_047_993_456}
    return estimate({"model": model, "task": "train", "num_gpus": num_gpus, **card, "train": settings})


@pytest.mark.parametrize(
    ("batch", "gpus", "tensor_parallel", "measured_gib"),
    [(16, 32, 4, 70.20), (16, 32, 8, 43.45), (32, 32, 8, 70.79), (32, 64, 8, 63.27), (4, 16, 1, 78.48)],
)
def test_published_reserved_peaks_of_qwen3_32b(
    batch: int, gpus: int, tensor_parallel: int, measured_gib: float
) -> None:
    """torchtitan #1690, step 20 and later, full checkpointing, 4,096 tokens.

    The ratio of reserved to allocated memory that these runs had set met them within 5 %; the replay, which no run set,
    within 5.2 %.
    """
    found = titan(
        "Qwen/Qwen3-32B", gpus, checkpointing="full", micro_batch_size=batch, sequence_length=4096,
        tensor_parallel_size=tensor_parallel, loss="vocab-parallel" if tensor_parallel > 1 else "standard",
    )  # fmt: skip
    assert found.quantities["peak_reserved"].expected == pytest.approx(measured_gib * GIB, rel=0.052)


@pytest.mark.parametrize(("loss", "measured_gib"), [("standard", 49.66), ("chunked", 42.26)])
def test_published_reserved_peaks_of_llama_3_1_8b(loss: str, measured_gib: float) -> None:
    """torchtitan #985 and #996, March 2025: 8 GPUs, 8,192 tokens, selective checkpointing, expandable segments."""
    found = titan(
        "meta-llama/Llama-3.1-8B", 8, checkpointing="selective", sequence_length=8192, loss=loss,
        expandable_segments=True, framework_version="torchtitan of March 2025",
    )  # fmt: skip
    assert found.quantities["peak_reserved"].expected == pytest.approx(measured_gib * GIB, rel=0.05)


def test_reduced_gradients_stay_reserved_on_their_own_stream() -> None:
    """The peak lies in the loss's backward, before any gradient or gathered layer: they are reserved all the same."""
    sizes = {"checkpointing": "full", "loss": "standard", "sequence_length": 32768}
    found = titan("meta-llama/Llama-3.1-8B", 8, set_to_none=True, **sizes)
    assert found.peak_phase == "backward: head"
    kept = found.quantities["peak_reserved"].expected - 1.06 * found.quantities["peak_allocated"].expected
    gradients, root, layer = 8_030_261_248 * 4 / 8, 2 * 128256 * 4096 * 2, 218_112_000 * 2
    assert kept == pytest.approx(gradients + root + layer, rel=0.1)


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("torchtune", ("fused", "chunked", "full")),
        ("torchtitan", ("fused", "chunked", "selective")),
        ("transformers", ("fused", "standard", "none")),
    ],
)
def test_recipes_decide_what_is_left_open(framework: str, expected: tuple[str, ...]) -> None:
    names = ("optimizer_impl", "loss", "checkpointing")
    table = {"model": "meta-llama/Llama-3.1-8B", "task": "train", "train": {"framework": framework}}
    assert tuple(estimate(table).scenario["train"][name] for name in names) == expected
    table["train"] = {"framework": framework, "optimizer_impl": "for-loop", "loss": "fused", "checkpointing": "none"}
    assert tuple(estimate(table).scenario["train"][name] for name in names) == ("for-loop", "fused", "none")


RL = {"framework": "transformers", "framework_version": "agilerl 2.8.2, transformers 5.11.0", "method": "lora",
      "precision": "bf16", "param_dtype": "bf16", "checkpointing": "full", "attention": "sdpa", "loss": "chunked",
      "lora_targets": "all-linear", "extra_models": ["rollout:vllm"]}  # fmt: skip


def one_card(**train: Any) -> Result:
    return estimate({"model": "Qwen/Qwen2.5-0.5B-Instruct", "task": "train", "gpu": "L4", "train": train})


@pytest.mark.parametrize(("rank", "measured_mib"), [(8, 1504), (64, 2098)])
def test_gradients_of_small_adapters_have_a_pool_of_their_own(rank: int, measured_mib: int) -> None:
    """AgileRL, memory fixtures of an L4: 1 sequence of 512 tokens; the peak of tensors is in the loss in both."""
    found = one_card(**RL, lora_rank=rank, sequence_length=512)
    assert found.peak_phase == "loss"
    assert found.quantities["nvidia_smi"].expected == pytest.approx(measured_mib * 2**20, rel=0.07)


def test_temporaries_of_small_adapters_are_reserved_beside_a_peak_without_them() -> None:
    settings = {**RL, "lora_rank": 8, "sequence_length": 512}
    found = one_card(**settings).quantities
    assert found["peak_reserved"].expected > 1.06 * found["peak_allocated"].expected + 30 * 2**20
    fused = one_card(**settings, optimizer_impl="fused").quantities["peak_reserved"].expected
    assert fused < found["peak_reserved"].expected


def test_sampled_completions_may_end_earlier() -> None:
    sizes = {"micro_batch_size": 8, "sequence_length": 4096}
    sampled = one_card(**RL, **sizes).quantities["peak_allocated"]
    stated = one_card(**{**RL, "extra_models": []}, **sizes).quantities["peak_allocated"]
    shorter = one_card(**RL, micro_batch_size=8, sequence_length=3072).quantities["peak_allocated"]
    assert sampled.expected == stated.expected
    assert sampled.low < stated.low
    assert 0.95 * shorter.expected < sampled.low < 1.02 * shorter.expected


def test_padded_batches_leave_logits_of_another_length() -> None:
    sizes = {"method": "lora", "precision": "bf16", "micro_batch_size": 4, "sequence_length": 4096}
    found = one_card(**sizes)
    padded, packed = (one_card(**sizes, packing=packing).quantities["peak_reserved"] for packing in (False, True))
    assert (padded.low, padded.expected) == (packed.low, packed.expected)
    terms = (phase.components.find("logits and loss") for phase in found.phases)
    logits = max(term.bytes for term in terms if term is not None)
    distances = (padded.high - padded.expected) ** 2 - (packed.high - packed.expected) ** 2
    assert distances**0.5 == pytest.approx(logits, rel=1e-6)
    assert logits > 4 * 4096 * 151_936 * 10


TORCHTUNE = {
    "framework": "torchtune", "framework_version": "torchtune 0.6.1, torch 2.11.0", "method": "lora",
    "precision": "bf16", "lora_rank": 16, "lora_dropout": 0.0, "micro_batch_size": 2, "sequence_length": 2048,
    "packing": True, "checkpointing": "full", "clip_grad_norm": True,
}  # fmt: skip


@pytest.mark.parametrize(("gpus", "measured_gib"), [(1, 5.4437), (8, 4.5908)])
def test_torchtune_on_instinct_cards(gpus: int, measured_gib: float) -> None:
    """Tables in every layer, hipBLASLt's two workspaces, and a root unit that is free when the loss runs."""
    scenario = {"model": "Qwen/Qwen2.5-0.5B", "task": "train", "num_gpus": gpus, "gpu": "mi355x", "train": TORCHTUNE}
    assert estimate(scenario).quantities["peak_allocated"].expected == pytest.approx(measured_gib * GIB, rel=0.003)


def test_a_root_unit_stays_before_torch_2_8() -> None:
    def at_loss(torch: str) -> int:
        train = {**TORCHTUNE, "framework_version": f"torchtune 0.6.1, torch {torch}"}
        scenario = {"model": "Qwen/Qwen2.5-0.5B", "task": "train", "num_gpus": 8, "gpu": "mi355x", "train": train}
        loss = next(phase for phase in estimate(scenario).phases if phase.name == "loss")
        gathered = loss.components.find("gathered weights")
        return 0 if gathered is None else gathered.bytes

    assert at_loss("2.8") == 0
    assert at_loss("2.7") > 136_134_656 * 2  # the tied table, and a layer


def test_hipblaslt_keeps_more_than_cublas() -> None:
    card = {"model": "Qwen/Qwen2.5-0.5B", "task": "train", "train": {**TORCHTUNE}}
    for gpu, mib in (("mi300x", 152), ("rx-7900-xtx", 16.25), ("h100-sxm-80gb", 64), ("a100-sxm-80gb", 16.25)):
        loss = next(phase for phase in estimate({**card, "gpu": gpu}).phases if phase.name == "loss")
        workspace = loss.components.find("library workspace")
        assert workspace is not None
        assert workspace.bytes == mib * 2**20


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"fsdp": "full-shard"}, True),
        ({"zero_stage": 3, "offload_params": "cpu"}, False),  # then weights lie on the host
        ({"method": "lora"}, False),
    ],
)
def test_a_training_that_does_not_fit_says_what_its_weights_alone_take(more: dict[str, Any], said: bool) -> None:
    """4 × V100 32 GB and 65 B parameters: 121.60 GiB in 16 bits, a quarter of it on each card."""
    train = {"precision": "fp16", **more}
    verdict = estimate("llama-65b", task="train", gpu="v100-sxm2-32gb", num_gpus=4, train=train).verdict
    assert verdict is not None
    why = (
        "16-bit weights alone are 121.60 GiB, 30.40 GiB on each of 4 cards: "
        "1.34 GiB are left for gradients, optimizer and activations"
    )
    assert (why in verdict.reasons) == said
