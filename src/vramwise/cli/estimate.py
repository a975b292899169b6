"""`vramwise estimate MODEL`: one scenario to one screen, or to JSON."""

from __future__ import annotations

import argparse
import json
import sys

from .scenario_flags import add_scenario_arguments, scenario_from_flags

HELP = "how much memory a model takes, and why"
DOES_NOT_FIT = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print the estimate; 0 when it fits (or no GPU was named), 3 when it does not."""
    from ..estimation import estimate

    result = estimate(scenario_from_flags(args))
    json.dump(result.to_dict(), sys.stdout)
    print()
    return DOES_NOT_FIT if result.verdict is not None and not result.verdict.fits else 0
