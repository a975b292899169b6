"""The catalog against one machine: how each model runs, and how it is fine-tuned, the largest first.

What cannot fit by its weights alone costs nothing; what is left is searched by estimates, and every row is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial

from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.estimation import described_model, estimate
from vramwise.planner.beside import Beside
from vramwise.planner.families import members
from vramwise.planner.machine import Machine, machine_of
from vramwise.planner.recorded_shapes import keep, recall
from vramwise.planner.rows import Row, row_of
from vramwise.planner.running import Wanted, best_serving, may_be_whole
from vramwise.planner.sizes import by_size, known_bounds, num_parameters_of
from vramwise.planner.tuning import best_tuning, may_be_tuned
from vramwise.planner.ways import Question
from vramwise.records import record, replace
from vramwise.sources.catalog import entry, names

TASKS = ("serve", "train")
USUAL_BITS = 4.25
LEAST_BITS = 3.4
"""Bits of a weight in the narrowest of the usual 4-bit types, and in the narrowest file type that is tried."""
SPARED = 4
"""How many times the room a file may have whose rest stays on the host."""


@record
class Candidates:
    """Models to try on a machine, the largest first."""

    machine: Machine
    tasks: tuple[str, ...]
    ids: tuple[str, ...]
    smallest: tuple[str, int] | None
    """The smallest model that was asked for, whatever the room, with its parameters."""


def candidates(
    machine: Machine, *, tasks: Sequence[str] = TASKS, family: str | None = None,
    least: float = 0, most: float = float("inf"), whole: bool = False,
) -> Candidates:  # fmt: skip
    """Models of the catalog, or of a family of it, with so many parameters, that the room does not rule out.

    `whole`: only those that the room may hold whole in a usual file.

    Raises UsageError for a range that holds nothing, UnknownNameError for an unknown family.
    """
    if least > most:
        raise UsageError(f"params: from {least:,.0f} to {most:,.0f} holds no number of parameters")
    ids = members(family) if family is not None else names().ids
    sized = [(size, one) for one in ids if (size := num_parameters_of(one)) is not None and least <= size <= most]
    room = machine.room_bytes * (1 if whole else SPARED)
    bits = USUAL_BITS if whole else LEAST_BITS
    found = by_size(one for size, one in sized if size * bits / 8 <= room)
    smallest = min(sized, default=None)
    return Candidates(machine, tuple(tasks), tuple(found), None if smallest is None else (smallest[1], smallest[0]))


def rows_of(
    model_id: str, machine: Machine, tasks: Sequence[str], *, replays: bool = True, cached: bool = False,
    wanted: Wanted | None = None,
) -> tuple[Row, ...]:  # fmt: skip
    """The rows of a model that fit on the machine: the best way to run it, the best way to fine-tune it.

    `cached`: with descriptions and shapes from the user's cache folder, where new ones are kept. `wanted`: precisions
    in which running it whole is of use, or methods where training alone is asked; whether there is a row where it runs
    or trains in no such way is left open.
    """
    if not tasks:
        return ()
    if cached:
        recall(model_id)
    try:
        model = described_model(model_id)[1]
    except VramwiseError:
        return ()
    question = Question(model_id, model, machine, estimate, known_bounds(model_id))
    ways = []
    if "serve" in tasks:
        ways.append(best_serving(question, wanted))
    if "train" in tasks:
        ways.append(best_tuning(question, wanted if "serve" not in tasks else None, replays=replays))
    rows = tuple(row_of(question, way, [model_id]) for way in ways if way is not None and way.fits)
    if cached:
        keep(model_id)
    return rows


def may_do_well(model_id: str, machine: Machine, task: str, wanted: Wanted) -> bool:
    """Whether a model may lie on the machine whole in a precision that is wanted, or be trained by such a method: else
    none is worth an estimate."""
    bounds = known_bounds(model_id)
    if bounds is None:
        return False
    if task == "train":
        return may_be_tuned(bounds.num_parameters, machine, wanted)
    return may_be_whole(bounds, machine, wanted)


def first_rows(model_id: str, machine: Machine, task: str, wanted: Wanted, *, replays: bool) -> tuple[Row, ...]:
    """How a model runs, or is trained: none where that is sure to be in no way that is wanted."""
    if not may_do_well(model_id, machine, task, wanted):
        return ()
    return rows_of(model_id, machine, (task,), replays=replays, cached=True, wanted=wanted)


def rows_by_model(
    asked: Candidates, *, replays: bool = True, cached: bool = False, beside: Beside | None = None
) -> Iterator[tuple[str, tuple[Row, ...]]]:
    """The rows of each model, in order; models of one description share the work, which processes do `beside`."""
    work = partial(_rows_of_one, asked, replays=replays, cached=cached)
    first: dict[str, str] = {}
    for one in asked.ids:
        first.setdefault(description_of(one), one)
    answers = map(work, first.values()) if beside is None else beside.in_order(work, first.values())
    known: dict[str, tuple[Row, ...]] = {}
    for one in asked.ids:
        if description_of(one) not in known:
            known[description_of(one)] = next(answers)
        yield one, tuple(row.of(one) for row in known[description_of(one)])


def _rows_of_one(asked: Candidates, model_id: str, *, replays: bool, cached: bool) -> tuple[Row, ...]:
    return rows_of(model_id, asked.machine, asked.tasks, replays=replays, cached=cached)


@cache
def description_of(model_id: str) -> str:
    """What two models have in common that differ by their names alone."""
    found = entry(model_id)
    return repr((found.model_type, found.hyperparameters))


def fit(
    gpu: str | None = None, *, num_gpus: int | None = None, task: str | None = None, family: str | None = None,
    params: tuple[float, float] | None = None, models: Iterable[str] | None = None, replays: bool = True,
    **machine: object,
) -> list[Row]:  # fmt: skip
    """What of the catalog fits on a machine: rows of models, the largest first.

    `gpu`, `num_gpus` and what else a scenario says of its machine (`gpu_total_bytes=…`); `task`: `serve` or `train`
    alone; `family`: `qwen`, `llama`, a model type; `params`: least and most parameters; `models`: these alone.
    `replays`: whether training rows are held against a replay of torch's allocator, as `estimate` does.
    Raises UsageError for a task that is none and where nothing says how much memory there is, ScenarioError for a wrong
    value, UnknownNameError for an unknown card.
    """
    if task is not None and task not in TASKS:
        raise UsageError(f"task: expected {' or '.join(TASKS)}, got {task!r}")
    least, most = _ends(params)
    here = machine_of(gpu=gpu, num_gpus=num_gpus, **machine)
    asked = candidates(here, tasks=(task,) if task else TASKS, family=family, least=least, most=most)
    if models is not None:
        chosen = set(models)
        asked = replace(asked, ids=tuple(one for one in asked.ids if one in chosen))
    return [row for _, rows in rows_by_model(asked, replays=replays) for row in rows]


def _ends(params: object) -> tuple[float, float]:
    """The least and the most parameters; any where nobody says. Raises UsageError for what are no two numbers."""
    if params is None:
        return 0, float("inf")
    ends = tuple(params) if isinstance(params, tuple | list) else ()
    if len(ends) != 2 or not all(isinstance(end, int | float) for end in ends):
        given = clipped(str(params))
        raise UsageError(f"params: expected the least and the most parameters, such as (7e9, 32e9), got {given}")
    return float(ends[0]), float(ends[1])
