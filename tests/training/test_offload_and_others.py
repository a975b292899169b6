"""Offloading with the host memory it takes, and other models beside the one that trains."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import ScenarioError
from vramwise.result import Result
from vramwise.units import GIB

N = 8_030_261_248


def answer(num_gpus: int = 1, **train: Any) -> Result:
    return estimate({"model": "llama-3.1-8b", "task": "train", "num_gpus": num_gpus, "train": train})


def part(result: Result, moment: str, name: str) -> int:
    node = next(phase for phase in result.phases if phase.name == moment).components.find(name)
    return node.bytes if node is not None else 0


ZERO = {"framework": "deepspeed", "precision": "bf16-master", "checkpointing": "full"}


@pytest.mark.parametrize(
    ("stage", "settings", "bytes_each", "said"),
    [
        # DeepSpeed 0.19.8 on the CPU, two gloo processes, a tiny Llama of 26,288 values a rank, in bytes:
        # master weights 105,152, gradients 105,152, moments 210,304, 16-bit weights on their way 52,576.
        (2, {"offload_optimizer": "cpu"}, 4 + 4 + 8 + 2, 16),
        (2, {"offload_optimizer": "nvme"}, 4 + 4 + 8 + 2, 16),
        (2, {"offload_optimizer": "cpu", "gradient_accumulation_steps": 2}, 4 + 4 + 8 + 2 + 2, 16),
        # grad_partitions_flat_buffer 52,576 in place of the weights on their way; offloaded weights 52,576.
        (3, {"offload_optimizer": "cpu"}, 4 + 4 + 8 + 2, 16),
        (3, {"offload_optimizer": "cpu", "offload_params": "cpu"}, 4 + 4 + 8 + 2 + 2, 18),
    ],
)
def test_zero_offload_takes_as_many_host_bytes_a_value_as_deepspeed_allocates(
    stage: int, settings: dict[str, Any], bytes_each: int, said: int
) -> None:
    """`said`: what DeepSpeed's estimate_zero*_model_states_mem_needs multiplies by 1.5 for what it does not know."""
    found = answer(8, zero_stage=stage, offload_pin_memory=False, **ZERO, **settings)
    on_its_way = 2 * 128_256 * 4096 * 8 if stage == 2 else 0
    locked = 8 * (2**31 - 2 * N // 8) if "offload_params" in settings else 0  # weights are page-locked all the same
    taken = found.quantities["host_memory"].expected - on_its_way - locked
    assert taken == pytest.approx(bytes_each * N, rel=0.001)
    assert said * N < taken < 1.5 * said * N
    assert part(found, "optimizer step", "optimizer states") == 0
    assert part(found, "optimizer step", "gradients") == 0
    assert any("of host memory on a node" in note for note in found.notes)


def test_page_locked_blocks_are_powers_of_two() -> None:
    plain, locked = (
        answer(8, zero_stage=3, offload_optimizer="cpu", offload_pin_memory=on, **ZERO)
        .quantities["host_memory"]
        .expected
        for on in (False, True)
    )
    share = N / 8
    assert locked - plain == pytest.approx(8 * ((2**32 - 4 * share) + (2**31 - 2 * share)), rel=0.001)
    assert answer(8, zero_stage=3, offload_optimizer="cpu", **ZERO).quantities["host_memory"].expected == locked


def test_what_torchtunes_norm_keeps_lies_on_the_host_too() -> None:
    """torchtune 0.6.1 training/_activation_offloading.py: all that forward keeps goes, but the output layer's input."""
    shape = {"method": "lora", "checkpointing": "full", "micro_batch_size": 4, "sequence_length": 2048}
    train = {"framework": "torchtune", "offload_activations": "cpu", **shape}
    found = estimate({"model": "llama-3.2-3b", "task": "train", "train": train})
    tokens, hidden, layers = 4 * 2048, 3072, 28
    norm = tokens * (hidden * 4 + 4)  # its input in fp32, and a root a row
    assert found.quantities["host_memory"].expected == tokens * hidden * 2 * layers + norm


def test_the_host_memory_is_that_of_one_node() -> None:
    one, two = (
        estimate({"model": "llama-3.1-8b", "task": "train", "num_gpus": n, "gpus_per_node": 8,
                  "train": {**ZERO, "zero_stage": 3, "offload_optimizer": "cpu"}}).quantities["host_memory"].expected
        for n in (8, 16)
    )  # fmt: skip
    assert two == pytest.approx(one / 2, rel=0.001)


def test_what_goes_to_disk_passes_through_buffers_in_host_memory() -> None:
    """4 fp32 buffers of the largest sub-group a rank and the accumulated gradients; weights: 5 buffers of 10^8 values,
    and all of a rank's 1/8 but what is above 10^9, of which a sub-group is on its way."""

    def host(num_gpus: int, **settings: Any) -> float:
        found = answer(num_gpus, zero_stage=3, offload_optimizer="nvme", offload_pin_memory=False, **ZERO, **settings)
        return found.quantities["host_memory"].expected

    share = N / 8  # 1.004 of a sub-group, which is one
    assert host(8) == pytest.approx(8 * (4 * 4 * share + 2 * share), rel=0.001)
    assert host(8, offload_optimizer_buffer_count=6) - host(8) == pytest.approx(8 * 2 * 4 * share, rel=0.001)
    kept = 2**31  # 10^9 weights of 2 bytes are page-locked
    assert host(8, offload_params="nvme") - host(8) == pytest.approx(8 * (kept + 2 * 5e8 + 2 * share), rel=0.001)
    few = host(8, offload_params="nvme", offload_params_max_in_cpu=0, offload_params_buffer_count=2,
               offload_params_buffer_size=300_000_000)  # fmt: skip
    assert few - host(8) == pytest.approx(8 * (2 * 6e8 + 2 * share), rel=0.001)
    assert host(1) == pytest.approx(4 * 4 * 1.0486e9 + 2 * N, rel=0.001)


def test_nothing_offloaded_takes_no_host_memory() -> None:
    assert "host_memory" not in answer().quantities


def test_fsdp_offload_leaves_nothing_but_what_is_gathered() -> None:
    settings = {"fsdp": "full-shard", "precision": "bf16-mixed", "checkpointing": "full", "optimizer_impl": "foreach"}
    kept, away = answer(4, **settings), answer(4, offload_params="cpu", **settings)
    assert part(away, "optimizer step", "weights") == part(away, "optimizer step", "optimizer states") == 0
    assert part(away, "backward end", "gradients") == 0
    assert away.quantities["host_memory"].expected == pytest.approx(16 * N, rel=0.001)
    assert away.quantities["peak_allocated"].expected < kept.quantities["peak_allocated"].expected - 15 * N // 4


def test_offloaded_activations_move_to_the_host() -> None:
    settings = {"method": "lora", "checkpointing": "full", "sequence_length": 4096}
    found = answer(offload_activations="cpu", **settings)
    assert found.quantities["host_memory"].expected == pytest.approx(32 * 4096 * 4096 * 2, rel=0.01)


# -- other models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["load", "loss", "backward: layers", "optimizer step"])
def test_a_reference_is_a_second_copy_of_the_weights_at_every_moment(moment: str) -> None:
    found = answer(precision="bf16", extra_models=["reference"])
    assert part(found, moment, "reference model") == pytest.approx(2 * N, rel=0.001)
    alone = answer(precision="bf16").quantities["peak_allocated"].expected
    assert found.quantities["peak_allocated"].expected - alone == part(found, moment, "reference model")
    assert found.quantities["weights"] == answer(precision="bf16").quantities["weights"]


def test_under_lora_the_reference_is_the_base() -> None:
    found = answer(method="lora", extra_models=["reference"])
    assert found.quantities["peak_allocated"] == answer(method="lora").quantities["peak_allocated"]
    assert any("adapters switched off" in note for note in found.notes)


def test_other_models_by_name_a_reward_model_without_head_and_a_critic() -> None:
    found = answer(precision="bf16", extra_models=["teacher:meta-llama/Llama-3.2-1B", "reward", "critic"])
    assert part(found, "load", "teacher model") == pytest.approx(2 * 1_235_814_400, rel=0.001)
    assert part(found, "load", "reward model") == pytest.approx(2 * (N - 128256 * 4096), rel=0.001)
    assert part(found, "load", "critic model") == pytest.approx(8 * N, rel=0.001)


def test_a_reference_is_divided_as_the_weights_are() -> None:
    found = answer(8, precision="bf16", fsdp="full-shard", extra_models=["ref"])
    assert part(found, "load", "reference model") == pytest.approx(2 * N / 8, rel=0.001)


def test_a_rollout_engine_is_not_counted_and_an_unknown_role_is_refused() -> None:
    found = answer(method="lora", extra_models=["rollout:vllm"])
    assert any(note.startswith("not counted: rollout:vllm") and "rollout_gpu_memory" in note for note in found.notes)
    assert found.quantities["peak_allocated"].expected < 100 * GIB
    with pytest.raises(ScenarioError, match=r"extra_models.*rewrad.*reward"):
        answer(extra_models=["rewrad"])


@pytest.mark.parametrize(
    ("stage", "joined", "step"),
    [(1, 2 + 2 + 4, 4), (2, 2 + 2 + 4, 4), (3, None, None)],
)
def test_zero_joins_its_gradients_and_steps_in_fp32(stage: int, joined: int | None, step: int | None) -> None:
    """Bytes of gradients a value of the partition: 16 bit by tensor, in one piece, in fp32; then fp32 alone."""
    found = answer(8, zero_stage=stage, **ZERO)
    names = ("gradients", "gradients as one", "fp32 gradients")
    at_once = sum(part(found, "gradients as one", name) for name in names)
    in_step = sum(part(found, "optimizer step", name) for name in names)
    share = N / 8
    if joined is None:  # stage 3: its own 16-bit gradients stay, a sub-group at a time is joined
        piece = share  # the output layer, its last weight, is what brings it above 10^9
        assert (at_once, in_step) == pytest.approx((2 * share + 6 * piece, 2 * share + 4 * piece), rel=0.001)
    else:
        assert step is not None
        assert (at_once, in_step) == pytest.approx((joined * share, step * share), rel=0.001)


@pytest.mark.parametrize(("stage", "copy"), [(1, 4 * N / 8), (2, 4 * N / 8), (3, 0)])
def test_zero_clones_fp32_weights_as_its_master_copy_but_in_stage_3(stage: int, copy: float) -> None:
    found = answer(8, zero_stage=stage, framework="deepspeed", precision="fp32")
    assert part(found, "optimizer step", "master weights") == pytest.approx(copy, rel=0.001)


CRITIC = {"precision": "bf16", "checkpointing": "full", "micro_batch_size": 2, "sequence_length": 1024}


def test_a_critic_keeps_its_activations_beside_the_policys_where_one_pass_runs_both() -> None:
    alone, both = answer(**CRITIC), answer(extra_models=["critic"], **CRITIC)
    kept = part(both, "forward end", "critic activations")
    layers = 32 * 2 * 1024 * 4096 * 2  # a checkpoint a layer, and what norm and head of the critic keep
    assert layers < kept < 1.3 * layers
    assert kept == pytest.approx(part(alone, "forward end", "activations"), rel=0.1)
    assert part(both, "backward: critic", "activations") == 0
    assert part(both, "backward: critic", "critic activations") > kept


def test_a_critic_with_a_pass_of_its_own_comes_after_the_policy() -> None:
    apart = answer(extra_models=["critic"], framework="deepspeed", **CRITIC)
    assert part(apart, "forward end", "critic activations") == 0
    assert part(apart, "backward: critic", "critic activations") > 32 * 2 * 1024 * 4096 * 2
    larger = answer(extra_models=["critic:meta-llama/Llama-3.1-70B"], framework="deepspeed", **CRITIC)
    assert part(larger, "backward: critic", "critic activations") > 80 * 2 * 1024 * 8192 * 2


ON_AN_H100 = {"model": "meta-llama/Llama-3.2-1B", "task": "train", "gpu": "h100-sxm-80gb"}
SHARE = {"precision": "bf16", "rollout_gpu_memory_utilization": 0.3}


def test_an_engine_that_is_awake_takes_its_share_in_every_moment() -> None:
    alone = estimate({**ON_AN_H100, "train": {"precision": "bf16"}})
    both = estimate({**ON_AN_H100, "train": SHARE})
    assert both.scenario["train"]["extra_models"] == ["rollout"]
    assert both.capacity is not None
    share = round(0.3 * both.capacity.usable_bytes)
    assert [a.bytes + share for a in alone.phases] == [b.bytes for b in both.phases]
    assert both.quantities["peak_allocated"].expected == alone.quantities["peak_allocated"].expected
    assert both.quantities["total_needed"].expected == alone.quantities["total_needed"].expected + share
    assert both.quantities["nvidia_smi"].expected > both.quantities["total_needed"].expected


def test_an_engine_that_sleeps_leaves_its_graphs_and_has_a_moment_of_its_own() -> None:
    awake, asleep = (estimate({**ON_AN_H100, "train": {**SHARE, "rollout_sleep": sleep}}) for sleep in (False, True))
    rollout = next(phase for phase in asleep.phases if phase.name == "rollout")
    terms = {term.name: term.bytes for term in rollout.components.children}
    step = next(phase for phase in awake.phases if phase.name == "optimizer step").components
    for name in ("weights", "optimizer states", "CUDA context", "rollout engine"):
        term = step.find(name)
        assert term is not None
        assert terms.pop(name) == term.bytes
    assert not terms
    left = asleep.phases[0].components.find("rollout engine")
    assert left is not None
    assert 0.5 * 2**30 < left.bytes < 1.5 * 2**30
    most = max(phase.bytes for phase in asleep.phases)
    assert asleep.quantities["nvidia_smi"].expected >= asleep.quantities["total_needed"].expected >= most
    large = estimate({**ON_AN_H100, "train": {**SHARE, "rollout_gpu_memory_utilization": 0.95, "rollout_sleep": True}})
    assert large.peak_phase == "rollout"
    assert large.verdict is not None
    assert not large.verdict.fits


def test_an_engine_without_a_share_or_a_card_says_what_is_missing() -> None:
    with pytest.raises(ScenarioError, match="rollout_gpu_memory_utilization"):
        answer(rollout_sleep=True)
    found = answer(**SHARE)
    assert any("a GPU says what its share is" in note for note in found.notes)


@pytest.mark.parametrize(
    ("settings", "start"),
    [({"extra_models": ["x" * 4000]}, "train.extra_models: "), ({"method": "lora", "lora_targets": ["x" * 4000]}, ""),
     ({"images_per_sequence": 1, "image_size": "x" * 4000}, "train.image_size: ")],
)  # fmt: skip
def test_a_long_name_is_cut_in_a_complaint(settings: dict[str, Any], start: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        answer(**settings)
    assert str(refused.value).startswith(start)
    assert len(str(refused.value)) < 700


MOVED = {"framework": "pytorch", "precision": "fp32", "sequence_length": 64, "fsdp": "full-shard",
         "offload_params": "cpu"}  # fmt: skip


def test_weights_of_one_card_that_lie_on_the_host_come_to_it_unit_by_unit() -> None:
    """torch 2.13 _fully_shard/_fsdp_param_group.py `wait_for_unshard`: a layer and the root unit, and nothing ahead."""
    layer, outside = 218_112_000, 2 * 128_256 * 4096 + 4096
    for checkpointing in ("none", "full"):
        found = answer(**MOVED, fsdp_version=2, checkpointing=checkpointing)
        assert part(found, "forward", "gathered weights") == 4 * (layer + outside)
        assert part(found, "backward: layers", "reduce-scatter") == 0


def test_autograd_keeps_what_fsdp_1_brings_to_a_single_card() -> None:
    """torch 2.13 fsdp/_init_utils.py takes NO_SHARD for one rank; _flat_param.py `flat_param_to` makes a new tensor."""
    kept = answer(**MOVED, fsdp_version=1, checkpointing="none")
    again = answer(**MOVED, fsdp_version=1, checkpointing="full")
    assert part(kept, "forward", "gathered weights") == 4 * N
    assert part(again, "forward", "gathered weights") < N
    assert part(answer(fsdp="full-shard"), "forward", "gathered weights") == 0
