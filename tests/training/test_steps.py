"""How the peak of a step moves with its settings, against published runs and by construction."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.models import describe
from vramwise.models.autograd.size import evaluate
from vramwise.models.execution import Execution
from vramwise.models.model import Model
from vramwise.models.step import record_forward
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import Job, job_of
from vramwise.training.layout.parallel import in_flight
from vramwise.training.layout.sharding import local_model, with_sequence_parallel

OLD = "transformers 4.48.1, torch 2.4.1"
OLDER = "transformers 4.45.2, torch 2.4.1"


def named(name: str) -> Model:
    found = resolve(name)
    return describe(found.config, found.id)


def job(name: str, num_gpus: int = 1, **train: Any) -> Job:
    return job_of(
        Scenario.from_dict({"model": "x", "task": "train", "num_gpus": num_gpus, "train": train}), named(name), None
    )


def peaks(made: Job) -> dict[str, int]:
    return {moment.name: moment.total for moment in made.moments(made.ranks[0])}


def bytes_per_token(name: str, **train: Any) -> float:
    """Growth of the peak from 4 to 8 sequences of 4,096 tokens."""
    settings = {"precision": "bf16", "checkpointing": "full", "attention": "flash", "sequence_length": 4096, **train}
    ends = [max(peaks(job(name, micro_batch_size=batch, **settings)).values()) for batch in (4, 8)]
    return (ends[1] - ends[0]) / (4 * 4096)


LORA = {"method": "lora", "lora_rank": 16, "lora_targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}


@pytest.mark.parametrize(
    ("name", "settings", "measured"),
    [
        # Slopes of torch's own peaks on A100, fms-acceleration scripts/benchmarks/refs (bytes a token).
        ("mistralai/Mistral-7B-v0.1", {**LORA, "framework_version": OLD}, 734_762),
        ("meta-llama/Meta-Llama-3-8B", {**LORA, "framework_version": OLDER, "loss": "fused", "kernels": ["fms"]},
         1_304_531),
        # Norms in fp32: 4-bit layers behind them answer in fp32, and so the layers' inputs become fp32.
        ("mistralai/Mistral-7B-v0.1", {**LORA, "framework_version": f"{OLD}, trl 0.13.0", "method": "qlora",
         "quantization": "nf4-dq", "kbit_preparation": True}, 996_906),
    ],
)  # fmt: skip
def test_the_peak_grows_as_published_runs_did(name: str, settings: dict[str, Any], measured: int) -> None:
    assert bytes_per_token(name, **settings) == pytest.approx(measured, rel=0.003)


@pytest.mark.parametrize(
    ("name", "settings", "measured"),
    [
        # The same on 4 GPUs, from 8 to 16 sequences: one more layer is in flight.
        ("meta-llama/Meta-Llama-3-8B", {"loss": "fused-linear"}, 774_432),
        ("mistralai/Mistral-7B-v0.1", {"loss": "fused"}, 786_720),
    ],
)
def test_frozen_weights_under_fsdp_1_keep_a_second_layer(name: str, settings: dict[str, Any], measured: int) -> None:
    sharded = {"fsdp": "full-shard", "fsdp_version": 1, "kernels": ["fms", "liger"], "lora_dropout": 0.1,
               "attention": "flash", **settings}  # fmt: skip
    made = [
        job(name, 4, precision="bf16", checkpointing="full", sequence_length=4096, micro_batch_size=batch,
            framework_version=OLDER, **LORA, **sharded)
        for batch in (8, 16)
    ]  # fmt: skip
    low, high = (max(peaks(each).values()) for each in made)
    assert (high - low) / (8 * 4096) == pytest.approx(measured, rel=0.015)


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        # torch.cuda.max_memory_allocated, full bf16, AdamW foreach, checkpointing, 4 sequences of 4,096 tokens, A100.
        ("meta-llama/Meta-Llama-3-8B", 80_318_097_408),
        ("mistralai/Mistral-7B-v0.1", 72_432_723_456),
    ],
)
def test_the_foreach_step_of_full_training_on_an_a100(name: str, measured: int) -> None:
    made = job(name, precision="bf16", optimizer_impl="foreach", checkpointing="full", micro_batch_size=4,
               sequence_length=4096)  # fmt: skip
    assert peaks(made)["optimizer step"] == pytest.approx(measured, rel=0.0005)


def test_losses_in_order_of_what_they_hold() -> None:
    size = {}
    for loss in ("standard", "fused", "chunked", "fused-linear"):
        made = job("meta-llama/Llama-3.1-8B", framework="torchtune", precision="bf16", checkpointing="full", loss=loss,
                   micro_batch_size=4, sequence_length=2048, optimizer="sgd")  # fmt: skip
        size[loss] = max(peaks(made)["loss"], peaks(made)["backward: head"])
    assert size["standard"] > size["chunked"] > size["fused"] > size["fused-linear"]


@pytest.mark.parametrize(("batch", "measured"), [(4, 34_473_340_928), (8, 44_280_442_880)])
def test_experts_in_turn_hold_one_experts_gradients(batch: int, measured: int) -> None:
    # torch's own peak on an A100, fms-acceleration scripts/benchmarks/refs/a100_80gb.csv.
    made = job("mistralai/Mixtral-8x7B-Instruct-v0.1", method="qlora", quantization="nf4-dq", kernels=["fms"],
               framework_version=OLD, loss="fused", checkpointing="full", attention="flash", lora_rank=16,
               lora_targets=LORA["lora_targets"], lora_dropout=0.1, sequence_length=4096,
               micro_batch_size=batch)  # fmt: skip
    assert max(peaks(made).values()) == pytest.approx(measured, rel=0.001)


def test_old_classes_hand_their_logits_to_the_loss_as_they_are() -> None:
    values = 2 * 512 * 50257

    def held(version: str) -> float:
        made = job("openai-community/gpt2", micro_batch_size=2, sequence_length=512, precision="bf16",
                   framework_version=version)  # fmt: skip
        loss = next(moment for moment in made.moments(made.ranks[0]) if moment.name == "loss")
        return loss.parts["logits and loss"] / values

    assert held("transformers 4.48") == pytest.approx(2 + 2 + 2, rel=1e-3)  # logits, shifted copy, log-probabilities
    assert held("transformers 4.49") == pytest.approx(2 + 4 + 4 + 4, rel=1e-3)


def test_fused_kernels_keep_less() -> None:
    settings = {"precision": "bf16", "micro_batch_size": 2, "sequence_length": 2048}
    plain = peaks(job("meta-llama/Llama-3.2-1B", **settings))["forward end"]
    fused = peaks(job("meta-llama/Llama-3.2-1B", kernels=["liger"], **settings))["forward end"]
    # A layer: two norms 12 h -> 4 h and their fp32 copies, silu's result 2 f; 16 layers, 4,096 tokens.
    assert plain - fused > 16 * 4096 * (8 * 2048 + 2 * 8192)


def test_megatron_keeps_35_bytes_a_token_and_hidden_value() -> None:
    """Published cut-down 70B runs give 35.0 (norms, attention, gated MLP kept by fused kernels); by hand 33.5."""
    config = dict(named("meta-llama/Meta-Llama-3-70B").config.values)
    sizes = []
    for layers in (2, 3):
        model = describe({**config, "num_hidden_layers": layers})
        scenario = Scenario.from_dict({"model": "x", "task": "train", "train": {
            "framework": "megatron", "precision": "bf16-master", "attention": "flash", "sequence_length": 4096,
            "loss": "vocab-parallel", "optimizer": "sgd",
        }})  # fmt: skip
        made = job_of(scenario, model, None)
        end = next(m for m in made.moments(made.ranks[0]) if m.name == "forward end")
        sizes.append(end.parts["activations"])
    assert (sizes[1] - sizes[0]) / (4096 * 8192) == pytest.approx(34, abs=1.1)


@pytest.mark.parametrize(
    ("ranks", "cut", "tokens", "measured_gib"),
    [(1, {}, 131_072, 147.99), (2, {"tensor_parallel_size": 2, "sequence_parallel": True}, 32_768, 68.43)],
)
def test_megatron_turns_an_fp32_copy_of_the_logits_into_their_gradient(
    ranks: int, cut: dict[str, Any], tokens: int, measured_gib: float
) -> None:
    """Published runs of a 70B shape with 12 layers on 8 GPUs: 6 bytes a token and local class."""
    model = describe({**named("meta-llama/Meta-Llama-3-70B").config.values, "num_hidden_layers": 12})
    train = {"framework": "megatron", "precision": "bf16-master", "attention": "flash", "loss": "vocab-parallel",
             "sequence_length": tokens, "context_parallel_size": 8 // ranks, "distributed_optimizer": True,
             "optimizer_impl": "fused", "gradient_accumulation_steps": 4, **cut}  # fmt: skip
    made = job_of(Scenario.from_dict({"model": "x", "task": "train", "num_gpus": 8, "train": train}), model, None)
    assert max(peaks(made).values()) == pytest.approx(measured_gib * 2**30, rel=0.02)


# -- checkpointing -----------------------------------------------------------------------------------------


def test_full_checkpointing_keeps_one_hidden_state_a_layer() -> None:
    made = job("meta-llama/Llama-3.1-8B", precision="bf16", checkpointing="full", sequence_length=1024)
    end = next(m for m in made.moments(made.ranks[0]) if m.name == "forward end")
    head = 1024 * (4096 * 8 + 4)  # final norm: fp32 input, two 16-bit results, statistics
    assert end.parts["activations"] == pytest.approx(32 * 1024 * 4096 * 2 + head, rel=0.002)


@pytest.mark.parametrize("recompute", [["op"], ["layer:2"], ["core_attn"], ["mlp"], ["layernorm"]])
def test_selective_checkpointing_lies_between_none_and_full(recompute: list[str]) -> None:
    settings = {"precision": "bf16", "sequence_length": 2048, "attention": "eager"}
    ends = []
    for checkpointing, extra in (("full", {}), ("selective", {"recompute": recompute}), ("none", {})):
        made = job("meta-llama/Llama-3.2-1B", checkpointing=checkpointing, **settings, **extra)
        ends.append(peaks(made)["forward end"])
    assert ends[0] < ends[1] < ends[2]


@pytest.mark.parametrize(
    ("framework", "recompute", "share"),
    [("pytorch", "layer:2", 8), ("pytorch", "layer:4", 4), ("megatron", "block:3", 3)],
)
def test_layers_chosen_by_number_keep_their_input_and_the_others_everything(
    framework: str, recompute: str, share: int
) -> None:
    settings = {"framework": framework, "precision": "bf16", "sequence_length": 512, "keeps_outputs": False}
    kept = []
    for extra in ({"checkpointing": "none"}, {"checkpointing": "full"},
                  {"checkpointing": "selective", "recompute": [recompute]}):  # fmt: skip
        made = job("meta-llama/Llama-3.2-1B", **settings, **extra)
        moments = {moment.name: moment for moment in made.moments(made.ranks[0])}
        kept.append((moments["forward end"].parts["activations"], moments["backward end"].total))
    (whole, end), (inputs, _), (chosen, same_end) = kept
    assert chosen == pytest.approx(whole - share / 16 * (whole - inputs), rel=1e-3)
    assert end == same_end


def test_offloaded_activations_leave_one_layer() -> None:
    settings = {"precision": "bf16", "checkpointing": "full", "sequence_length": 8192, "optimizer": "sgd"}
    plain = peaks(job("meta-llama/Llama-3.2-1B", **settings))
    moved = peaks(job("meta-llama/Llama-3.2-1B", offload_activations="cpu", **settings))
    assert plain["forward end"] - moved["forward end"] == 16 * 8192 * 2048 * 2
    assert plain["backward end"] == moved["backward end"]


def test_offloaded_states_and_weights_leave_the_gpu() -> None:
    plain = peaks(job("meta-llama/Llama-3.2-1B", precision="bf16"))
    moved = peaks(job("meta-llama/Llama-3.2-1B", precision="bf16", offload_optimizer="cpu"))
    assert plain["backward end"] - moved["backward end"] == pytest.approx(2 * 2 * 1_235_814_400, rel=1e-3)
    assert moved["optimizer step"] == moved["backward end"]


# -- parallelism -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "openai-community/gpt2-medium", "Qwen/Qwen3-8B"])
def test_a_tensor_parallel_rank_runs_its_share(name: str) -> None:
    model = named(name)
    cut = local_model(model, 4, 1)
    matrices = sum(p.numel for p in model.parameters if p.shard != "replicated")
    rest = model.num_parameters - matrices
    assert cut.num_parameters == pytest.approx(matrices / 4 + rest, rel=1e-3)


def test_tensor_and_sequence_parallelism_divide_activations() -> None:
    settings = {"precision": "bf16", "sequence_length": 2048, "framework": "megatron"}
    ends = []
    for extra in ({}, {"tensor_parallel_size": 8}, {"tensor_parallel_size": 8, "sequence_parallel": True}):
        made = job("meta-llama/Llama-3.1-8B", 8, **settings, **extra)
        end = next(m for m in made.moments(made.ranks[0]) if m.name == "forward end")
        ends.append(end.parts["activations"])
    assert ends[2] == pytest.approx(ends[0] / 8, rel=0.02)
    assert ends[0] / 8 < ends[1] < ends[0] / 2


def test_what_is_gathered_for_a_layer_stays_unless_it_is_gathered_again() -> None:
    """Both norms' results of 16 layers, and the last one's, at 2 bytes a value: whole, or a fourth of the sequence."""
    model, tokens, ranks = named("meta-llama/Llama-3.2-1B"), 2048, 4
    execution = Execution(param_dtype="bf16")
    forward = record_forward(local_model(model, ranks, 1), execution, batch=1, sequence=tokens)
    axes = {"sequence": tokens}
    whole, cut = (
        evaluate(with_sequence_parallel(forward, model, ranks, regathers=regathers).saved_bytes, axes)
        for regathers in (False, True)
    )
    assert whole - cut == (2 * 16 + 1) * tokens * model.hidden_size * 2 * (ranks - 1) // ranks


def test_a_size_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"train.tensor_parallel_size: 3 does not divide 32 attention heads"):
        peaks(job("meta-llama/Llama-3.1-8B", 3, tensor_parallel_size=3))


@pytest.mark.parametrize(
    ("settings", "weights", "gradients", "optimizer"),
    [
        ({}, 1, 1, 1),
        ({"zero_stage": 1}, 1, 1, 8),
        ({"zero_stage": 2}, 1, 8, 8),
        ({"zero_stage": 3}, 8, 8, 8),
        ({"fsdp": "full-shard"}, 8, 8, 8),
        ({"fsdp": "shard-grad-op"}, 8, 8, 8),
        ({"distributed_optimizer": True, "framework": "megatron"}, 1, 1, 8),
    ],
)
def test_sharding_divides_states(settings: dict[str, Any], weights: int, gradients: int, optimizer: int) -> None:
    whole = job("meta-llama/Llama-3.2-1B", precision="bf16")
    made = job("meta-llama/Llama-3.2-1B", 8, precision="bf16", **settings)
    all_states, states = whole.states(whole.ranks[0]), made.states(made.ranks[0])
    assert states.weights == pytest.approx(all_states.weights / weights, rel=1e-3)
    assert states.gradients == pytest.approx(all_states.gradients / gradients, rel=1e-3)
    assert states.optimizer == pytest.approx(all_states.optimizer / optimizer, rel=1e-3)


def test_hybrid_sharding_stays_in_the_node() -> None:
    made = job("meta-llama/Llama-3.2-1B", 64, precision="bf16", fsdp="hybrid-shard")
    assert made.ranks[0].weight_shards == 8


def test_stages_share_the_model() -> None:
    whole = job("meta-llama/Llama-3.1-8B", precision="bf16")
    made = job("meta-llama/Llama-3.1-8B", 4, precision="bf16", pipeline_parallel_size=4, num_microbatches=8)
    assert sum(made.states(rank).weights for rank in made.ranks) == whole.states(whole.ranks[0]).weights
    assert [rank.micro_batches_in_flight for rank in made.ranks] == [4, 3, 2, 1]
    ends = [next(m for m in made.moments(rank) if m.name == "forward end").parts["activations"] for rank in made.ranks]
    assert ends[0] > ends[1] > ends[2] > ends[3]
    assert in_flight(made.train.replace(pipeline_schedule="gpipe"), 3) == 8


@pytest.mark.parametrize("virtual", [2, 5])
def test_interleaved_stages_hold_more(virtual: int) -> None:
    """The first stage holds 1 + (p - 1) / (p v) times the layers of the whole model (arXiv 2205.05198, section 5)."""
    settings = {"pipeline_parallel_size": 4, "num_microbatches": 16, "pipeline_schedule": "interleaved-1f1b"}
    made = job("meta-llama/Llama-3.1-8B", 4, precision="bf16", virtual_pipeline_parallel_size=virtual, **settings)
    assert in_flight(made.train, 0) == 4 * (1 + Fraction(3, 4 * virtual))
    assert [in_flight(made.train, stage) for stage in range(4)] == sorted(
        (in_flight(made.train, stage) for stage in range(4)), reverse=True
    )
    plain = made.train.replace(pipeline_schedule="1f1b")
    assert in_flight(plain, 0) == 4
    assert all(isinstance(moment.total, int) for rank in made.ranks for moment in made.moments(rank))


@pytest.mark.parametrize("model", ["microsoft/Phi-3-mini-4k-instruct", "microsoft/phi-2", "EleutherAI/gpt-neox-20b"])
def test_fused_rotations_leave_checkpoints_as_they_are(model: str) -> None:
    """Phi and GPT-NeoX rotate a part of each head and join the rest to it; a checkpointed layer keeps its input."""
    sizes = {"checkpointing": "full", "micro_batch_size": 4, "sequence_length": 512}
    for kernels in (["unsloth"], ["fms"]):
        assert peaks(job(model, kernels=kernels, **sizes))["forward end"] <= peaks(job(model, **sizes))["forward end"]


def test_autocast_keeps_copies_of_trained_weights_alone() -> None:
    """A frozen fp32 base under autocast: a checkpointed layer's 16-bit copies go with their products.

    Six layers of 1.05 M values on CPU, adapters on q and v, eight tokens: 0.7 MiB beside the weights in forward, where
    all copies would be 12 MiB (torch 2.13, peft 0.21).
    """

    def casts(**train: Any) -> int:
        made = job("meta-llama/Llama-3.2-1B", precision="bf16-mixed", checkpointing="full", **train)
        return next(m.parts.get("weight casts", 0) for m in made.moments(made.ranks[0]) if m.name == "loss")

    head, adapters = 2 * 128_256 * 2_048, 2 * 5_636_096
    assert casts(method="lora") == pytest.approx(head + adapters, rel=0.001)
    assert casts() >= 2 * (1_235_814_400 - 128_256 * 2_048)
