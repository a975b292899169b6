from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.errors import UsageError
from vramwise.result import (
    KINDS,
    QUANTITIES,
    Capacity,
    ModelFacts,
    Node,
    Phase,
    Quantity,
    Rank,
    Result,
    Verdict,
)


def a_result(**changes):
    weights = Node("weights", 100, "exact", formula="n·2", inputs={"n": 50}, source="counted")
    context = Node("context", 40, "calibrated", low=30, high=60, source="logs")
    fields = {
        "scenario": {"model": "m", "task": "load"},
        "model": ModelFacts("m", 50, 50, 0, "catalog"),
        "quantities": {
            "weights": Quantity.exact(100),
            "nvidia_smi": Quantity(130, 140, 160),
            "oom": Quantity.exact(False),
        },
        "phases": (Phase("load", Node.group("memory", [weights, context])),),
        "peak_phase": "load",
        "ranks": (Rank("rank 0", 140),),
        "capacity": Capacity("t4", 1000, 900),
        "verdict": Verdict("fits", 760, 0.99, ("enough",)),
        "notes": ("a note",),
    }
    return Result(**{**fields, **changes})


@given(
    text=st.text(max_size=20),
    number=st.integers(0, 2**60),
    inputs=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans(), max_size=3),
    moments=st.integers(0, 3),
)
def test_the_json_text_is_that_of_the_dict(text, number, inputs, moments):
    shared = Node(text, number, "derived", high=number + 1, formula=text, inputs=inputs, source=text)
    phases = tuple(Phase(f"{text}{i}", Node.group("all", [shared, Node("own", i, "exact")])) for i in range(moments))
    result = a_result(phases=phases, peak_phase=None, notes=(text,), scenario={"model": text})
    assert json.loads(result.to_json()) == result.to_dict()
    assert result.to_json() == json.dumps(result.to_dict(), separators=(",", ":"))


def test_the_json_text_has_no_number_that_json_lacks():
    endless = a_result(quantities={"max_concurrency": Quantity(1, float("inf"), float("inf"))})
    with pytest.raises(ValueError, match="Out of range float"):
        endless.to_json()


def test_the_json_has_the_keys_of_the_contract_in_order():
    data = a_result().to_dict()
    assert list(data) == [
        "schema", "scenario", "model", "quantities", "phases",
        "peak_phase", "ranks", "capacity", "verdict", "notes", "site",
    ]  # fmt: skip
    assert data["schema"] == 1
    assert data["quantities"]["oom"] == {"expected": False}
    assert data["quantities"]["nvidia_smi"] == {"low": 130, "expected": 140, "high": 160}
    assert data["phases"][0]["bytes"] == 140
    assert list(data["phases"][0]["components"]) == [
        "name", "bytes", "low", "high", "kind", "formula", "inputs", "source", "children",
    ]  # fmt: skip
    assert data["capacity"] == {"gpu": "t4", "total_bytes": 1000, "usable_bytes": 900}


def test_a_result_survives_json():
    for result in (a_result(), a_result(capacity=None, verdict=None, phases=(), peak_phase=None)):
        assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result


@pytest.mark.parametrize(
    "broken",
    [
        {},
        [],
        {"schema": 2},
        {"schema": 1},
        {**a_result().to_dict(), "phases": [{"name": "x"}]},
        {**a_result().to_dict(), "quantities": {"weights": 3}},
        {**a_result().to_dict(), "quantities": {"wheights": {"expected": 3}}},
        {**a_result().to_dict(), "model": {"id": "m"}},
    ],
)
def test_what_is_not_a_result_is_refused(broken):
    with pytest.raises(UsageError, match=r"not a (whole )?vramwise result"):
        Result.from_dict(broken)


def test_children_must_add_up():
    leaf = Node("a", 3, "exact")
    with pytest.raises(ValueError, match="children add up to 3, not to 4"):
        Node("sum", 4, "exact", children=(leaf,))


@pytest.mark.parametrize(("low", "size", "high"), [(5, 4, 6), (3, 4, 3), (-1, 0, 1)])
def test_an_interval_holds_its_value(low, size, high):
    with pytest.raises(ValueError, match="does not hold"):
        Node("a", size, "assumed", low=low, high=high)


def test_a_quantity_is_an_interval():
    with pytest.raises(ValueError, match="not an interval"):
        Quantity(2, 1, 3)
    with pytest.raises(ValueError, match="not an interval"):
        Quantity(float("nan"), 1, 3)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="unknown kind"):
        Node("a", 1, "guessed")
    with pytest.raises(ValueError, match="unknown quantities: vram"):
        a_result(quantities={"vram": Quantity.exact(1)})
    with pytest.raises(ValueError, match='no phase is called "later"'):
        a_result(peak_phase="later")


def test_nodes_are_found_by_path():
    tree = a_result().phases[0].components
    assert tree.find("") is tree
    assert tree.find("context").bytes == 40
    assert tree.find("context/nothing/at all") is None


sizes = st.lists(st.tuples(st.integers(0, 2**50), st.sampled_from(KINDS)), max_size=6)


@given(sizes)
def test_a_group_adds_up_and_is_as_sure_as_its_least_sure_part(parts):
    group = Node.group("g", [Node(f"n{i}", size, kind) for i, (size, kind) in enumerate(parts)])
    assert group.low == group.bytes == group.high == sum(size for size, _ in parts)
    assert KINDS.index(group.kind) == max((KINDS.index(kind) for _, kind in parts), default=0)


def test_a_parent_interval_spans_its_children():
    tree = a_result().phases[0].components
    assert (tree.low, tree.bytes, tree.high, tree.kind) == (130, 140, 160, "calibrated")


def test_quantity_names_are_distinct():
    assert len(set(QUANTITIES)) == len(QUANTITIES) == 27
