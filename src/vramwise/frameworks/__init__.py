"""Training frameworks, one record each: NAME.py says what NAME does, and nothing else asks for its name.

A name that a scenario may give (`scenario.names.FRAMEWORKS`) has a file here, `-` written `_`, whose `RECORD` it is.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from vramwise.frameworks.framework import Framework
from vramwise.scenario import TrainSettings
from vramwise.scenario.names import FRAMEWORKS, added_frameworks

__all__ = ["Framework", "framework_named", "framework_of"]


@cache
def framework_named(name: str) -> Framework:
    """The record of a framework by its name in a scenario; its file is imported when it is first asked for."""
    module = f"vramwise.frameworks.{name.replace('-', '_')}" if name in FRAMEWORKS else added_frameworks()[name]
    record: Framework = import_module(module).RECORD
    return record


def framework_of(train: TrainSettings) -> Framework:
    """The record of what runs a training, of the model's type where settings are resolved for one."""
    found = framework_named(train.framework)
    return found.of_types.get(train.model_type, found) if found.of_types else found
