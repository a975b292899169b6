"""Types of models that a version of an engine has no class for, and formats that it does not read.

A type without a class is refused, or run by transformers' own class.

vLLM 0.10.2 models/registry.py `inspect_model_cls` and SGLang 0.5.10 model_loader/utils.py look for the class by its
name, then take transformers' where that says that it can be (`is_backend_compatible`), and refuse the model otherwise;
before `others_since` they refuse it at once.
"""

from __future__ import annotations

from vramwise.engines.engine import Engine
from vramwise.errors import Doubt, ScenarioError
from vramwise.models import Model
from vramwise.models.type_facts import fact_of
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.storage import Storage, quantization_method
from vramwise.serving.common.versions import Version, at_version, shown_version


def check_class(engine: Engine, settings: ServeSettings, model: Model, version: Version) -> tuple[str, ...]:
    """Raise ScenarioError where the version cannot run the model for want of a class; a note where another's may do.

    A build between two releases (`0.6.6.post2.dev242`) may have what the second brought.
    """
    kind = str(model.config.model_type)
    row = fact_of(engine.name, "no_class", kind, version)
    if row is None or "dev" in (settings.engine_version or ""):
        return ()
    which = ""
    if row.value:
        which = f"{row.value} {'was the last' if row.stop is None else 'is the first'}"
    name = at_version(engine.title, version)
    if version < engine.others_since:
        way_out = f"say engine_version {row.value} or newer" if row.stop is not None else "take another engine"
        also = f"; {which}" if which else ""
        raise ScenarioError(
            "serve.engine_version",
            f"{name} has no class for {kind} ({engine.classes}{also}) and refuses it: {way_out}",
        )
    also = f" ({which})" if which else ""
    return (
        Doubt(
            f"{name} has no class of its own for {kind}{also}: it runs transformers' where that can be, which this "
            "answer does not follow, and refuses the model otherwise"
        ),
    )


def check_format_is_known(engine: Engine, model: Model, storage: Storage, version: Version) -> None:
    """Raise ScenarioError for a checkpoint whose format came with a later version."""
    method, rule = quantization_method(model), storage.quantization
    kind = f"{method} {rule.layout}" if rule is not None else method
    named = kind if kind in engine.formats_since else method
    since = engine.formats_since.get(named, ())
    if version < since:
        first = shown_version(since)
        raise ScenarioError(
            "serve.engine_version",
            f"{at_version(engine.title, version)} does not know {named} weights ({engine.formats}; {first} is the "
            f"first): say engine_version {first} or newer",
        )
