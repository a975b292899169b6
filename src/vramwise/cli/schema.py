"""`vramwise schema`: the JSON Schema of a scenario, a result or a measured case."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from vramwise.accuracy.schema import case_schema
from vramwise.errors import UnknownNameError, nearest
from vramwise.result_schema import result_schema
from vramwise.scenario import scenario_schema

HELP = "print the JSON Schema of a scenario, a result or a measured case"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", default="scenario", help="scenario (default), result or case", metavar="WHAT"
    )


def run(args: argparse.Namespace) -> int:
    """Print one schema; raises UnknownNameError for anything that has none."""
    make = SCHEMAS.get(args.what)
    if make is None:
        matches = nearest(args.what, SCHEMAS) or list(SCHEMAS)
        raise UnknownNameError("schema", args.what, matches)
    print(json.dumps(make(), indent=2, ensure_ascii=False))
    return 0


SCHEMAS: dict[str, Callable[[], dict[str, object]]] = {
    "scenario": scenario_schema,
    "result": result_schema,
    "case": case_schema,
}
