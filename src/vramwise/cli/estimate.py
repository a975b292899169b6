"""`vramwise estimate MODEL`: one scenario to one screen, or to JSON; without `--task` an overview of the model."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..errors import UsageError
from .scenario_flags import add_scenario_arguments, model_from_flags, scenario_from_flags

HELP = "how much memory a model takes, and why"
DOES_NOT_FIT = 3
STYLES = ("huggingface",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="PATH",
        help="every term with formula, inputs and source; PATH names a moment or a term (`all`: every moment)",
    )
    parser.add_argument("--style", metavar="|".join(STYLES), help="also print another tool's tables, with their errors")


def run(args: argparse.Namespace) -> int:
    """Print the estimate; 0 when it fits (or no GPU was named), 3 when it does not."""
    if args.style is not None and args.style not in STYLES:
        raise UsageError(f'--style: expected one of {", ".join(STYLES)}, got "{args.style}"')
    if args.style is not None or (args.task is None and args.scenario is None):
        return _overview(args)
    from ..estimation import estimate

    scenario = scenario_from_flags(args)
    result = estimate(scenario)
    if args.json:
        _print_json(result.to_dict())
    elif args.explain is not None:
        from .screens.explain import explain_screen
        from .screens.paint import show

        show(explain_screen(result, args.explain))
    else:
        from .screens.estimate import estimate_screen
        from .screens.paint import show
        from .screens.suggestions import suggestions

        show(estimate_screen(result, suggestions(scenario, result, estimate)))
    return DOES_NOT_FIT if result.verdict is not None and not result.verdict.fits else 0


def _overview(args: argparse.Namespace) -> int:
    name = model_from_flags(args)
    if name is None:
        raise UsageError("no model: give MODEL, --scenario FILE, or --hidden-size and its like")
    if args.explain is not None:
        raise UsageError("--explain needs --task: expected train, serve, generate or load")
    from ..estimation import described_model, estimate
    from .screens.overview import overview, overview_screen
    from .screens.paint import show

    _, model = described_model(name)
    if args.style is not None:
        from .screens.huggingface import calculator_json, calculator_screen

        if args.json:
            _print_json(calculator_json(model))
        else:
            show(calculator_screen(model))
        return 0
    numbers = overview(name, model, estimate)
    if args.json:
        _print_json({"model": model.id, "num_parameters": model.num_parameters, **numbers.to_dict()})
    else:
        show(overview_screen(model, numbers))
    return 0


def _print_json(value: dict[str, Any]) -> None:
    json.dump(value, sys.stdout)
    print()
