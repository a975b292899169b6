"""What is known of an operation stands in one table; one that is not there is no answer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import vramwise
from vramwise.errors import UndescribedOperationError
from vramwise.models.autograd import Node, Tape
from vramwise.models.autograd.gradients import input_gradients
from vramwise.models.autograd.primitives import PRIMITIVES


def recorded_names() -> set[str]:
    """Operations that the code records by a name written out."""
    folder = Path(vramwise.__file__).parent
    places = [*(folder / "models").rglob("*.py"), *(folder / "training" / "activations").rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in places]
    return set().union(*(re.findall(r'(?:\.record|\bNode)\(\s*"(\w+)"', text) for text in texts))


def test_every_recorded_operation_is_described() -> None:
    assert len(recorded_names()) > 80
    assert recorded_names() - set(PRIMITIVES) == set()


def test_an_operation_that_is_not_described_is_not_recorded() -> None:
    tape = Tape()
    x = tape.new((4, 4), "bf16", requires_grad=True)
    with pytest.raises(UndescribedOperationError, match="no_such_operation"):
        tape.record("no_such_operation", [x], [x])
    with pytest.raises(UndescribedOperationError, match="no_such_operation"):
        Node("no_such_operation", "", (x,), (x,))
    assert not tape.nodes


def test_what_an_operation_is_not_said_to_keep_is_not_recorded() -> None:
    tape = Tape()
    x = tape.new((4, 4), "bf16", requires_grad=True)
    with pytest.raises(UndescribedOperationError, match="sigmoid keeps its self"):
        tape.record("sigmoid", [x], [x], [(x, "self")])


def test_another_operation_in_its_place_is_another_row() -> None:
    x = Tape().new((4, 4), "bf16")
    node = Node("clone", "", (x,), (x,))
    assert replace(node, op="view").primitive is PRIMITIVES["view"]


def test_an_operation_whose_results_need_no_gradient_has_no_backward() -> None:
    tape = Tape()
    x = tape.new((4, 4), "bf16", requires_grad=True)
    with pytest.raises(UndescribedOperationError, match="backward of the operation sort"):
        input_gradients(Node("sort", "", (x,), (x,)), x)
