"""Events that are read together are what each is alone, whatever is odd about one of them."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from made_traces import ADD, ALL_REDUCE, GEMM, launch, on_gpu, step

from vramwise.errors import SourceError
from vramwise.utilization.profiler.collect import Collector
from vramwise.utilization.profiler.decode import BadBatch, fast_decoders, plain_decoder
from vramwise.utilization.profiler.stream import EventStream

RING = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "Group size": 2, "Seq": 4}
WAIT = {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait", "ts": 5, "dur": 1, "args": {"stream": 7, "device": 0}}
PRODUCT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2,
           "args": {"External id": 9, "Input Dims": [[4, 8], [8, 2]]}}  # fmt: skip
MEMORY = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 3,
          "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Total Allocated": 4096}}  # fmt: skip
USUAL = [
    on_gpu(GEMM, 10, 5, 1), on_gpu(ADD, 16.125, 2.25, 2), on_gpu(ALL_REDUCE, 20, 9, 3, stream=20, **RING),
    launch(4, 1), launch(5.5, 2), step(1, 0, 90), WAIT, PRODUCT, MEMORY,
]  # fmt: skip
ODD = st.sampled_from([None, True, -1, 2**70, 1.5, "7", "", "0.001", [1], {"a": 1}, 10**17, "12 3.456", "1_0.125"])
KEYS = ["ts", "dur", "name", "args"]
ARGUMENTS = ["stream", "device", "correlation", "External id", "blocks per SM", "est. achieved occupancy %",
             "In msg nelems", "Input Dims", "Device Type", "Device Id", "Bytes", "Total Allocated"]  # fmt: skip


@st.composite
def events(draw):
    """A few events, one of them with a value that none should have."""
    chosen = draw(st.lists(st.sampled_from(USUAL), min_size=1, max_size=9))
    event = dict(draw(st.sampled_from(USUAL)))
    key = draw(st.sampled_from(KEYS + ARGUMENTS))
    if key in KEYS:
        event[key] = draw(ODD)
    else:
        event["args"] = {**event["args"], key: draw(ODD)}
    chosen.insert(draw(st.integers(0, len(chosen))), event)
    return chosen


@settings(max_examples=150, deadline=None)
@given(events())
def test_a_batch_is_what_its_events_are_alone(given_events):
    for decoder in (*fast_decoders(), plain_decoder):
        try:
            read = decoder(json.dumps(given_events).encode())
        except BadBatch:
            continue  # the next decoder takes it
        assert _outcome([read]) == _outcome([[event] for event in read])


def test_figures_that_are_none_are_alike_however_they_are_written():
    collector = Collector()
    event = on_gpu(GEMM, 10, 5, 1)
    odd = [{**event, "args": {**event["args"], "blocks per SM": f"none {place}"}} for place in range(12)]
    collector.take(plain_decoder(json.dumps(odd).encode()))
    assert len(collector.recording(EventStream("a", iter([]))).gpu.likes.name) == 1


def _outcome(batches):
    collector = Collector()
    stream = EventStream("a", iter([]))
    try:
        for batch in batches:
            collector.take(batch)
        found = collector.recording(stream)
    except SourceError as problem:
        return type(problem)  # a time that is none: refused either way
    gpu, names = found.gpu, found.names
    columns = [gpu.start, gpu.duration, gpu.correlation, gpu.external_id, gpu.kind, gpu.stream, gpu.device]
    rows = zip(*(column.tolist() for column in columns), map(repr, gpu.blocks_per_sm.tolist()),
               map(repr, gpu.occupancy_pct.tolist()), [names[place] for place in gpu.name], strict=True)  # fmt: skip
    calls = zip(found.calls.start.tolist(), found.calls.duration.tolist(), found.calls.correlation.tolist(),
                [names[place] for place in found.calls.name], strict=True)  # fmt: skip
    products = zip(found.products.external_id.tolist(), found.products.flops.tolist(), strict=True)
    memory = [(one.device, one.events, one.allocated, one.last.tolist()) for one in found.memory]
    told = found.collectives
    facts = [repr(told.facts[place]) for place in told.place]
    stated = zip(gpu.start[told.row].tolist(), told.sequence.tolist(), facts, strict=True)
    return (sorted(rows), sorted(calls), list(products), sorted(found.steps), memory, found.whole_microseconds,
            found.left_out, sorted(stated))  # fmt: skip
