"""`vramwise calibrate`: what runs on this machine showed, as it stands in the site file; pruned, or given to others."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vramwise.cli.site_flags import file_of
from vramwise.errors import UsageError, clipped
from vramwise.files import shown_path, write_file
from vramwise.site.run import TERMS
from vramwise.units import counted

if TYPE_CHECKING:
    from vramwise.site.run import Kind, Run, Site, Term

HELP = "what runs on this machine showed: show it, prune it, export it as measured cases"
ACTIONS = ("show", "prune", "export")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="show", metavar="|".join(ACTIONS), help="(show)")
    parser.add_argument("--site", metavar="FILE", help="the file (~/.config/vramwise/site.toml)")
    parser.add_argument("--outliers", action="store_true", help="prune: runs that are kept and not used")
    parser.add_argument(
        "--old", action="store_true", help="prune: all but the newest versions and drivers of each term"
    )
    parser.add_argument("--run", action="append", default=[], metavar="ID", help="prune: this run; several times")
    parser.add_argument("--all", action="store_true", help="prune: every run")
    parser.add_argument("-o", "--output", metavar="FILE.jsonl", help="export: write there instead of printing")
    parser.add_argument("--json", action="store_true", help="show: as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Do what was asked; 0, also where there is nothing yet.

    Raises UsageError for an action that there is none of, and for options of another one.
    """
    if args.action not in ACTIONS:
        raise UsageError(f'calibrate: expected one of {", ".join(ACTIONS)}, got "{clipped(args.action)}"')
    prunes = [name for name in ("outliers", "old", "run", "all") if getattr(args, name)]
    if prunes and args.action != "prune":
        raise UsageError(f"--{prunes[0]} belongs to calibrate prune")
    if args.output is not None and args.action != "export":
        raise UsageError("--output belongs to calibrate export")
    if args.json and args.action != "show":
        raise UsageError("--json belongs to calibrate show")
    if args.action == "prune":
        return _prune(args, prunes)
    return _export(args) if args.action == "export" else _show(args)


def _site(args: argparse.Namespace) -> Site:
    from vramwise.site.file import site_to_write

    return site_to_write(file_of(args))


def _show(args: argparse.Namespace) -> int:
    from vramwise.cli.screens.paint import screen_width, show, wrapped_text

    site = _site(args)
    rows = [_row(kind, values) for kind, values in site.kinds().items()]
    if args.json:
        json.dump({"file": site.shown, "runs": len(site.runs), "terms": rows}, sys.stdout)
        print()
        return 0
    if not rows:
        said = f"{site.shown}: nothing yet. vramwise measure, compare and vramwise.watch() add to it with --calibrate"
        show(wrapped_text("", said, screen_width()))
        return 0
    width = screen_width()
    lines = [f"{site.shown}: {len(site.runs)} {'run' if len(site.runs) == 1 else 'runs'}"]
    for row in rows:
        lines += ["", *wrapped_text("", f"{TERMS[row['term']]} · {row['for']}", width)]
        for one in row["values"]:
            mark = "" if one["used"] else "   left out: far from the others"
            lines.append(f"  {one['run']}  {one['date']:<10}  {one['command']:<8} {one['shown']}{mark}")
    said = "an estimate for the same card and version uses them, and says so; --no-site goes without"
    show([*lines, "", *wrapped_text("", said, width)])
    return 0


def _row(kind: Kind, values: list[tuple[Run, Term]]) -> dict[str, Any]:
    left_out = {values[i][0].id for i in _left_out(values)}
    return {
        "term": kind.term, "for": str(kind), "gpu": kind.gpu, "program": kind.program, "series": kind.series,
        "driver": kind.driver, "cuda": kind.cuda, "of": kind.of, "ranks": kind.ranks,
        "values": [
            {
                "run": run.id, "date": run.date, "command": run.command, "version": term.version,
                "value": term.value, "shown": term.shown,
                "precision": term.precision, "used": run.id not in left_out,
            }
            for run, term in values
        ],
    }  # fmt: skip


def _left_out(values: list[tuple[Run, Term]]) -> tuple[int, ...]:
    """Places of the values that an estimate leaves out whatever the shipped constant is."""
    from vramwise.site.spread import spread_of

    sizes = [term.value for _, term in values]
    middle = sorted(sizes)[len(sizes) // 2]
    return spread_of(sizes, [term.precision for _, term in values], (0.0, middle, 2 * middle)).left_out


def _prune(args: argparse.Namespace, asked: list[str]) -> int:
    from vramwise.site.file import change

    if not asked:
        raise UsageError("calibrate prune: say what: --outliers, --old, --run ID or --all")
    site = _site(args)
    unknown = [one for one in args.run if one not in {run.id for run in site.runs}]
    if unknown:
        raise UsageError(f'calibrate prune: no run is called "{clipped(unknown[0])}": vramwise calibrate lists them')
    if not site.runs:
        print(f"{site.shown}: nothing to prune")
        return 0
    before = sum(len(run.terms) for run in site.runs)
    after = change(file_of(args), lambda now: tuple(_without(now, args)))
    gone = before - sum(len(run.terms) for run in after.runs)
    left = f"{len(after.runs)} of {counted(len(site.runs), 'run')} left"
    print(f"{after.shown}: {gone} of {counted(before, 'value')} pruned, {left}")
    return 0


def _without(site: Site, args: argparse.Namespace) -> Iterator[Run]:
    """The runs that stay, each with the terms that stay."""
    from vramwise.records import replace

    gone: set[tuple[str, str]] = set()
    kinds = site.kinds()
    order = {run.id: i for i, run in enumerate(site.runs)}
    newest: dict[tuple[object, ...], Kind] = {}
    for kind, values in kinds.items():
        if args.outliers:
            gone |= {(values[i][0].id, kind.term) for i in _left_out(values)}
        place = kind.term, kind.gpu, kind.program, kind.of, kind.ranks
        known = newest.get(place)
        if known is None or order[values[-1][0].id] > order[kinds[known][-1][0].id]:
            newest[place] = kind
    if args.old:
        last = set(newest.values())
        gone |= {(run.id, kind.term) for kind, values in kinds.items() if kind not in last for run, _ in values}
    for run in site.runs:
        if args.all or run.id in args.run:
            continue
        terms = tuple(term for term in run.terms if (run.id, term.name) not in gone)
        if terms:
            yield replace(run, terms=terms)


def _export(args: argparse.Namespace) -> int:
    from vramwise.site.case import case_of

    site = _site(args)
    cases: list[Mapping[str, object]] = [case for run in site.runs if (case := case_of(run)) is not None]
    text = "".join(json.dumps(case) + "\n" for case in cases)
    if args.output is None:
        print(text, end="")
        return 0
    write_file(args.output, text)
    print(f"{len(cases)} {'case' if len(cases) == 1 else 'cases'} written to {shown_path(args.output)}")
    return 0
