"""What ZeRO stage 3 keeps gathered, against DeepSpeed's own coordinator (`record_zero3.py` made the golden file)."""

from __future__ import annotations

import csv
import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import describe
from vramwise.models.blocks import Parameter
from vramwise.result import Result
from vramwise.training.recipe.adapters import adapters
from vramwise.training.zero3 import BELOW, HEAD, OUTSIDE
from vramwise.training.zero3.coordinator import Limits, gathered
from vramwise.training.zero3.module_calls import Weight, calls_of_step, module_tree

GOLDEN = Path(__file__).parents[1] / "golden" / "zero3_gathered.csv"
ROWS = list(csv.DictReader(line for line in GOLDEN.read_text("utf-8").splitlines() if not line.startswith("#")))
LIMITS = ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters", "max_reuse_distance")


def one_value(parameter: Parameter) -> Weight:
    return Weight(parameter.tied_to or parameter.name, parameter.numel, 1)


@pytest.mark.parametrize("name", sorted({row["model"] for row in ROWS} - {"llama-lora"}))
def test_the_gathered_values_of_every_block_and_pass_are_deepspeeds(name: str) -> None:
    rows = [row for row in ROWS if row["model"] == name]
    assert len(rows) >= 8
    for row in rows:
        model = describe(json.loads(row["config"]))
        kind = row["checkpointing"]
        calls, forward = calls_of_step(
            module_tree(model, one_value), checkpointing=kind != "none", reentrant=kind == "reentrant"
        )
        found = gathered(calls, forward, Limits(*(int(row[key]) for key in LIMITS)), ranks=2)
        for most, recorded in ((found.forward, row["forward"]), (found.backward, row["backward"])):
            outside, *blocks = (int(n) for n in recorded.split())
            assert max(most[OUTSIDE], most[BELOW]) == outside, row
            assert [most[block] for block in (*range(model.num_layers), HEAD)] == blocks, row
        assert found.after_forward == int(row["after_forward"]), row


def test_frozen_weights_of_a_layer_computed_again_stay_while_its_backward_runs() -> None:
    """Adapters of rank 2: seven of the eight recorded steps to the value; one has an output of adapters more, 5 %."""
    equal = 0
    for row in (row for row in ROWS if row["model"] == "llama-lora"):
        model = describe(json.loads(row["config"]))
        added = {
            adapter.base.name: [
                Weight(f"{adapter.module}.{i}", prod(shape), 1) for i, shape in enumerate(adapter.shapes)
            ]
            for adapter in adapters(model, "all-linear", 2)
        }
        root = module_tree(
            model, lambda p: Weight(p.name, p.numel, 1, trains=False), lambda p, found=added: found.get(p.name, ())
        )
        calls, forward = calls_of_step(root, checkpointing=True)
        found = gathered(calls, forward, Limits(*(int(row[key]) for key in LIMITS)), ranks=2)
        pairs = [(found.after_forward, int(row["after_forward"]))]
        for most, recorded in ((found.forward, row["forward"]), (found.backward, row["backward"])):
            outside, *blocks = (int(n) for n in recorded.split())
            mine = [max(most[OUTSIDE], most[BELOW]), *(most[block] for block in (*range(model.num_layers), HEAD))]
            pairs += zip(mine, (outside, *blocks), strict=True)
        assert all(real <= mine <= 1.06 * real for mine, real in pairs), row
        equal += all(real == mine for mine, real in pairs)
    assert equal == 7


# -- in an estimate ----------------------------------------------------------------------------------------


def answer(num_gpus: int = 8, **train: Any) -> Result:
    settings = {"framework": "deepspeed", "precision": "bf16-master", "checkpointing": "full", "zero_stage": 3, **train}
    return estimate({"model": "llama-3.1-8b", "task": "train", "num_gpus": num_gpus, "train": settings})


def part(result: Result, moment: str, name: str = "gathered weights") -> int:
    node = next(phase for phase in result.phases if phase.name == moment).components.find(name)
    return node.bytes if node is not None else 0


HEAD_VALUES = 128_256 * 4096


def test_prefetching_fills_what_max_live_parameters_allows() -> None:
    """A billion values by default; the embedding, gathered ahead of its use, may come on top."""
    assert 2e9 <= part(answer(), "backward: layers") <= 2 * (1e9 + 2 * 58_720_256 + 1e8)
    small = answer(stage3_max_live_parameters=300_000_000, stage3_max_reuse_distance=0)
    assert 6e8 <= part(small, "backward: layers") <= 2 * (3e8 + HEAD_VALUES)


