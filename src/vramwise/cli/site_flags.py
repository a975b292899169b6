"""`--site FILE`, `--no-site` and `--calibrate`: which runs of one's own an estimate uses, and where new ones go."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vramwise.errors import UsageError
from vramwise.site import chosen_site, file_to_write

if TYPE_CHECKING:
    from vramwise.site.run import Run, Site, Term


def add_site_arguments(parser: argparse.ArgumentParser, *, calibrates: bool = False, estimates: bool = True) -> None:
    """The flags; `calibrates`: the command can keep what it saw, `estimates`: it uses what was kept."""
    group = parser.add_argument_group("what was learned on this machine")
    if calibrates:
        group.add_argument(
            "--calibrate", action="store_true", help="keep the terms that this shows; later estimates use them"
        )
    group.add_argument("--site", metavar="FILE", help="the file of what was learned (~/.config/vramwise/site.toml)")
    if estimates:
        group.add_argument("--no-site", action="store_true", help="estimate without what was learned")


@contextmanager
def site_of(args: argparse.Namespace) -> Iterator[None]:
    """The site that the flags choose. Raises UsageError for a contradiction."""
    path, off = getattr(args, "site", None), getattr(args, "no_site", False)
    if off and path is not None:
        raise UsageError("--no-site estimates without what --site FILE says: leave one of them out")
    if getattr(args, "calibrate", False):
        if off:
            raise UsageError("--calibrate keeps what it saw in the site file: leave out --no-site")
        off = not os.path.lexists(file_of(args))
    with chosen_site(path, off=off):
        yield


def file_of(args: argparse.Namespace) -> str:
    """The file that is read and written. Raises UsageError where the environment says that there is none."""
    return file_to_write(args.site)


def kept(args: argparse.Namespace, runs: Sequence[Run], unlearned: Sequence[str]) -> dict[str, Any]:
    """Write the runs into the file and say what was learned: `file`, `terms` and `unlearned`.

    Raises SourceError or UsageError where the file cannot be written or is none of ours.
    """
    from vramwise.site.file import add_runs

    path = file_of(args)
    with_terms = [run for run in runs if run.terms]
    site = add_runs(path, with_terms) if with_terms else None
    terms = []
    for run in with_terms:
        for term in run.terms:
            count = 0 if site is None else _runs_of(site, run, term)
            terms.append({"run": run.id, "name": term.name, "value": term.value, "shown": term.shown, "runs": count})
    return {"file": path if site is None else site.shown, "terms": terms, "unlearned": list(dict.fromkeys(unlearned))}


def kept_lines(learned: dict[str, Any], width: int) -> list[str]:
    """The same for a person."""
    from vramwise.cli.screens.paint import wrapped_text

    said = [f"{term['shown']}, run {term['runs']} of its kind in {learned['file']}" for term in learned["terms"]]
    lines = [("calibrated", text) for text in said or ["nothing was learned"]]
    lines += [("not learned", text) for text in learned["unlearned"]]
    return [line for label, text in lines for line in wrapped_text(f"{label:<12}", text, width)]


def _runs_of(site: Site, run: Run, term: Term) -> int:
    """How many runs the kind of a run's term has."""
    from vramwise.site.run import kind_of

    return len(site.kinds()[kind_of(run, term)])
