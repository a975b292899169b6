"""Environment variables that stand for flags: `LLAMA_ARG_CTX_SIZE=8192`, `MODEL_ID=…` of text-generation-inference.

A flag on the command line wins over its variable, as in the engines, whose readers say which flag a variable means.
"""

from __future__ import annotations

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.values import switch


def switched(name: str, flag: str, value: str, can_be_off: bool) -> list[str]:
    """The word of a switch. Raises UsageError for a value that is neither on nor off."""
    try:
        on = switch(value)
    except UsageError as problem:
        raise UsageError(f"{clipped(name)}: {problem}") from None
    if on:
        return [flag]
    return [off(flag)] if can_be_off else []


def off(flag: str) -> str:
    """The flag that turns a switch off."""
    return flag.replace("--", "--no-", 1)
