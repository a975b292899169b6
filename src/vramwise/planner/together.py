"""Several programs on one card: what all of them take at the worst moment of each.

They start in the order in which they are given, each on what those before it left; each brings a CUDA context of its
own. An engine with `sleep_level` sleeps while another such engine is awake: these take turns, all others are there
with all they ever take. The ends of the intervals add up, as if every program were at its own at once: two of the same
kind err alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vramwise.errors import ScenarioError, UsageError, clipped
from vramwise.hardware import find_gpu
from vramwise.hardware.room import Room, room_of
from vramwise.planner.suggestions import Estimate
from vramwise.records import record
from vramwise.result import Capacity, Quantity, Result, Verdict
from vramwise.scenario import Scenario
from vramwise.units import format_bytes
from vramwise.verdict import Advice, verdict_of

ASLEEP = "asleep"
_CARD_KEYS = ("gpu", "gpus", "gpu_total_bytes", "gpu_free_bytes", "reserve_bytes", "driver")


@record
class Part:
    """One program: what its process takes, what it holds asleep (None: it does not sleep), what was free for it."""

    name: str
    scenario: Scenario
    result: Result
    process: Quantity
    asleep: Quantity | None
    free_bytes: int

    @property
    def starts(self) -> bool:
        """Whether it fits on what is free when it starts."""
        return self.result.verdict is None or self.result.verdict.fits

    def to_dict(self) -> dict[str, object]:
        host = self.result.quantities.get("host_memory")
        return {
            "name": self.name,
            "model": self.result.model.id,
            "scenario": dict(self.result.scenario),
            "process": self.process.to_dict(),
            "asleep": self.asleep.to_dict() if self.asleep is not None else None,
            "host_memory": host.to_dict() if host is not None else None,
            "free_bytes": self.free_bytes,
            "verdict": self.result.verdict.to_dict() if self.result.verdict is not None else None,
        }


@record
class Moment:
    """Who is awake, and what all take then, by program."""

    name: str
    held: tuple[tuple[str, Quantity], ...]

    @property
    def total(self) -> Quantity:
        return _sum(quantity for _, quantity in self.held)


@record
class Together:
    """The answer: the card, the programs, the moments of which the largest decides, and the verdict."""

    capacity: Capacity
    parts: tuple[Part, ...]
    moments: tuple[Moment, ...]
    verdict: Verdict
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> Moment:
        return max(self.moments, key=lambda moment: moment.total.expected)

    def to_dict(self) -> dict[str, object]:
        """What `vramwise estimate … --together --json` prints under `together`."""
        return {
            "capacity": {
                "gpu": self.capacity.gpu,
                "total_bytes": self.capacity.total_bytes,
                "usable_bytes": self.capacity.usable_bytes,
            },
            "total_needed": self.worst.total.to_dict(),
            "moment": self.worst.name,
            "moments": [{"name": moment.name, "bytes": moment.total.expected} for moment in self.moments],
            "verdict": self.verdict.to_dict(),
            "parts": [part.to_dict() for part in self.parts],
            "notes": list(self.notes),
        }


def together(programs: Sequence[tuple[str, Scenario]], estimate: Estimate) -> Together:
    """What the programs take together on their one card.

    Raises UsageError where there are fewer than two or no card is known, ScenarioError where they name several.
    """
    if len(programs) < 2:
        raise UsageError("--together: one program alone is an estimate: give two files or command lines at least")
    scenarios = on_one_card([scenario for _, scenario in programs])
    first = scenarios[0]
    if first.gpus:
        raise ScenarioError("gpus", "several programs share one card here: name that one (gpu)")
    gpu = find_gpu(first.gpu).gpu if first.gpu is not None else None
    room = room_of(first, gpu)
    if room is None:
        raise UsageError("--together: which card? --gpu says it")
    parts: list[Part] = []
    for (name, _), scenario in zip(programs, scenarios, strict=True):
        parts.append(_part(name, scenario, room, parts, estimate))
    moments = tuple(_moments(parts))
    worst = max(moments, key=lambda moment: moment.total.expected)
    reasons = [*_limits(room), *(reason for part in parts if not part.starts for reason in _why(part))]
    verdict = verdict_of(worst.total, room.usable_bytes, reasons, runs=all(part.starts for part in parts))
    return Together(room.capacity, tuple(parts), moments, verdict, tuple(_notes(parts)))


def on_one_card(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """The scenarios on the card that one of them names. Raises ScenarioError where they name several.

    Raises UsageError where none names a card.
    """
    named = [scenario for scenario in scenarios if any(getattr(scenario, key) for key in _CARD_KEYS[:3])]
    if not named:
        raise UsageError("--together: which card? --gpu says it")
    card = {key: getattr(named[0], key) for key in _CARD_KEYS}
    for other in named[1:]:
        if _card_of(other) != _card_of(named[0]):
            ours, theirs = (clipped(str(one.gpu or one.gpu_total_bytes)) for one in (named[0], other))
            raise ScenarioError("gpu", f"the programs are on {ours} and on {theirs}: together they are on one card")
    return [scenario.replace(**card) for scenario in scenarios]


def _card_of(scenario: Scenario) -> tuple[object, ...]:
    gpu = find_gpu(scenario.gpu).gpu.id if scenario.gpu is not None else None
    return gpu, scenario.gpu_total_bytes


def _part(name: str, scenario: Scenario, room: Room, before: Sequence[Part], estimate: Estimate) -> Part:
    """A program on what those before it left; the ones that can sleep do by then."""
    taken = sum(int((part.asleep or part.process).expected) for part in before)
    free = max(1, room.free_bytes - taken)
    result = estimate(scenario.replace(gpu_free_bytes=free, reserve_bytes=None))
    moment = next((phase for phase in result.phases if phase.name == ASLEEP), None)
    tree = moment.components if moment is not None else None
    asleep = None if tree is None else Quantity(tree.low, tree.bytes, tree.high)
    return Part(name, scenario, result, _process(result), asleep, free)


def _process(result: Result) -> Quantity:
    """The most that the process ever holds; of one that does not start, as far as it would get.

    What an engine that takes a share of its card needs is a card's size, which nobody takes of this one.
    """
    return result.quantities.get("nvidia_smi") or result.needed


def _moments(parts: Sequence[Part]) -> list[Moment]:
    """All at once, or, of those that sleep in turns, each awake once."""
    sleepers = [part for part in parts if part.asleep is not None]
    if not sleepers:
        return [Moment("all at once", tuple((part.name, part.process) for part in parts))]
    moments = []
    for awake in sleepers:
        held = tuple(
            (part.name, part.process if part.asleep is None or part is awake else part.asleep) for part in parts
        )
        moments.append(Moment(f"{awake.name} awake", held))
    resting = tuple((part.name, part.asleep or part.process) for part in parts)
    return [*moments, Moment("all asleep that can", resting)]


def _sum(quantities: Iterable[Quantity]) -> Quantity:
    every = list(quantities)
    return Quantity(*(sum(int(getattr(one, end)) for one in every) for end in ("low", "expected", "high")))


def _limits(room: Room) -> list[str]:
    said = room.limits()
    return [said] if said is not None else []


def _why(part: Part) -> list[str]:
    """A part's own reasons, with its name."""
    reasons = part.result.verdict.reasons if part.result.verdict is not None else ()
    free = f"{part.name} finds {format_bytes(part.free_bytes)} free"
    return [free, *(_named(part, reason) for reason in reasons if "(gpu_free_bytes)" not in reason)]


def _named(part: Part, reason: str) -> str:
    text = f"{part.name}: {reason}"
    return Advice(text, reason.values) if isinstance(reason, Advice) else text


def _notes(parts: Sequence[Part]) -> list[str]:
    notes = []
    several = [part.name for part in parts if part.scenario.num_gpus > 1]
    if several:
        notes.append(f"{', '.join(several)} on several GPUs: counted is the fullest of them, which the others share")
    offloaded = [part for part in parts if part.asleep is not None and part.scenario.serve.sleep_level == 1]
    if offloaded:
        sizes = sum(int(part.result.quantities["host_memory"].expected) for part in offloaded)
        notes.append(f"asleep at level 1, weights wait in host memory: {format_bytes(sizes)}")
    return notes
