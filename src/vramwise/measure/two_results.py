"""Two results side by side, term by term: differences of terms add up to that of their moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vramwise.errors import UsageError
from vramwise.records import record
from vramwise.result import Node, Phase, Result

PEAK: Final = "peak"


@record
class Term:
    """One term of a moment (`backward: head/activations`), or a whole moment; a result that lacks it has 0 bytes."""

    path: str
    a: int
    b: int

    @property
    def difference(self) -> int:
        """a − b."""
        return self.a - self.b

    def to_dict(self) -> dict[str, object]:
        return {"path": self.path, "a": self.a, "b": self.b, "difference": self.difference}


@record
class TwoResults:
    """The moments that both have, each with its terms behind it; `moments` holds the moments alone."""

    moments: tuple[Term, ...]
    terms: tuple[Term, ...]

    def of(self, moment: str) -> list[Term]:
        """The terms of a moment; they add up to it."""
        return [term for term in self.terms if term.path.rpartition("/")[0] == moment]

    @property
    def explanation(self) -> str | None:
        """The moment that differs most and the term that explains most of it; None where nothing differs."""
        most = max(self.moments, key=lambda moment: abs(moment.difference), default=None)
        if most is None or not most.difference:
            return None
        term = max(self.of(most.path), key=lambda one: one.difference * (1 if most.difference > 0 else -1))
        name = term.path.rpartition("/")[2]
        lacking = "" if term.a and term.b else f", which {'A' if not term.a else 'B'} does not have"
        return f"{most.path} differs most, and there {name}{lacking}"

    def to_dict(self) -> dict[str, object]:
        return {"terms": [term.to_dict() for term in self.terms], "explanation": self.explanation}


def two_results(a: Result, b: Result) -> TwoResults:
    """Every moment that both results have, and their largest ones.

    Raises UsageError where either has no moments.
    """
    if not a.phases or not b.phases:
        raise UsageError(f"result {'A' if not a.phases else 'B'} has no moments to compare")
    of_b = {phase.name: phase for phase in b.phases}
    pairs = [(phase.name, phase, of_b[phase.name]) for phase in a.phases if phase.name in of_b]
    pairs.append((PEAK, _largest(a), _largest(b)))
    moments, terms = [], []
    for name, one, other in pairs:
        moments.append(Term(name, one.bytes, other.bytes))
        terms += _terms(name, one, other)
    return TwoResults(tuple(moments), tuple(terms))


def _largest(result: Result) -> Phase:
    return max(result.phases, key=lambda phase: phase.bytes)


def _terms(name: str, a: Phase, b: Phase) -> list[Term]:
    sizes = [_sizes(phase.components) for phase in (a, b)]
    names: Sequence[str] = list(dict.fromkeys([*sizes[0], *sizes[1]]))
    return [Term(f"{name}/{term}", sizes[0].get(term, 0), sizes[1].get(term, 0)) for term in names]


def _sizes(moment: Node) -> dict[str, int]:
    found: dict[str, int] = {}
    for child in moment.children or (moment,):
        found[child.name] = found.get(child.name, 0) + child.bytes
    return found
