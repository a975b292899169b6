"""Dataclass fields that carry the kind of their values (how they are read, checked, described, made a flag), and whose
setting they are.

What a helper returns is what the field holds, so that a field's annotation is checked against its kind and default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypedDict, TypeVar, Unpack, overload

from vramwise.scenario import names
from vramwise.scenario.containers import Several
from vramwise.scenario.owners import Owner, Owners
from vramwise.scenario.settings import INSIDE, KIND, OWNER, UNCOUNTED
from vramwise.scenario.values import Kind, Size, Switch, Text, Whole, choice_kind, optional_choice_kind

V = TypeVar("V")
D = TypeVar("D")


class Whose(TypedDict, total=False):
    """Whose a key is.

    `owner`: those that have such a setting and whose answer follows it, everybody where none is named; `uncounted`:
    those that have it too, but whose answer leaves it out; `inside`: a nested table and its name in there, for what
    has no owner of that table.
    """

    owner: Owner | Owners
    uncounted: Owners
    inside: str


def key(kind: Kind[V], default: D, *, hash: bool | None = None, **whose: Unpack[Whose]) -> V | D:
    """A field of this kind."""
    owner = whose.get("owner", ())
    owners = (owner,) if isinstance(owner, Owner) else owner
    metadata = {
        KIND: kind, OWNER: owners, UNCOUNTED: whose.get("uncounted", ()), INSIDE: whose.get("inside", ""),
    }  # fmt: skip
    return field(default=default, hash=hash, metadata=metadata)


def choice(
    help: str, names_: Sequence[str], spellings: Mapping[str, str] | None = None, *, default: str | None = None,
    more: Callable[[], Mapping[str, object]] | None = None, meant: Mapping[str, str] | None = None,
    **whose: Unpack[Whose],
) -> str:  # fmt: skip
    """One of several names, the first where none is given; `more`: names that plug-ins add; `meant` as in `maybe`."""
    return key(choice_kind(help, names_, spellings, more, meant), default or names_[0], **whose)


def maybe(
    help: str, names_: Sequence[str], spellings: Mapping[str, str | None] | None = None, *,
    meant: Mapping[str, str] | None = None, **whose: Unpack[Whose],
) -> str | None:  # fmt: skip
    """One of several names, or open; `meant`: what people look for who write something else."""
    return key(optional_choice_kind(help, names_, spellings, meant), None, **whose)


def dtype_name(help: str, names_: Sequence[str] = names.DTYPES, **whose: Unpack[Whose]) -> str | None:
    return maybe(help, names_, names.DTYPE_SPELLINGS, **whose)


@overload
def whole(help: str, default: None = None, *, minimum: int = 1, **whose: Unpack[Whose]) -> int | None: ...
@overload
def whole(help: str, default: int, *, minimum: int = 1, **whose: Unpack[Whose]) -> int: ...
def whole(help: str, default: int | None = None, *, minimum: int = 1, **whose: Unpack[Whose]) -> int | None:
    return key(Whole(help=help, optional=default is None, minimum=minimum), default, **whose)


@overload
def switch(help: str, default: None = None, **whose: Unpack[Whose]) -> bool | None: ...
@overload
def switch(help: str, default: bool, **whose: Unpack[Whose]) -> bool: ...
def switch(help: str, default: bool | None = None, **whose: Unpack[Whose]) -> bool | None:
    return key(Switch(help=help, optional=default is None), default, **whose)


def size(help: str, **whose: Unpack[Whose]) -> int | None:
    return key(Size(help=help, optional=True), None, **whose)


def text(help: str, **whose: Unpack[Whose]) -> str | None:
    return key(Text(help=help, optional=True), None, **whose)


def texts(help: str, *, separator: str | None = ",", **whose: Unpack[Whose]) -> tuple[str, ...]:
    return key(Several(help=help, item=Text(help="one name"), separator=separator), (), **whose)
