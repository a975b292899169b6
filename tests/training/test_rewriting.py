"""Rewrites of a recorded pass: what another block saved first stays that block's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from described_types import small_model
from small_configs import BART, LLAMA

from by_turns import has_turn
from vramwise import estimate
from vramwise.errors import UnsupportedModelError
from vramwise.kernels import kernels_for, kernels_named
from vramwise.models import describe, supported_types
from vramwise.models.autograd.gradients import input_gradients
from vramwise.models.autograd.tensor import Node
from vramwise.models.execution import Execution, Lora
from vramwise.models.step import BlockRun, Forward, record_forward
from vramwise.training.activations.rewriting import recounted, rewritten

EXECUTIONS = (
    Execution(),
    Execution(param_dtype="fp32", autocast="bf16"),
    Execution(attention="eager", padding=True),
    Execution(kernels=(kernels_named("unsloth"),)),
    Execution(lora=Lora(8, frozenset({"q_proj", "v_proj", "query", "value", "q", "v", "c_attn"})), trainable=()),
)


def same(forward: Forward, other: Forward) -> bool:
    return all(a.saved == b.saved for a, b in zip(forward.runs, other.runs, strict=True))


@pytest.mark.parametrize("model_type", supported_types())
def test_a_rewrite_that_changes_nothing_leaves_what_is_saved_and_every_backward_is_described(model_type: str) -> None:
    """Both of one recording, which takes longest; the first execution and another in a normal run."""
    for turn, execution in enumerate(EXECUTIONS):
        if turn and not has_turn(model_type, len(EXECUTIONS) - 1, turn):
            continue
        try:
            forward = record_forward(small_model(model_type), execution, batch=2, sequence=128)
        except UnsupportedModelError:
            return  # training of the type is not described
        assert same(forward, recounted(forward))
        for run in {id(run): run for run in forward.runs}.values():
            for node in run.nodes:
                for output in node.outputs:
                    if output.requires_grad:
                        input_gradients(node, output)


def test_a_rewrite_that_changes_nothing_leaves_litgpts_layers() -> None:
    model = describe(LLAMA)
    own = Execution(kernels=kernels_for(("litgpt",), model.config))
    forward = record_forward(model, own, batch=2, sequence=128)
    assert same(forward, recounted(forward))


def keeping_results(run: BlockRun) -> tuple[Node, ...]:
    """Every operation of a layer keeps its results, those that the next block reads and saves among them."""
    return tuple(
        replace(node, saved=tuple((out.storage, "result") for out in node.outputs)) if run.layer is not None else node
        for node in run.nodes
    )


def test_what_an_earlier_block_keeps_now_is_not_counted_where_it_was() -> None:
    forward = rewritten(record_forward(describe(LLAMA), Execution(), batch=2, sequence=128), keeping_results)
    layer, again = forward.runs[1], forward.runs[2]
    assert {t.storage for t in layer.outgoing} <= {storage for storage, _ in layer.saved}
    assert not {t.storage for t in again.incoming} & {storage for storage, _ in again.saved}
    assert forward.runs[2] is forward.runs[4]
    head = forward.runs[5]
    assert not {t.storage for t in head.incoming} & {storage for storage, _ in head.saved}


def test_what_the_first_block_keeps_no_more_is_the_next_ones() -> None:
    """An encoder's output that the decoder's first layer drops is its second's, once."""
    forward = record_forward(describe(BART), Execution(), batch=2, sequence=128)
    first = next(run for run in forward.runs if run.name.endswith("decoder.layers.0"))
    stream = next(s for s, _ in first.saved if s in {t.storage for t in first.incoming[1:]})

    def dropped(run: BlockRun) -> tuple[Node, ...]:
        if run is not first:
            return run.nodes
        return tuple(replace(node, saved=tuple(x for x in node.saved if x[0] is not stream)) for node in run.nodes)

    found = [run.name for run in rewritten(forward, dropped).runs if stream in dict(run.saved)]
    assert found == [forward.runs[forward.runs.index(first) + 1].name]


def peak(**train: object) -> float:
    scenario = {"task": "train", "model": BART, "train": {"precision": "bf16", "sequence_length": 128, **train}}
    return estimate(scenario).quantities["peak_allocated"].expected


def test_kernels_that_replace_nothing_change_nothing() -> None:
    assert peak(kernels=["apex"]) == peak()
