"""What the runs of one `vramwise measure` share, one scenario run beside its estimate, and what the runs teach."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from vramwise.cli.site_flags import kept, kept_lines
from vramwise.errors import UnknownNameError, UnsupportedModelError, UsageError, VramwiseError
from vramwise.records import record

if TYPE_CHECKING:
    from vramwise.measure.job import Job, Report
    from vramwise.measure.outcome import Measured
    from vramwise.result import Result
    from vramwise.scenario import Scenario
    from vramwise.site.run import Run

LARGEST_ON_CPU_GIB = 8


@record
class Lessons:
    """What runs taught so far."""

    runs: list[Run] = field(default_factory=list)
    unlearned: list[str] = field(default_factory=list)


@record
class Plan:
    """What the runs of one command share."""

    scenario: Scenario
    device: str
    steps: int
    repeats: int
    timeout_s: float
    cap_bytes: int | None
    history: str | None
    lessons: Lessons | None = None

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def sized(self, sizes: Mapping[str, int]) -> Plan:
        """The plan with other sizes in its task's table."""
        table = self.scenario.settings.replace(**sizes)
        return replace(self, scenario=self.scenario.replace(**{self.scenario.task: table}))


def plan_of(args: argparse.Namespace, scenario: Scenario) -> Plan:
    from vramwise.measure.job import LEAST_STEPS
    from vramwise.units import parse_bytes

    steps = _whole(args.steps, "--steps", LEAST_STEPS)
    device, scenario = _device(args.device, scenario)
    if device == "cpu" and args.history:
        raise UsageError("--history is CUDA's caching allocator's, which a CPU run does not have: leave it out")
    cap = parse_bytes(args.memory_cap) if args.memory_cap else None
    return Plan(
        scenario, device, steps, _whole(args.repeats, "--repeats", 1), float(_whole(args.timeout, "--timeout", 1)),
        cap, args.history, Lessons() if args.calibrate else None,
    )  # fmt: skip


def _whole(text: str, flag: str, least: int) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < least:
        raise UsageError(f'{flag}: expected a whole number from {least} on, got "{text[:20]}"')
    return int(text)


def _device(given: str | None, scenario: Scenario) -> tuple[str, Scenario]:
    """The device, and the scenario with the card at hand where it names none. Raises VramwiseError without a GPU."""
    if given == "cpu":
        return "cpu", scenario
    name, _, number = (given or "cuda").partition(":")
    if name != "cuda" or (number and not number.isdecimal()):
        raise UsageError(f'--device: expected cuda, cuda:N or cpu, got "{(given or "")[:20]}"')
    from vramwise.hardware import find_installed_gpu
    from vramwise.measure.launch import devices

    gpus = devices()["gpus"]
    index = int(number or 0)
    if index >= len(gpus):
        what = "torch sees no GPU here" if not gpus else f"torch sees {len(gpus)} GPUs here, numbered from 0"
        raise VramwiseError(
            f"{what}: vramwise estimate with the same flags says what the run would take, and --device cpu runs a tiny "
            "model"
        )
    card = gpus[index]
    changes: dict[str, object] = {"gpu_total_bytes": card["total_bytes"]}
    try:
        changes["gpu"] = find_installed_gpu(card["name"], card["total_bytes"]).gpu.id
    except UnknownNameError:
        changes["gpu"] = None
    return f"cuda:{index}", scenario.replace(**changes)


def estimated_of(plan: Plan) -> Result | None:
    from vramwise.estimation import estimate

    try:
        return estimate(plan.scenario)
    except UnsupportedModelError:
        return None


def _job(plan: Plan, estimated: Result | None) -> Job:
    """The job of a plan. Raises UsageError for what measure does not run, or a model too large for a CPU run."""
    from vramwise.measure.job import Job
    from vramwise.measure.supported import refuse_what_cannot_run
    from vramwise.measure.types_here import refuse_type_unknown_here
    from vramwise.sources import resolve
    from vramwise.units import GIB

    table = dict(estimated.scenario if estimated else plan.scenario.to_dict())
    refuse_what_cannot_run(table, "cpu" if plan.on_cpu else "cuda")
    found = resolve(plan.scenario.model, source=plan.scenario.source, revision=plan.scenario.revision)
    if plan.on_cpu and estimated and _needed(estimated) > LARGEST_ON_CPU_GIB * GIB:
        raise UsageError(f"--device cpu is for tiny models: this run would need more than {LARGEST_ON_CPU_GIB} GiB")
    if "model_type" in found.config:
        refuse_type_unknown_here(str(found.config["model_type"]))
    processes = int(table.get("num_gpus", 1)) if plan.scenario.task == "train" else 1
    return Job(found.config, found.id, table, plan.device, plan.steps, plan.cap_bytes, plan.history, processes)


def _needed(result: Result) -> int:
    return max((phase.bytes for phase in result.phases), default=0)


def estimated_and_measured(plan: Plan, label: str) -> tuple[Result | None, Measured]:
    """Estimate and run one scenario, repeats included."""
    from vramwise.cli.screens.progress import Progress
    from vramwise.measure.launch import run_job
    from vramwise.measure.outcome import measured_of

    estimated = estimated_of(plan)
    job = _job(plan, estimated)
    progress = Progress(label, job.steps * plan.repeats)
    runs = []
    for repeat in range(plan.repeats):
        done_before = repeat * job.steps

        def advance(done: int, _of: int, before: int = done_before) -> None:
            progress.at(before + done)

        runs.append(run_job(job, advance, plan.timeout_s))
        if any(report.interrupted for report in runs[-1]):
            break
    progress.end()
    _learn(plan, job, runs)
    return estimated, measured_of(job, runs)


def _learn(plan: Plan, job: Job, runs: Sequence[Sequence[Report]]) -> None:
    """Gather what each fresh process of a run that ended well teaches, where `--calibrate` asked for it."""
    if plan.lessons is None:
        return
    from vramwise.estimation import terms_asked
    from vramwise.measure.learning import counters_of, run_of_counters
    from vramwise.measure.outcome import measured_of
    from vramwise.sources.portable import portable_scenario

    if plan.on_cpu:
        plan.lessons.unlearned.append("a CPU has neither a CUDA context nor a caching allocator")
        return
    if plan.cap_bytes is not None:
        plan.lessons.unlearned.append(
            "under --memory-cap the allocator gives back what it would keep on the whole card"
        )
        return
    try:
        result, asked = terms_asked(plan.scenario)
    except UnsupportedModelError:
        plan.lessons.unlearned.append("the model's family is not described, so that nothing is estimated of it")
        return
    scenario = portable_scenario(plan.scenario)
    for ranks in runs:
        one = measured_of(job, [ranks])
        if one.broken or one.interrupted or one.result.quantities["oom"].expected:
            plan.lessons.unlearned.append("a run ended early")
            continue
        seen = counters_of(one.result, one.facts, len(ranks))
        run, unlearned = run_of_counters(seen, asked, result, one.facts, "measure", scenario)
        plan.lessons.runs.extend([run] if run is not None else [])
        plan.lessons.unlearned.extend(unlearned)


def keep_lessons(args: argparse.Namespace, plan: Plan) -> dict[str, object] | None:
    """What was learned, written into the site's file; None where nobody asked."""
    return None if plan.lessons is None else kept(args, plan.lessons.runs, plan.lessons.unlearned)


def show_kept(learned: dict[str, object] | None) -> None:
    from vramwise.cli.screens.paint import screen_width, show

    if learned is not None:
        show(kept_lines(learned, screen_width()))
