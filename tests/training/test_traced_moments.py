"""Every moment of 184 traced steps at real model sizes (tests/oracles/README.md)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vramwise.models import describe
from vramwise.models.autograd.size import evaluate
from vramwise.models.model import Model
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.training.job import Job, job_of

TABLE = Path(__file__).parent.parent / "oracles" / "traced_moments.jsonl"
TOLERANCE = 0.005
NAMES = {
    "after_load": "load",
    "forward_peak": "forward",
    "loss_peak": "loss",
    "forward_return_peak": "forward return",
    "forward_end": "forward end",
    "backward_end": "backward end",
    "clip_peak": "clipping",
    "first_step_peak": "first step",
    "optimizer_step_peak": "optimizer step",
}
# The trace draws the line between head and layers at the first operation of a layer's module; operations of a layer
# of experts have no module there, so that only the larger of the two can be held against it.
BACKWARD = ("backward_head_peak", "backward_layers_peak")

Row = dict[str, Any]


def rows() -> list[Row]:
    return [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


@cache
def model_named(name: str) -> Model:
    found = resolve(name)
    return describe(found.config, found.id)


def job_behind(row: Row) -> Job:
    named = row["scenario"]["model"]
    model = model_named(named) if isinstance(named, str) else describe(named)
    return job_of(Scenario.from_dict(row["scenario"]), model, None)


def unseen_bytes(job: Job) -> int:
    """The product that softmax's backward makes inside of its kernel (torch 2.13 aten/src/ATen/native/cuda/SoftMax.cu
    `softmax_backward_cuda_out`): fake tensors show shapes of results alone."""
    nodes = (node for run in job.shape(job.ranks[0]).recorded.runs for node in run.nodes if node.op == "_softmax")
    products = (node.backward_workspace_bytes for node in nodes if node.backward_workspace_bytes is not None)
    return max((evaluate(product, job.step_axes) for product in products), default=0)


def moments_of(job: Job) -> dict[str, int]:
    """What the trace calls each moment -> bytes of tensors."""
    found = {moment.name: moment.total for moment in job.moments(job.ranks[0])}
    moments = {theirs: found[ours] for theirs, ours in NAMES.items() if ours in found}
    moments |= {"backward_head_peak": found["backward: head"], "backward_layers_peak": found["backward: layers"]}
    return moments | {"peak_tensors": max(found.values())}


def deviations(row: Row) -> dict[str, float]:
    """Moments that are further off than the tolerance."""
    traced = row["moments_tensors"] | {"peak_tensors": row["peak_tensors"]}
    job = job_behind(row)
    moments, unseen = moments_of(job), unseen_bytes(job)
    if "mixtral" in row["id"] or "a3b" in row["id"]:
        for table in (traced, moments):
            table["backward"] = max(table.pop(name) for name in BACKWARD)
    for name in {"first_step_peak", "backward_layers_peak"} & traced.keys():
        traced[name] += min(unseen, max(0, moments[name] - traced[name]))
    off = {name: size / traced[name] - 1 for name, size in moments.items() if name in traced}
    return {name: error for name, error in off.items() if abs(error) > TOLERANCE}


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row["id"]))
def test_every_moment_is_within_half_a_percent(row: Row) -> None:
    assert deviations(row) == {}


def test_states_are_exact_but_for_buffers() -> None:
    """Weights, gradients and optimizer states: what is left are rotary tables and batch counters."""
    for row in rows():
        for name in ("after_load", "backward_end"):
            difference = row["moments_tensors"][name] - moments_of(job_behind(row))[name]
            assert abs(difference) < 1e-4 * row["moments_tensors"][name], (row["id"], name)
