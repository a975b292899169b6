"""Flags that change the model's own config before an engine reads it."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UsageError
from vramwise.interop.launch.flags import Words
from vramwise.interop.launch.values import table

WHOLE = ""
"""Stands for the whole config, where a flag changes no single key of it."""


def config_overrides(words: Words, flags: Mapping[str, str]) -> dict[str, object]:
    """`hf_overrides` of a scenario by `flags`, each with the key of the config that it sets; {} where none is given.

    Raises UsageError for what is no JSON object.
    """
    changed: dict[str, object] = {}
    for flag, key in flags.items():
        for text in words.given.get(flag, ())[-1:]:
            try:
                values = table(text)
            except UsageError as problem:
                raise UsageError(f"{flag}: {problem}") from None
            changed |= values if key == WHOLE else {key: values}
    return {"hf_overrides": changed} if changed else {}