def test_without_prefetching_and_reuse_a_module_is_gathered_at_a_time() -> None:
    alone = answer(stage3_prefetch_bucket_size=0, stage3_max_reuse_distance=0, stage3_param_persistence_threshold=0)
    assert part(alone, "backward: head") == part(alone, "backward: layers") == 2 * HEAD_VALUES  # as the embedding has
    assert part(alone, "optimizer step") == 0


def test_persistent_weights_stay_between_forward_and_backward() -> None:
    settings = {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0}
    norms = answer(stage3_param_persistence_threshold=4096, **settings)
    none = answer(stage3_param_persistence_threshold=0, **settings)
    assert part(norms, "loss") - part(none, "loss") == 65 * 4096 * 2
    capped = answer(stage3_param_persistence_threshold=4096, stage3_model_persistence_threshold=40_960, **settings)
    assert part(capped, "loss") - part(none, "loss") == 10 * 4096 * 2


def test_a_single_gpu_gathers_what_is_offloaded_only() -> None:
    assert part(answer(1), "backward: layers") == 0
    assert part(answer(1, offload_params="cpu", offload_optimizer="cpu"), "backward: layers") >= 2e9


def test_weights_that_travel_as_8_bit_take_half_the_room_on_the_way() -> None:
    whole, narrow = (part(answer(zero_quantized_weights=on), "backward: layers") for on in (False, True))
    assert 0.5 < narrow / whole < 1


def test_a_second_copy_is_shared_by_the_ranks_of_a_group() -> None:
    found = answer(64, zero_hpz_partition_size=8)
    assert part(found, "loss", "secondary weights") == pytest.approx(2 * 8_030_261_248 / 8, rel=0.001)
    assert part(answer(64), "loss", "secondary weights") == 0


# -- a model made outside of zero.Init ---------------------------------------------------------------------


def kept(**train: Any) -> Result:
    """Llama 3 8B, whose linear layers have 7,504,658,432 values, with a version before DeepSpeed's own linear."""
    settings = {"framework_version": "deepspeed 0.14.2", "zero_init": False, "checkpointing": "none", **train}
    return answer(**settings)


IN_LAYERS, IN_HEAD = 2 * (7_504_658_432 - HEAD_VALUES), 2 * HEAD_VALUES


def test_autograd_keeps_gathered_weights_of_a_model_made_outside_of_zero_init() -> None:
    """A script that loads the model before TrainingArguments exist: 12.4 GiB more without checkpointing were seen."""
    alone = {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 0}
    outside, inside = kept(**alone), kept(zero_init=True, **alone)
    assert part(outside, "loss") - part(inside, "loss") == IN_LAYERS + IN_HEAD
    assert part(outside, "backward: head") - part(inside, "backward: head") == IN_LAYERS + IN_HEAD
    assert part(outside, "backward end") == part(inside, "backward end")


def test_of_a_checkpointed_layer_they_stay_only_while_it_is_computed_again() -> None:
    alone = {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0, "checkpointing": "full"}
    outside, inside = kept(**alone), kept(zero_init=True, **alone)
    assert part(outside, "loss") - part(inside, "loss") == IN_HEAD
    of_a_layer = IN_LAYERS // 32
    more = part(outside, "backward: layers") - part(inside, "backward: layers")
    assert 0 <= more <= of_a_layer


def test_weights_that_stay_for_their_next_use_are_the_ones_that_autograd_keeps() -> None:
    """Nothing is freed between forward and backward, so nothing is there twice."""
    stays = {"stage3_max_reuse_distance": 10**11, "stage3_max_live_parameters": 10**11}
    assert part(kept(**stays), "loss") == part(kept(zero_init=True, **stays), "loss")


def test_deepspeed_of_august_2026_keeps_none_whoever_made_the_model() -> None:
    newer = kept(framework_version="deepspeed 0.19.4")
    assert part(newer, "loss") == part(kept(framework_version="deepspeed 0.19.4", zero_init=True), "loss")
    assert any("zero_init" in note for note in newer.notes)


def test_where_nobody_says_how_the_model_was_made_the_interval_spans_both() -> None:
    unsaid = kept(zero_init=None)
    outside = kept()
    peaks = [found.quantities["peak_allocated"] for found in (unsaid, kept(zero_init=True), outside)]
    assert peaks[0].expected == peaks[1].expected < peaks[2].expected <= peaks[0].high


WHOLE_BYTES = 2 * 8_030_261_248


