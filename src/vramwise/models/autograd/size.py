"""Sizes as polynomials with whole coefficients in named axes (`batch`, `sequence`, ...)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

Dim = Union[int, "Size"]
Axes = Mapping[str, Any]
"""Axis name -> value: an int, or a NumPy array of ints."""

# A large prime for each axis: two sizes are taken as equal, or one as larger, when they are so at this point.
# Primes far above any width of a model keep unrelated sizes from meeting by chance.
_PROBES = (
    1_000_003,
    3_000_017,
    7_000_003,
    11_000_027,
    13_000_027,
    17_000_023,
    19_000_013,
    23_000_009,
    29_000_039,
)
_PRIME_GAP = 6_700_417  # a prime, for the axes after those: one for every chunk length in use
_probe_of_axis: dict[str, int] = {}


class Size:
    """A polynomial such as `2·batch·sequence·4096 + 8·sequence`: products of axes -> whole coefficient."""

    __slots__ = ("probe", "terms")

    def __init__(self, terms: dict[tuple[str, ...], int], probe: int | None = None) -> None:
        self.terms = terms
        self.probe = _at_probe(terms) if probe is None else probe

    def __getstate__(self) -> dict[tuple[str, ...], int]:
        return self.terms

    def __setstate__(self, terms: dict[tuple[str, ...], int]) -> None:
        """In another process axes have other primes: the comparison point is worked out there."""
        for names in terms:
            for name in names:
                _know(name)
        self.terms, self.probe = terms, _at_probe(terms)

    @property
    def axes(self) -> frozenset[str]:
        """Names of the axes that occur."""
        return frozenset(name for names in self.terms for name in names)

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if not other:
                return self
            return _simplified({**self.terms, (): self.terms.get((), 0) + other}, self.probe + other)
        terms = dict(self.terms)
        for axes, coefficient in other.terms.items():
            terms[axes] = terms.get(axes, 0) + coefficient
        return _simplified(terms, self.probe + other.probe)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return self + -other
        terms = dict(self.terms)
        for axes, coefficient in other.terms.items():
            terms[axes] = terms.get(axes, 0) - coefficient
        return _simplified(terms, self.probe - other.probe)

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if other in (0, 1):
                return self if other else 0
            return Size({axes: value * other for axes, value in self.terms.items()}, self.probe * other)
        terms: dict[tuple[str, ...], int] = {}
        for left, x in self.terms.items():
            for right, y in other.terms.items():
                axes = tuple(sorted(left + right))
                terms[axes] = terms.get(axes, 0) + x * y
        return _simplified(terms, self.probe * other.probe)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Dim) -> Dim:
        """Exact division; a remainder is a fault of the caller."""
        if isinstance(divisor, int):
            if any(value % divisor for value in self.terms.values()):
                raise ArithmeticError(f"{self} does not divide by {divisor}")
            return Size({axes: value // divisor for axes, value in self.terms.items()}, self.probe // divisor)
        (axes, coefficient), *rest = divisor.terms.items()
        if rest:
            raise ArithmeticError(f"cannot divide by the sum {divisor}")
        quotient: dict[tuple[str, ...], int] = {}
        for own, value in self.terms.items():
            left = list(own)
            for name in axes:
                if name not in left:
                    raise ArithmeticError(f"{self} does not divide by {divisor}")
                left.remove(name)
            if value % coefficient:
                raise ArithmeticError(f"{self} does not divide by {divisor}")
            quotient[tuple(left)] = value // coefficient
        return _simplified(quotient, self.probe // divisor.probe)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.probe)

    def __repr__(self) -> str:
        parts = []
        for axes, value in sorted(self.terms.items(), key=lambda term: (-len(term[0]), term[0])):
            parts.append("·".join([str(value), *axes]) if value != 1 or not axes else "·".join(axes))
        return " + ".join(parts) or "0"


def _at_probe(terms: dict[tuple[str, ...], int]) -> int:
    value = 0
    for axes, coefficient in terms.items():
        for name in axes:
            coefficient *= _probe_of_axis[name]
        value += coefficient
    return value


def _simplified(terms: dict[tuple[str, ...], int], probe: int) -> Dim:
    """The polynomial without its zero terms, whose value at the comparison point is `probe`."""
    if 0 in terms.values():
        terms = {axes: value for axes, value in terms.items() if value}
    if len(terms) > 1:
        return Size(terms, probe)
    return Size(terms, probe) if terms and () not in terms else probe


def _next_probe() -> int:
    taken = len(_probe_of_axis)
    return _PROBES[taken] if taken < len(_PROBES) else _PROBES[-1] + _PRIME_GAP * (taken - len(_PROBES) + 1)


def axis(name: str) -> Size:
    """The size that is one axis."""
    _know(name)
    return Size({(name,): 1}, _probe_of_axis[name])


def _know(name: str) -> None:
    """Give an axis its place at the comparison point, if it has none yet."""
    if name in _probe_of_axis:
        return
    _, found, permille = name.partition(_WITHOUT_PADDING)
    if found:
        whole = probe(axis("batch") * axis("sequence"))
        _probe_of_axis[name] = round(whole * (1 - int(permille) / 1000))
    else:
        _probe_of_axis[name] = _next_probe()


def terms_of(dim: Dim) -> dict[tuple[str, ...], int]:
    """The polynomial's terms, also of a plain whole number."""
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    return dim.terms


def probe(dim: Dim) -> int:
    """The size at the comparison point."""
    return dim if isinstance(dim, int) else dim.probe


def exact_quotient(dim: Dim, divisor: Dim) -> Dim:
    """`dim / divisor`; raises ArithmeticError where that is no polynomial with whole coefficients."""
    if isinstance(dim, Size):
        return dim // divisor
    if isinstance(divisor, Size) or dim % divisor:
        raise ArithmeticError(f"{dim} does not divide by {divisor}")
    return dim // divisor


