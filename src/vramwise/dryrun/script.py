"""Somebody's training script, unchanged, up to the end of its second optimizer step: the process that runs it.

`python -m vramwise.dryrun.script ASKED.json` writes one line of JSON. The network is closed, files go to a temporary
folder unless writes are allowed, trackers are off, and nothing is read of weights but their config.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from vramwise.dryrun.assumed import Assumptions
from vramwise.dryrun.card import Card
from vramwise.dryrun.compiling import Compiling
from vramwise.dryrun.fake_cuda import replaced
from vramwise.dryrun.full_card import FullCard
from vramwise.dryrun.launchers import Started, started
from vramwise.dryrun.not_here import NotHere
from vramwise.dryrun.own_module import OwnModule
from vramwise.dryrun.ranks import fake_groups
from vramwise.dryrun.recorder import replayed
from vramwise.dryrun.saved import saved_in_memory
from vramwise.dryrun.scores import MissingScores
from vramwise.dryrun.session import Session, watching
from vramwise.dryrun.sheltered import of_what_was_written, sheltered
from vramwise.dryrun.spawned import OwnRanks
from vramwise.dryrun.steps import EnoughSteps, Steps
from vramwise.dryrun.tracer import TooMuchError
from vramwise.dryrun.values import NoValueError, line_in, refusal_of
from vramwise.dryrun.weights import weights_from_configs
from vramwise.dryrun.worker import played
from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.measure.job import Report
from vramwise.measure.libraries import library, versions
from vramwise.units import format_bytes

_TIMES_A_CARD: Final = 10
"""What nobody means to run: a script that asks for more is in a loop, or its sizes are wrong."""
_LONGEST_WORDS: Final = 200


class TooLong(BaseException):
    """The script's time is over."""


def main(argv: list[str]) -> int:
    asked = json.loads(Path(argv[0]).read_text("utf-8"))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    found = run_script(asked)
    answers.write(json.dumps(found) + "\n")
    answers.flush()
    os._exit(0)  # threads and hooks of the script have nothing more to say


def run_script(asked: dict[str, Any]) -> dict[str, Any]:
    """Run the script; its report, moments and reserved memory, or why there are none."""
    own = asked.get("module")
    try:
        begun = Started([]) if own else started(asked["command"], asked["rank"])
    except UsageError as problem:
        return {"usage": str(problem)}
    card, ranks, assumed = asked["card"], begun.ranks, Assumptions(asked["assumed"])
    count = ranks.of_a_node if ranks is not None else 1
    session = Session(
        Card(card["name"], card["total_bytes"], tuple(card["capability"]), count=count), asked["workspace_bytes"],
        assumed=assumed,
    )  # fmt: skip
    steps, failure, missed = Steps(session), None, NotHere()
    own_ranks, scores = OwnRanks(session.watcher), MissingScores()
    compiling = Compiling(session.watcher, steps.before_forward)
    session.watcher.most_bytes = _TIMES_A_CARD * card["total_bytes"]
    full = None if asked["room_bytes"] is None else FullCard(session.watcher, max(0, asked["room_bytes"]))
    session.watcher.card = full
    os.environ.update({**begun.environment, **(ranks.environment() if ranks is not None else {})})
    try:
        with ExitStack() as stack:
            stack.enter_context(sheltered(asked["folder"], writes=asked["allow_writes"]))
            stack.enter_context(watching(session))
            stack.enter_context(replaced([*_replacements(steps, missed), *compiling.replacements()]))
            launched = replaced(fake_groups(ranks, session.watcher)) if ranks is not None else own_ranks.waited_for()
            stack.enter_context(launched)
            stack.enter_context(scores.stood_in_for())
            _hook(stack, steps)
            _take_time(asked["timeout_s"])
            if own:
                OwnModule(own, steps).run()
            else:
                _run(begun.command)
    except UsageError as problem:
        return {"usage": str(problem)}
    except BaseException as problem:
        failure = _why(problem, steps, missed, asked)
    signal.alarm(0)
    ranks = ranks or own_ranks.ranks
    if failure is None and steps.model is None:
        failure = "the script ended before a model ran on the card"
    beside = {
        "ranks": asdict(ranks) if ranks is not None else None, "unused": assumed.unused(),
        "remarks": [] if own else [
            *steps.remarks(), *compiling.remarks(), *scores.remarks(), *(full.remarks() if full else ()),
        ],
    }  # fmt: skip
    return _answer(asked, session, steps, failure) | beside


