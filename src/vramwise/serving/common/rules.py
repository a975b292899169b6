"""What an engine answers in its own way: the functions of its package, by the question that they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.records import record
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.advice import Again
from vramwise.serving.common.layouts import engine_weights, server_storage
from vramwise.serving.common.storage import Storage

OWN_NAMES: Mapping[str, str] = MappingProxyType({})


def refuses_nothing(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[str, ...]:
    """The check of an engine of which no refusal is known."""
    return ()


def tensors_alone(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None) -> Node:
    """The weights of an engine that keeps nothing beside the tensors."""
    return engine_weights(model, settings, storage)


@record(kw_only=True)
class WeightRules:
    """How the engine holds weights where nothing else is asked.

    `storage(model, settings, gpu)`: their dtype and format. `weights(model, settings, storage, gpu)`: those of one
    rank, of the heaviest stage, with what loading leaves beside them.
    """

    storage: Callable[[Model, ServeSettings, Gpu | None], Storage] = server_storage
    weights: Callable[[Model, ServeSettings, Storage, Gpu | None], Node] = tensors_alone


@record(kw_only=True)
class ShareParts:
    """How the engine's share of a card is told as its parts.

    `inside(settings, gpu, quantities)`: names of the terms of the last moment that lie in the share. `taken_first`:
    terms that the card is less before the share is taken of it. `called`: terms with another name in the engine's own
    words. `of_free`: the share is of what is free at the start, else of the whole card.
    """

    inside: Callable[[ServeSettings, Gpu | None, Mapping[str, Quantity]], frozenset[str]]
    taken_first: tuple[str, ...] = ()
    called: Mapping[str, str] = field(default_factory=lambda: OWN_NAMES)
    of_free: bool = False


@record(kw_only=True)
class Rules:
    """The functions of one engine, `RULES` of its `rules.py`.

    `estimate(scenario, model, source, gpu, again)`: the answer to `serve`; `again` answers a changed scenario, with
    which it finds what would fit. `check(scenario, model, gpu)`: raises ScenarioError
    for what the engine refuses, and returns what it runs with a warning. `weights`: None where only the whole answer
    tells them. `needs(scenario, model, gpu)`: `total_needed` and the largest moment alone, also where `max_model_len`
    stands for many; None where that is not said apart from the answer. `share`: None where the share of the card is
    not told as parts, or there is none.
    """

    estimate: Callable[[Scenario, Model, str, Gpu | None, Again], Result]
    check: Callable[[Scenario, Model, Gpu | None], tuple[str, ...]] = refuses_nothing
    weights: WeightRules | None = None
    needs: Callable[[Scenario, Model, Gpu | None], tuple[Quantity, str]] | None = None
    share: ShareParts | None = None
