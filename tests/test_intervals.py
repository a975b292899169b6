"""Intervals from the table: what one cell's reach does to an estimate."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise import estimate
from vramwise.intervals import Reach, around, judged_by, left_out, stretched
from vramwise.result import Quantity

TABLE = {"cell": Reach(0.1, 0.2), "nothing": Reach(0.0, 0.0)}
sizes = st.integers(0, 2**45)


def test_a_reach_is_a_share_of_the_unit_to_each_side():
    with judged_by(TABLE):
        assert around("weights", Quantity.exact(1000), "cell", 1000) == Quantity(900, 1000, 1200)
        assert around("weights", Quantity.exact(1000), "nothing", 1000) == Quantity.exact(1000)


def test_what_a_scenario_leaves_open_comes_on_top_as_squares_add_up():
    with judged_by(TABLE):
        assert around("weights", Quantity(700, 1000, 1150), "cell", 1000) == Quantity(
            round(1000 - math.hypot(300, 100)), 1000, 1000 + math.hypot(150, 200)
        )


def test_a_stretched_interval_follows_its_own_width():
    with judged_by({"cell": Reach(0.5, 2.0)}):
        assert stretched("non_torch", Quantity(600, 1000, 1300), "cell", 0) == Quantity(800, 1000, 1600)
        narrower = stretched("non_torch", Quantity(900, 1000, 1010), "cell", 0)
    assert (narrower.low, narrower.high) == (950, 1020)


def test_no_end_lies_below_what_is_certain():
    with judged_by({"cell": Reach(0.5, 0.5)}):
        assert around("weights", Quantity.exact(1000), "cell", 1000, 700) == Quantity(700, 1000, 1500)
        assert around("weights", Quantity.exact(1000), "cell", 1000, 1200) == Quantity(1000, 1000, 1500)


@given(st.lists(sizes, min_size=3, max_size=3), sizes, st.floats(0, 5), st.floats(0, 5))
def test_the_estimate_stays_inside_and_nothing_is_below_nothing(ends, unit, below, above):
    with judged_by({"cell": Reach(below, above)}):
        found = around("weights", Quantity(*sorted(ends)), "cell", unit)
    assert 0 <= found.low <= sorted(ends)[1] == found.expected <= found.high


def test_what_was_asked_is_kept_for_the_script_that_makes_the_table():
    with judged_by(TABLE) as asked:
        around("weights", Quantity(700, 1000, 1150), "cell", 500)
    (one,) = asked.values()
    assert (one.cell, one.unit_below, one.own_below, one.own_above) == ("cell", 500.0, 300.0, 150.0)


def test_a_source_without_a_say_leaves_the_whole_table():
    assert left_out("nobody/nothing") == left_out("")
    assert left_out("foundation-model-stack/fms-acceleration") != left_out("")


def _width(quantity: str = "kv_cache_bytes", **settings: object) -> float:
    one = estimate("llama-3.1-8b", gpu="h100-sxm-80gb", site=None, **settings).quantities[quantity]
    return (one.high - one.low) / one.expected


@pytest.mark.parametrize("quantity", ["peak_allocated", "peak_reserved"])
def test_naming_versions_never_widens_and_leaving_them_open_does(quantity):
    """Leaving them open widens what the allocator holds; of tensors the cases show no difference."""
    train = {"task": "train", "method": "lora", "precision": "bf16", "sequence_length": 1024}
    named, less, none = (
        _width(quantity, **train, **more)
        for more in ({"framework_version": "torch 2.11.0, transformers 5.4"}, {"framework_version": "2026-04"}, {})
    )
    assert named <= less <= none
    assert named < none or quantity == "peak_allocated"


@pytest.mark.parametrize("quantity", ["params", "weights"])
def test_what_every_term_says_exactly_stays_exact(quantity):
    found = estimate("llama-3.1-8b", task="train", gpu="h100-sxm-80gb", site=None).quantities[quantity]
    assert found.low == found.expected == found.high


def test_a_given_total_narrows_a_pool():
    given = _width(task="serve", gpu_total_bytes=85_029_158_912)
    assert given <= _width(task="serve")


@pytest.mark.parametrize(("version", "context", "sequence", "num_gpus"), [(1, 4, 2048, 4), (2, 1, 256, 8)])
def test_a_larger_batch_has_no_lower_end_below(version, context, sequence, num_gpus):
    """What is certain is what is kept: a layer's whole gradients, until FSDP has reduced them, are not."""

    def low(micro_batch_size: int) -> float:
        train = {
            "framework": "deepspeed", "fsdp": "full-shard", "fsdp_version": version, "checkpointing": "none",
            "context_parallel_size": context, "micro_batch_size": micro_batch_size, "sequence_length": sequence,
        }  # fmt: skip
        asked = {"model": "01-ai/Yi-1.5-34B", "task": "train", "gpu": "h100-sxm-80gb", "num_gpus": num_gpus}
        return estimate({**asked, "train": train}, site=None).quantities["total_needed"].low

    lows = [low(size) for size in (1, 2, 4, 8)]
    assert lows == sorted(lows)
