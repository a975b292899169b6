"""Events that nothing is made of, left out of a trace's text before the standard library reads it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import document, step, two_steps

from vramwise.utilization.profiler.collect import Collector
from vramwise.utilization.profiler.sieve import Sieve
from vramwise.utilization.profiler.stream import EventStream

OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "pid": 1, "tid": 1, "ts": 7, "dur": 2, "args": {}}
FLOW = {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 7, "cat": "ac2g", "name": "ac2g", "bp": "e"}
FUNCTION = OPERATOR | {"cat": "python_function", "name": "torch/nn/modules/module.py(1): __call__"}
PRODUCT = OPERATOR | {"name": "aten::mm", "args": {"External id": 9, "Input Dims": [[4, 8], [8, 2]]}}
BRACES = OPERATOR | {"name": '},\n  {\n    "ph": "X", "cat": "kernel"'}
NESTED = OPERATOR | {"args": {"list": [{"ph": "s"}, FLOW, {"ph": "s", "cat": "ac2g"}]}}
OTHERS = [OPERATOR, FLOW, FUNCTION, PRODUCT, BRACES, NESTED, step(3, 600, 10), OPERATOR | {"name": "ProfilerStep#9"}]


@pytest.mark.parametrize("indent", [None, 1, 2, 4])
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(OTHERS), min_size=20, max_size=60), st.randoms(use_true_random=False))
def test_what_nothing_is_made_of_is_left_out_of_the_text_and_changes_nothing(indent, others, random):
    """By the standard library, which reads the kept alone, and by msgspec, which reads all."""
    events = [*two_steps(), *others]
    random.shuffle(events)
    content = json.dumps(document(events), indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        fast = _recorded(content)
        patch.setattr("vramwise.utilization.profiler.stream.fast_decoders", lambda: ())
        plain = _recorded(content)
    for name in ("names", "steps", "events_read", "left_out"):
        assert getattr(plain, name) == getattr(fast, name)
    assert plain.gpu.start.tolist() == fast.gpu.start.tolist()
    assert plain.collectives.facts == fast.collectives.facts
    for column in ("row", "sequence", "place"):
        assert getattr(plain.collectives, column).tolist() == getattr(fast.collectives, column).tolist()
    assert plain.products.flops.tolist() == fast.products.flops.tolist()
    assert plain.events_read == len(events)


def _recorded(content):
    stream = EventStream("a", iter([content]))
    collector = Collector()
    for batch in stream.batches():
        collector.take(batch)
    return collector.recording(stream)


def test_the_sieve_leaves_out_more_than_half_of_what_a_profiler_writes():
    text = json.dumps([OPERATOR, FLOW, *two_steps(), FLOW, FUNCTION, OPERATOR, PRODUCT] * 3, indent=2).encode()[1:-1]
    needed, left_out = Sieve().needed(text)
    assert left_out == 5 * 3 - 1  # the first and the last piece are kept whatever they are
    assert len(json.loads(b"[" + needed + b"]")) == 3 * (len(two_steps()) + 6) - left_out
