"""Every operation that the described models record has a rule for its backward pass; one without is no answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vramwise
from vramwise.errors import UndescribedOperationError
from vramwise.models.autograd import Node, Tape
from vramwise.models.autograd.gradients import RULED, input_gradients
from vramwise.models.autograd.pointwise import _UNARY_SAVES

WITHOUT_GRADIENTS = {
    "bernoulli_", "bitwise_not", "chunk_of_logits", "dequantize", "eye", "locals", "quantize_fp8", "sign", "sort",
    "tile_of_logits",
}  # fmt: skip
"""Operations whose results need no gradient."""


def recorded_names() -> set[str]:
    """Operations that the code records by a name written out."""
    folder = Path(vramwise.__file__).parent
    places = [*(folder / "models").rglob("*.py"), *(folder / "training" / "activations").rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in places]
    found = (re.findall(r'(?:\.record|\bNode)\(\s*"(\w+)"', text) for text in texts)
    return set().union(*found) | set(_UNARY_SAVES)


def test_every_recorded_operation_has_a_rule() -> None:
    assert len(recorded_names()) > 100
    assert recorded_names() - RULED == WITHOUT_GRADIENTS


def test_an_operation_without_a_rule_is_no_answer() -> None:
    tape = Tape()
    x = tape.new((4, 4), "bf16", requires_grad=True)
    out = tape.new((4, 4), "bf16", requires_grad=True)
    with pytest.raises(UndescribedOperationError, match="no_such_operation"):
        input_gradients(Node("no_such_operation", "", (x,), (out,)), out)
