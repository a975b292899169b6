"""The rules of an engine, found by its record."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from vramwise.engines import engine_named
from vramwise.serving.common.rules import Rules


@cache
def rules_of(name: str) -> Rules:
    """The functions of an engine, by its name in a scenario; its package is imported when it is first asked for."""
    package = engine_named(name).serving
    rules: Rules = import_module(package if "." in package else f"vramwise.serving.{package}.rules").RULES
    return rules
