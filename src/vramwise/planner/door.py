"""The three questions about a model: can I run it, can I fine-tune it, on how many cards is it trained?

Every answer is an estimate of its own. Where nothing fits, the largest model of the same family that does stands
beside it, or what would hold this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vramwise.errors import VramwiseError
from vramwise.estimation import described_model, estimate
from vramwise.hardware import find_gpu
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.planner.families import smaller_ones
from vramwise.planner.machine import machine_keys, machine_of
from vramwise.planner.rows import Row, row_of
from vramwise.planner.running import (
    PUBLISHED,
    USEFUL_CONTEXT,
    best_run,
    best_whole_file,
    precisions_of,
    whole_files,
)  # fmt: skip
from vramwise.planner.tuning import FULL, LORA, METHODS, QLORA, best_step, fewest_cards, fitting_step, one_step
from vramwise.planner.ways import Estimate, Question, Way
from vramwise.records import record
from vramwise.scenario import Scenario

USUAL_CARDS = ("4060", "t4", "4090", "l40s", "h100", "h200")
RENTED_CARDS = ("h100", "h200")
"""What people rent for what their own card does not hold."""


@record
class Door:
    """The answers for one machine: how it runs by precision, how it is fine-tuned by method, on what it is trained.

    `instead`: rows of the largest model of the family that fits, where this one does in no way.
    """

    question: Question
    runs: dict[str, Row]
    steps: dict[str, Row]
    trained_on: tuple[Row, ...]
    instead: tuple[Row, ...] = ()

    @property
    def best_run(self) -> Row | None:
        """What to run: the widest weights with a useful context, else what is whole on the cards, else what fits."""
        least = min(USEFUL_CONTEXT, model_length(self.question.model))
        fitting = [row for row in self.runs.values() if row.fits]
        useful = [row for row in fitting if row.is_whole and (row.task == "load" or row.sequence_length >= least)]
        whole = [row for row in fitting if row.is_whole]
        return next(iter((*_sure(useful), *useful, *_sure(whole), *whole, *fitting)), None)

    @property
    def best_step(self) -> Row | None:
        """What to fine-tune with: the method that changes most of the model, surely if one does."""
        fitting = [row for row in reversed(self.steps.values()) if row.fits]
        return next(iter((*_sure(fitting), *fitting)), None)

    @property
    def fits(self) -> bool:
        """Whether anything does."""
        return self.best_run is not None or self.best_step is not None

    def to_dict(self) -> dict[str, object]:
        """The answers as JSON-able data."""
        return {
            "gpu": self.question.machine.gpu_id,
            "num_gpus": self.question.machine.num_gpus,
            "usable_bytes": self.question.machine.usable_bytes,
            "run": [{"precision": name, **row.to_dict()} for name, row in self.runs.items()],
            "fine_tune": [row.to_dict() for row in self.steps.values()],
            "train": [row.to_dict() for row in self.trained_on],
            "instead": [row.to_dict() for row in self.instead],
        }


def _sure(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row.verdict == "fits"]


def door(question: Question, asked: Sequence[str], rented: Sequence[str] = RENTED_CARDS) -> Door:
    """The three questions on the question's machine; the third for its card and for `rented` ones.

    `asked`: the words that name the model on a command line.
    """
    runs = _runs(question, asked)
    steps = {method.name: row_of(question, best_step(question, method), asked) for method in METHODS}
    own = [question.machine.gpu.id] if question.machine.gpu is not None else []
    cards = dict.fromkeys((*own, *(find_gpu(card).gpu.id for card in rented)))
    found: list[Way | None] = []
    for card in cards:
        found.append(fewest_cards(question, card))
        if found[0] is not None and found[0].machine.num_gpus == 1 and own:
            break  # nobody rents what is there
    trained = tuple(row_of(replace(question, machine=way.machine), way, asked) for way in found if way is not None)
    answer = Door(question, runs, steps, trained)
    runs_whole = any(row.fits and row.is_whole for row in runs.values())
    tunes = answer.best_step is not None
    instead = () if runs_whole and tunes else tuple(_instead(question, run=not runs_whole, tune=not tunes))
    return replace(answer, instead=instead)


def glance(question: Question, asked: Sequence[str]) -> Door:
    """The same in short, for a table of cards: one usual step by each method, full training on more of the card."""
    steps = {method.name: row_of(question, one_step(question, method), asked) for method in METHODS}
    trained: tuple[Row, ...] = ()
    if not steps[FULL.name].fits and question.machine.gpu_id is not None:
        way = fewest_cards(question, question.machine.gpu_id, replays=False)
        if way is not None:
            trained = (row_of(replace(question, machine=way.machine), way, asked),)
    return Door(question, _runs(question, asked), steps, trained)


def glances(
    name: str | Mapping[str, object], model: Model, estimate: Estimate, asked: Sequence[str],
    cards: Sequence[str] = USUAL_CARDS,
) -> dict[str, Door]:  # fmt: skip
    """The short answers for each card."""
    return {card: glance(Question(name, model, machine_of(gpu=card), estimate), asked) for card in cards}


def _runs(question: Question, asked: Sequence[str]) -> dict[str, Row]:
    """The way to run it in each precision; weights as published are what engines with kernels for CUDA read."""
    return {
        precision.title: row_of(question, best_run(question, precision), asked)
        for precision in precisions_of(question.model)
        if precision.title != PUBLISHED or question.machine.runs_cuda_code
    }


def of_its_family(scenario: Scenario, task: str) -> Row | None:
    """The largest smaller model of the family of a scenario's that runs whole, or is fine-tuned, on its machine."""
    try:
        machine = machine_of(**{key: getattr(scenario, key) for key in machine_keys() & scenario.explicit})
        question = Question(scenario.model, described_model(scenario.model)[1], machine, estimate)
    except VramwiseError:
        return None
    return next(
        (row for row in _instead(question, run=task == "serve", tune=task == "train") if row.task == task), None
    )


def _instead(question: Question, *, run: bool, tune: bool) -> Iterator[Row]:
    """The largest smaller model of the family that runs whole on the machine, and the largest that is fine-tuned."""
    for name, bounds in smaller_ones(question):
        may_run = run and bool(whole_files(bounds, question.machine))
        methods = [one for one in (LORA, QLORA) if tune and one.may_fit(bounds.num_parameters, question.machine)]
        if not may_run and not methods:
            continue
        try:
            model = described_model(name)[1]
        except VramwiseError:
            continue
        other = replace(question, name=name, model=model, bounds=bounds)
        if may_run:
            way = best_whole_file(other)
            if way is not None and way.is_sure:
                run = False
                yield row_of(other, way, [name])
        found = next((w for one in methods if (w := fitting_step(other, one)) is not None and w.is_sure), None)
        if found is not None:
            tune = False
            yield row_of(other, found, [name])
        if not run and not tune:
            return
