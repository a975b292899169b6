"""`vramwise fit --gpu CARD`: which models run and train on a card or a machine, how, and how fast at most."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramwise.cli.parsing import CommandParser
from vramwise.errors import DOES_NOT_FIT, UsageError, clipped

if TYPE_CHECKING:
    from vramwise.planner.catalog_fit import Candidates
    from vramwise.planner.rows import Row

HELP = "which models run and train on a card: precision, context, batch, speed"
INTERRUPTED = 130
ROWS_A_GROUP = 6
SORTS = ("size", "quantization", "context", "speed", "name")
_GOALS = {"run": "serve", "fine-tune": "train"}


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--gpu", metavar="CARD", help="the card: an id or a name, 2x4090, 24GiB; here: this machine's")
    parser.add_argument("--gpus", metavar="LIST", help="unequal cards of one machine, by name")
    parser.add_argument("-n", "--num-gpus", metavar="N", help="cards in all (default: 1)")
    parser.add_argument("--gpu-total-bytes", metavar="SIZE", help="exact memory of one card, where known")
    parser.add_argument("--gpu-free-bytes", metavar="SIZE", help="what of it is free, where others hold some")
    parser.add_argument("--reserve-bytes", metavar="SIZE", help="what must stay free: a size, or a share such as 10%%")
    parser.add_argument("--task", metavar="serve|train", help="only how models run, or only how they are fine-tuned")
    parser.add_argument("--family", metavar="NAME", help="only models of a family or type: qwen, qwen3, llama, gemma")
    parser.add_argument("--params", metavar="FROM..TO", help="only models of so many parameters: 7b..32b, ..8b, 70b..")
    parser.add_argument("--all", action="store_true", help="every model, and those that keep a part on the host")
    parser.add_argument("--top", metavar="N", help=f"models of each precision or method (default: {ROWS_A_GROUP})")
    parser.add_argument(
        "--sort", metavar="|".join(SORTS),
        help="what comes first (default: size: the largest, of about one size what reads the longest text)",
    )  # fmt: skip
    parser.add_argument(
        "--replay", action=argparse.BooleanOptionalAction, default=None,
        help="hold training rows against a replay of torch's allocator, as estimate does; without it a calibrated "
        "ratio (default: for the short list alone)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print every row as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print what fits; 3 when nothing does. Raises UsageError without a card."""
    from vramwise.cli.door import machine_from_keys, machine_here
    from vramwise.planner.catalog_fit import TASKS, candidates

    keys = ("gpu", "gpus", "num_gpus", "gpu_total_bytes", "gpu_free_bytes", "reserve_bytes")
    given = {key: value for key in keys if (value := getattr(args, key)) is not None}
    machine = machine_from_keys(given) if given else machine_here()
    if machine is None:
        raise UsageError("which card? give --gpu CARD, such as 4090: this machine has none that answers")
    sort, top, tasks = _sort(args.sort), _top(args.top), _tasks(args.task, TASKS)
    least, most = _range(args.params)
    whole = not args.all and not args.json
    asked = candidates(machine, tasks=tasks, family=args.family, least=least, most=most, whole=whole)
    if args.json or args.all or sort != "size":
        return _everything(args, asked, sort, top)
    from vramwise.cli.screens.fit import short_list
    from vramwise.planner.ahead import collect_garbage_seldom, processes_for

    collect_garbage_seldom()
    try:
        with processes_for(len(asked.ids)) as pool:
            any_fits = short_list(asked, top, sys.stdout, replays=args.replay is not False, pool=pool)
        return 0 if any_fits else DOES_NOT_FIT
    except KeyboardInterrupt:  # what was found stands there, the last line perhaps in part
        print()
        return INTERRUPTED


def _everything(args: argparse.Namespace, asked: Candidates, sort: str, top: int) -> int:
    """All rows, sorted; what there is so far where somebody interrupts."""
    from vramwise.cli.screens.fit import long_list, sorted_rows
    from vramwise.cli.screens.paint import show
    from vramwise.cli.screens.progress import Progress

    found: dict[str, tuple[Row, ...]] = {}
    progress = Progress("fit", len(asked.ids), "models")
    interrupted = False
    try:
        for done, (model, rows) in enumerate(_rows(asked, replays=args.replay is True)):
            found[model] = rows
            progress.at(done + 1)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.end()
    ordered = sorted_rows(asked, found, sort)
    if args.json:
        machine = asked.machine
        table = {
            "gpu": machine.gpu_id, "num_gpus": machine.num_gpus, "usable_bytes": machine.usable_bytes,
            "searched": len(found), "rows": [row.to_dict() for rows in ordered for row in rows],
        }  # fmt: skip
        json.dump(table | ({"interrupted": True} if interrupted else {}), sys.stdout)
        print()
    else:
        show(long_list(asked, ordered, None if args.all else top, len(found), interrupted=interrupted))
    if interrupted:
        return INTERRUPTED
    return 0 if any(found.values()) else DOES_NOT_FIT


def _rows(asked: Candidates, *, replays: bool) -> Iterator[tuple[str, tuple[Row, ...]]]:
    """The rows of each model, in order; by several processes where there are many."""
    from vramwise.planner.ahead import collect_garbage_seldom
    from vramwise.planner.beside import WORTH_BESIDE, Beside
    from vramwise.planner.catalog_fit import rows_by_model
    from vramwise.processes import processes_beside

    collect_garbage_seldom()
    with Beside(processes_beside() if len(asked.ids) >= WORTH_BESIDE else 1) as beside:
        yield from rows_by_model(asked, replays=replays, cached=True, beside=beside)


def _sort(given: str | None) -> str:
    if given is not None and given not in SORTS:
        raise UsageError(f'--sort: expected one of {", ".join(SORTS)}, got "{clipped(given)}"')
    return given or "size"


def _top(given: str | None) -> int:
    if given is None:
        return ROWS_A_GROUP
    if not given.isdecimal() or not int(given[:9]) > 0:
        raise UsageError(f'--top: expected a whole number from 1, got "{clipped(given)}"')
    return int(given[:9])


def _tasks(given: str | None, every: tuple[str, ...]) -> tuple[str, ...]:
    if given is None:
        return every
    task = _GOALS.get(given, given)
    if task not in every:
        raise UsageError(f'--task: expected {" or ".join(every)}, got "{clipped(given)}"')
    return (task,)


def _range(given: str | None) -> tuple[float, float]:
    """Least and most parameters of `7b..32b`, `..8b`, `70b..`, or of one size, within a tenth."""
    if given is None:
        return 0, float("inf")
    from vramwise.interop.simple_rules import parameter_count

    def size(text: str) -> int:
        count = parameter_count(text)
        if count is None:
            raise UsageError(f'--params: expected a range such as 7b..32b, ..8b or 70b.., got "{clipped(given)}"')
        return count

    first, dots, last = re.sub(r"\s", "", given).partition("..")
    if not dots:
        return size(first) * 0.9, size(first) * 1.1
    if not first and not last:
        size("")
    low, high = size(first) if first else 0, size(last) if last else float("inf")
    if low > high:
        raise UsageError(f"--params: {clipped(given)} ends below where it begins")
    return low, high
