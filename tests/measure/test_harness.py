"""The harness on CPU, in this process: the recorder against torch's own profiler, tasks and methods, moments."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny import CONFIG, TRAIN, estimated, job_of, local_run

from vramwise import describe
from vramwise.measure.difference import Row, differences, largest_difference
from vramwise.measure.outcome import measured_of
from vramwise.measure.recorder import CpuRecorder

WEIGHT_BYTES = 4 * describe(CONFIG).num_parameters
CPU_ONLY = frozenset({"buffers", "step counters"})
"""Terms that an estimate leaves out: rotary frequencies, and AdamW's counters, which CUDA has in host memory."""
SCALARS_BYTES = 10 * 512
"""Scalars of a step (a loss's mean, a norm, a count of tokens), each a block of its own: too small to be described."""

RANDOM_STATE_BYTES = 5120
"""State of the CPU's random numbers, which torch's checkpoint keeps for each layer, in host memory on CUDA."""


def compared(task, **settings):
    """Rows of estimated beside measured by moment and term, without those that only a CPU has."""
    job = job_of(task, **settings)
    found = measured_of(job, [[local_run(job)[1]]])
    moment, rows = "", {}
    for row in differences(estimated(task, **settings), found.result, on_cpu=True):
        moment = row.name if not row.depth else moment
        if row.depth and row.name not in CPU_ONLY and row.estimated is not None:
            rows[moment, row.name] = row
    return rows, found


def profiler_peaks(trace):
    """The most that torch says is allocated between marks, from a trace that its profiler exported."""
    rows = sorted((e for e in trace["traceEvents"] if e.get("ph") in "Xi"), key=lambda e: float(e["ts"]))
    peaks, label, held = [], None, 0
    for row in rows:
        if row["name"].startswith("vramwise:") and ":mark:" in row["name"]:
            label = row["name"].split(":", 3)[3]
            peaks.append([label, held])
        elif row["name"] == "[memory]" and row["args"]["Device Type"] == 0:
            held = row["args"]["Total Allocated"]
            if label is not None:
                peaks[-1][1] = max(peaks[-1][1], held)
    return peaks[:-1]  # the last mark ends the run


def test_every_moments_peak_is_that_of_torchs_profiler_to_the_byte(tmp_path):
    run, report = local_run(job_of("train", **TRAIN), CpuRecorder(rounding=1))
    assert report.failure is None
    run.recorder._profile.export_chrome_trace(str(tmp_path / "trace.json"))
    peaks = profiler_peaks(json.loads((tmp_path / "trace.json").read_text("utf-8")))
    own = [[record.label, record.peak] for record in run.recorder.records]
    assert len(own) == 2 + 3 * 7
    before = peaks[0][1] - own[0][1]  # what torch counted before this run
    assert own == [[label, peak - before] for label, peak in peaks]
    assert max(peak for _, peak in own) > 4 * WEIGHT_BYTES


@pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by a name that goes with version 6
@pytest.mark.parametrize(
    "settings",
    [
        TRAIN,
        {**TRAIN, "precision": "bf16-mixed", "gradient_accumulation_steps": 2},
        {**TRAIN, "method": "lora", "precision": "bf16"},
        {**TRAIN, "optimizer": "adafactor", "precision": "bf16"},
        {**TRAIN, "checkpointing": "full"},
    ],
    ids=["full", "mixed", "lora", "adafactor", "checkpointing"],
)
def test_training_is_what_was_estimated_by_moment_and_term(settings):
    rows, found = compared("train", **settings)
    assert not found.broken
    assert {"loss", "forward end", "backward", "backward end", "optimizer step"} <= {moment for moment, _ in rows}
    # Each product with a Python number (peft's scaling) keeps it as a scalar, in host memory on CUDA.
    scalars = SCALARS_BYTES + 14 * 512 * (settings.get("method") == "lora")
    scalars += 2 * RANDOM_STATE_BYTES * ("checkpointing" in settings)
    allowed = {"activations and temporaries": scalars}
    for (moment, term), row in rows.items():
        if moment == "backward":  # inside a layer the gradients of norms, 256 bytes each, are not rounded up
            allowed["gradients"] = 5 * 256
        if moment != "load":  # peft casts adapters after it has made them
            assert abs(row.difference) <= allowed.get(term, 0), row
        allowed.pop("gradients", None)


def test_generation_is_prefill_and_decoding():
    rows, found = compared("generate", dtype="fp32", batch_size=2, prompt_tokens=48, new_tokens=16)
    cache = found.result.quantities["kv_cache_bytes"].expected
    assert cache == 2 * 2 * 2 * 16 * 4 * 2 * (48 + 16 - 1)  # layers · (k, v) · heads · size · fp32 · batch · tokens
    assert [phase.name for phase in found.result.phases] == ["load", "prefill", "decode"]
    assert rows["prefill", "weights"].difference == 0


def test_loading_takes_the_weights():
    rows, found = compared("load", dtype="fp32")
    assert rows["load", "weights"].measured == pytest.approx(WEIGHT_BYTES, rel=0.01)
    assert rows["load", "weights"].difference == 0
    assert found.result.peak_phase == "load"


def test_a_term_is_named_at_the_moment_that_differs_most():
    rows = [
        Row("peak_allocated", 100, 5000), Row("load", 900, 1000), Row("weights", 0, 1000, depth=1),
        Row("inputs", 900, 0, depth=1), Row("backward", 3000, 1000), Row("weights", 1000, 1000, depth=1),
        Row("gradients", 1500, 500, depth=1), Row("inputs", 500, 0, depth=1),
    ]  # fmt: skip
    assert (
        largest_difference(rows)
        == "backward differs most: the estimate has 1.95 KiB more, most of it gradients (1,000 B)"
    )


@pytest.mark.parametrize("rows", [[], [Row("backward", 5000, 5000), Row("gradients", 2000, 2000, depth=1)]])
def test_nothing_is_said_where_nothing_differs(rows):
    assert largest_difference(rows) is None


def test_a_cap_ends_a_run_where_an_allocator_would():
    settings = {**TRAIN, "precision": "bf16-mixed", "optimizer_impl": "foreach"}
    whole = local_run(job_of("train", **settings))[1]
    peaks = {row["label"]: row["peak"] for row in whole.records}
    cap = peaks["2|optimizer step"] + 1
    assert peaks["2|loss"] > cap > peaks["1|optimizer step"]
    run, report = local_run(job_of("train", **settings), CpuRecorder(limit_bytes=cap))
    del run
    assert report.finished_steps == 1
    assert "Tried to allocate" in report.oom
    assert report.records[-1]["label"] == "2|forward"
    assert max(row["peak"] for row in report.records) <= cap


def test_an_interrupt_reports_what_is_finished():
    from vramwise.measure.local_run import LocalRun

    def interrupt(done, of):
        if done == 2:
            raise KeyboardInterrupt

    report = LocalRun(job_of("train", steps=5, **TRAIN), interrupt).report()
    assert report.interrupted
    assert report.finished_steps == 2
    found = measured_of(job_of("train", steps=5, **TRAIN), [[report]])
    assert "interrupted after 2 of 5 steps" in found.result.notes
    assert found.result.quantities["peak_allocated"].expected > 4 * WEIGHT_BYTES
