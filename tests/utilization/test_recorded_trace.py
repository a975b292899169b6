"""A trace that torch's profiler records now, on the CPU, in a process of its own: it may crash as it leaves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from vramwise.utilization.profiler.analysis import rank_figures
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files

pytest.importorskip("torch")

RECORD = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, schedule
steps = schedule(wait=0, warmup=1, active=2, repeat=1)
def write(profiler):
    for path in sys.argv[1:]:
        profiler.export_chrome_trace(path)
with profile(activities=[ProfilerActivity.CPU], schedule=steps, on_trace_ready=write, record_shapes=True,
             profile_memory=True) as profiler:
    for _ in range(3):
        (torch.randn(64, 64) @ torch.randn(64, 64)).sum()
        profiler.step()
"""


def test_a_cpu_trace_has_steps_and_no_gpu_events(tmp_path):
    path = tmp_path / "t.pt.trace.json"
    subprocess.run([sys.executable, "-c", RECORD, str(path)], check=False, capture_output=True, timeout=1800)
    recording = read_trace(trace_files([str(path)])[0])
    assert recording.events_read > 10
    assert {mark.name for mark in recording.steps} == {"ProfilerStep#1", "ProfilerStep#2"}
    figures = rank_figures(recording)
    assert figures["all_events"] == {"gpu_events": 0}
    assert figures["hta"] is None
    assert len(figures["window"]["steps"]) == 2