def _replacements(steps: Steps, missed: NotHere) -> list[tuple[object, str, object]]:
    return [*steps.replacements(), *weights_from_configs(), *missed.replacements(), *saved_in_memory()]


def _with_those_before(problem: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those during whose handling it was raised."""
    while problem is not None:
        yield problem
        problem = problem.__context__


def _why(problem: BaseException, steps: Steps, missed: NotHere, asked: Mapping[str, Any]) -> str | None:
    """Why a script did not come to its end, with its line; None where it came far enough."""
    line = line_in(problem.__traceback__)
    if any(isinstance(one, EnoughSteps) for one in _with_those_before(problem)):
        return None  # whatever the script, or a library, then says while it tidies up
    if isinstance(problem, TooLong):
        return f"{line}: the script was here after {asked['timeout_s']:.0f} s (--timeout)"
    if isinstance(problem, TooMuchError):
        much = format_bytes(problem.args[0])
        return f"{line}: here the script holds {much}, more than {_TIMES_A_CARD} times the card's memory"
    if isinstance(problem, SystemExit):
        if steps.model is not None and (steps.stepped or not problem.code):
            return None
        wanted = "a model ran on the card" if steps.model is None else "an optimizer had stepped"
        return f"{line}: the script ended here before {wanted} (exit code {problem.code}){_last_said(asked)}"
    print("".join(traceback.format_exception(problem)), file=sys.stderr)
    if isinstance(problem, NoValueError):
        return str(problem)
    if missed.explains(problem):
        return f"{line}: {missed.said[-1]}"
    if isinstance(problem, VramwiseError):
        return f"{line}: {problem}"
    said = " ".join(str(problem).split())
    beside = "" if asked["allow_writes"] else of_what_was_written(said, asked["folder"])
    return refusal_of(problem, line) or f"{line}: {type(problem).__name__}: {said}{beside}"


def _last_said(asked: Mapping[str, Any]) -> str:
    """What a script that ends itself said last: argparse names the flag, and nobody else has the line."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        lines = Path(asked["folder"]).with_name("stderr").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {clipped(last, _LONGEST_WORDS)}" if last else ""


def _take_time(seconds: float) -> None:
    def late(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, late)
    signal.alarm(max(1, int(seconds)))


def _hook(stack: ExitStack, steps: Steps) -> None:
    modules, optimizers = library("torch.nn.modules.module"), library("torch.optim.optimizer")
    handles = (
        modules.register_module_forward_pre_hook(steps.before_forward),
        optimizers.register_optimizer_step_pre_hook(steps.before_step),
        optimizers.register_optimizer_step_post_hook(steps.after_step),
    )
    for handle in handles:
        stack.callback(handle.remove)


def _run(command: list[str]) -> None:
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")


def _answer(asked: dict[str, Any], session: Session, steps: Steps, failure: str | None) -> dict[str, Any]:
    log = session.watcher.log
    session.watcher.mark("")
    facts = {
        "versions": versions(), "num_parameters": steps.parameters, "num_trainable_parameters": steps.trainable,
        "class": type(steps.model).__name__ if asked.get("module") else "",
    }  # fmt: skip
    report = Report(facts=facts, failure=failure, finished_steps=steps.step)
    found: dict[str, object] = {"report": asdict(report), "moments": [], "stuck": None}
    if failure is not None:
        return found
    return found | played(asked, log, replayed(log))


if __name__ == "__main__":
    main(sys.argv[1:])
