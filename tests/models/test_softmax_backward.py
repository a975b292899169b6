"""What softmax allocates on a GPU beside its result: no copy of fp16 operands, and a product in its backward."""

from __future__ import annotations

import pytest

from vramwise.models.autograd import Tape
from vramwise.models.liveness import walk_backward
from vramwise.models.step import BlockRun

NUMEL = 4 * 8


def _softmax(device: str, dtype: str, to: str | None) -> Tape:
    tape = Tape(device=device)
    x = tape.new((4, 8), dtype, requires_grad=True, op="scores")
    tape.softmax(x, to)
    return tape


@pytest.mark.parametrize(
    ("dtype", "to", "operations", "product"),
    [
        ("fp16", "fp32", ["_softmax"], 4 * NUMEL),
        ("bf16", "fp32", ["_to_copy", "_softmax"], 4 * NUMEL),
        ("fp32", "fp32", ["_softmax"], 4 * NUMEL),
        ("bf16", None, ["_softmax"], 2 * NUMEL),
    ],
)
def test_backward_makes_grad_times_output_first(dtype, to, operations, product):
    nodes = _softmax("cuda", dtype, to).nodes
    assert [node.op for node in nodes] == operations
    assert nodes[-1].backward_workspace_bytes == product


def test_on_a_cpu_operands_are_widened_and_nothing_is_made_beside():
    nodes = _softmax("cpu", "fp16", "fp32").nodes
    assert [node.op for node in nodes] == ["_to_copy", "_softmax"]
    assert nodes[-1].backward_workspace_bytes is None


def test_the_product_stands_beside_result_gradient_and_what_is_made():
    """fp16 scores: softmax and its gradient in fp32, their product in fp32, the scores' gradient in fp16."""
    tape = Tape(device="cuda")
    x = tape.new((4, 8), "fp16", requires_grad=True, op="scores")
    out = tape.softmax(x, "fp32")
    run = BlockRun("softmax", 0, tuple(tape.nodes), tuple(tape.saved.items()), (x,), (out,))
    most = max(moment.total for moment in walk_backward(run).moments)
    assert most == (4 + 4 + 4 + 2) * NUMEL
