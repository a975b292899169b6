"""Why the actual left the interval: what differs between the scenario and the run, each with its own bytes.

| sign | reason |
|---|---|
| a batch, a length or a setting of the model is not the one stated | it, and what the estimate says for the one seen |
| weights, gradients or optimizer states differ by more than a percent | the term |
| no step of the optimizer yet | its states are still to come |
| reserved − allocated is larger than estimated | fragmentation |
| process − reserved is larger than estimated | memory outside torch's tensors |
| the peak lies in a forward pass without gradients | evaluation |
| none of these | the moment and term that differ most |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vramwise.errors import VramwiseError
from vramwise.measure.difference import differences
from vramwise.records import record
from vramwise.result import Quantity, Result
from vramwise.scenario import Scenario
from vramwise.units import format_bytes
from vramwise.watching.account import Account
from vramwise.watching.given import estimated_again, expected

NOTICEABLE: Final = 0.01
"""Terms that differ by less are not a reason: sizes of tensors are known to the byte, rounding to 512 bytes is not."""

_SIZES: Final = {
    "train": ("micro_batch_size", "sequence_length"),
    "generate": ("batch_size", "prompt_tokens"),
}
_TERMS: Final = {"weights": ("weights", "adapters"), "gradients": ("gradients",),
                 "optimizer states": ("optimizer states", "master weights")}  # fmt: skip


@record
class Reason:
    """One cause: the term or setting, its share of the difference in bytes (actual − estimated), a sentence."""

    term: str
    bytes: int | None
    text: str


@record
class Departure:
    """A counter outside its interval, at which step and in which moment, and why, the largest reason first."""

    counter: str
    actual: int
    estimated: Quantity
    step: int
    moment: str
    reasons: tuple[Reason, ...]

    @property
    def is_above(self) -> bool:
        return self.actual > self.estimated.high

    @property
    def distance(self) -> int:
        """Bytes from the nearer end of the interval."""
        end = self.estimated.high if self.is_above else self.estimated.low
        return abs(self.actual - int(end))

    def lines(self) -> list[str]:
        side = "above" if self.is_above else "below"
        low, high = format_bytes(int(self.estimated.low), "auto"), format_bytes(int(self.estimated.high), "auto")
        found = [
            f"{self.counter.replace('_', ' ')} {format_bytes(self.actual, 'auto')} at step {self.step} "
            f"({self.moment}) is {format_bytes(self.distance, 'auto')} {side} the interval {low} – {high}"
        ]
        return found + [f"  because {reason.text}" for reason in self.reasons]


def departures(scenario: Scenario, result: Result, account: Account, *, on_cpu: bool) -> list[Departure]:
    """Every counter that is outside its interval so far."""
    if account.peak is None:
        return []
    found = []
    for name, quantity in expected(result, on_cpu=on_cpu).items():
        actual = account.counters().get(name)
        if actual is None or quantity.low <= actual <= quantity.high:
            continue
        reasons = _reasons(name, actual, quantity, scenario, result, account, on_cpu)
        found.append(Departure(name, actual, quantity, account.peak.step, account.peak.moment, tuple(reasons)))
    return found


def _reasons(
    counter: str, actual: int, quantity: Quantity, scenario: Scenario, result: Result, account: Account, on_cpu: bool
) -> list[Reason]:
    """Reasons that point the way in which the actual departs, largest first; the largest term where there is none."""
    above = actual > quantity.high
    found = [*_changed(counter, scenario, result, account, on_cpu), *_terms(result, account)]
    found += _beside_tensors(counter, result, account)
    fitting = [reason for reason in found if reason.bytes is None or (reason.bytes > 0) == above]
    fitting.sort(key=lambda reason: -abs(reason.bytes or 0))
    if above and account.peak is not None and account.peak.moment == "evaluation":
        text = "it was a forward pass without gradients, an evaluation: its batches are not those of the training"
        fitting.insert(0, Reason("evaluation", None, text))
    if fitting:
        return fitting
    found = [_largest_term(result, account, above, on_cpu)]
    if on_cpu:
        found.append(Reason("cpu", None, "a CPU keeps other tensors than CUDA does: kernels and masks differ"))
    return found


def _largest_term(result: Result, account: Account, above: bool, on_cpu: bool) -> Reason:
    """The term that differs most in the direction of the departure, in the moment of the peak where that is known."""
    moment = ""
    terms: list[tuple[int, str, str]] = []
    for row in differences(result, account.measured(result), on_cpu=on_cpu):
        if row.depth == 0:
            moment = row.name
        elif row.difference and (row.difference < 0) == above:
            terms.append((abs(row.difference), row.name, moment))
    at_peak = account.name_of(account.peak.moment) if account.peak is not None else ""
    found = max([term for term in terms if term[2] == at_peak] or terms, default=None)
    if found is None:
        return Reason("unknown", None, "of which term is not known: give watch() the model and the optimizer")
    size, term, moment = found
    text = f"{term} at {moment} take {format_bytes(size, 'auto')} {'more' if above else 'less'} than estimated"
    return Reason(term, size if above else -size, text)


def _changed(counter: str, scenario: Scenario, result: Result, account: Account, on_cpu: bool) -> list[Reason]:
    """Settings that the run has otherwise than stated, and the estimate with them."""
    stated = result.scenario.get(scenario.task, {})
    before = expected(result, on_cpu=on_cpu)[counter]
    found = []
    for changes, words in _seen_otherwise(scenario.task, stated, account):
        try:
            again = expected(estimated_again(scenario, changes), on_cpu=on_cpu)[counter]
        except (VramwiseError, KeyError):
            found.append(Reason(", ".join(changes), None, words))
            continue
        low, high = (format_bytes(int(end), "auto") for end in (again.low, again.high))
        text = f"{words}: the estimate for that is {format_bytes(int(again.expected), 'auto')} ({low} – {high})"
        found.append(Reason(", ".join(changes), int(again.expected - before.expected), text))
    return found


def settings_seen(scenario: Scenario, result: Result, account: Account) -> dict[str, object]:
    """Keys of the task's table that the run had otherwise than stated, with what was seen."""
    found: dict[str, object] = {}
    for changes, _ in _seen_otherwise(scenario.task, result.scenario.get(scenario.task, {}), account):
        found |= changes
    return found


