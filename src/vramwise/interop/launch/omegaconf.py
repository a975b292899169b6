"""Values that a configuration takes from its other keys and from the environment, as OmegaConf fills them in.

`${output_dir}`, `${model.path}/tokenizer.json`, `${oc.env:NAME}` and `${oc.env:NAME,default}` (OmegaConf 2.3
grammar_visitor.py, resolvers/oc). Nothing is evaluated; what is not known here stays as it is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from vramwise.files import may_look_anywhere

_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]{0,200})\}|\$\{oc\.env:\s*([A-Za-z_]\w{0,200})\s*(?:,([^{}]{0,1000}))?\}")
_DEEPEST = 50
_LONGEST = 10_000
_MOST = 1_000_000
"""Characters that the references of a whole table come to: a small file can name a long text very often."""


def filled_in(table: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    """The entries of a table by dotted names, their texts filled in."""
    known = _Known(table, environment)
    return {name: known.value(name) for name in table}


class _Known:
    """Each entry is filled in once, however many others name it; what names itself stays as it is written."""

    def __init__(self, table: Mapping[str, object], environment: Mapping[str, str]) -> None:
        self._table, self._environment = table, environment
        self._filled: dict[str, object] = {}
        self._open: list[str] = []
        self._left = _MOST

    def value(self, name: str) -> object:
        if name in self._filled:
            return self._filled[name]
        value = self._table.get(name)
        if name in self._open or len(self._open) > _DEEPEST:
            return value
        self._open.append(name)
        self._filled[name] = self._of(value)
        self._open.pop()
        return self._filled[name]

    def _of(self, value: object) -> object:
        if isinstance(value, list):
            return [self._of(one) for one in value] if len(value) < _LONGEST else value
        if not isinstance(value, str) or "${" not in value:
            return value
        alone = _REFERENCE.fullmatch(value)
        if alone is not None:
            found = self._meant(alone)
            return value if found is None and alone.group(1) not in self._table else found
        return _REFERENCE.sub(self._text, value)[:_LONGEST]

    def _text(self, match: re.Match[str]) -> str:
        found = self._meant(match)
        text = match.group() if found is None or isinstance(found, list) else str(found)
        if len(text) > self._left:
            return match.group()
        self._left -= len(text)
        return text

    def _meant(self, match: re.Match[str]) -> object:
        """What a reference stands for, None where nothing says it."""
        key, variable, default = match.groups()
        if key is not None:
            return self.value(key)
        own = os.environ if may_look_anywhere() else {}  # nothing of a server's own environment is given away
        otherwise = None if default is None else default.strip().strip("'\"")
        return self._environment.get(variable, own.get(variable, otherwise))
