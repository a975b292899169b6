"""`vramwise measure MODEL`: runs a scenario for real and prints estimated, measured and their difference."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from vramwise.cli.scenario_flags import add_scenario_arguments, scenario_from_flags, take_scenario_file
from vramwise.cli.site_flags import kept, kept_lines
from vramwise.errors import UnknownNameError, UnsupportedModelError, UsageError, VramwiseError
from vramwise.records import record

if TYPE_CHECKING:
    from vramwise.measure.job import Job, Report
    from vramwise.measure.outcome import Measured
    from vramwise.result import Result
    from vramwise.scenario import Scenario
    from vramwise.site.run import Run

HELP = "run a scenario on the GPU at hand, measured beside estimated"
LARGEST_ON_CPU_GIB = 8
DEFAULT_TIMEOUT_S = "3600"
MOST_SIZES = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario_arguments(parser, calibrates=True)
    runs = parser.add_argument_group("measuring")
    runs.add_argument("--device", metavar="DEVICE", help="cuda, cuda:1, … or cpu (tiny models); default: the first GPU")
    runs.add_argument("--steps", metavar="N", default="3", help="training steps, or calls of generate (at least 3)")
    runs.add_argument("--repeats", metavar="N", default="1", help="fresh processes; the spread is the interval")
    runs.add_argument(
        "--sweep",
        nargs="+",
        action="extend",
        metavar="KEY=VALUES",
        help="runs over sizes: micro_batch_size=1,2,4 or a..b",
    )
    runs.add_argument("--largest", metavar="KEY", help="search the largest micro_batch_size, sequence_length, …")
    runs.add_argument("--memory-cap", metavar="SIZE", help="let the card stand for a smaller one, such as 24GiB")
    runs.add_argument("--history", metavar="FILE", help="write the allocator's history (for vramwise oom)")
    runs.add_argument("--timeout", metavar="SECONDS", default=DEFAULT_TIMEOUT_S, help="of one run")
    runs.add_argument("--save", metavar="FILE.jsonl", help="add the measured cases to a file that accuracy reads")
    runs.add_argument("--json", action="store_true", help="print the results as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print what was measured; 0 also where a run went out of memory, 1 where it failed, 130 when interrupted."""
    from vramwise.measure.sweep import parse_sweep

    take_scenario_file(args)
    scenario = scenario_from_flags(args)
    plan = _plan(args, scenario)
    if args.sweep and args.largest:
        raise UsageError("--sweep and --largest are two questions: leave one of them out")
    if plan.history and (args.sweep or args.largest or plan.repeats > 1):
        raise UsageError("--history is of one run: leave out --sweep, --largest and --repeats")
    if args.largest:
        return _largest(args, plan)
    if args.sweep:
        return _sweep(args, plan, parse_sweep(args.sweep, scenario.task))
    return _single(args, plan)


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


def _plan(args: argparse.Namespace, scenario: Scenario) -> Plan:
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


def _estimated(plan: Plan) -> Result | None:
    from vramwise.estimation import estimate

    try:
        return estimate(plan.scenario)
    except UnsupportedModelError:
        return None


def _job(plan: Plan, estimated: Result | None) -> Job:
    """The job of a plan. Raises UsageError for what measure does not run, or a model too large for a CPU run."""
    from vramwise.measure.job import Job
    from vramwise.measure.supported import refuse_what_cannot_run
    from vramwise.sources import resolve
    from vramwise.units import GIB

    table = dict(estimated.scenario if estimated else plan.scenario.to_dict())
    refuse_what_cannot_run(table, "cpu" if plan.on_cpu else "cuda")
    found = resolve(plan.scenario.model, source=plan.scenario.source, revision=plan.scenario.revision)
    if plan.on_cpu and estimated and _needed(estimated) > LARGEST_ON_CPU_GIB * GIB:
        raise UsageError(f"--device cpu is for tiny models: this run would need more than {LARGEST_ON_CPU_GIB} GiB")
    processes = int(table.get("num_gpus", 1)) if plan.scenario.task == "train" else 1
    return Job(found.config, found.id, table, plan.device, plan.steps, plan.cap_bytes, plan.history, processes)


