"""Libraries of fused kernels, one record each: NAME.py says what NAME runs in place of which operations.

A name that a scenario may give (`scenario.names.KERNELS`) has a file here, `-` written `_`, whose `RECORD` it is.
What several of them run alike is in `fused`. `litgpt` describes a framework's own layers, which its record names.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module

from vramwise.models.blocks import Modality
from vramwise.models.config import Config
from vramwise.models.overrides import EVERYWHERE, Kernels, Override
from vramwise.models.type_facts import LATEST, Version, fact_value, facts, has_fact

__all__ = ["kernels_for", "kernels_named"]

BY_TEXT_MODEL = "by_text_model"
VISION = "vision_"
Versions = tuple[tuple[str, Version], ...]
"""Libraries with their versions."""


@cache
def kernels_named(name: str) -> Kernels:
    """The record of a library by its name in a scenario; its file is imported when it is first asked for."""
    record: Kernels = import_module(f"vramwise.kernels.{name.replace('-', '_')}").RECORD
    return record


def kernels_for(names: tuple[str, ...], config: Config, versions: Versions = ()) -> tuple[Kernels, ...]:
    """The libraries with what they replace in models of this type, the newest version's where none is given."""
    text = config.table("text_config")
    text_type, given = text.model_type if text is not None else "", dict(versions)
    return tuple(
        _for_types(name, config.model_type, text_type, given.get(name, LATEST)) for name in dict.fromkeys(names)
    )


@cache
def _for_types(name: str, model_type: str, text_type: str, version: Version) -> Kernels:
    library = kernels_named(name)
    usual = fact_value(name, BY_TEXT_MODEL, model_type) if (name, BY_TEXT_MODEL) in facts() else None
    text = model_type if usual is None else text_type or usual
    found = [_for_type(name, override, text, model_type, version) for override in library.overrides]
    return replace(library, overrides=tuple(override for override in found if override.modalities))


def _for_type(name: str, override: Override, text: str, tower: str, version: Version) -> Override:
    if not override.fact:
        return override
    held: set[Modality] = {"text"} if _holds(name, override.fact, text, version) else set()
    if _holds(name, f"{VISION}{override.fact}", tower, version):
        held.add("image")
    return replace(override, modalities=EVERYWHERE & held)


def _holds(name: str, fact: str, model_type: str, version: Version) -> bool:
    return (name, fact) in facts() and has_fact(name, fact, model_type, version)
