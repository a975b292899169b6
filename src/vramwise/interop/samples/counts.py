"""Lengths of samples, gathered as how often each occurs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

PERCENTILES = (50, 90, 95, 99)
MOST_REASONS = 8


@dataclass(slots=True)
class Counts:
    """How many samples have each length; what was left out, and from which columns the others came."""

    by_length: Counter[int] = field(default_factory=Counter)
    read_as: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, found: Iterable[tuple[str, int]]) -> None:
        """Take in samples: the columns they came from, and their tokens."""
        for kind, length in found:
            self.by_length[length] += 1
            self.read_as[kind] += 1

    def broken(self, line: int, why: str) -> None:
        """A line that is no sample."""
        self.skipped += 1
        if len(self.reasons) < MOST_REASONS:
            self.reasons.append(f"line {line:,}: {why}")

    @property
    def samples(self) -> int:
        return self.by_length.total()

    @property
    def tokens(self) -> int:
        return sum(length * count for length, count in self.by_length.items())

    @property
    def mean(self) -> int:
        return max(1, round(self.tokens / self.samples))

    @property
    def spread(self) -> int:
        """The standard deviation, in whole tokens."""
        mean = self.tokens / self.samples
        return round(math.sqrt(sum(n * (length - mean) ** 2 for length, n in self.by_length.items()) / self.samples))

    @property
    def maximum(self) -> int:
        return max(1, max(self.by_length))

    def percentiles(self) -> dict[str, int]:
        """Mean, spread and the lengths below which so many in a hundred samples lie (nearest rank)."""
        found = {"mean": self.mean, "spread": self.spread}
        ordered, total = sorted(self.by_length.items()), self.samples
        for share in PERCENTILES:
            left = math.ceil(share / 100 * total)
            for length, count in ordered:
                left -= count
                if left <= 0:
                    found[f"p{share}"] = length
                    break
        return {**found, "maximum": self.maximum}

    def to_dict(self) -> dict[str, Any]:
        names = ("mean", "spread", "maximum")
        lengths = {"fixed": self.maximum} if not self.spread else {name: getattr(self, name) for name in names}
        return {
            "samples": self.samples, "tokens": self.tokens, "skipped": self.skipped, "reasons": self.reasons,
            "columns": dict(self.read_as), "percentiles": self.percentiles(), "sample_lengths": lengths,
        }  # fmt: skip
