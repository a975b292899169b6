"""What only CUDA has: NVML, the context experiment, caps by torch's allocator, its history."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny import TRAIN, job_of

from vramwise.measure import diagnose_snapshot, snapshot_from_pickle
from vramwise.measure.launch import run_job
from vramwise.measure.outcome import measured_of
from vramwise.units import GIB, MIB

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SETTINGS = {**TRAIN, "precision": "bf16", "micro_batch_size": 4, "sequence_length": 256}


def ran(**changes):
    job = replace(job_of("train", **SETTINGS), device="cuda:0", **changes)
    (report,) = run_job(job, lambda *_: None)
    return report, measured_of(job, [[report]])


def test_counters_context_and_process_memory_are_there():
    pytest.importorskip("pynvml")
    report, found = ran()
    assert report.failure is None
    numbers = {name: quantity.expected for name, quantity in found.result.quantities.items()}
    assert 50 * MIB < report.facts["context_bytes"] < 3 * GIB
    assert numbers["peak_allocated"] <= numbers["peak_reserved"] < numbers["nvidia_smi"]
    assert numbers["non_torch"] >= 0.8 * report.facts["context_bytes"]
    assert report.facts["driver"]
    assert all(record["reserved"] >= record["peak"] for record in report.records)


def test_moments_of_whole_steps_repeat_to_the_byte():
    report, _ = ran(steps=4)
    peaks = {record["label"]: record["peak"] for record in report.records}
    for moment in ("forward", "loss", "backward", "clipping", "optimizer step"):
        assert peaks[f"3|{moment}"] == peaks[f"4|{moment}"]


def test_a_cap_makes_the_allocator_refuse():
    whole = ran()[1].result.quantities["peak_reserved"].expected
    report, found = ran(memory_cap_bytes=int(whole) // 2)
    assert report.oom
    assert found.result.quantities["oom"].expected is True
    assert "peak_allocated" not in found.result.quantities
    (failure,) = found.failures
    assert failure.asked > 0


def test_the_history_is_a_snapshot_that_oom_reads(tmp_path):
    path = tmp_path / "history.pickle"
    ran(history=str(path))
    (diagnosis,) = diagnose_snapshot(snapshot_from_pickle(path.read_bytes()))
    assert diagnosis.asked is None or diagnosis.asked >= 0
