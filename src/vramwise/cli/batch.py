"""`vramwise batch`: one scenario a line to one answer a line, in the same order, however many lines there are.

A line may name any path that this process can read as its model: whoever answers strangers' lines runs it as a user who
can read no more than they may know of.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import IO, BinaryIO, NamedTuple, Protocol

from vramwise import __version__
from vramwise.cli.language import complain
from vramwise.cli.site_flags import add_site_arguments
from vramwise.errors import ScenarioError, SourceError, UsageError, VramwiseError, clipped
from vramwise.files import open_to_read, shown_path, written
from vramwise.scenario import Scenario
from vramwise.scenario.files import numbered_lines, parse_line
from vramwise.scenario.values import shown
from vramwise.site import chosen_site, site_file
from vramwise.units import counted

HELP = "estimate one scenario (or measured case) a line; write one result a line"
STANDARD_INPUT = "-"
LINES_BETWEEN_UPDATES = 50
MOST_LINES_NAMED = 8
MOST_JOBS = 512
RANKS = ("change", "time", "memory", "money", "front")
"""`planner.option.RANKS`, which is not imported to answer estimates."""
LIMITS = frozenset({"max_batch", "max_seq"})
OFFLINE = "HF_HUB_OFFLINE"


Line = tuple[int, bytes | None]
"""A line with its number; None where it is longer than lines may be."""


class Estimated(Protocol):
    """What an estimate gives back: a Result, or anything else that becomes JSON."""

    def to_json(self) -> str: ...


class Estimate(Protocol):
    """`limits`: whether the largest batch and the longest sequence of a training are searched for."""

    def __call__(self, scenario: Scenario, *, limits: bool) -> Estimated: ...


class Answer(NamedTuple):
    """One line of output for the input line `number`."""

    number: int
    ok: bool
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="JSON Lines, one scenario or measured case a line; - is stdin")
    parser.add_argument("--offline", action="store_true", help="ask no hub: the catalog and caches alone")
    parser.add_argument("-o", "--output", metavar="OUT", help="write there, all at once when done (default: stdout)")
    parser.add_argument(
        "--jobs", metavar="N", help="answer with so many processes (1): the same lines in the same order, read ahead"
    )
    parser.add_argument(
        "--dask", metavar="WHERE", help="answer by the workers of tcp://HOST:PORT or tls://HOST:PORT, or of the "
        "cluster in FILE.toml: the same lines in the same order",
    )  # fmt: skip
    parser.add_argument(
        "--shard", metavar="I/N", help="answer only the I-th of N parts of FILE, for arrays of jobs; their outputs one "
        "after the other are the whole",
    )  # fmt: skip
    parser.add_argument(
        "--resume", action="store_true", help="with -o: keep what is answered, and go on from there when the same "
        "command runs again; OUT.of says what OUT answers, and what is whole is kept",
    )  # fmt: skip
    parser.add_argument(
        "--plan", action="store_true", help="plan each line as `vramwise plan --json` does instead of estimating it; "
        '"inventory" in a line names a file of GPUs',
    )  # fmt: skip
    parser.add_argument("--rank", metavar="|".join(RANKS), help="with --plan: what the best option is")
    add_site_arguments(parser)
    parser.add_argument(
        "--limits", action="store_true", help="search for max_batch and max_seq of every training too, which takes up "
        "to ten times as long; else only of measured cases that name them",
    )  # fmt: skip
    parser.add_argument(
        "--replay", action=argparse.BooleanOptionalAction, default=True,
        help="replay training steps for reserved memory and the verdict, as estimate does; without it a "
        "thousand scenarios and more a second",
    )  # fmt: skip


def run(args: argparse.Namespace, estimate: Estimate | None = None) -> int:
    """Answer every line; 0 once all are answered, errors and what does not fit included.

    Raises SourceError when the input cannot be read, OSError when the output cannot be written.
    Raises UsageError for options that exclude one another and for an output that is the input.
    """
    if estimate is None:
        from vramwise.estimation import estimate as answered

        estimate = partial(answered, replays=args.replay)
    jobs = _jobs(args.jobs)
    if args.dask is not None and args.jobs is not None:
        raise UsageError("--jobs: expected it or --dask, whose workers say how many")
    if args.resume and (args.output is None or args.file == STANDARD_INPUT):
        raise UsageError("--resume: expected a FILE, which can be read again, and -o OUT, beside which it keeps them")
    both = args.output is not None and os.path.exists(args.output) and os.path.exists(args.file)
    if both and os.path.samefile(args.file, args.output):
        raise UsageError(f"-o {shown_path(args.output)}: is the input, whose lines it would replace: another name")
    part = None if args.shard is None else _part(args)
    answer = partial(_answer, estimate=estimate, limits=args.limits, rank=_rank_of_plans(args))
    count, bad = 0, []
    to_terminal = args.output is None and sys.stdout.isatty()
    with (
        _opened(args.file) as source,
        _written(args) as (out, there),
        _progress(args.file, hidden=to_terminal) as advance,
        contextlib.closing(
            _answered(islice(_readable(source, args.file, advance), *_left(part, there)), answer, jobs, args)
        ) as answered_lines,
    ):
        for one in answered_lines:
            out.write(one.text)
            if args.file == STANDARD_INPUT:
                out.flush()
            count += 1
            if not one.ok:
                bad.append(one.number)
    _report(count, bad)
    return 0


def _rank_of_plans(args: argparse.Namespace) -> str | None:
    """What the best option of each plan is; None where lines are estimated."""
    if args.rank is not None and not args.plan:
        raise UsageError("--rank: goes with --plan")
    if args.rank is not None and args.rank not in RANKS:
        raise UsageError(f'--rank: expected one of {", ".join(RANKS)}, got "{clipped(args.rank)}"')
    return (args.rank or RANKS[0]) if args.plan else None


def _jobs(given: str | None) -> int:
    if given is None:
        return 1
    if not (given.isascii() and given.isdecimal() and len(given) < 9 and 1 <= int(given) <= MOST_JOBS):
        raise UsageError(f'--jobs: expected a whole number from 1 to {MOST_JOBS}, got "{clipped(given)}"')
    return int(given)


def _answered(
    lines: Iterator[Line], answer: Callable[[Line], Answer], jobs: int, args: argparse.Namespace
) -> Generator[Answer, None, None]:
    """The answer to each line, by this process, by several or by a cluster."""
    if jobs == 1 and args.dask is None:
        yield from map(answer, lines)
        return
    from vramwise.cli.line_processes import answered_by, answered_by_dask

    if args.dask is None:
        yield from answered_by(jobs, lines, partial(_at_site, answer, args.site, args.no_site))
    else:
        site = site_file(args.site, off=args.no_site)
        yield from answered_by_dask(args.dask, lines, partial(_on_a_worker, answer, site, os.environ.get(OFFLINE)))


def _part(args: argparse.Namespace) -> tuple[int, int]:
    """The first line of a share and the one after its last, counted from 0.

    Raises UsageError for a share of standard input, whose lines cannot be counted.
    """
    from vramwise.clusters import share

    part, parts = share(args.shard)
    if args.file == STANDARD_INPUT:
        raise UsageError("--shard: expected a file, whose lines can be counted, got standard input")
    with _opened(args.file) as source:
        count = sum(1 for _ in _readable(source, args.file, lambda size: None))
    return count * (part - 1) // parts, count * part // parts


def _left(part: tuple[int, int] | None, there: int) -> tuple[int, int | None]:
    """The first line to answer and the one after the last, where the first of a part are answered already."""
    return (there, None) if part is None else (part[0] + there, part[1])


@contextlib.contextmanager
def _written(args: argparse.Namespace) -> Iterator[tuple[IO[str], int]]:
    """Where answers go, and how many of them are there already."""
    if args.output is None:
        yield sys.stdout, 0
    elif not args.resume:
        with written(args.output) as out:
            yield out, 0
    else:
        from vramwise.cli.batch_resume import resumed

        found = os.stat(args.file)
        asked = {
            "vramwise": __version__, "input": os.path.abspath(args.file), "bytes": found.st_size,
            "changed_ns": found.st_mtime_ns, "--shard": args.shard, "--limits": args.limits, "--replay": args.replay,
            "--plan": args.plan, "--rank": args.rank,
            "site": site_file(args.site, off=args.no_site),
        }  # fmt: skip
        with resumed(args.output, asked) as (out, there):
            yield out, there


def _at_site(answer: Callable[[Line], Answer], site: str | None, no_site: bool, line: Line) -> Answer:
    """The answer in a process that knows nothing yet of the site that the flags chose."""
    with chosen_site(site, off=no_site):
        return answer(line)


def _on_a_worker(answer: Callable[[Line], Answer], site: str | None, offline: str | None, line: Line) -> Answer:
    """The answer on a machine whose own site and environment are not those of the one that asks."""
    if offline is None:
        os.environ.pop(OFFLINE, None)
    else:
        os.environ[OFFLINE] = offline
    return _at_site(answer, site, site is None, line)


def answers(
    lines: Iterator[Line], estimate: Estimate, *, limits: bool = False
) -> Iterator[Answer]:  # fmt: skip
    """The answer to each numbered line, as it comes; a bad line is answered with its error.

    `limits`: trainings have `max_batch` and `max_seq` too, and not only where a measured case names one of them.
    """
    return map(partial(_answer, estimate=estimate, limits=limits), lines)


def _answer(numbered: Line, *, estimate: Estimate, limits: bool, rank: str | None = None) -> Answer:
    number, line = numbered
    name: str | int = number
    try:
        document = parse_line(line)
        name = _id(document, number)
        if rank is not None:
            from vramwise.cli.batch_plan import INVENTORY, planned

            scenario = _asked({key: value for key, value in document.items() if key != INVENTORY})
            return Answer(number, True, f'{{"id":{json.dumps(name)},"plan":{planned(scenario, document, rank)}}}\n')
        result = estimate(_asked(document), limits=limits or _names_limits(document)).to_json()
        return Answer(number, True, f'{{"id":{json.dumps(name)},"result":{result}}}\n')
    except VramwiseError as error:
        kind, message = type(error).__name__, str(error)
    except Exception as error:  # one line's bug must not cost the other lines their answers
        kind, message = "InternalError", f"{type(error).__name__} {clipped(str(error), 200)}"
    return Answer(number, False, _json({"id": name, "error": {"type": kind, "message": message}}))


def _asked(document: dict[str, object]) -> Scenario:
    """The scenario of a line: its own, or that of the `file` it names."""
    return _of_file(document) if isinstance(document.get("file"), str) else Scenario.from_dict(_scenario_of(document))


def _names_limits(document: Mapping[str, object]) -> bool:
    """Whether the line is a measured case of the largest batch or the longest sequence."""
    measured = document.get("measured")
    return isinstance(measured, Mapping) and not LIMITS.isdisjoint(measured)


def _id(document: Mapping[str, object], number: int) -> str | int:
    """The line's own id, or its number."""
    given = document.get("id")
    return given if isinstance(given, str | int) and not isinstance(given, bool) else number


