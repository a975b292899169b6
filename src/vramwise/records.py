"""`@record`: a frozen dataclass with slots that costs little until it is used.

`dataclasses.dataclass` writes and compiles up to six methods of every class while it is imported, and one estimate
imports some 200 classes: half of the time of a cold command. Records share all methods but `__init__`, which is
written and compiled when the first instance is made. To type checkers (PEP 681) and to `fields`, `replace` and
`asdict` of `dataclasses` a record is a frozen dataclass, and each may inherit from the other. Assignment is refused by
type checkers alone: a guard at run time makes instances five times slower to build. `__post_init__`, `ClassVar` and
`field(...)` are as in a dataclass, but that `field(init=False)` is left to `__post_init__`; `InitVar` and `order` are
not known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def record(cls: type[_T], /) -> type[_T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def record(
    *, kw_only: bool = False, eq: bool = True, repr: bool = True, slots: bool = True, frozen: bool = True
) -> Callable[[type[_T]], type[_T]]: ...
def record(
    cls: Any = None, /, *, kw_only: bool = False, eq: bool = True, repr: bool = True, slots: bool = True,
    frozen: bool = True,
) -> Any:  # fmt: skip
    """The class as a frozen dataclass with slots.

    `eq=False` and `repr=False`: these as in its base; `slots=False`: with a `__dict__`; `frozen=False`: it may
    be changed.
    """
    if cls is None:
        return lambda decorated: _made(decorated, kw_only, eq, repr, slots, frozen)
    return _made(cls, kw_only, eq, repr, slots, frozen)


class _Attribute(NamedTuple):
    kind: Any
    default: Any
    """A value, a `Field` or MISSING."""
    kw_only: bool


if TYPE_CHECKING:
    from dataclasses import replace as replace  # which checks the names and types of what is replaced
else:

    def replace(one, /, **changes):
        """`dataclasses.replace` for a record, in a third of the time."""
        cls = one.__class__
        if "__given__" not in cls.__dict__:
            return dataclasses.replace(one, **changes)
        kept = {name: getattr(one, name) for name in cls.__given__ if name not in changes}
        return cls(**kept, **changes)


def names_of(cls: Any) -> tuple[str, ...]:
    """The names of the fields of a record or dataclass, those of its bases first."""
    return tuple(cls.__attributes__ if "__attributes__" in cls.__dict__ else cls.__dataclass_fields__)


_Attributes = dict[str, _Attribute]


class _Fields:
    """`__dataclass_fields__`, worked out by `dataclasses` when somebody asks for it."""

    def __get__(self, _: object, cls: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"__doc__": "", "__annotations__": {}}
        for name, (kind, default, kw_only) in cls.__attributes__.items():
            body["__annotations__"][name] = kind
            body[name] = default if isinstance(default, Field) else field(default=default, kw_only=kw_only)
        shown: Any = dataclass(init=False, repr=False, eq=False)(type(cls.__name__, (), body))
        found: dict[str, Any] = shown.__dataclass_fields__
        cls.__dataclass_fields__ = found
        return found


def _made(cls: Any, kw_only: bool, eq: bool, repr: bool, slots: bool, frozen: bool) -> Any:
    inherited: _Attributes = {}
    for base in cls.__mro__[:0:-1]:
        if "__attributes__" in base.__dict__:
            inherited |= base.__attributes__
        elif "__dataclass_fields__" in base.__dict__:
            inherited |= {
                one.name: _Attribute(one.type, one, one.kw_only) for one in base.__dataclass_fields__.values()
            }
    own = dict(_own(cls.__dict__, kw_only))
    attributes = inherited | own
    added: dict[str, Any] = {
        "__attributes__": attributes,
        "__dataclass_fields__": _Fields(),
        "__dataclass_params__": _FROZEN if frozen else _CHANGING,
        "__match_args__": tuple(name for name, one in attributes.items() if not one.kw_only),
        "__given__": tuple(name for name, one in attributes.items() if not _is_field_without(one.default, "init")),
        "__setattr__": object.__setattr__,  # a frozen dataclass that it inherits from has another
    }
    if repr:
        added["__repr__"] = cls.__dict__.get("__repr__", _repr)
    if eq:
        compared = [name for name, one in attributes.items() if not _is_field_without(one.default, "compare")]
        hashed = [name for name in compared if not _is_field_without(attributes[name].default, "hash")]
        added["__compared__"] = attrgetter(*compared) if compared else type
        added["__hashed__"] = attrgetter(*hashed) if hashed else type
        added["__eq__"] = cls.__dict__.get("__eq__", _equal)
        added["__hash__"] = cls.__dict__.get("__hash__") or (_kept_hash if hasattr(cls, "kept_hash") else _hash)
    made = _with_slots(cls, own, inherited, added) if slots else _with_dict(cls, own, added)

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        by_name = not slots and not made.__match_args__ and not hasattr(made, "__post_init__")
        made.__init__ = _init_by_name(made) if by_name else _written_init(made)
        made.__init__(self, *args, **given)

    made.__init__ = __init__
    return made


def _with_slots(cls: Any, own: _Attributes, inherited: _Attributes, added: dict[str, Any]) -> Any:
    """The class anew: slots are given when a class is made."""
    body = {name: value for name, value in cls.__dict__.items() if name not in own and name not in _OF_PLAIN_CLASSES}
    slots = tuple(name for name in own if name not in inherited)
    made: Any = type(cls)(cls.__name__, cls.__bases__, {**body, **added, "__slots__": slots})
    made.__qualname__ = cls.__qualname__
    return made


def _with_dict(cls: Any, own: _Attributes, added: dict[str, Any]) -> Any:
    for name, one in own.items():
        if isinstance(one.default, Field):
            if one.default.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default.default)
    for name, value in added.items():
        setattr(cls, name, value)
    return cls


def _own(body: Any, kw_only: bool) -> Iterator[tuple[str, _Attribute]]:
    for name, kind in body.get("__annotations__", {}).items():
        if not str(kind).startswith("ClassVar"):
            default = body.get(name, MISSING)
            stated = default.kw_only if isinstance(default, Field) else MISSING
            yield name, _Attribute(kind, default, kw_only if stated is MISSING else bool(stated))


def _init_by_name(cls: Any) -> Callable[..., None]:
    """The same for fields that all come by their names into a `__dict__`: nothing to compile, which takes tables of a
    hundred settings longer than all else that they take."""
    template: dict[str, Any] = {}
    factories: dict[str, Callable[[], Any]] = {}
    for name, (_, default, _) in cls.__attributes__.items():
        if isinstance(default, Field):
            if not default.init:
                continue
            if default.default_factory is not MISSING:
                factories[name] = default.default_factory
            default = default.default
        template[name] = default
    required = [name for name, default in template.items() if default is MISSING and name not in factories]

    def __init__(self: Any, /, **given: Any) -> None:
        values = self.__dict__
        values.update(template)
        values.update(given)
        if len(values) != len(template):
            raise TypeError(f"{cls.__qualname__} has no {', '.join(sorted(given.keys() - template.keys()))}")
        for name, new in factories.items():
            if values[name] is MISSING:
                values[name] = new()
        for name in required:
            if values[name] is MISSING:
                raise TypeError(f"{cls.__qualname__} needs {name}")

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def _written_init(cls: Any) -> Callable[..., None]:
    """`def __init__(self, a, b=_b, *, c): self.a = a; self.b = b; self.c = c`, compiled."""
    known: dict[str, Any] = {"_MISSING": MISSING}
    positional: list[str] = []
    by_keyword: list[str] = []
    lines: list[str] = []
    for name, (_, default, kw_only) in cls.__attributes__.items():
        value, has_default = name, default is not MISSING
        if isinstance(default, Field):
            if not default.init:
                continue
            if default.default_factory is not MISSING:
                known[f"_new_{name}"] = default.default_factory
                value = f"_new_{name}() if {name} is _MISSING else {name}"
            has_default = default.default is not MISSING or default.default_factory is not MISSING
            default = default.default
        known[f"_{name}"] = default
        (by_keyword if kw_only else positional).append(f"{name}=_{name}" if has_default else name)
        lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *by_keyword] if by_keyword else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), known)
    written: Callable[..., None] = known["__init__"]
    written.__qualname__ = f"{cls.__qualname__}.__init__"
    return written


def _is_field_without(default: Any, use: str) -> bool:
    return isinstance(default, Field) and getattr(default, use) not in (True, None)


def _repr(self: Any) -> str:
    shown = (
        name for name, one in self.__attributes__.items() if not isinstance(one.default, Field) or one.default.repr
    )
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self.__compared__(self) == self.__compared__(other)


def _hash(self: Any) -> int:
    return hash(self.__hashed__(self))


def _kept_hash(self: Any) -> int:
    """Of a class with a slot of this name: worked out once."""
    try:
        return int(self.kept_hash)
    except AttributeError:
        self.kept_hash = found = _hash(self)
        return found


class _Parameters:
    """`__dataclass_params__`, made when a dataclass asks its bases whether they are frozen."""

    def __init__(self, *, frozen: bool) -> None:
        self._frozen = frozen

    def __get__(self, _: object, cls: Any) -> Any:
        plain: Any = type("Plain", (), {"__doc__": ""})
        return dataclass(frozen=self._frozen, init=False, eq=False, repr=False)(plain).__dataclass_params__


_FROZEN, _CHANGING = _Parameters(frozen=True), _Parameters(frozen=False)
_OF_PLAIN_CLASSES = ("__dict__", "__weakref__")
