"""`vramwise estimate MODEL`: one scenario, or a sweep, on one screen or as JSON; without `--task` the door."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.cli import flag
from vramwise.cli.file_arguments import (
    add_export_arguments,
    add_file_arguments,
    each_answered,
    launches_of_files,
    print_export,
    take_export,
)
from vramwise.cli.parsing import CommandParser
from vramwise.cli.scenario_flags import (
    add_scenario_arguments,
    given_keys,
    model_from_flags,
    name_the_place,
    no_model,
    scenario_from_flags,
    take_scenario_file,
    task_meant,
)
from vramwise.errors import DOES_NOT_FIT, SourceError, UsageError, clipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vramwise.errors import UndescribedTypeError
    from vramwise.models import Model

HELP = "how much memory a model takes, and why"
STYLES: dict[str, tuple[str, ...]] = {
    "huggingface": ("library",),
    "simple": ("micro_batch_size", "sequence_length", "dtype", "gpu", "gpu_total_bytes"),
    "table": (),
}
"""Styles with the scenario flags that enter them."""


def add_arguments(parser: CommandParser) -> None:
    add_scenario_arguments(parser)
    add_file_arguments(parser)
    add_export_arguments(parser)
    parser.takes_command = True
    if parser.helped:
        parser.brief = _brief()
    parser.epilog = (
        "other tools' files are taken as they are: vramwise estimate axolotl.yml --gpu 4090 --micro-batch-size 1; "
        "an engine's own command line is taken as it is: vramwise estimate --gpu h100 -- vllm serve MODEL "
        "--tensor-parallel-size 2  (also llama-server, python -m sglang.launch_server, text-generation-launcher, "
        "trtllm-serve, ollama run; and what trains: axolotl train FILE, llamafactory-cli train FILE, tune run RECIPE "
        "--config FILE, trl sft, accelerate launch train.py, torchrun pretrain_gpt.py)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="PATH",
        help="every term with formula, inputs and source; PATH names a moment or a term (`all`: every moment)",
    )
    parser.add_argument(
        "--sweep",
        nargs="+",
        action="extend",
        metavar="KEY=VALUES",
        help="a grid over one or two keys, such as micro_batch_size=1,2,4 sequence_length=1k..32k (by doubling)",
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="files, and command lines after -- with -- between them, are programs on one card",
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="a picture too, of the answer or the sweep: FILE.svg or FILE.png"
    )
    parser.add_argument(
        "--style",
        metavar="|".join(STYLES),
        help="table: precisions and cards; huggingface: that tool's table; simple: formulas",
    )
    parser.add_argument(
        "--image",
        metavar="WIDTHxHEIGHT",
        help="the overview with what an image of that size takes; with --task generate --image-size",
    )
    parser.add_argument("--num-parameters", metavar="N", help="--style simple: a size alone, such as 7e9, 7b or 350M")


def _brief() -> tuple[Mapping[str, Sequence[str]], Sequence[str]]:
    """The flags by heading, and examples, that `--help` shows."""
    from vramwise.cli.brief_help import JOB

    return (
        {**JOB, "answers": ("--json", "--explain", "--sweep", "--together", "--export", "--style", "--scenario")},
        (
            "vramwise estimate llama-3.1-8b                        what it is good for",
            "vramwise estimate llama-3.1-8b --task train --method qlora --gpu 4090",
            "vramwise estimate --gpu h100 -- vllm serve MODEL …    a command line as it is",
            "vramwise estimate train.yaml --gpu 2xa100             a tool's file as it is",
        ),
    )


def run(args: argparse.Namespace) -> int:
    """Print the estimate; 0 when it fits (or no GPU was named), 3 when it does not.

    Raises UsageError where a file has several programs and one answer is asked for.
    """
    if args.together:
        from vramwise.cli.together import run_together

        return run_together(args)
    launches = launches_of_files(args)
    if len(launches) > 1:
        if args.export is not None:
            raise UsageError("--export writes one of a file's programs: --service NAME says which")
        if args.plot is not None:
            raise UsageError("--plot shows one of a file's programs: --service NAME says which")
        return each_answered(args, launches, _one_of_several)
    args.launch = launches[0].launch if launches else None
    take_scenario_file(args)
    take_export(args)
    if not _asks_for_a_task(args):
        name_the_place(args)
    _refuse_contradictions(args)
    _refuse_a_size(args)
    if args.style == "huggingface":
        return _huggingface(args)
    if args.style == "simple":
        return _simple(args)
    if not _asks_for_a_task(args):
        return _without_a_task(args)
    return _sweep(args) if args.sweep else _task(args)


def _refuse_a_size(args: argparse.Namespace) -> None:
    """Raises SourceError where MODEL is a number of parameters, which says nothing of layers and heads."""
    name = args.model
    if args.style == "simple" or not isinstance(name, str) or not name[:1].isdigit() or os.path.exists(name):
        return
    from vramwise.interop.simple_rules import parameter_count

    if parameter_count(name) is not None:
        simple = f"vramwise estimate {name} --style simple takes a size alone"
        raise SourceError(f'unknown model "{clipped(name)}"  ({simple}; --hidden-size and its like describe a model)')


def _one_of_several(args: argparse.Namespace, name: str) -> int:
    _refuse_contradictions(args)
    if not args.json:
        print(f"{clipped(name)}:")
    return _task(args, name)


def _refuse_contradictions(args: argparse.Namespace) -> None:
    """Raises UsageError for flags of which one would have no effect."""
    given = [*given_keys(args), *(["scenario"] if args.scenario is not None else [])]
    if args.style is not None:
        if args.style not in STYLES:
            raise UsageError(f'--style: expected one of {", ".join(STYLES)}, got "{clipped(args.style)}"')
        unused = [key for key in given if key not in STYLES[args.style]]
        if unused:
            raise UsageError(f"{flag(unused[0])} does not enter --style {args.style}: leave one of them out")
    if args.num_parameters is not None and args.style != "simple":
        raise UsageError("--num-parameters is not enough for an estimate: give MODEL, or add --style simple")
    if args.image is not None and args.task == "generate" and args.image_size is None and args.style is None:
        args.image_size, args.image = args.image, None  # of an image pipeline it is what is made
    if args.image is not None and (args.style not in (None, "table") or _asks_for_a_task(args)):
        raise UsageError("--image belongs to the overview and to --task generate: leave out --task and --style")
    if args.explain is not None and args.json:
        raise UsageError("--json holds every term already: leave out --explain")
    if args.explain is not None and (args.style is not None or not _asks_for_a_task(args)):
        raise UsageError("--explain needs --task: expected train, serve, generate or load")
    if args.sweep and (args.explain is not None or args.style is not None):
        raise UsageError(f"--sweep does not go with {'--explain' if args.explain is not None else '--style'}")
    if args.sweep and not _asks_for_a_task(args):
        raise UsageError("--sweep needs --task: expected train, serve, generate or load")
    if args.plot is not None and args.export is not None:
        raise UsageError("--export writes a scenario, --plot an answer: leave one of them out")
    if args.plot is not None and (args.style is not None or not _asks_for_a_task(args)):
        raise UsageError("--plot needs --task: expected train, serve, generate or load")
    if args.style is None and not _asks_for_a_task(args):
        from vramwise.planner.machine import machine_keys

        others = [key for key in given if key not in (*machine_keys(), "library")]
        if others:
            raise UsageError(f"{flag(others[0])} needs {task_meant(others)}")


def _asks_for_a_task(args: argparse.Namespace) -> bool:
    return bool(args.task or args.scenario or args.engine_command or args.deepspeed or args.launch)


def _task(args: argparse.Namespace, name: str = "") -> int:
    """One answer; `name` tells it from others of the same file."""
    from vramwise.estimation import estimate

    scenario = scenario_from_flags(args)
    if args.export is not None:
        return print_export(args, scenario)
    result = estimate(scenario)
    if args.like is not None:
        result = replace(result, notes=(f"described as {args.like}, because --like says so", *result.notes))
    if args.plot is not None:
        from vramwise.cli.screens.answer_picture import answer_picture
        from vramwise.cli.screens.picture import save

        save(args.plot, answer_picture(result))
    if args.json:
        table = result.to_dict(suggestions=result.verdict is not None)
        _print_json({"id": name, "result": table} if name else table)
    elif args.explain is not None:
        from vramwise.cli.screens.explain import explain_screen
        from vramwise.cli.screens.paint import show

        show(explain_screen(result, args.explain))
    else:
        from vramwise.cli.screens.estimate import estimate_screen
        from vramwise.cli.screens.paint import screen_width, show
        from vramwise.cli.screens.serving import serving_lines
        from vramwise.planner import suggestions

        engine_lines = serving_lines(scenario, result, estimate, screen_width())
        show(estimate_screen(result, suggestions(scenario, result, estimate), engine_lines))
    return DOES_NOT_FIT if result.verdict is not None and not result.verdict.fits else 0


def _sweep(args: argparse.Namespace) -> int:
    from vramwise.cli.screens.estimate import card_name
    from vramwise.cli.screens.grid import grid_screen, shared_summary, title_of
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.picture import picture, save
    from vramwise.cli.sweep import axes_of, first_model, points_of
    from vramwise.estimation import estimate
    from vramwise.planner.changes import changed

    if args.model is None:
        args.model = first_model(args.sweep)
    scenario = scenario_from_flags(args)
    axes = axes_of(args.sweep, scenario.task)
    points = points_of(scenario, axes)
    answered = next((point for point in points if not point.error), points[0])
    base = estimate(changed(scenario, answered.settings(axes)))  # raises what is wrong where nothing was answered
    if args.plot is not None:
        swept = {axis.key for axis in axes}
        card = (
            card_name(base.capacity.gpu) if base.capacity is not None and not swept & {"gpu", "gpu_total_bytes"} else ""
        )
        title = " · ".join(word for word in (title_of(base, swept), scenario.task, card) if word)
        settings = " · ".join(shared_summary(base, swept))
        varies = any(axis.key in ("gpu", "gpu_total_bytes") for axis in axes)
        usable = base.capacity.usable_bytes if base.capacity is not None and not varies else None
        save(args.plot, picture(title, axes, points, usable, settings))
    if args.json:
        keys = [axis.key for axis in axes]
        model = None if "model" in keys else base.model.id
        _print_json({"model": model, "sweep": {"keys": keys, "points": [p.to_dict(axes) for p in points]}})
    else:
        show(grid_screen(base, axes, points))
    judged = [point.fits for point in points if point.fits is not None]
    return DOES_NOT_FIT if judged and not any(judged) else 0


def _without_a_task(args: argparse.Namespace) -> int:
    """The three questions about the model, or the table of all precisions."""
    from vramwise.errors import UndescribedTypeError

    try:
        _refuse_to_describe(args)
        name, model = _described(args)
    except UndescribedTypeError as problem:
        return _of_files(args, problem)
    from vramwise.cli.door import answer_door
    from vramwise.cli.screens.model_facts import image_cost
    from vramwise.sources import resolve

    image = image_cost(model, args.image) if args.image is not None else None
    stored = resolve(name).stored_weights()
    if args.style != "table":
        return answer_door(args, name, model, image, stored)
    from vramwise.cli.door import overview_facts
    from vramwise.cli.screens.overview import overview, overview_screen
    from vramwise.cli.screens.paint import show
    from vramwise.estimation import estimate

    numbers = overview(name, model, estimate)
    if args.json:
        _print_json({**overview_facts(model, image, stored), **numbers.to_dict()})
    else:
        show(overview_screen(model, numbers, args.model or "MODEL", image, stored))
    return 0


def _refuse_to_describe(args: argparse.Namespace) -> None:
    """Raises UndescribedTypeError where --library names another library than that of the types that are described."""
    if args.library in (None, "auto"):
        return
    from vramwise.errors import UndescribedTypeError
    from vramwise.sources import resolve
    from vramwise.sources.libraries import library_of

    found = resolve(model_from_flags(args) or "")
    library = library_of(found.config, args.library)
    if not library.has_types:
        raise UndescribedTypeError(found.id, library.called, None)


def _of_files(args: argparse.Namespace, problem: UndescribedTypeError) -> int:
    """The overview, or Hugging Face's tables, of what only the files' headers tell; else what `--task load` says."""
    from vramwise.cli.screens.huggingface import files_calculator_json, files_calculator_screen
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.stored_overview import stored_overview_json, stored_overview_screen
    from vramwise.serving.tensors import known_tensors
    from vramwise.sources import resolve

    found = resolve(model_from_flags(args) or "")
    if args.style is None and args.library in (None, "auto", "diffusers"):
        from vramwise.cli.pipeline_door import answer_pipeline

        code = answer_pipeline(args, found)
        if code is not None:
            return code
    known = known_tensors(found, args.library or "auto")
    if known is None and args.style == "huggingface":
        from vramwise.estimation import pipeline_tensors

        known = pipeline_tensors(found)
    if known is None:
        raise problem
    if known.files is None:
        if args.style is not None:
            raise problem
        args.task = "load"
        return _task(args)
    if args.style == "huggingface":
        _print_json(files_calculator_json(known)) if args.json else show(files_calculator_screen(known))
    elif args.json:
        _print_json(stored_overview_json(known))
    else:
        show(stored_overview_screen(known, args.model or "MODEL"))
    return 0


def _huggingface(args: argparse.Namespace) -> int:
    from vramwise.errors import UndescribedTypeError

    try:
        _refuse_to_describe(args)
        _, model = _described(args)
    except UndescribedTypeError as problem:
        return _of_files(args, problem)
    from vramwise.cli.screens.huggingface import calculator_json, calculator_screen
    from vramwise.cli.screens.paint import show

    _print_json(calculator_json(model)) if args.json else show(calculator_screen(model))
    return 0


def _simple(args: argparse.Namespace) -> int:
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.simple import simple_answer, simple_screen
    from vramwise.cli.simple_flags import question_of
    from vramwise.estimation import estimate

    question = question_of(args)
    answer = simple_answer(question, estimate)
    _print_json(answer) if args.json else show(simple_screen(question, answer))
    return 0


def _described(args: argparse.Namespace) -> tuple[str | dict[str, object], Model]:
    name = model_from_flags(args)
    if name is None:
        raise no_model(args)
    from vramwise.estimation import described_model

    return name, described_model(name)[1]


def _print_json(value: dict[str, object]) -> None:
    json.dump(value, sys.stdout)
    print()
