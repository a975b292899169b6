"""`vramwise plan … --request-rate N`: servers of prefill and of decode for a load."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vramwise.cli.file_arguments import print_text
from vramwise.cli.plan_numbers import positive
from vramwise.errors import DOES_NOT_FIT, UsageError, clipped
from vramwise.planner.inventory import Pool
from vramwise.planner.option import Wishes
from vramwise.scenario import Scenario

if TYPE_CHECKING:
    from vramwise.planner.apart import Apart, Traffic

_SIMULATOR = "aisimulate"
_ORDERS = ("change", "money")
"""Of plans: the fewest cards, with prices the least money, which is the order of servers in any case."""


def traffic_of(args: argparse.Namespace, task: str) -> Traffic | None:
    """The load of the flags. Raises UsageError where one of them stands alone, or contradicts others."""
    rate = positive("--request-rate", args.request_rate)
    prompt, reply = _tokens("--input-tokens", args.input_tokens), _tokens("--output-tokens", args.output_tokens)
    if rate is None and prompt is None and reply is None:
        return None
    if rate is None or prompt is None or reply is None:
        raise UsageError("--request-rate, --input-tokens and --output-tokens go together: give all three")
    if task != "serve":
        raise UsageError(f"--request-rate: goes with what an engine serves (--task serve), not with --task {task}")
    without_effect = {
        "--save": args.save, "--keep": args.keep, "--tokens": args.tokens, "--no-offload": args.no_offload,
        "--rank": args.rank if args.rank not in _ORDERS else None,
    }  # fmt: skip
    for name, given in without_effect.items():
        if given:
            raise UsageError(f"{name}: has no effect on servers for a load (--request-rate): leave it out")
    if args.requests is not None:
        raise UsageError("--request-rate and --requests are two loads: leave out one of them")
    if args.option is not None and (args.option != "1" or args.export not in (None, _SIMULATOR)):
        raise UsageError(f"--request-rate: there is one plan, --option 1, and it is written for --export {_SIMULATOR}")
    from vramwise.planner.apart import Traffic

    return Traffic(rate, prompt, reply)


def _tokens(name: str, text: str | None) -> int | None:
    found = positive(name, text)
    if found is not None and found != int(found):
        raise UsageError(f"{name}: expected a whole number, got {clipped(text or '')}")
    return None if found is None else int(found)


def plan_apart(
    args: argparse.Namespace, scenario: Scenario, traffic: Traffic, wishes: Wishes, pools: Sequence[Pool]
) -> int:
    """Print the servers; 0 where there are some, 3 where nothing fits."""
    from vramwise.planner.apart import apart

    found = apart(scenario, traffic, pools, wishes.risk, wishes.price_per_hour)
    servers = [one for one in (found.prefill, found.decode) if one is not None]
    if args.export is not None and servers:
        from vramwise.interop.export.aisimulate import apart_file

        return print_text(args, apart_file(found, args.output or "aisimulate.yaml"))
    if args.json:
        answer = {"goal": wishes.goal, "searched": found.searched, "options": [], "binding": found.binding}
        json.dump({**answer, "apart": found.to_dict()}, sys.stdout)
        print()
    elif args.option is not None and servers:
        print("\n".join(one.command for one in servers))
    else:
        _show(found, scenario)
    return 0 if servers else DOES_NOT_FIT


def _show(found: Apart, scenario: Scenario) -> None:
    from vramwise.cli.screens.apart import apart_screen
    from vramwise.cli.screens.paint import show

    show(apart_screen(found, scenario))