def _seen_otherwise(task: str, stated: Mapping[str, Any], account: Account) -> list[tuple[dict[str, object], str]]:
    found: list[tuple[dict[str, Any], str]] = []
    seen = account.observed
    if task in _SIZES and seen.tokens:
        batch, length = _SIZES[task]
        was = int(stated.get(batch) or 1), int(stated.get(length) or 1)
        sizes = {key: value for key, value, old in zip((batch, length), (seen.batch_size, seen.sequence_length), was,
                                                       strict=True) if value != old}  # fmt: skip
        if sizes and seen.tokens != was[0] * was[1]:
            words = [_size_in_words(key, value, was[(batch, length).index(key)]) for key, value in sizes.items()]
            found.append((sizes, " and ".join(words)))
    for key, value in seen.settings.items():
        old = stated.get(key)
        if old is not None and old != value:
            found.append(({key: value}, f"the model runs with {key} {value}, and {old} was stated"))
    return found


def _size_in_words(key: str, seen: int, stated: int) -> str:
    what = "batches" if "batch" in key else "sequences"
    how = ("larger" if "batch" in key else "longer") if seen > stated else ("smaller" if "batch" in key else "shorter")
    return f"{what} are {how} than stated ({key} {seen:,}, {stated:,} was stated)"


def _terms(result: Result, account: Account) -> list[Reason]:
    """What tensors of a kind take, beside what the estimate has for them."""
    seen = account.observed
    actual = {"weights": seen.weights, "gradients": seen.gradients, "optimizer states": seen.optimizer_states}
    found = []
    if seen.num_parameters is not None and seen.optimizer_states is None:
        to_come = _largest(result, _TERMS["optimizer states"])
        if to_come:
            more = format_bytes(to_come, "auto")
            text = f"optimizer states are not there yet: {more} more come with the first step of the optimizer"
            found.append(Reason("optimizer states", -to_come, text))
    for kind, names in _TERMS.items():
        size, known = actual[kind], _largest(result, names)
        if size is None or abs(size - known) <= NOTICEABLE * max(size, known):
            continue
        took, has = format_bytes(size, "auto"), format_bytes(known, "auto")
        text = f"{kind} take {took}, the estimate has {has}"
        if kind != "weights" and seen.num_trainable is not None:
            text += f" ({seen.num_trainable:,} parameters train, {result.model.num_trainable_parameters:,} estimated)"
        found.append(Reason(kind, size - known, text))
    return found


def _largest(result: Result, names: tuple[str, ...]) -> int:
    """The most that these terms take together in one moment."""
    sizes = (sum(part.bytes for part in phase.components.children if part.name in names) for phase in result.phases)
    return max(sizes, default=0)


def _beside_tensors(counter: str, result: Result, account: Account) -> list[Reason]:
    """Fragmentation, and what the process holds outside torch's allocator."""
    actual = account.counters()
    pairs = {
        "peak_reserved": ("peak_allocated", "fragmentation", "reserved − allocated"),
        "nvidia_smi": ("peak_reserved", "outside torch", "process − reserved: context, NCCL, other libraries"),
    }
    found = []
    for upper, (lower, term, words) in pairs.items():
        if upper not in actual or lower not in actual or not {upper, lower} <= result.quantities.keys():
            continue
        if upper == "peak_reserved" and counter == "peak_allocated":
            continue
        if upper == "nvidia_smi" and counter != "nvidia_smi":
            continue
        size = actual[upper] - actual[lower]
        estimated = int(result.quantities[upper].expected - result.quantities[lower].expected)
        if abs(size - estimated) > NOTICEABLE * actual[upper]:
            took, has = format_bytes(size, "auto"), format_bytes(max(0, estimated), "auto")
            found.append(Reason(term, size - estimated, f"{term} is {took} ({words}), the estimate has {has}"))
    return found
