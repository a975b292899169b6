"""Dataclass fields that carry the kind of their values: how they are read, checked, described and made a flag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from vramwise.scenario import names
from vramwise.scenario.values import Kind, Several, Size, Switch, Text, Whole, choice_kind

KIND = "kind"


def key(kind: Kind, default: Any = None, *, hash: bool | None = None) -> Any:
    return field(default=default, hash=hash, metadata={KIND: kind})


def choice(help: str, names_: Sequence[str], spellings: Mapping[str, str | None] | None = None) -> Any:
    return key(choice_kind(help, names_, spellings), names_[0])


def maybe(help: str, names_: Sequence[str], spellings: Mapping[str, str | None] | None = None) -> Any:
    return key(choice_kind(help, names_, spellings, optional=True))


def dtype_name(help: str, names_: Sequence[str] = names.DTYPES) -> Any:
    return maybe(help, names_, names.DTYPE_SPELLINGS)


def whole(help: str, default: int | None = None, *, minimum: int = 1) -> Any:
    return key(Whole(help=help, optional=default is None, minimum=minimum), default)


def switch(help: str, default: bool | None = None) -> Any:
    return key(Switch(help=help, optional=default is None), default)


def size(help: str) -> Any:
    return key(Size(help=help, optional=True))


def text(help: str) -> Any:
    return key(Text(help=help, optional=True))


def texts(help: str, *, separator: str | None = ",") -> Any:
    return key(Several(help=help, item=Text(help="one name"), separator=separator), ())
