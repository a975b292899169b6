from __future__ import annotations

import pytest

import vramwise
from vramwise import errors
from vramwise.errors import (
    Doubt,
    ScenarioError,
    SourceError,
    UnknownNameError,
    UnsupportedModelError,
    UsageError,
    VramwiseError,
    in_one,
    nearest,
)


@pytest.mark.parametrize(
    ("kind", "parent", "exit_code"),
    [
        (UsageError, VramwiseError, 2),
        (ScenarioError, UsageError, 2),
        (UnknownNameError, UsageError, 2),
        (SourceError, VramwiseError, 4),
        (UnsupportedModelError, VramwiseError, 1),
    ],
)
def test_the_tree_of_the_docstring_is_the_tree_of_the_code(kind, parent, exit_code):
    assert kind.__mro__[1] is parent
    assert kind.exit_code == exit_code
    assert kind.__name__ in errors.__doc__


def test_a_scenario_error_names_its_path():
    error = ScenarioError("train.micro_batch_size", "expected a whole number ≥ 1, got 0")
    assert str(error) == "train.micro_batch_size: expected a whole number ≥ 1, got 0"
    assert error.path == "train.micro_batch_size"
    assert str(ScenarioError("", "empty")) == "empty"


def test_an_unknown_name_offers_its_neighbours():
    error = UnknownNameError("GPU", "4900", ["rtx-4090", "rtx-4080"], "vramwise gpus lists all")
    assert str(error) == 'unknown GPU "4900": did you mean rtx-4090, rtx-4080?  (vramwise gpus lists all)'
    assert str(UnknownNameError("GPU", "zzz")) == 'unknown GPU "zzz"'


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("micro_batchsize", ["micro_batch_size", "sequence_length"], ["micro_batch_size"]),
        ("4090", ["rtx-4080", "rtx-4090", "t4"], ["rtx-4090"]),
        ("Full Shard", ["none", "full-shard", "hybrid-shard"], ["full-shard"]),
        ("4900", ["rtx-4090", "rtx-4080", "t4"], ["rtx-4090", "rtx-4080"]),
        ("qqqq", ["none", "full"], []),
        ("", ["none"], []),
        ("--", ["none"], []),
    ],
)
def test_nearest(name, candidates, expected):
    assert nearest(name, candidates) == expected


def test_nearest_gives_at_most_n():
    assert len(nearest("a100", [f"a100-{i}" for i in range(9)], n=2)) == 2


def test_a_long_name_is_clipped_to_one_line():
    text = str(UnknownNameError("model", "x\n" * 500))
    assert len(text) < 90
    assert "\n" not in text


def test_a_key_of_another_task_is_named_as_this_one_calls_it() -> None:
    with pytest.raises(ScenarioError, match=r"not to serve: there it is max_model_len$"):
        vramwise.estimate("gpt2", task="serve", sequence_length=4)
    with pytest.raises(ScenarioError, match=r"not to serve$"):
        vramwise.estimate("gpt2", task="serve", checkpointing="full")


def test_notes_in_one_are_a_doubt_if_one_of_them_is():
    assert in_one(None, "") is None
    assert not isinstance(in_one("read from a cache", None), Doubt)
    both = in_one(Doubt('"a" taken as b'), "read from a cache")
    assert (both, type(both)) == ('"a" taken as b; read from a cache', Doubt)
