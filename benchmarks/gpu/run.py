"""Measure the matrix on the GPU at hand: `python benchmarks/gpu/run.py` (see README.md beside this file).

Every case is a fresh process. A finished case is a line of the output file at once; lines that are there are not
measured again, so the same command goes on where it was stopped. Ends with the table of errors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from matrix import PRESETS, Case, cases_of

from vramwise.accuracy.cases import UnusableLine, read_cases
from vramwise.accuracy.report import judge
from vramwise.accuracy.text import lines
from vramwise.errors import UnknownNameError, UnsupportedModelError, VramwiseError
from vramwise.estimation import estimate
from vramwise.hardware import find_gpu
from vramwise.measure.difference import without_workspaces
from vramwise.measure.job import Job
from vramwise.measure.launch import devices, run_job
from vramwise.measure.outcome import measured_of
from vramwise.measure.saving import case_of, save_case
from vramwise.measure.supported import refuse_what_cannot_run
from vramwise.result import Quantity, Result
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.units import format_bytes

CASES = Path(__file__).parents[1] / "cases"
FAR_TOO_LARGE = 1.25
"""Cases that need this many times the card are left out; a little too large is tried: out of memory is a row."""

FIRST_GUESS_S = 15.0
TIMEOUT_S = 600.0


@dataclass
class Run:
    """One call of this script: what it was asked, and what became of each case."""

    device: str
    card: Mapping[str, Any]
    output: Path
    until: float | None
    seconds: list[float] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    stopped: str = ""

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def each_s(self) -> float:
        return median(self.seconds) if self.seconds else FIRST_GUESS_S


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    cases = [case for case in cases_of(PRESETS[args.preset]) if args.only in case.name]
    if args.dry_run:
        return _dry_run(cases)
    try:
        device, card = _device(args.device)
    except VramwiseError as error:
        print(f"{error}\n--dry-run lists the cases with their estimates", file=sys.stderr)
        return 1
    output = args.output or _default_output(device, card)
    until = time.monotonic() + 60 * args.budget if args.budget is not None else None
    run = Run(device, card, output, until)
    done = _ids(output)
    waiting = [case for case in cases if case.name not in done][: args.limit]
    print(f"{len(cases)} cases, {len(cases) - len([c for c in cases if c.name not in done])} of them in {output}")
    try:
        _measure_all(run, waiting)
    except KeyboardInterrupt:
        run.stopped = "interrupted"
    _say_the_rest(run)
    _table(run, args.worst)
    return 130 if run.stopped == "interrupted" else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="measure the matrix of cases, estimated beside measured")
    parser.add_argument("--preset", choices=tuple(PRESETS), default="full", help="tiny runs on a CPU (%(default)s)")
    parser.add_argument("--device", default="cuda:0", help="cuda:0, cuda:1, … or cpu (%(default)s)")
    parser.add_argument("--output", type=Path, metavar="FILE.jsonl", help="default: cases/measured-GPU.jsonl")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="start no case that would end later")
    parser.add_argument("--limit", type=int, metavar="N", help="measure at most N cases")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds TEXT")
    parser.add_argument("--worst", type=int, default=10, metavar="N", help="errors listed by name (%(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="list the cases with their estimates, run nothing")
    return parser.parse_args(argv)


def _device(given: str) -> tuple[str, Mapping[str, Any]]:
    """The device, and the scenario's keys of its card. Raises VramwiseError where torch sees no such GPU."""
    if given == "cpu":
        return "cpu", {}
    index = int(given.partition(":")[2] or 0)
    gpus = devices()["gpus"]
    if index >= len(gpus):
        raise VramwiseError("torch sees no such GPU here: --preset tiny --device cpu tries the command without one")
    found = {"gpu_total_bytes": gpus[index]["total_bytes"]}
    try:
        return f"cuda:{index}", {"gpu": find_gpu(gpus[index]["name"]).gpu.id, **found}
    except UnknownNameError:
        return f"cuda:{index}", found


def _default_output(device: str, card: Mapping[str, Any]) -> Path:
    """Beside the published cases; a CPU's numbers are no GPU's, so they stay out of there."""
    return Path("measured-cpu.jsonl") if device == "cpu" else CASES / f"measured-{card.get('gpu', 'gpu')}.jsonl"


def _ids(output: Path) -> set[str]:
    return {line.id for line in read_cases(output) if not isinstance(line, UnusableLine)} if output.exists() else set()


