"""Traces and pasted text with bytes changed, cut and repeated: an answer or one line of refusal, nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramwise.cli.screens.paint import plain
from vramwise.cli.screens.profile import definition_lines, profile_lines
from vramwise.errors import SourceError
from vramwise.hardware.machine.pasted import READERS
from vramwise.utilization.deepspeed_profiler import read_flops_profile
from vramwise.utilization.profiler import stream
from vramwise.utilization.profiler.analysis import analyse
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.trace import TraceFile

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
)
PLAUSIBLE = {
    "ph": st.sampled_from(["X", "i", "M", "s"]),
    "cat": st.sampled_from(["kernel", "Kernel", "gpu_memcpy", "cuda_runtime", "cpu_op", "user_annotation"]),
    "name": st.sampled_from(["ProfilerStep#1", "ProfilerStep#2", "ncclKernel_AllReduce", "[memory]", "aten::mm"]),
    "ts": st.integers(0, 1000),
    "dur": st.integers(0, 50),
}
ARGUMENTS = ("correlation", "stream", "device", "bytes", "In msg nelems", "Group size", "dtype", "Collective name",
             "Input Dims", "External id", "blocks per SM", "Device Type", "Total Allocated", "Bytes")  # fmt: skip
EVENT = st.fixed_dictionaries(
    {key: st.one_of(plausible, plausible, ODD) for key, plausible in PLAUSIBLE.items()},
    optional={"args": st.one_of(ODD, st.dictionaries(st.sampled_from(ARGUMENTS), st.one_of(st.integers(0, 5), ODD)))},
)


def one_line(error: SourceError) -> None:
    assert "\n" not in str(error)


def read(text: bytes, partial: bool = False):
    pieces = [text[i : i + 50] for i in range(0, len(text), 50)]
    return read_trace(TraceFile("t.json", len(text), lambda: iter(pieces)), partial=partial)


@settings(max_examples=120, deadline=None)
@given(st.lists(EVENT, max_size=8), st.data(), st.booleans())
def test_odd_traces(events, data, partial):
    text = bytearray(json.dumps({"distributedInfo": data.draw(ODD), "traceEvents": events}).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(text)))
        text[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    batch, stream.BATCH_BYTES = stream.BATCH_BYTES, 200
    try:
        answer = analyse([read(bytes(text), partial)])
        json.dumps(answer, allow_nan=False)
        assert all(isinstance(plain(line), str) for line in profile_lines(answer, steps=True))
        assert all(isinstance(plain(line), str) for line in definition_lines(answer))
    except SourceError as error:
        one_line(error)
    finally:
        stream.BATCH_BYTES = batch


WORDS = st.sampled_from(
    ["GPU0", "GPU1", "NIC0", "X", "NV4", "SYS", "\t", " ", "\n", "|", "MiB /", "81559MiB", "0", "123", ":", "N/A",
     "[OKAY]", ".....", "float", "sum", "-1", "GPU 00000000:04:00.0\n", "    Total : 5 MiB\n", "# Rank 3",
     "fwd flops per GPU:", "DCGM_FI_DEV_GPU_UTIL", '{gpu="0"}', "\x1b[4m", "PyTorch version:", "nan", "1e999"]
)  # fmt: skip


@pytest.mark.parametrize("reader", [reader for _, reader in READERS] + [read_flops_profile])
@settings(max_examples=40, deadline=None)
@given(words=st.lists(WORDS, max_size=40))
def test_odd_text(reader, words):
    try:
        reader("".join(words))
    except SourceError as error:
        one_line(error)