@pytest.mark.parametrize("away", [{}, {"offload_params": "cpu", "offload_optimizer": "cpu"}])
def test_a_model_made_outside_of_zero_init_is_whole_on_every_gpu_before_it_is_cut(away: dict[str, str]) -> None:
    """DeepSpeed's engine moves it there, and `zero.Init(module=…)` cuts it weight by weight."""
    settings = {"framework_version": "deepspeed 0.19.4", **away}
    outside, inside = kept(**settings), kept(zero_init=True, **settings)
    assert part(outside, "sharding", "whole weights") + part(outside, "load", "weights") == WHOLE_BYTES
    assert "sharding" not in {phase.name for phase in inside.phases}
    assert outside.quantities["total_needed"].low >= WHOLE_BYTES


def test_such_a_model_must_fit_on_one_gpu_though_its_weights_lie_on_the_host() -> None:
    away = {"offload_params": "cpu", "offload_optimizer": "cpu"}
    sizes = {"checkpointing": "full", "micro_batch_size": 1, "sequence_length": 1024}
    train = {"framework": "transformers", "precision": "bf16-master", "zero_stage": 3, **away, **sizes}
    table = {"model": "meta-llama/Meta-Llama-3-8B", "task": "train", "num_gpus": 4, "gpu_total_bytes": 12 * 2**30}
    outside = estimate({**table, "train": {**train, "zero_init": False}})
    assert outside.peak_phase == "sharding"
    assert outside.verdict is not None
    assert not outside.verdict.fits
    assert outside.suggestions[0]["change"] == {"zero_init": True}
    assert estimate({**table, "train": {**train, "zero_init": True}}).verdict.fits  # type: ignore[union-attr]


def test_llama_factory_widens_all_that_trains_before_deepspeed_cuts_it() -> None:
    table = {"model": "meta-llama/Meta-Llama-3-8B", "task": "train", "num_gpus": 4}
    train = {"framework": "llamafactory", "precision": "bf16-master", "zero_stage": 3, "zero_init": False}
    found = estimate({**table, "train": train})
    upcast = part(found, "upcast", "whole weights") + part(found, "load", "weights")
    assert 2 * WHOLE_BYTES < upcast < 2 * WHOLE_BYTES + 2**30


def test_growing_segments_of_other_streams_stay_beside_the_largest_moment() -> None:
    """Stage 3 gathers and reduces on streams of their own: what one has free serves no other."""
    found = answer(expandable_segments=True)
    allocated, reserved = (found.quantities[name].expected for name in ("peak_allocated", "peak_reserved"))
    pools = [max(part(found, phase.name, name) for phase in found.phases)
             for name in ("gathered weights", "reduce-scatter")]  # fmt: skip
    assert min(pools) > 0
    at_peak = sum(part(found, found.peak_phase or "", name) for name in ("gathered weights", "reduce-scatter"))
    assert reserved >= allocated - at_peak + sum(pools)


def _large_head(ranks: int, **settings: bool) -> tuple[int, int]:
    """Most values gathered for the head of a model whose embedding is most of it, and the head's."""
    model = describe({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                      "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 8192,
                      "tie_word_embeddings": False})  # fmt: skip
    calls, forward = calls_of_step(module_tree(model, one_value), checkpointing=False, reentrant=False)
    found = gathered(calls, forward, Limits(0, 0, 10**9, 0), ranks, **settings)
    return found.forward[HEAD], 8192 * 64


@pytest.mark.parametrize("ranks", [2, 8])
def test_parts_on_the_host_are_copied_to_the_card_beside_what_they_are_gathered_into(ranks: int) -> None:
    """0.8.3 and 0.10.0 zero/partition_parameters.py all_gather_coalesced: `param.ds_tensor.to(current_device)`."""
    on_card, head = _large_head(ranks)
    assert _large_head(ranks, from_host=True)[0] - on_card == head // ranks


def test_a_single_rank_gathered_as_several_do_before_deepspeed_0_9() -> None:
    alone, head = _large_head(1, from_host=True)
    assert alone == _large_head(1)[0]
    assert _large_head(1, from_host=True, copies_alone=False)[0] - alone == head


def test_the_version_says_whether_a_single_rank_gathers() -> None:
    def peak(version: str) -> int:
        train = {"framework": "deepspeed", "framework_version": f"deepspeed {version}, torch 2.0.0",
                 "method": "lora", "precision": "fp32", "sequence_length": 64, "zero_stage": 3, "offload_params": "cpu",
                 "offload_optimizer": "cpu", "zero_init": True}  # fmt: skip
        model = "bigscience/bloomz-7b1"
        found = estimate({"model": model, "task": "train", "gpu": "a100-sxm-80gb", "num_gpus": 1, "train": train})
        return int(found.quantities["peak_allocated"].expected)

    assert peak("0.8.3") - peak("0.9.0") > 2 * 2**30