def _needed(result: Result) -> int:
    return max((phase.bytes for phase in result.phases), default=0)


def _measure(plan: Plan, label: str) -> tuple[Result | None, Measured]:
    """Estimate and run one scenario, repeats included."""
    from vramwise.cli.screens.progress import Progress
    from vramwise.measure.launch import run_job
    from vramwise.measure.outcome import measured_of

    estimated = _estimated(plan)
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


def _keep(args: argparse.Namespace, plan: Plan) -> dict[str, object] | None:
    """What was learned, written into the site's file; None where nobody asked."""
    return None if plan.lessons is None else kept(args, plan.lessons.runs, plan.lessons.unlearned)


def _show_kept(learned: dict[str, object] | None) -> None:
    from vramwise.cli.screens.paint import screen_width, show

    if learned is not None:
        show(kept_lines(learned, screen_width()))


def _single(args: argparse.Namespace, plan: Plan) -> int:
    estimated, measured = _measure(plan, "measuring")
    _save(args, plan, measured)
    learned = _keep(args, plan)
    if args.json:
        _print(_json(plan, estimated, measured) | _as_key(learned))
    else:
        from vramwise.cli.screens.measured import measured_screen
        from vramwise.cli.screens.paint import show

        show(measured_screen(estimated, measured, plan.device))
        _show_kept(learned)
    return 130 if measured.interrupted else 1 if measured.broken else 0


def _sweep(args: argparse.Namespace, plan: Plan, values: Mapping[str, list[int]]) -> int:
    from vramwise.measure.sweep import fitted, grid, size_of

    rows: list[tuple[dict[str, int], Result | None, Measured]] = []
    failed: list[tuple[dict[str, int], str]] = []
    interrupted = False
    all_sizes = grid(values)
    for i, sizes in enumerate(all_sizes, 1):
        label = f"run {i} of {len(all_sizes)}: " + ", ".join(f"{key} {value}" for key, value in sizes.items())
        try:
            estimated, measured = _measure(plan.sized(sizes), label)
        except KeyboardInterrupt:
            interrupted = True
            break
        except VramwiseError as error:
            if not rows:
                raise
            failed.append((sizes, str(error)))
            continue
        interrupted = measured.interrupted
        if interrupted:
            break
        rows.append((sizes, estimated, measured))
        _save(args, plan.sized(sizes), measured)
    name = ""
    points = []
    for sizes, _, measured in rows:
        peak = measured.result.quantities.get("peak_allocated")
        if peak is not None:
            name, size = size_of(plan.scenario.task, list(values), {**_table(measured), **sizes})
            points.append((size, int(peak.expected)))
    line = fitted(name, points)
    learned = _keep(args, plan)
    if args.json:
        runs = [{"sizes": sizes, **_json(plan, estimated, measured)} for sizes, estimated, measured in rows]
        fit = line and {
            "x": line.x, "fixed_bytes": line.fixed, "bytes_per_x": line.slope, "r_squared": line.r_squared,
            "residual_bytes": list(line.residuals),
        }  # fmt: skip
        lost = [{"sizes": sizes, "reason": reason} for sizes, reason in failed]
        _print({"runs": runs, "failed": lost, "fit": fit, "interrupted": interrupted} | _as_key(learned))
    else:
        from vramwise.cli.screens.measured import sweep_screen
        from vramwise.cli.screens.paint import show

        show(sweep_screen(rows, failed, line, len(all_sizes), plan.device))
        _show_kept(learned)
    return 130 if interrupted else 0


def _table(measured: Measured) -> Mapping[str, object]:
    scenario = measured.result.scenario
    found: Mapping[str, object] = scenario.get(str(scenario["task"]), {})
    return found