def _scenario_of(document: dict[str, object]) -> Mapping[str, object]:
    """The scenario of a measured case, or the line itself without its id."""
    if "scenario" in document and "model" not in document:
        scenario = document["scenario"]
        if not isinstance(scenario, Mapping):
            raise ScenarioError("", f"expected a table with a model and a task, got {shown(scenario)}")
        return scenario
    return {key: value for key, value in document.items() if key != "id"} if "id" in document else document


def _of_file(document: Mapping[str, object]) -> Scenario:
    """The scenario of another tool's file, what else stands in the line over it; `service` chooses among several."""
    from vramwise.interop.files.launches import read_files

    own = {key: value for key, value in document.items() if key not in ("id", "file", "service")}
    model, service = own.get("model"), document.get("service")
    answers = read_files(
        [str(document["file"])],
        model if isinstance(model, str) else None,
        service if isinstance(service, str) else None,
    )
    if len(answers) > 1:
        raise UsageError(f"service: expected one of {', '.join(clipped(one.name) for one in answers)}")
    launch = answers[0].launch
    task = str(launch.scenario["task"])
    settings, stated = launch.scenario.get(task), own.get(task)
    if isinstance(settings, Mapping) and isinstance(stated, Mapping):
        own[task] = {**settings, **stated}
    scenario = Scenario.from_dict({**launch.scenario, **own, "task": task})
    return scenario.replace(notes=(*scenario.notes, *launch.notes))


