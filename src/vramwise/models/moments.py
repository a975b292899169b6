"""Moments of a pass through a block: what is alive at one operation, and which of them is the largest.

They are polynomials in the axes; those that another one exceeds at every size are dropped, so that a maximum costs a
handful of evaluations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from vramwise.models.autograd.size import Axes, Dim, evaluate, probe, terms_of, total
from vramwise.records import record


@record
class Moment:
    """Bytes alive inside a block at one operation; weights and what other blocks hold are not counted.

    `saved`: of what forward kept; `weight_gradients`: finished gradients of this block's parameters; `temporaries`:
    gradients on their way, scratch, and in a forward walk everything that is not kept.
    """

    operation: str
    module: str
    saved: Dim
    weight_gradients: Dim
    temporaries: Dim
    _total: Dim | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_total", None)

    @property
    def total(self) -> Dim:
        """All of it; kept, because the maximum of moments is taken at many sizes."""
        if self._total is None:
            object.__setattr__(self, "_total", total((self.saved, self.weight_gradients, self.temporaries)))
            assert self._total is not None
        return self._total

    @property
    def at_probe(self) -> int:
        """Its total at the comparison point, which most moments are dropped by."""
        return probe(self.saved) + probe(self.weight_gradients) + probe(self.temporaries)


@record
class Peak:
    """The largest of some moments at given sizes."""

    operation: str
    module: str
    saved: int
    weight_gradients: int
    temporaries: int

    @property
    def total(self) -> int:
        return self.saved + self.weight_gradients + self.temporaries


NOTHING = Peak("", "", 0, 0, 0)


def largest(moments: Iterable[Moment], axes: Axes) -> Peak:
    """The moment with the most bytes at these sizes (a value for each axis); `NOTHING` for none."""
    best, most = None, -1
    for moment in moments:
        size = evaluate(moment.total, axes)
        if size > most:
            best, most = moment, size
    if best is None:
        return NOTHING
    parts = (evaluate(part, axes) for part in (best.saved, best.weight_gradients, best.temporaries))
    return Peak(best.operation, best.module, *parts)


def undominated(moments: Iterable[Moment]) -> tuple[Moment, ...]:
    """The moments that are largest somewhere, as far as comparing coefficients tells; sizes are at least one."""
    kept: list[Moment] = []
    unlike: dict[int, Moment] = {}
    for moment in moments:
        unlike.setdefault(moment.at_probe, moment)
    for _, moment in sorted(unlike.items(), key=lambda item: -item[0]):
        smaller = terms_of(moment.total)
        if not any(_covers(terms_of(other.total), smaller) for other in kept):
            kept.append(moment)
    return tuple(kept)


def _covers(larger: Mapping[tuple[str, ...], int], smaller: Mapping[tuple[str, ...], int]) -> bool:
    """Whether every coefficient of one polynomial is at least the other's."""
    for axes, value in smaller.items():
        if larger.get(axes, 0) < value:
            return False
    return min(larger.values(), default=0) >= 0 or all(value >= 0 or axes in smaller for axes, value in larger.items())
