"""Rebuild the table of intervals from the measured cases: src/vramwise/intervals.csv and left_out.csv beside it.

    python tools/build_intervals.py [--jobs N]     estimates every case (two minutes on two cores), then as below
    python tools/build_intervals.py --from-scores  from benchmarks/intervals/scores.csv alone, at once

How: cross-conformal prediction with whole sources left out. An estimate's *score* is how far the counter lay from
it, in units of its cell (vramwise/intervals.py), beyond what the scenario left open. The interval's ends are the scores
that a twentieth exceeds to each side. Three things make that honest for a source that nobody has seen:

- cases of a source are alike: n of them count as n / (1 + (n − 1) · ALIKE) (the design effect of cluster samples);
- a source that is not there yet counts as one more, whose cases lie anywhere (the correction for finite samples);
- a cell borrows: its scores are mixed with those of the kind of cells that it belongs to, as if these were BORROWED
  sources of its own, so that a cell with few sources is as wide as its kind and one with eight or more stands alone.

left_out.csv has the same rows as they are without each source: `vramwise accuracy` judges a case by those.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

from vramwise.accuracy import Case, case_files, read_cases
from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.intervals import WHOLE, Asked, Reach, judged_by
from vramwise.records import record
from vramwise.site import chosen_site

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "benchmarks" / "cases"
SCORES = ROOT / "benchmarks" / "intervals" / "scores.csv"
TABLE = ROOT / "src" / "vramwise" / "intervals.csv"
LEFT_OUT = TABLE.with_name("left_out.csv")

_SAY_NOTHING = frozenset({"read_off", "mean_length", "other_loss", "other_settings"})
OUTSIDE = 0.05  # beyond each end
ALIKE = 0.2
BORROWED = 2.0
EITHER_WAY = ("vLLM weights, 16 or 32 bit", "vLLM weights, quantized")  # misses that have no side
SPAN_THEIR_OWN = ("vLLM KV",)  # ends that both may be, of a first start and a later one: neither lies outside
MOST_BELOW = 0.99  # of a positive size

NAMED = ("torch named", "version named", "no version named")
TRAINING = (
    *(f"training allocated, plain, {named}" for named in NAMED[1:]),
    *(f"training allocated, involved, {named}" for named in NAMED),
    *(f"training kept, {layout}, {named}" for layout in ("plain", "involved", "unsaid lengths") for named in NAMED),
)
KINDS: dict[str, tuple[str, ...]] = {
    **{cell: ("training", cell.split(", ")[0], ", ".join(cell.split(", ")[:2]), cell) for cell in TRAINING},
    "generation": ("training", "generation"),
    "vLLM weights, 16 or 32 bit": ("vLLM weights", "vLLM weights, 16 or 32 bit"),
    "vLLM weights, quantized": ("vLLM weights", "vLLM weights, quantized"),
    "vLLM activation, V0": ("vLLM activation", "vLLM activation, V0"),
    "vLLM activation, V1": ("vLLM activation", "vLLM activation, V1"),
    "vLLM non-torch, V0": ("vLLM non-torch", "vLLM non-torch, V0"),
    "vLLM non-torch, V1": ("vLLM non-torch", "vLLM non-torch, V1"),
    "vLLM graphs, before 0.11": ("vLLM graphs", "vLLM graphs, before 0.11"),
    "vLLM graphs, since 0.11": ("vLLM graphs", "vLLM graphs, since 0.11"),
    "vLLM graphs, estimate": ("vLLM graphs", "vLLM graphs, estimate"),
    "vLLM graphs, ROCm": ("vLLM graphs", "vLLM graphs, ROCm"),
    "vLLM KV": ("vLLM KV",),
    "vLLM need": ("vLLM need",),
    "pooled KV": ("pooled KV",),
    "llama.cpp weights": ("llama.cpp weights",),
    "llama.cpp buffers, replayed": ("llama.cpp buffers", "llama.cpp buffers, replayed"),
    "llama.cpp buffers, by formula": ("llama.cpp buffers", "llama.cpp buffers, by formula"),
    "llama.cpp buffers, by formula, in ollama": ("llama.cpp buffers", "llama.cpp buffers, by formula, in ollama"),
}
"""Each cell, and the kinds of cells that it belongs to, from the widest to itself."""
NO_NARROWER = (
    *(
        tuple(cell for cell in TRAINING if cell.startswith(f"{start}, "))
        for start in dict.fromkeys(cell.rsplit(", ", 1)[0] for cell in TRAINING)
    ),
    ("vLLM graphs, since 0.11", "vLLM graphs, ROCm"),
)
"""Cells in an order in which each knows less than the one before, so that its interval is no narrower."""


@record
class Score:
    """One measured counter of a case beside its estimate; distances and units are bytes, or counts of tokens."""

    id: str
    source: str
    engine: str
    specified: str
    quantity: str
    cell: str
    measured: float
    rounding: float
    expected: float
    own_below: float
    own_above: float
    unit_below: float
    unit_above: float
    certain: float = 0.0

    @property
    def signed(self) -> float:
        """Units beyond what was left open; negative where less was measured than estimated."""
        missed = self.measured - self.expected
        beyond = max(0.0, abs(missed) - self.rounding)
        own, unit = (self.own_above, self.unit_above) if missed > 0 else (self.own_below, self.unit_below)
        units = math.sqrt(max(0.0, beyond**2 - own**2)) / unit if unit else 0.0
        return math.copysign(units, missed)

    def ends(self, reach: Reach) -> tuple[float, float]:
        """The interval with this reach."""
        below = math.hypot(self.own_below, reach.below * self.unit_below)
        return max(self.certain, self.expected - below), self.expected + math.hypot(
            self.own_above, reach.above * self.unit_above
        )


# -- scores ----------------------------------------------------------------------------------------------------


class _Bare(dict[str, Reach]):
    """Estimates with what they leave open alone."""

    def __missing__(self, cell: str) -> Reach:
        return Reach(0.0, 0.0)


def scores_of(case: Case) -> list[Score]:
    """The case's counters whose estimates ask the table; none where it is refused."""
    try:
        with chosen_site(off=True), judged_by(_Bare()) as asked:
            result = estimate(case.scenario)
            found = {name: result.quantities[name] for name in case.measured if name in result.quantities}
    except VramwiseError:
        return []
    scores = []
    for name, quantity in found.items():
        if name in asked:
            rig = case.rig_floor_bytes if name == "nvidia_smi" else 0
            scores.append(_score(case, name, quantity.expected, asked[name], rig=rig))
            if name == "kv_cache_bytes" and "total_needed" in asked:  # what the pool lacks the need is short of
                pool, need = case.measured[name], asked["total_needed"]
                mirrored = quantity.expected - max(0, pool)
                scores.append(_score(case, "total_needed", 0.0, need, mirrored, case.rounding.get(name, 0)))
    return scores


