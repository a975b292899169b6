"""Libraries of fused kernels, one record each: NAME.py says what NAME runs in place of which operations.

What has a file here, `-` written `_`, a scenario may name (`scenario.names.KERNELS`); its `RECORD` is the library.
What several of them run alike is in `fused`. A framework's own layers (`scenario.names.LAYERS`)
are records too, which its own names.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module

from vramwise.models.blocks import Modality
from vramwise.models.config import Config
from vramwise.models.execution import EVERYWHERE, Kernels, Override
from vramwise.models.type_facts import LATEST, Version, fact_value, facts, has_fact
from vramwise.scenario.names import KERNELS, LAYERS, added_kernels

__all__ = ["Kernels", "Override", "kernels_for", "kernels_named"]

BY_TEXT_MODEL = "by_text_model"
VISION = "vision_"
Versions = tuple[tuple[str, Version], ...]
"""Libraries with their versions."""


@cache
def kernels_named(name: str) -> Kernels:
    """The record of a library by its name in a scenario; its file is imported when it is first asked for."""
    known = name in KERNELS or name in LAYERS
    module = f"vramwise.kernels.{name.replace('-', '_')}" if known else added_kernels()[name]
    record: Kernels = import_module(module).RECORD
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
    programs = (name, library.like) if library.like else (name,)
    usual = next(
        (fact_value(one, BY_TEXT_MODEL, model_type) for one in programs if (one, BY_TEXT_MODEL) in facts()), None
    )
    text = model_type if usual is None else text_type or usual
    found = [_for_type(programs, override, text, model_type, version) for override in library.overrides]
    return replace(library, overrides=tuple(override for override in found if override.modalities))


def _for_type(programs: tuple[str, ...], override: Override, text: str, tower: str, version: Version) -> Override:
    if not override.fact:
        return override
    held: set[Modality] = {"text"} if _holds(programs, override.fact, text, version) else set()
    if _holds(programs, f"{VISION}{override.fact}", tower, version):
        held.add("image")
    return replace(override, modalities=EVERYWHERE & held)


def _holds(programs: tuple[str, ...], fact: str, model_type: str, version: Version) -> bool:
    return any((one, fact) in facts() and has_fact(one, fact, model_type, version) for one in programs)
