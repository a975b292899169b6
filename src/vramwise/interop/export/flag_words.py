"""An engine's table of flags, which its reader looks up by flag, read the other way: from keys to flags."""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.errors import UsageError
from vramwise.interop.launch.flags import flags_of
from vramwise.interop.launch.values import Meaning

LONG_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""dtypes as engines spell them (vLLM 0.33 config/model.py ModelDType, SGLang 0.5.23 server_args.py)."""


def flag_words(
    engine: str, meanings: Mapping[str, Meaning], settings: Mapping[str, object], negated: frozenset[str] = frozenset()
) -> list[str]:
    """The flags that say `settings`; a switch that is off is written where its key is `negated`: off is no default."""
    words: list[str] = []
    for key, value in settings.items():
        flag = _flag_of(engine, meanings, key)
        if flag is None:
            continue
        if not isinstance(value, bool):
            words += [flag, _text(value)]
        elif flags_of(engine)[flag] == "?":
            words += [flag, "on" if value else "off"]
        elif _means(meanings[flag], "true", value):
            words.append(flag)
        elif key in negated:
            words.append(flag.replace("--", "--no-", 1))
    return words


def _flag_of(engine: str, meanings: Mapping[str, Meaning], key: str) -> str | None:
    """The first flag of a key, a long one before a letter."""
    names = [flag for flag, meaning in meanings.items() if meaning.key == key and flag in flags_of(engine)]
    return next((name for name in names if name.startswith("--")), names[0] if names else None)


def _means(meaning: Meaning, text: str, value: object) -> bool:
    try:
        return meaning.read(text) is value
    except UsageError:
        return False


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return repr(value) if isinstance(value, float) else str(value)


def listed(flag: str, value: object) -> list[str]:
    """A flag that takes several words; nothing where the key is not stated."""
    return [flag, *map(_text, value)] if isinstance(value, list | tuple) and value else []


def stages(variable: str, value: object) -> dict[str, str]:
    """The layers of each pipeline stage as a variable of the environment; nothing where they are not stated."""
    return {variable: _text(value)} if isinstance(value, list | tuple) and value else {}
