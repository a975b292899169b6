"""Flags that change the model's own config before an engine reads it."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.interop.launch.command import settings_of
from vramwise.interop.launch.flags import Words
from vramwise.interop.launch.values import Meaning, table

WHOLE = ""
"""Stands for the whole config, where a flag changes no single key of it."""


def config_overrides(words: Words, flags: Mapping[str, str]) -> dict[str, object]:
    """`hf_overrides` of a scenario by `flags`, each with the key of the config that it sets; {} where none is given.

    Raises UsageError for what is no JSON object.
    """
    found = settings_of(words, {flag: Meaning(key, table) for flag, key in flags.items()})
    whole = found.pop(WHOLE, {})
    assert isinstance(whole, dict)
    changed = whole | found
    return {"hf_overrides": changed} if changed else {}