def _largest(args: argparse.Namespace, plan: Plan) -> int:
    from vramwise.measure.sweep import largest_that_fits, parse_sweep

    key = args.largest.replace("-", "_")
    parse_sweep([f"{key}=1"], plan.scenario.task)
    if plan.cap_bytes is None and plan.on_cpu:
        raise UsageError("--largest on a CPU needs --memory-cap, such as --memory-cap 64MiB")
    guess = next(_guesses(plan, key), 1)
    tried: dict[int, Measured] = {}

    def fits(size: int) -> bool:
        _, measured = _measure(plan.sized({key: size}), f"{key} {size}")
        if measured.interrupted:
            raise KeyboardInterrupt
        tried[size] = measured
        _save(args, plan.sized({key: size}), measured)
        return _is_within(measured, plan)

    found, interrupted = None, False
    try:
        found = largest_that_fits(fits, guess, MOST_SIZES)
    except KeyboardInterrupt:
        interrupted = True
    learned = _keep(args, plan)
    if args.json:
        runs = [{"size": size, "measured": measured.result.to_dict()} for size, measured in sorted(tried.items())]
        answer = {"key": key, "largest": found, "estimated": guess, "runs": runs, "interrupted": interrupted}
        _print(answer | _as_key(learned))
    else:
        from vramwise.cli.screens.measured import largest_screen
        from vramwise.cli.screens.paint import show

        show(largest_screen(key, found, guess, tried, plan.cap_bytes))
        _show_kept(learned)
    return 130 if interrupted else 0


def _guesses(plan: Plan, key: str) -> Iterator[int]:
    """The estimate's largest batch under the cap, else the size that was asked for."""
    capped = plan.scenario if plan.cap_bytes is None else plan.scenario.replace(gpu_total_bytes=plan.cap_bytes)
    estimated = _estimated(replace(plan, scenario=capped))
    if estimated is not None and key in ("micro_batch_size", "batch_size") and "max_batch" in estimated.quantities:
        yield max(1, int(estimated.quantities["max_batch"].expected))
    yield int(getattr(plan.scenario.settings, key, None) or 1)


def _is_within(measured: Measured, plan: Plan) -> bool:
    """Whether a run ended well and stayed below the cap."""
    if measured.result.quantities["oom"].expected:
        return False
    if measured.broken:
        raise VramwiseError(f"the run failed: {measured.result.notes[-1]}")
    peak = measured.result.quantities.get("peak_reserved") or measured.result.quantities.get("peak_allocated")
    return peak is not None and (plan.cap_bytes is None or int(peak.expected) <= plan.cap_bytes)


def _save(args: argparse.Namespace, plan: Plan, measured: Measured) -> None:
    if not args.save or measured.interrupted:
        return
    from vramwise.measure.saving import case_of, save_case

    model = plan.scenario.model if isinstance(plan.scenario.model, str) else measured.result.model.id
    save_case(args.save, case_of(measured, plan.scenario.to_dict(), model, plan.device))


def _json(plan: Plan, estimated: Result | None, measured: Measured) -> dict[str, object]:
    from vramwise.measure.difference import differences

    rows = differences(estimated, measured.result, on_cpu=plan.on_cpu)
    return {
        "measured": measured.result.to_dict(),
        "estimated": estimated.to_dict() if estimated else None,
        "differences": [
            {
                "name": r.name, "term": r.depth == 1, "estimated": r.estimated, "measured": r.measured,
                "relative": r.relative, "in_interval": r.in_interval,
            }
            for r in rows
        ],
        "modules": [
            {"name": m.name, "count": m.count, "weights": m.weights, "kept": m.kept} for m in measured.modules
        ],
        "failures": [{"asked_bytes": f.asked, "cause": f.cause, "kind": f.kind} for f in measured.failures],
        "ranks": [rank.to_dict() for rank in measured.ranks],
        "environment": dict(measured.facts),
    }  # fmt: skip


def _as_key(learned: dict[str, object] | None) -> dict[str, object]:
    return {} if learned is None else {"calibrated": learned}


def _print(value: Mapping[str, object]) -> None:
    json.dump(value, sys.stdout)
    print()
