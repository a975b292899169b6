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

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def record(cls: type[_T], /) -> type[_T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def record(*, kw_only: bool = False, eq: bool = True) -> Callable[[type[_T]], type[_T]]: ...
def record(cls: Any = None, /, *, kw_only: bool = False, eq: bool = True) -> Any:
    """The class as a frozen dataclass with slots. `eq=False`: equality as in its base."""
    if cls is None:
        return lambda decorated: _made(decorated, kw_only, eq)
    return _made(cls, kw_only, eq)


class _Attribute(NamedTuple):
    kind: Any
    default: Any
    """A value, a `Field` or MISSING."""
    kw_only: bool


class _Fields:
    """`__dataclass_fields__`, worked out by `dataclasses` when somebody asks for it."""

    def __get__(self, _: object, cls: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"__doc__": "", "__annotations__": {}}
        for name, (kind, default, kw_only) in cls.__attributes__.items():
            body["__annotations__"][name] = kind
            body[name] = default if isinstance(default, Field) else field(default=default, kw_only=kw_only)
        shown: Any = dataclass(init=False, repr=False, eq=False)(type(cls.__name__, (), body))
        found: dict[str, Any] = shown.__dataclass_fields__
        if "__attributes__" in cls.__dict__:
            cls.__dataclass_fields__ = found
        return found


def _made(cls: Any, kw_only: bool, eq: bool) -> Any:
    inherited: dict[str, _Attribute] = {}
    for base in cls.__mro__[:0:-1]:
        if "__attributes__" in base.__dict__:
            inherited |= base.__attributes__
        elif "__dataclass_fields__" in base.__dict__:
            inherited |= {
                one.name: _Attribute(one.type, one, one.kw_only) for one in base.__dataclass_fields__.values()
            }
    own = dict(_own(cls.__dict__, kw_only))
    attributes = inherited | own
    body = {name: value for name, value in cls.__dict__.items() if name not in own and name not in _OF_PLAIN_CLASSES}
    body |= {
        "__slots__": tuple(name for name in own if name not in inherited),
        "__attributes__": attributes,
        "__dataclass_fields__": _Fields(),
        "__dataclass_params__": _PARAMS,
        "__match_args__": tuple(name for name, one in attributes.items() if not one.kw_only),
        "__setattr__": object.__setattr__,  # a frozen dataclass that it inherits from has another
    }
    body.setdefault("__repr__", _repr)
    if eq:
        compared = [
            name for name, one in attributes.items() if not isinstance(one.default, Field) or one.default.compare
        ]
        body["__values__"] = attrgetter(*compared) if compared else type
        body.setdefault("__eq__", _equal)
        body["__hash__"] = body.get("__hash__") or _hash
    made: Any = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        made.__init__ = _written_init(made)
        made.__init__(self, *args, **given)

    made.__init__ = __init__
    return made


def _own(body: Any, kw_only: bool) -> Iterator[tuple[str, _Attribute]]:
    for name, kind in body.get("__annotations__", {}).items():
        if not str(kind).startswith("ClassVar"):
            default = body.get(name, MISSING)
            stated = default.kw_only if isinstance(default, Field) else MISSING
            yield name, _Attribute(kind, default, kw_only if stated is MISSING else bool(stated))


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
    return isinstance(default, Field) and not getattr(default, use)


def _repr(self: Any) -> str:
    shown = (
        name for name, one in self.__attributes__.items() if not isinstance(one.default, Field) or one.default.repr
    )
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self.__values__(self) == self.__values__(other)


def _hash(self: Any) -> int:
    return hash(self.__values__(self))


@dataclass(frozen=True, eq=False, repr=False)
class _Frozen:
    pass


_PARAMS = _Frozen.__dataclass_params__  # type: ignore[attr-defined]
_OF_PLAIN_CLASSES = ("__dict__", "__weakref__")
