"""Reasons from counters alone, as CUDA gives them: no torch is needed."""

from __future__ import annotations

import pytest

import vramwise
from vramwise.measure.recorder import Record
from vramwise.scenario import Scenario
from vramwise.units import MIB
from vramwise.watching.account import Account
from vramwise.watching.hooks import Observed
from vramwise.watching.reasons import departures

SCENARIO = Scenario.from_dict(
    {
        "model": "gpt2", "task": "train",
        "train": {"precision": "bf16-mixed", "micro_batch_size": 4, "sequence_length": 512, "checkpointing": "full"},
    }
)  # fmt: skip
RESULT = vramwise.estimate(SCENARIO)


def account(allocated=0, reserved=0, process=0, **observed):
    """One step at the estimate's own counters plus what is given."""
    found = Account(Observed(**observed))
    sizes = {name: int(RESULT.quantities[name].expected) for name in ("peak_allocated", "peak_reserved", "nvidia_smi")}
    peak = sizes["peak_allocated"] + allocated
    found.add(
        [Record("backward", 0, 0, peak, max(sizes["peak_reserved"], peak) + reserved)],
        sizes["nvidia_smi"] + reserved + process,
    )
    return found


def terms(found, counter):
    (departure,) = (each for each in found if each.counter == counter)
    return [reason.term for reason in departure.reasons]


def test_what_was_estimated_is_no_departure():
    assert departures(SCENARIO, RESULT, account(), on_cpu=False) == []


def test_reserved_far_above_allocated_is_fragmentation():
    found = departures(SCENARIO, RESULT, account(reserved=4096 * MIB), on_cpu=False)
    assert "peak_allocated" not in {each.counter for each in found}
    assert terms(found, "peak_reserved") == ["fragmentation"]


def test_a_process_far_above_reserved_is_outside_torch():
    found = departures(SCENARIO, RESULT, account(process=8192 * MIB), on_cpu=False)
    assert terms(found, "nvidia_smi") == ["outside torch"]


@pytest.mark.parametrize(
    ("observed", "term"),
    [
        ({"sequence_length": 1024, "batch_size": 4, "tokens": 4096}, "sequence_length"),
        ({"sequence_length": 512, "batch_size": 8, "tokens": 4096}, "micro_batch_size"),
        ({"settings": {"checkpointing": "none"}}, "checkpointing"),
        ({"optimizer_states": 4096 * MIB, "num_parameters": 1, "num_trainable": 1}, "optimizer states"),
    ],
)
def test_what_the_hooks_saw_otherwise_is_the_reason(observed, term):
    found = departures(SCENARIO, RESULT, account(allocated=2048 * MIB, **observed), on_cpu=False)
    assert terms(found, "peak_allocated")[0] == term


def test_before_the_first_step_the_states_are_still_to_come():
    states = 8 * RESULT.model.num_parameters
    observed = {"num_parameters": 1, "num_trainable": 1, "weights": 4 * RESULT.model.num_parameters}
    (departure, *_) = departures(SCENARIO, RESULT, account(allocated=-2 * states, **observed), on_cpu=False)
    assert not departure.is_above
    assert departure.reasons[0].term == "optimizer states"
    assert departure.reasons[0].bytes == pytest.approx(-states, rel=0.02)


def test_where_nothing_differs_that_was_looked_at_a_moment_is_named():
    found = account(allocated=2048 * MIB, is_loss_inside=True, weights=4 * RESULT.model.num_parameters)
    (departure, *_) = departures(SCENARIO, RESULT, found, on_cpu=False)
    assert "at backward take" in departure.reasons[0].text
