"""What is alive while a block runs."""

from __future__ import annotations

import random

import pytest

from vramwise.models import describe
from vramwise.models.autograd import Tape, axis, evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.forward_walk import walk_forward
from vramwise.models.liveness import walk_backward
from vramwise.models.moments import Moment, largest, undominated
from vramwise.models.step import BlockRun, record_forward

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 224, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}  # fmt: skip
AXES = with_rounded_axes(batch=4, sequence=128)


def runs(**execution: object) -> list[BlockRun]:
    forward = record_forward(describe(CONFIG), Execution(**execution), batch=4, sequence=128)  # type: ignore[arg-type]
    return list({id(run): run for run in forward.runs}.values())


def two_products(trains: bool = True) -> BlockRun:
    """x (n, 10) · w1 (10, 20) · relu · w2 (20, 10), all in 16 bit."""
    tape = Tape()
    n = axis("sequence")
    x = tape.new((n, 10), "bf16", requires_grad=True, op="input")
    w1, w2 = (tape.parameter(shape, "bf16", requires_grad=trains) for shape in ((10, 20), (20, 10)))
    out = tape.mm("mm", tape.unary("relu", tape.mm("mm", x, w1)), w2)
    return BlockRun("two", 0, tuple(tape.nodes), tuple(tape.saved.items()), (x,), (out,))


def test_backward_of_two_products_by_hand() -> None:
    """n = 100: saved x 2,000 and relu's result 4,000 bytes; gradients 2,000 (out, x) and 4,000 (between)."""
    walk = walk_backward(two_products())
    held = [[evaluate(part, {"sequence": 100}) for part in (m.saved, m.weight_gradients, m.temporaries)]
            for m in walk.moments]  # fmt: skip
    assert held[:4] == [
        [6000, 0, 2000],  # the gradient of the result arrives
        [6000, 0, 2000 + 4000 + 400],  # second product: gradients of both factors beside it
        [6000, 400, 4000 + 4000],  # relu: its result is still read; the weight's gradient is done
        [2000, 400, 4000 + 2000 + 400],  # first product
    ]
    assert evaluate(walk.leaving, {"sequence": 100}) == 2000
    assert walk.weight_gradients == 800


def test_existing_gradients_are_added_into_and_freed() -> None:
    walk = walk_backward(two_products(), accumulating=True)
    assert walk.weight_gradients == 0
    assert evaluate(walk.moments[1].temporaries, {"sequence": 100}) == 6400


def test_frozen_weights_have_no_gradient_and_their_input_is_not_kept() -> None:
    run = two_products(trains=False)
    assert walk_backward(run).weight_gradients == 0
    assert evaluate(run.saved_bytes, {"sequence": 100}) == 4000


@pytest.mark.parametrize("execution", [{}, {"param_dtype": "fp32", "autocast": "bf16"}, {"attention": "eager"}])
def test_backward_of_a_model_leaves_every_weights_gradient_and_its_inputs(execution: dict[str, object]) -> None:
    found = runs(**execution)
    assert len(found) == 5
    size = 4 if execution.get("param_dtype") == "fp32" else 2
    for run in found:
        walk = walk_backward(run)
        parameters = {t.storage: t.numel for node in run.nodes for t in node.inputs if t.storage.kind == "parameter"}
        assert walk.weight_gradients == size * sum(parameters.values())
        assert evaluate(walk.leaving, AXES) == sum(evaluate(t.nbytes, AXES) for t in run.incoming)


def test_prefill_holds_three_tensors_of_the_mlp_and_the_residual() -> None:
    """Without gradients the MLP is the largest moment: act(gate), up and their product, residual, normalized input.

    Counted by hand on traced generation: tokens · (3 · 2 · intermediate + 2 · 2 · hidden) beside the layer's input.
    """
    layer = runs()[2]
    peak = largest(undominated(walk_forward(layer, kept=()).moments), AXES)
    assert peak.module in ("", "mlp.act_fn")
    assert peak.total == 4 * 128 * (3 * 2 * 224 + 2 * 2 * 64)


def test_forward_that_keeps_never_holds_less_than_what_it_saves() -> None:
    for run in runs():
        last = walk_forward(run).moments[-1]
        streams = {t.storage for t in run.incoming}
        own = sum(evaluate(s.nbytes, AXES) for s, _ in run.saved if s not in streams)
        assert evaluate(last.saved, AXES) == own


def test_the_second_forward_pass_stops_at_the_last_saved_tensor() -> None:
    layer = runs()[2]
    whole, again = walk_forward(layer).moments, walk_forward(layer, again=True).moments
    assert len(again) < len(whole)
    assert evaluate(again[-1].saved, AXES) == evaluate(whole[-1].saved, AXES)


def test_pruning_never_loses_the_largest() -> None:
    for run in runs(attention="eager"):
        moments = walk_backward(run).moments
        kept = undominated(moments)
        assert len(kept) < max(len(moments), 4)
        for seed in range(40):
            draw = random.Random(seed)
            axes = with_rounded_axes(batch=draw.randint(2, 512), sequence=draw.choice([2, 31, 1024, 131072]))
            assert largest(kept, axes).total == largest(moments, axes).total


def test_no_moments_are_no_bytes() -> None:
    assert largest([], AXES).total == 0
    assert undominated([Moment("a", "", 1, 0, 0), Moment("b", "", 2, 0, 0)])[0].operation == "b"