def _score(
    case: Case, name: str, expected: float, asked: Asked, measured: float | None = None, rounding: float | None = None,
    rig: int = 0,
) -> Score:  # fmt: skip
    shown = max(0, case.measured[name]) if measured is None else measured
    near = case.rounding.get(name, 0) if rounding is None else rounding
    return Score(
        case.id, case.source_name, case.engine, case.specified, name, asked.cell, shown, near, expected + rig,
        *(round(one, 1) for one in (asked.own_below, asked.own_above, asked.unit_below, asked.unit_above)),
        min(expected, asked.certain) + rig,
    )  # fmt: skip


def measured_cases() -> list[Case]:
    """Every case of memory; speeds have intervals of their own.

    A case with a setting that was read off what it measured (`extra.read_off`), one whose length is the mean of its
    samples where the key says the longest (`extra.mean_length`), one whose loss no key names (`extra.other_loss`)
    and one that shows that settings which nobody states were not the defaults (`extra.other_settings`) say nothing of
    how far estimates lie.
    """
    lines = (line for file in case_files([CASES]) if file.stem != "throughput" for line in read_cases(file))
    return [line for line in lines if isinstance(line, Case) and not _SAY_NOTHING & line.extra.keys()]


def read_scores() -> list[Score]:
    with SCORES.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        texts = ("id", "source", "engine", "specified", "quantity", "cell")
        return [Score(**{k: v if k in texts else float(v) for k, v in row.items()}) for row in rows]  # type: ignore[arg-type]


