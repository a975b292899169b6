"""What is known by name: models, accelerators, the keys of a scenario, schemas, this program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramwise import __version__
from vramwise.errors import UsageError
from vramwise.scenario.definition import DEFAULTS, KINDS, TABLES, Scenario, Settings
from vramwise.scenario.fields import AllOrSeveral, ModelReference, Several, Table
from vramwise.scenario.nested import group_of
from vramwise.scenario.settings import Owner, ownership_of, title_of
from vramwise.scenario.values import Choice, Fraction, Kind, Size, Switch, Whole
from vramwise.scenario.values import Share as Number
from vramwise.web.bodies import Body, choice_in, only, text_in, whole_in

if TYPE_CHECKING:
    from vramwise.sources.catalog import CatalogEntry

MOST_MODELS = 500
MOST_OF_THE_HUB = 100
FIRST: Mapping[str, Any] = {
    "model": "llama-3.1-8b", "task": "serve", "gpu": "rtx-4090", "serve": {"engine": "vllm", "max_model_len": 8192},
}  # fmt: skip
"""What a page asks while nobody has asked anything."""
TRAINERS = ("sft", "dpo", "kto", "grpo")
"""TRL's trainers that a page offers, plain fine-tuning first."""
_TYPES: dict[type[Kind[Any]], str] = {
    Choice: "choice", Whole: "integer", Size: "size", Fraction: "number", Number: "number", Switch: "boolean",
    Several: "list", AllOrSeveral: "list", Table: "table", ModelReference: "model",
}  # fmt: skip
"""What a page makes of a kind; any other is text."""


def version(body: Body) -> dict[str, Any]:
    """This program, and the names that it answers with a line about each."""
    from vramwise.web.api import ANSWERS

    only(body)
    return {"version": __version__, "names": {name: help for name, (_, help) in ANSWERS.items()}}


def schema(body: Body) -> dict[str, Any]:
    """`{"what": "scenario" | "result" | "case"}`."""
    from vramwise.cli.schema import SCHEMAS

    only(body, "what")
    return SCHEMAS[choice_in(body, "what", list(SCHEMAS), "scenario")]()


def models(body: Body) -> dict[str, Any]:
    """`{"query", "limit"}`: the catalog's models whose names or types hold every word; `near` where none does.

    `task` of each is what runs it: `generate` an image or video pipeline, `serve` any other.
    """
    from vramwise.sources.catalog import entry, names
    from vramwise.sources.known_names import near
    from vramwise.sources.pipelines import pipelines

    only(body, "query", "limit")
    query, limit = text_in(body, "query", "")[:500], whole_in(body, "limit", 20, most=MOST_MODELS)
    found = _found(query.lower().split())
    own = set(names().own)
    found.sort(key=lambda one: (not one.lower().rpartition("/")[2].startswith(query.lower()), one not in own))
    made = pipelines(query)
    told = [*(_model(entry(one)) for one in found[:limit]), *(_model(one, "generate") for one in made)]
    return {
        "models": told[:limit],
        "total": len(found) + len(made),
        "near": [] if told or not query else list(near(query)),
    }


def _found(words: list[str]) -> list[str]:
    from vramwise.sources.catalog import catalog, names

    return [one.id for one in catalog(" ".join(words))] if words else list(names().ids)


def _model(one: CatalogEntry, task: str = "serve") -> dict[str, Any]:
    from vramwise.cli.models import context_and_weights
    from vramwise.models import supported_types
    from vramwise.planner.sizes import num_parameters_of

    context, weights = context_and_weights(one)
    return {
        "id": one.id,
        "aliases": list(one.aliases),
        "model_type": one.model_type,
        "described": task == "generate" or one.model_type in supported_types(),
        "task": task,
        "num_parameters": None if task == "generate" else num_parameters_of(one.id),
        "context": context,
        "weights": weights,
    }


def hub(body: Body) -> dict[str, Any]:
    """`{"query", "limit"}`: `names` on the Hugging Face Hub that hold the query, the most downloaded first.

    Raises UsageError without a query, SourceError where the Hub is not asked or does not answer.
    """
    from vramwise.sources.places import found_on_hub

    only(body, "query", "limit")
    query, limit = text_in(body, "query").strip()[:200], whole_in(body, "limit", 20, most=MOST_OF_THE_HUB)
    if not query:
        raise UsageError("query: expected a part of a model's name")
    return {"names": found_on_hub(query, limit)}


def gpus(body: Body) -> dict[str, Any]:
    """`{"query"}`: the accelerators as `vramwise gpus --json` has them; all of them without a query."""
    from vramwise.cli.gpus import facts_of
    from vramwise.hardware import find_gpu
    from vramwise.hardware import gpus as known

    only(body, "query")
    query = text_in(body, "query", "")[:500]
    return {"gpus": [facts_of(gpu) for gpu in known(query) or [find_gpu(query).gpu]]}


def keys(body: Body) -> dict[str, Any]:
    """Every key that the flags are made from, the owners by name, trainers, and what a page asks first.

    `{"keys": [...], "owners": {...}, "trainers": [...], "first": {...}}`. A trainer is its name, the sequences that a
    sample is, and the settings of `train` that it brings along.
    """
    from vramwise.interop.launch.trl import beside_a_step

    only(body)
    tables: Mapping[str, type[Settings]] = {"": Scenario, **TABLES}
    owners: dict[str, Owner] = {}
    listed = []
    for table, cls in tables.items():
        for key, kind in KINDS[cls].items():
            whose = ownership_of(cls)[key]
            for owner in whose.all:
                owners[_name(owner)] = owner
            listed.append(
                {
                    "table": table,
                    "key": key,
                    "type": _type(kind),
                    **_bounds(kind),
                    "optional": kind.optional,
                    "default": kind.to_json(DEFAULTS[cls][key]),
                    "owners": [_name(owner) for owner in whose.owners],
                    "topic": group_of(cls, key),
                    "help": kind.help,
                }
            )
    steps = {name: beside_a_step(name) for name in TRAINERS}
    return {
        "keys": listed,
        "owners": {name: _owner(owner) for name, owner in owners.items()},
        "trainers": [{"name": name, "sequences": count, "settings": found} for name, (count, found) in steps.items()],
        "first": FIRST,
    }


def _type(kind: Kind[object]) -> str:
    return next((name for cls, name in _TYPES.items() if isinstance(kind, cls)), "text")


def _bounds(kind: Kind[object]) -> dict[str, object]:
    if isinstance(kind, Choice):
        return {"choices": [*kind.names, *(kind.more() if kind.more is not None else ())]}
    if isinstance(kind, Whole):
        return {"minimum": kind.minimum, "maximum": kind.maximum}
    if isinstance(kind, Several | AllOrSeveral) and isinstance(kind.item, Choice):
        return {"choices": list(kind.item.names)}
    if isinstance(kind, Table) and kind.keys is not None:
        return {"keys": list(kind.keys)}
    return {}


def _name(owner: Owner) -> str:
    return owner.table if owner.is_program else owner.needs


def _owner(owner: Owner) -> dict[str, object]:
    """Where it is there: its key holds one of `values`, or anything but `absent`."""
    return {
        "title": title_of(owner), "key": owner.key, "values": list(owner.values), "absent": list(owner.absent),
        "needs": owner.needs, "within": None if owner.within is None else _name(owner.within),
    }  # fmt: skip
