"""`vramwise estimate MODEL` without a task: what the model is good for on a card, or on the usual ones."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from vramwise.cli import flag
from vramwise.cli.scenario_flags import HYPERPARAMETERS, given_keys
from vramwise.cli.screens.model_facts import ImageCost, files_table
from vramwise.errors import DOES_NOT_FIT, UsageError
from vramwise.formats.safetensors import StoredWeights
from vramwise.models import Model
from vramwise.planner.machine import Machine, machine_keys, machine_of
from vramwise.scenario.definition import KINDS, Scenario

FITS = 0


def answer_door(
    args: argparse.Namespace, name: str | dict[str, object], model: Model, image: ImageCost | None,
    stored: StoredWeights | None,
) -> int:  # fmt: skip
    """Print the answers; 3 where a card was named on which the model neither runs nor trains."""
    from vramwise.cli.screens.door import door_screen, glance_screen
    from vramwise.cli.screens.paint import show
    from vramwise.estimation import estimate
    from vramwise.planner.door import door, glances
    from vramwise.planner.ways import Question
    from vramwise.sources import resolve

    machine = machine_from_flags(args)
    found = resolve(name)
    notes = (found.note,) if found.note else ()
    asked = _words(args)
    if found.gguf_quant is not None:  # its files are one way among those that are told
        name, asked = found.id, [found.id]
    if machine is not None:
        answer = door(Question(name, model, machine, estimate), asked)
        if args.json:
            _print({**overview_facts(model, image, stored), **_overview(name, model), **answer.to_dict()})
        else:
            show(door_screen(model, answer, image, stored, notes))
        return FITS if answer.fits or not given_keys(args) else DOES_NOT_FIT
    answers = glances(name, model, estimate, asked)
    if args.json:
        cards = {card: one.to_dict() for card, one in answers.items()}
        _print({**overview_facts(model, image, stored), **_overview(name, model), "cards": cards})
    else:
        show(glance_screen(model, answers, image, stored, notes))
    return FITS


def machine_from_flags(args: argparse.Namespace) -> Machine | None:
    """The machine that the flags name, else this one; None where it has no card either."""
    given = {key: value for key, value in given_keys(args).items() if key in machine_keys()}
    return machine_from_keys(given) if given else machine_here()


def machine_from_keys(given: Mapping[str, str | bool]) -> Machine:
    """The machine of a scenario's keys as flags give them. Raises UsageError for a value that a key does not take."""
    kinds = KINDS[Scenario]
    values = {key: kinds[key].from_text(value) if isinstance(value, str) else value for key, value in given.items()}
    try:
        return machine_of(**values)
    except UsageError as problem:
        raise UsageError(_as_flags(str(problem))) from None


def machine_here() -> Machine | None:
    """This machine where it has a card: nothing is imported or started to see that it has none."""
    from vramwise.hardware.machine.here import HERE, has_driver

    if not has_driver():
        return None
    try:
        return machine_of(gpu=HERE)
    except UsageError:  # a driver without a card for this process
        return None


def _as_flags(problem: str) -> str:
    """A complaint about a key of a scenario, about the flag that it came from."""
    key, colon, rest = problem.partition(":")
    return f"{flag(key)}:{rest}" if colon and key in machine_keys() else problem


def overview_facts(model: Model, image: ImageCost | None, stored: StoredWeights | None) -> dict[str, object]:
    """What JSON says of the model itself."""
    facts: dict[str, object] = {"model": model.id, "num_parameters": model.num_parameters, "parts": model.parts}
    return facts | {"files": files_table(model, stored)} | ({} if image is None else {"image": image.to_dict()})


def _overview(name: str | Mapping[str, object], model: Model) -> dict[str, object]:
    """The table of precisions and cards, which JSON has beside the answers."""
    from vramwise.cli.screens.overview import overview
    from vramwise.estimation import estimate

    return overview(name, model, estimate).to_dict()


def _words(args: argparse.Namespace) -> list[str]:
    """The words that name the model on a command line."""
    if args.model is not None:
        return [args.model, *(("--like", args.like) if args.like is not None else ())]
    words = []
    for key in HYPERPARAMETERS:
        value = getattr(args, key)
        if value is not None:
            words += [flag(key)] if value is True else [flag(key), str(value)]
    return words


def _print(value: dict[str, object]) -> None:
    json.dump(value, sys.stdout)
    print()
