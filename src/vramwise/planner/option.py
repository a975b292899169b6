"""An option of a plan: a scenario that fits, and what a person wishes of one."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.planner.request_speed import RequestSpeed, request_speed
from vramwise.records import record
from vramwise.result import VERDICT_WORDS, Result
from vramwise.scenario import Scenario
from vramwise.scenario.words import command_line

GOALS: Mapping[str, str] = {"run": "serve", "fine-tune": "train", "train": "train"}
"""What a person wants, and the task that it is."""
RANKS = ("change", "time", "memory", "money", "front")
"""`front`: every option that no other one beats in memory, time and money at once, the fastest first."""
RECOMPUTE = ("none", "selective", "full")


@record
class Wishes:
    """What an option must keep to, and how options are ordered.

    `risk`: the chance of running out that is taken; None: the sure ones first, then tight ones. `keep`: keys that stay
    as they are. `most_recompute`: the most checkpointing. `tokens`: of a whole training, for its hours. `requests`: of
    the longest length at once, which replicas of a server share.
    """

    goal: str
    rank: str = "change"
    risk: float | None = None
    keep: frozenset[str] = frozenset()
    offloads: bool = True
    most_recompute: str = "full"
    price_per_hour: float | None = None
    tokens: int | None = None
    requests: int | None = None


@record
class Load:
    """Servers of one kind that hold so many requests at once together, and their cards."""

    requests: int
    replicas: int
    num_gpus: int
    cost_per_hour: float | None

    def to_dict(self) -> dict[str, object]:
        """Requests, servers, cards and their price an hour as JSON-able data."""
        return {
            "requests": self.requests, "replicas": self.replicas, "num_gpus": self.num_gpus,
            "cost_per_hour": self.cost_per_hour,
        }  # fmt: skip


@record
class Option:
    """A scenario that fits, what differs from what was asked, and what that asks of a person.

    `requests`: of serving, those wished for at once.
    """

    scenario: Scenario
    result: Result
    change: Mapping[str, object]
    words: str
    cost: str
    weight: int
    price_per_hour: float | None = None
    requests: int | None = None

    @property
    def load(self) -> Load | None:
        """The servers that the requests take: each holds what its cache has room for, llama.cpp's one context one."""
        if self.requests is None or self.scenario.task != "serve":
            return None
        many = self.result.quantities.get("max_concurrency")
        most = self.result.scenario["serve"].get("max_num_seqs")
        held = 1 if many is None else max(1, int(many.expected))
        replicas = -(-self.requests // min(held, most or held))
        cards = replicas * self.scenario.num_gpus
        price = None if self.price_per_hour is None else self.price_per_hour * cards
        return Load(self.requests, replicas, cards, price)

    @property
    def probability(self) -> float:
        """The chance that it fits, 0 to 1; 0 without a card to hold it against."""
        return 0.0 if self.result.verdict is None else self.result.verdict.probability

    @property
    def word_rank(self) -> int:
        """0 where it is sure to fit, 1 where it fits tightly."""
        return 0 if self.result.verdict is None else VERDICT_WORDS.index(self.result.verdict.word)

    @property
    def slowness(self) -> float:
        """For sorting: fast ones first."""
        return -(self.tokens_per_second or 0)

    @property
    def tokens_per_second(self) -> float | None:
        """Expected tokens a second of the whole job; None where no rate is known."""
        found = self.result.quantities.get("tokens_per_second")
        return None if found is None else float(found.expected)

    @property
    def request_speed(self) -> RequestSpeed | None:
        """Of serving: tokens a second of one request."""
        return request_speed(self.scenario, self.result)

    @property
    def cost_per_hour(self) -> float | None:
        """What the GPUs cost an hour, where their price is known."""
        return None if self.price_per_hour is None else self.price_per_hour * self.scenario.num_gpus

    @property
    def command(self) -> str:
        """The `vramwise estimate …` that asks for this option alone."""
        return command_line(self.scenario)

    def to_dict(self, tokens: int | None = None) -> dict[str, object]:
        """The option as JSON-able data; with the `tokens` of a whole training also its `hours` and `gpu_hours`."""
        step = self.result.quantities.get("step_time_s")
        rate = self.result.quantities.get("tokens_per_second")
        found: dict[str, object] = {
            "scenario": self.result.scenario,
            "change": dict(self.change),
            "words": self.words,
            "cost": self.cost,
            "command": self.command,
            "total_needed": self.result.needed.to_dict(),
            "probability": self.probability,
            "step_time_s": None if step is None else step.to_dict(),
            "tokens_per_second": None if rate is None else rate.to_dict(),
            "cost_per_hour": self.cost_per_hour,
        }
        speed = self.request_speed
        if self.load is not None:
            found["load"] = self.load.to_dict()
        if speed is not None:
            found["request_tokens_per_second"] = speed.to_dict()
        if tokens is not None and self.tokens_per_second:
            hours = tokens / self.tokens_per_second / 3600
            found["hours"] = round(hours, 3)
            found["gpu_hours"] = round(hours * self.scenario.num_gpus, 3)
        return found


def words_of(values: Mapping[str, object]) -> str:
    """Changed values as a person reads them: 4-bit weights are what QLoRA is, and an empty list says nothing."""
    shown = {key: value for key, value in values.items() if value not in ((), 1) or value is True}
    if shown.get("method") == "qlora" and shown.get("quantization") == "nf4":
        del shown["quantization"]
    return " · ".join(_named(key, value) for key, value in shown.items()) or "as asked"


def _named(key: str, value: object) -> str:
    if key == "num_gpus":
        return f"{value:,} GPUs"
    if value is True:
        return key
    return f"{key} {value:,}" if isinstance(value, int) and value is not False else f"{key} {value}"