def product(dims: Iterable[Dim]) -> Dim:
    """The product of sizes; 1 for none."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def total(dims: Iterable[Dim]) -> Dim:
    """The sum of sizes; 0 for none."""
    terms: dict[tuple[str, ...], int] = {}
    at_probe = 0
    for dim in dims:
        if isinstance(dim, int):
            if dim:
                terms[()] = terms.get((), 0) + dim
                at_probe += dim
            continue
        at_probe += dim.probe
        for axes, coefficient in dim.terms.items():
            terms[axes] = terms.get(axes, 0) + coefficient
    return _simplified(terms, at_probe)


class RoundedAxes(dict[Any, Any]):
    """Axes that also know lengths derived from them: `sequence_up_to_8`, `sequence_chunks_of_256`, ...

    Products of axes are looked up by the tuple of their names, and kept: many polynomials share a few of them.
    """

    def __missing__(self, name: str | tuple[str, ...]) -> object:
        if isinstance(name, tuple):
            self[name] = value = math.prod(self[one] for one in name)
            return value
        base, found, unit = name.rpartition("_up_to_")
        if found:
            self[name] = value = -(-self[base] // int(unit)) * int(unit)
            return value
        _, found, permille = name.partition(_WITHOUT_PADDING)
        if found:
            tokens = self["batch"] * self["sequence"]
            self[name] = value = tokens - tokens * int(permille) // 1000
            return value
        if name.startswith("("):
            self[name] = value = sum(
                int(one) if one.lstrip("-").isdigit() else self[one] for one in name[1:-1].split("+")
            )
            return value
        count, found, base = name.partition("*")
        if found:
            self[name] = value = int(count) * self[base]
            return value
        for separator, part in _PARTS.items():
            base, found, unit = name.rpartition(separator)
            if found:
                self[name] = value = part(self[base], int(unit))
                return value
        raise KeyError(name)


_WITHOUT_PADDING = "tokens_without_permille_"

_PARTS: dict[str, Callable[[Any, int], Any]] = {
    "_behind_chunks_of_": lambda length, chunk: length % chunk,
    "_whole_chunks_of_": lambda length, chunk: length // chunk,
    "_chunks_of_": lambda length, chunk: -(-length // chunk),
}
"""Lengths derived from an axis, by what stands between its name and that of a chunk."""


def with_rounded_axes(**axes: object) -> RoundedAxes:
    """Axes with the rounded-up lengths that some kernels allocate and the numbers of chunks that some layers make."""
    return RoundedAxes(axes)


def chunks_of(dim: Dim, length: int) -> Dim:
    """How many chunks of a length an axis has, the last one perhaps not full: an axis of its own.

    Raises ArithmeticError.
    """
    if isinstance(dim, int):
        return -(-dim // length)
    ((names, coefficient),) = dim.terms.items()
    if coefficient != 1 or len(names) != 1:
        raise ArithmeticError(f"{dim} is not a single axis")
    return axis(f"{names[0]}_chunks_of_{length}")


def whole_chunks_of(dim: Dim, length: int) -> Dim:
    """How many whole chunks of a length an axis has: an axis of its own. Raises ArithmeticError."""
    if length == 1:
        return dim
    if isinstance(dim, int):
        return dim // length
    ((names, coefficient),) = dim.terms.items()
    if coefficient != 1 or len(names) != 1:
        raise ArithmeticError(f"{dim} is not a single axis")
    return axis(f"{names[0]}_whole_chunks_of_{length}")


def tokens_without(tokens: Dim, share: float) -> Dim:
    """The tokens of a batch that are no padding, of which it has a share: an axis of its own."""
    if not share:
        return tokens
    name = f"{_WITHOUT_PADDING}{round(share * 1000)}"
    _know(name)
    return axis(name)


def name_of(size: Size) -> str:
    """A sum of axes as the name of one: `sequence`, `2*sequence`, `(2*sequence+235)`; RoundedAxes reads it.

    Raises ArithmeticError.
    """
    parts = []
    for names, count in size.terms.items():
        if len(names) > 1:
            raise ArithmeticError(f"{size} is no sum of axes")
        parts.append(str(count) if not names else names[0] if count == 1 else f"{count}*{names[0]}")
    return parts[0] if len(parts) == 1 else f"({'+'.join(parts)})"


def behind_chunks_of(dim: Dim, length: int) -> Dim:
    """What is left of an axis behind its last whole chunk of a length: an axis of its own. Raises ArithmeticError."""
    if isinstance(dim, int):
        return dim % length
    ((names, coefficient),) = dim.terms.items()
    if coefficient != 1 or len(names) != 1:
        raise ArithmeticError(f"{dim} is not a single axis")
    return axis(f"{names[0]}_behind_chunks_of_{length}")


def one_of(size: Any) -> int:
    """A length, or of one that stands for many (vramwise.points) one whose operations are those of all."""
    return size if isinstance(size, int) else int(size.one)


def evaluate(dim: Dim, axes: Axes) -> Any:
    """The size at given axes: an int for ints, an array for arrays."""
    if isinstance(dim, int):
        return dim
    total: Any = 0
    if isinstance(axes, RoundedAxes):
        for names, value in dim.terms.items():
            total = total + value * axes[names]
        return total
    for names, value in dim.terms.items():
        for name in names:
            value = value * axes[name]
        total = total + value
    return total


class Sized(int):
    """Bytes that know the polynomial that they come from."""

    size: Size

    def __new__(cls, size: Size, axes: Mapping[str, int]) -> Sized:
        made = super().__new__(cls, evaluate(size, axes))
        made.size = size
        return made
