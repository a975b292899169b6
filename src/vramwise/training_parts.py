"""What of a training's answer is asked for by itself: its settings as decided, its need at any size, its time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vramwise.errors import UndescribedTypeError
from vramwise.estimation import as_found, model_of, on_this_machine
from vramwise.hardware.room import card_of
from vramwise.records import replace
from vramwise.scenario import Scenario
from vramwise.site import THE_USERS, kept_in_force, site_in_use, using

if TYPE_CHECKING:
    from vramwise.training.many import AnySize
    from vramwise.training.resolved import ResolvedTrain
    from vramwise.training.speed import StepTime
    from vramwise.training.speed.over_links import OverLink


def at_any_size(scenario: Scenario) -> AnySize:
    """A training without its sizes: decided once, with the need of each size that is asked for afterwards.

    Raises what `estimate` raises of the model and its settings.
    """
    from vramwise.training.many import any_size

    scenario = on_this_machine(scenario)
    with using(site_in_use(THE_USERS), scenario.driver):
        found, model = model_of(scenario)
        sized = any_size(as_found(scenario, found)[0], model, card_of(scenario)[0])
        needed = None if sized.needed is None else kept_in_force(sized.needed)
        return replace(sized, needed=needed)


def as_resolved(scenario: Scenario) -> ResolvedTrain:
    """A training's settings with every open one decided. Raises what `estimate` raises of them."""
    from vramwise.training.recipe.settings import resolved

    found, model = model_of(scenario)
    return resolved(as_found(scenario, found)[0], model, card_of(scenario)[0])


def tokens_per_second(scenario: Scenario) -> float | None:
    """`estimate(scenario).quantities["tokens_per_second"].expected` of a training, and nothing else of the answer.

    None where it has none. Raises what `estimate` raises of the model and its settings.
    """
    taken = _step_time(scenario)
    return None if taken is None else float(taken.tokens_per_second.expected)


def parts_of_step(scenario: Scenario) -> Mapping[str, float]:
    """Seconds of a training's step by what takes them; empty where it has no time. Raises as `tokens_per_second`."""
    taken = _step_time(scenario)
    return {} if taken is None else taken.parts


def _step_time(scenario: Scenario) -> StepTime | None:
    from vramwise.models.lengths import reads_tokens
    from vramwise.training.answer import at_usual_length
    from vramwise.training.job import job_of
    from vramwise.training.speed import step_time

    found, model = model_of(scenario)
    scenario, _ = as_found(scenario, found)
    job = job_of(scenario, model, card_of(scenario)[0])
    if job.gpu is None or not job.gpu.has_rates or not reads_tokens(model):
        return None
    return step_time(at_usual_length(job))


def steps_over_links(scenario: Scenario) -> tuple[OverLink, ...]:
    """A training's step on NVLink, PCIe and Ethernet, the fastest first; none where it has no time or one card.

    Raises what `estimate` raises of the model and its settings.
    """
    from vramwise.training.answer import at_usual_length
    from vramwise.training.job import job_of
    from vramwise.training.speed.over_links import over_links

    scenario = on_this_machine(scenario)
    try:
        found, model = model_of(scenario)
    except UndescribedTypeError:
        return ()
    scenario, _ = as_found(scenario, found)
    return over_links(at_usual_length(job_of(scenario, model, card_of(scenario)[0])))