def _measure_all(run: Run, cases: list[Case]) -> None:
    for number, case in enumerate(cases, 1):
        if run.until is not None and time.monotonic() + run.each_s() > run.until:
            run.stopped = f"the budget is spent: {len(cases) - number + 1} cases are left"
            return
        left = run.each_s() * (len(cases) - number + 1)
        print(f"[{number}/{len(cases)}, about {left / 60:.0f} min left] {case.name}  ", end="", flush=True)
        began = time.monotonic()
        try:
            said = _measure(run, case)
        except VramwiseError as error:
            run.failed[case.name] = said = str(error)
        print(said, flush=True)
        if case.name not in run.skipped:
            run.seconds.append(time.monotonic() - began)


def _measure(run: Run, case: Case) -> str:
    """Run one case and save it; what to say of it. Raises VramwiseError, and KeyboardInterrupt when interrupted."""
    scenario = Scenario.from_dict({**case.scenario, **run.card})
    estimated = _estimated(scenario)
    table = dict(estimated.scenario if estimated else scenario.to_dict())
    refuse_what_cannot_run(table, "cpu" if run.on_cpu else "cuda")
    if estimated is not None and _is_far_too_large(estimated, run):
        run.skipped[case.name] = f"needs {format_bytes(_needed(estimated))}"
        return f"skipped: {run.skipped[case.name]}"
    found = resolve(scenario.model)
    job = Job(found.config, found.id or case.name, table, run.device)
    reports = run_job(job, lambda done, of: None, TIMEOUT_S)
    if any(report.interrupted for report in reports):
        raise KeyboardInterrupt
    failure = next((report.failure for report in reports if report.failure), None)
    if failure is not None:
        raise VramwiseError(f"failed: {failure}")
    measured = measured_of(job, [reports])
    row = case_of(measured, {**case.scenario, **run.card}, case.name, run.device)
    save_case(str(run.output), {**row, "id": case.name})
    return _beside(estimated, measured.result, run.on_cpu)


def _estimated(scenario: Scenario) -> Result | None:
    try:
        return estimate(scenario)
    except UnsupportedModelError:
        return None


def _needed(estimated: Result) -> int:
    found = estimated.quantities.get("total_needed") or estimated.quantities.get("nvidia_smi")
    return int(found.low) if found is not None else 0


def _is_far_too_large(estimated: Result, run: Run) -> bool:
    total = run.card.get("gpu_total_bytes")
    return total is not None and _needed(estimated) > FAR_TOO_LARGE * total


def _beside(estimated: Result | None, measured: Result, on_cpu: bool) -> str:
    if measured.quantities["oom"].expected:
        return "out of memory"
    actual = measured.quantities.get("peak_allocated")
    if actual is None:
        return "measured"
    said = f"{format_bytes(int(actual.expected), 'auto')} allocated"
    known = _estimate_here(estimated, on_cpu) if estimated is not None else None
    if known is None or not actual.expected:
        return said
    error = known.expected / actual.expected - 1
    inside = "" if known.low <= actual.expected <= known.high else ", outside the interval"
    return f"{said}, estimated {format_bytes(int(known.expected), 'auto')} ({100 * error:+.1f} %{inside})"


def _estimate_here(estimated: Result, on_cpu: bool) -> Quantity | None:
    return without_workspaces(estimated) if on_cpu else estimated.quantities.get("peak_allocated")


def _say_the_rest(run: Run) -> None:
    if run.stopped:
        print(f"{run.stopped}; the same command goes on from here")
    for title, names in (
        ("skipped, far larger than the card", run.skipped),
        ("failed, tried again next time", run.failed),
    ):
        if names:
            print(f"\n{title}:")
            for name, why in names.items():
                print(f"  {name}: {why}")


def _table(run: Run, worst: int) -> None:
    """The errors of everything in the file, measured now or before."""
    if not run.output.exists():
        print("nothing is measured yet")
        return

    print(f"\nestimated against measured, {run.output}")
    if run.on_cpu:
        print("a CPU run tries the command: tensors alone, without the CUDA context and libraries' workspaces")
    print("\n".join(lines(judge([run.output], estimate, worst=worst), 120)))


def _dry_run(cases: list[Case]) -> int:
    """Every case with its estimate, so that the plan can be read where there is no GPU."""
    for number, case in enumerate(cases, 1):
        found = _estimated(Scenario.from_dict(case.scenario))
        peak = found.quantities.get("peak_allocated") or found.quantities.get("weights") if found is not None else None
        said = format_bytes(int(peak.expected), "auto") if peak is not None else "no estimate"
        print(f"{number:>4}  wave {case.wave}  {case.name:<52} {said:>12}")
    print(f"{len(cases)} cases, about {len(cases) * FIRST_GUESS_S / 60:.0f} minutes at {FIRST_GUESS_S:.0f} s each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