def _write_scores(scores: Iterable[Score]) -> None:
    fields = Score.__match_args__
    _write(SCORES, fields, ([_plain(getattr(score, name)) for name in fields] for score in scores))


# -- the table -------------------------------------------------------------------------------------------------

Weighted = list[tuple[float, float]]


ByKind = dict[str, dict[str, list[float]]]
"""The misses of each source, by kind of cells."""


def reaches(scores: Sequence[Score]) -> dict[str, Reach]:
    """Every cell's reach, from these scores."""
    return _in_order(_own(_by_kind(scores), KINDS))


def _by_kind(scores: Sequence[Score]) -> ByKind:
    by_kind: defaultdict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for score in scores:
        signed = score.signed
        for kind in KINDS[score.cell]:
            by_kind[kind][score.source].append(signed)
    return by_kind


def _own(by_kind: ByKind, cells: Iterable[str]) -> dict[str, Reach]:
    """The reach of each of these cells, by itself."""
    known: dict[tuple[str, ...], Weighted] = {}
    ends = {cell: _ends_alike if cell in EITHER_WAY else _ends for cell in KINDS}
    return {cell: ends[cell](_mixed(KINDS[cell], by_kind, known)) for cell in cells}


def _in_order(own: Mapping[str, Reach]) -> dict[str, Reach]:
    """The reaches, none narrower than that of a cell which knows more."""
    found = dict(own)
    for cell in SPAN_THEIR_OWN:
        found[cell] = Reach(max(1.0, found[cell].below), max(1.0, found[cell].above))
    for cells in NO_NARROWER:
        for surer, less in pairwise(cells):
            found[less] = Reach(max(found[surer].below, found[less].below), max(found[surer].above, found[less].above))
    return found


def _mixed(
    kinds: tuple[str, ...], by_kind: Mapping[str, Mapping[str, Sequence[float]]], known: dict[tuple[str, ...], Weighted]
) -> Weighted:
    """Scores with weights that add up to one: those of the last kind, and as BORROWED sources those of the others."""
    if kinds in known:
        return known[kinds]
    own, total = [], 0.0
    for values in by_kind.get(kinds[-1], {}).values():
        weight = len(values) / (1 + (len(values) - 1) * ALIKE)
        own += [(value, weight / len(values)) for value in values]
        total += weight
    of_a_source = total / max(1, len(by_kind.get(kinds[-1], {}))) or 1.0
    if len(kinds) == 1:  # what is not there yet lies as far as anything that is, to either side
        far = max((abs(value) for value, _ in own), default=0.0)
        rest, borrowed = [(far, 0.5), (-far, 0.5)], of_a_source
    else:
        rest, borrowed = _mixed(kinds[:-1], by_kind, known), BORROWED * of_a_source
    share = total + borrowed
    mixed = [(v, w / share) for v, w in own] + [(v, w * borrowed / share) for v, w in rest]
    known[kinds] = mixed
    return mixed


def _ends(weighted: Weighted) -> Reach:
    below, above = (_quantile([(max(0.0, sign * v), w) for v, w in weighted], 1 - OUTSIDE) for sign in (-1, 1))
    return Reach(round(below, 4), round(above, 4))


def _ends_alike(weighted: Weighted) -> Reach:
    """As far to one side as to the other: where the misses have no side, both ends learn from all of them."""
    far = round(_quantile([(abs(v), w) for v, w in weighted], 1 - OUTSIDE), 4)
    return Reach(far, far)


def _quantile(weighted: Weighted, level: float) -> float:
    """The smallest value that this share of the weight does not exceed."""
    reached = 0.0
    for value, weight in sorted(weighted):
        reached += weight
        if reached >= level - 1e-9:
            return value
    return max(value for value, _ in weighted)


