"""Dataclass fields that carry the kind of their values: how they are read, checked, described and made a flag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, TypedDict, Unpack

from vramwise.scenario import names
from vramwise.scenario.values import Kind, Several, Size, Switch, Text, Whole, choice_kind

KIND, OWNER, UNCOUNTED = "kind", "owner", "uncounted"

Engines = tuple[str, ...]


class Whose(TypedDict, total=False):
    """Which engines a key belongs to: `key` says how."""

    owner: Engines
    uncounted: Engines


def key(
    kind: Kind, default: Any = None, *, hash: bool | None = None, owner: Engines = (), uncounted: Engines = ()
) -> Any:  # fmt: skip
    """A field of this kind.

    `owner`: the engines that have such a setting and whose answer follows it, all where none is named; `uncounted`:
    those that have it too, but whose answer leaves it out.
    """
    return field(default=default, hash=hash, metadata={KIND: kind, OWNER: owner, UNCOUNTED: uncounted})


def choice(
    help: str, names_: Sequence[str], spellings: Mapping[str, str | None] | None = None, **engines: Unpack[Whose]
) -> Any:  # fmt: skip
    return key(choice_kind(help, names_, spellings), names_[0], **engines)


def maybe(
    help: str, names_: Sequence[str], spellings: Mapping[str, str | None] | None = None, **engines: Unpack[Whose]
) -> Any:  # fmt: skip
    return key(choice_kind(help, names_, spellings, optional=True), **engines)


def dtype_name(help: str, names_: Sequence[str] = names.DTYPES) -> Any:
    return maybe(help, names_, names.DTYPE_SPELLINGS)


def whole(help: str, default: int | None = None, *, minimum: int = 1, **engines: Unpack[Whose]) -> Any:
    return key(Whole(help=help, optional=default is None, minimum=minimum), default, **engines)


def switch(help: str, default: bool | None = None, **engines: Unpack[Whose]) -> Any:
    return key(Switch(help=help, optional=default is None), default, **engines)


def size(help: str, **engines: Unpack[Whose]) -> Any:
    return key(Size(help=help, optional=True), **engines)


def text(help: str, **engines: Unpack[Whose]) -> Any:
    return key(Text(help=help, optional=True), **engines)


def texts(help: str, *, separator: str | None = ",", **engines: Unpack[Whose]) -> Any:
    return key(Several(help=help, item=Text(help="one name"), separator=separator), (), **engines)