def _json(value: dict[str, object]) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n"


def _readable(source: BinaryIO, name: str, advance: Callable[[int], None]) -> Iterator[Line]:
    """The numbered lines of the input; what fails while reading is the input's fault, not the output's."""
    lines = numbered_lines(source)
    while True:
        try:
            number, line = next(lines)
        except StopIteration:
            return
        except OSError as error:
            raise SourceError(f"{shown_path(name)}: {error.strerror or error}") from None
        yield number, line
        advance(len(line or b""))


@contextlib.contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with open_to_read(name) as stream:
        yield stream


@contextlib.contextmanager
def _progress(name: str, *, hidden: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr by bytes read, when a person watches there and the answers go elsewhere."""
    if hidden or not sys.stderr.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    total = None if name == STANDARD_INPUT else os.path.getsize(name) or None
    columns = (
        TextColumn("{task.fields[lines]:,} lines"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, lines=0)
        lines = done = 0

        def advance(size: int) -> None:
            nonlocal lines, done
            lines, done = lines + 1, done + size
            if lines % LINES_BETWEEN_UPDATES == 0:
                bar.update(task, completed=done, lines=lines)

        yield advance


def _report(count: int, bad: list[int]) -> None:
    """Say on stderr which lines were answered with an error; silent when none was."""
    if not bad:
        return
    named = ", ".join(map(str, bad[:MOST_LINES_NAMED])) + (", …" if len(bad) > MOST_LINES_NAMED else "")
    complain(f"{len(bad):,} of {counted(count, 'line')} answered with an error: line {named}")