def without_each(scores: Sequence[Score]) -> dict[str, dict[str, Reach]]:
    """The table, and as it is without each source (only what differs)."""
    by_kind = _by_kind(scores)
    own = _own(by_kind, KINDS)
    whole = _in_order(own)
    found = {WHOLE: whole}
    for source in sorted({score.source for score in scores}):
        rest = {kind: {one: v for one, v in by.items() if one != source} for kind, by in by_kind.items()}
        touched = [cell for cell, kinds in KINDS.items() if any(source in by_kind[kind] for kind in kinds)]
        without = _in_order({**own, **_own(rest, touched)})
        found[source] = {cell: reach for cell, reach in without.items() if reach != whole[cell]}
    return found


def files_of(scores: Sequence[Score], tables: Mapping[str, Mapping[str, Reach]]) -> dict[Path, list[list[str]]]:
    """The rows of both files, with their heads; `tables` as `without_each` gives them."""
    sources, cases = defaultdict(set), defaultdict(int)
    for score in scores:
        sources[score.cell].add(score.source)
        cases[score.cell] += 1
    whole = [["cell", "below", "above", "sources", "cases"]]
    whole += [
        [cell, f"{reach.below:g}", f"{reach.above:g}", str(len(sources[cell])), str(cases[cell])]
        for cell, reach in tables[WHOLE].items()
    ]
    rows = [["without", "cell", "below", "above"]]
    rows += [
        [source, cell, f"{reach.below:g}", f"{reach.above:g}"]
        for source, table in tables.items() if source != WHOLE for cell, reach in table.items()
    ]  # fmt: skip
    return {TABLE: whole, LEFT_OUT: rows}


# -- what it comes to ------------------------------------------------------------------------------------------


def coverage(
    scores: Sequence[Score], tables: Mapping[str, Mapping[str, Reach]]
) -> Iterator[tuple[str, int, int, float, float, float]]:
    """By engine, quantity and how well a case is described, on left-out sources: counters, sources, the share inside,
    the share above the interval, and the median width as a share of what was measured."""
    rows: dict[str, list[tuple[Score, float, float]]] = defaultdict(list)
    for score in scores:
        if score.quantity == "total_needed":
            continue
        reach = tables[score.source].get(score.cell, tables[WHOLE][score.cell])
        rows[" ".join(filter(None, (score.engine, score.quantity, score.specified)))].append(
            (score, *score.ends(reach))
        )
    for name, found in sorted(rows.items()):
        inside = [low <= s.measured + s.rounding and high >= s.measured - s.rounding for s, low, high in found]
        above = [high < s.measured - s.rounding for s, _, high in found]
        widths = sorted((high - low) / s.measured if s.measured else math.inf for s, low, high in found)
        yield (
            name, len(found), len({s.source for s, _, _ in found}), sum(inside) / len(found), sum(above) / len(found),
            widths[len(widths) // 2],
        )  # fmt: skip


def coverage_by_kind(scores: Sequence[Score], tables: Mapping[str, Mapping[str, Reach]]) -> dict[str, float]:
    """The share inside on left-out sources of each kind of estimate, and of all."""
    found: dict[str, list[bool]] = defaultdict(list)
    for score in scores:
        if score.quantity != "total_needed":
            low, high = score.ends(tables[score.source].get(score.cell, tables[WHOLE][score.cell]))
            inside = low <= score.measured + score.rounding and high >= score.measured - score.rounding
            for name in ("all", KINDS[score.cell][0]):
                found[name].append(inside)
    return {name: sum(many) / len(many) for name, many in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--from-scores", action="store_true", help="estimate nothing, take benchmarks/intervals/scores.csv"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes that estimate (%(default)s)")
    asked = parser.parse_args(arguments)
    if asked.from_scores:
        scores = read_scores()
    else:
        cases = measured_cases()
        with ProcessPoolExecutor(asked.jobs) as pool:
            scores = [score for found in pool.map(scores_of, cases, chunksize=8) for score in found]
        _write_scores(scores)
        scores = read_scores()
    tables = without_each(scores)
    for path, rows in files_of(scores, tables).items():
        _write(path, rows[0], rows[1:])
    for name, count, sources, inside, above, width in coverage(scores, tables):
        print(f"{name:45}{count:5}{sources:4}{inside:8.0%}{above:8.0%}{width:9.1%}")
    return 0


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def _plain(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
