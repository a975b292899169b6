"""`plan(scenario, wishes)`: the changes, cards and layouts with which a model runs or trains, best first.

What is asked for is kept as far as it is stated among `keep`; every option is a full estimate of its own scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import islice

from vramwise.errors import UsageError, VramwiseError
from vramwise.estimation import described_model, estimate
from vramwise.frameworks import framework_of
from vramwise.hardware import find_gpu
from vramwise.models.model import Model
from vramwise.planner.changes import Change, Cost, changed
from vramwise.planner.combinations import MOST_ESTIMATES, Reached, Seen, combinations
from vramwise.planner.inventory import Pool
from vramwise.planner.layouts import layouts
from vramwise.records import record, replace
from vramwise.result import VERDICT_WORDS, Result
from vramwise.scenario import Scenario
from vramwise.scenario.words import command_line
from vramwise.units import format_bytes

GOALS: Mapping[str, str] = {"run": "serve", "fine-tune": "train", "train": "train"}
"""What a person wants, and the task that it is."""
RANKS = ("change", "time", "memory", "money")
RECOMPUTE = ("none", "selective", "full")
MOST_OPTIONS = 6
_MOST_FITS = 12  # of changes: more only ask more
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
_MOST_CARDS = 4096
_COUNTS_WITH_A_FIT = 2  # of cards: the fewest that are enough, and twice as many
_BEST_OF_A_COUNT = 2

_answer: Callable[[Scenario], Result] = partial(estimate, replays=False)


@record
class Wishes:
    """What an option must keep to, and how options are ordered.

    `risk`: the chance of running out that is taken; None: the sure ones first, then tight ones. `keep`: keys that stay
    as they are. `most_recompute`: the most checkpointing. `tokens`: of a whole training, for its hours.
    """

    goal: str
    rank: str = "change"
    risk: float | None = None
    keep: frozenset[str] = frozenset()
    offloads: bool = True
    most_recompute: str = "full"
    price_per_hour: float | None = None
    tokens: int | None = None


@record
class Option:
    """A scenario that fits, what differs from what was asked, and what that asks of a person."""

    scenario: Scenario
    result: Result
    change: Mapping[str, object]
    words: str
    cost: str
    weight: int
    price_per_hour: float | None = None

    @property
    def probability(self) -> float:
        return 0.0 if self.result.verdict is None else self.result.verdict.probability

    @property
    def tokens_per_second(self) -> float | None:
        found = self.result.quantities.get("tokens_per_second")
        return None if found is None else float(found.expected)

    @property
    def cost_per_hour(self) -> float | None:
        """What the GPUs cost an hour, where their price is known."""
        return None if self.price_per_hour is None else self.price_per_hour * self.scenario.num_gpus

    @property
    def command(self) -> str:
        return command_line(self.scenario)

    def to_dict(self, tokens: int | None = None) -> dict[str, object]:
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
        if tokens is not None and self.tokens_per_second:
            hours = tokens / self.tokens_per_second / 3600
            found["hours"] = round(hours, 3)
            found["gpu_hours"] = round(hours * self.scenario.num_gpus, 3)
        return found


@record
class Plan:
    """The options, best first, how many scenarios were estimated, and what stands in the way of what was asked."""

    goal: str
    asked: Result
    searched: int
    options: tuple[Option, ...]
    binding: str
    tokens: int | None = None
    interrupted: bool = field(default=False, compare=False)

    def to_dict(self) -> dict[str, object]:
        return {
            "goal": self.goal,
            "searched": self.searched,
            "options": [option.to_dict(self.tokens) for option in self.options],
            "binding": self.binding,
            "interrupted": self.interrupted,
        }


def plan(
    scenario: Scenario | Mapping[str, object], wishes: Wishes, pools: Sequence[Pool] = (),
    seen: Seen = lambda number: None,
) -> Plan:  # fmt: skip
    """What to change, and how many of which GPUs in which layout, so that `scenario` fits.

    `scenario` is a `Scenario` or the same as a table; its task is that of `wishes.goal` (GOALS). `pools`: the GPUs that
    there are; without, the scenario's own cards, and more of them where their number is not stated. `seen` is called
    with the number of estimates so far. Raises what the estimate of the scenario raises; UsageError where there is no
    card to plan for. A KeyboardInterrupt ends the search with what was found.
    """
    if not isinstance(scenario, Scenario):
        scenario = Scenario.from_dict(scenario)
    if not pools and scenario.gpu is None and scenario.gpu_total_bytes is None:
        raise UsageError("no card to plan for: give --gpu CARD, or --inventory FILE with those there are")
    first = _on_pool(scenario, pools[0]) if pools and scenario.gpu is None else scenario
    found, reached, interrupted = list[Option](), list[Reached](), False
    searched = 0

    def count(number: int) -> None:
        nonlocal searched
        searched += 1
        seen(searched)

    asked = _answer(first)
    try:
        for one in combinations(first, _answer, partial(_is_allowed, wishes), MOST_ESTIMATES, count):
            reached.append(one)
            if one.fits:
                found.append(_option_of(one, wishes, pools))
                if len(found) >= _MOST_FITS:
                    break
        if first.task == "train":
            model = described_model(first.model)[1]
            for pool in pools or _own_pool(first):
                found += _laid_out(first, model, pool, wishes, count)
    except KeyboardInterrupt:
        interrupted = True
    options = sorted(_best([option for option in found if _is_sure_enough(option, wishes)], wishes), key=_word)
    binding = _binding(asked, reached, options, wishes)
    return Plan(wishes.goal, asked, searched + 1, tuple(options), binding, wishes.tokens, interrupted)


def _is_allowed(wishes: Wishes, change: Change) -> bool:
    """Whether a change keeps to the wishes."""
    keys = set(change.values)
    if keys & wishes.keep or (change.rank == Cost.HOST_MEMORY and not wishes.offloads):
        return False
    if wishes.goal == "train" and "method" in keys:
        return False
    checkpointing = change.values.get("checkpointing", "none")
    return RECOMPUTE.index(str(checkpointing)) <= RECOMPUTE.index(wishes.most_recompute)


def _option_of(reached: Reached, wishes: Wishes, pools: Sequence[Pool]) -> Option:
    costs = dict.fromkeys(change.cost for change in reached.changes if not change.cost.startswith("none"))
    price = next((pool.price_per_hour for pool in pools), None) or wishes.price_per_hour
    return Option(
        reached.scenario, reached.result, reached.values, _words(reached.values), "; ".join(costs) or "none",
        reached.weight, price,
    )  # fmt: skip


# -- how many of which GPUs, and how laid out ---------------------------------------------------------------


def _own_pool(scenario: Scenario) -> list[Pool]:
    """The scenario's own cards, as many as it takes where their number is not stated."""
    if scenario.gpu is None:
        return []
    many = scenario.num_gpus if "num_gpus" in scenario.explicit else _MOST_CARDS
    return [Pool(scenario.gpu, many, scenario.gpus_per_node, None, None, scenario.network_gbit_s)]


def _on_pool(scenario: Scenario, pool: Pool, num_gpus: int | None = None) -> Scenario:
    """The scenario on cards of a pool."""
    network = pool.network_gbit_s or scenario.network_gbit_s
    changes: dict[str, object] = {"gpu": pool.gpu, "gpus_per_node": pool.per_node, "network_gbit_s": network}
    if num_gpus is not None:
        changes["num_gpus"] = num_gpus
    return scenario.replace(**{key: value for key, value in changes.items() if getattr(scenario, key) != value})


def _counts(scenario: Scenario, pool: Pool, wishes: Wishes) -> Iterator[int]:
    """Numbers of cards: the one that is stated or kept, else doubling up to what there is."""
    if "num_gpus" in scenario.explicit | wishes.keep:
        if scenario.num_gpus <= pool.count:
            yield scenario.num_gpus
        return
    number = 1
    while number < pool.count:
        yield number
        number *= 2
    yield pool.count


def _laid_out(
    scenario: Scenario, model: Model, pool: Pool, wishes: Wishes, seen: Seen
) -> Iterator[Option]:  # fmt: skip
    """The fastest layouts on the fewest cards of a pool that are enough, and on the next number of them."""
    with_a_fit = 0
    least = _least_cards(scenario, model, pool)
    for number in _counts(scenario, pool, wishes):
        if number < least or with_a_fit >= _COUNTS_WITH_A_FIT:
            continue
        on_these = _on_pool(scenario, pool, number)
        options = sorted(_sized(on_these, model, pool, wishes, seen), key=_surely_fast)
        with_a_fit += bool(options)
        yield from islice(options, _BEST_OF_A_COUNT)


def _least_cards(scenario: Scenario, model: Model, pool: Pool) -> int:
    """Cards below which not even the weights would lie in them: two bytes for each that trains, half a byte else."""
    usable = find_gpu(pool.gpu).gpu.usable_bytes
    width = 0.5 if scenario.train.method == "qlora" else 2
    return 1 if usable is None else int(width * model.num_parameters) // usable


def _sized(
    scenario: Scenario, model: Model, pool: Pool, wishes: Wishes, seen: Seen
) -> Iterator[Option]:  # fmt: skip
    """For every layout and kind of checkpointing the micro-batches that fit and are faster than smaller ones."""

    def tried(*values: Mapping[str, object]) -> Option | None:
        together = {key: value for each in values for key, value in each.items()}
        if set(together) & wishes.keep:
            return None
        seen(0)
        return _tried(scenario, _with_batch(scenario, together), pool, wishes)

    kinds = [*_checkpointing(scenario, wishes)]
    for layout in layouts(scenario, model, scenario.num_gpus):
        batches = [*_micro_batches(scenario, wishes)]
        if tried(layout, kinds[-1], batches[0]) is None:
            continue  # what recomputes most, on the smallest micro-batch, needs least
        for checkpointing in kinds:
            fastest = 0.0
            for batch in batches:
                option = tried(layout, checkpointing, batch)
                if option is None or (option.tokens_per_second or 0) <= fastest:
                    break
                fastest = option.tokens_per_second or 0
                yield option


def _with_batch(scenario: Scenario, values: Mapping[str, object]) -> Mapping[str, object]:
    """As many micro-batches as make the optimizer's batch no smaller than what was asked for."""
    train = scenario.train.replace(**values)
    if train.pipeline_parallel_size > 1 or "micro_batch_size" not in values:
        return values
    ranks = max(1, scenario.num_gpus // (train.tensor_parallel_size * train.context_parallel_size))
    asked = scenario.train.micro_batch_size * scenario.train.gradient_accumulation_steps
    steps = -(-asked // (train.micro_batch_size * ranks))
    stated = scenario.train.gradient_accumulation_steps
    return values if steps == stated else {**values, "gradient_accumulation_steps": steps}


def _checkpointing(scenario: Scenario, wishes: Wishes) -> Iterator[Mapping[str, object]]:
    """As asked, and what recomputes more; nothing else where that is to stay."""
    present = scenario.train.checkpointing
    yield {}
    if "checkpointing" in wishes.keep:
        return
    for kind in RECOMPUTE[RECOMPUTE.index(present) + 1 : RECOMPUTE.index(wishes.most_recompute) + 1]:
        if kind == "selective" and not framework_of(scenario.train).sharding.cuts:
            continue
        yield {"checkpointing": kind, "recompute": ()}


def _micro_batches(scenario: Scenario, wishes: Wishes) -> Iterator[Mapping[str, object]]:
    if "micro_batch_size" in wishes.keep:
        yield {}
        return
    for size in _MICRO_BATCHES:
        yield {} if size == scenario.train.micro_batch_size else {"micro_batch_size": size}


def _tried(scenario: Scenario, values: Mapping[str, object], pool: Pool, wishes: Wishes) -> Option | None:
    """The option of these values; None where it is refused, or does not fit the cards or their hosts."""
    try:
        made = changed(scenario, values)
        result = _answer(made)
    except VramwiseError:
        return None
    host = result.quantities.get("host_memory")
    if pool.host_ram_bytes is not None and host is not None and host.expected > pool.host_ram_bytes:
        return None
    if result.verdict is None or not result.verdict.fits:
        return None
    price = pool.price_per_hour or wishes.price_per_hour
    named = {key: value for key, value in values.items() if value != ()}
    cards = f"{scenario.num_gpus:,} × {find_gpu(pool.gpu).gpu.name}"
    words = f"{cards} · {_words(named)}" if named else cards
    weight = len(named)
    return Option(made, result, dict(values), words, "none" if not named else "another layout", weight, price)


def _words(values: Mapping[str, object]) -> str:
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


# -- which of them, and in what order -----------------------------------------------------------------------


def _is_sure_enough(option: Option, wishes: Wishes) -> bool:
    return wishes.risk is None or option.probability >= 1 - wishes.risk


def _word(option: Option) -> int:
    verdict = option.result.verdict
    return 0 if verdict is None else VERDICT_WORDS.index(verdict.word)


def _speed_order(option: Option) -> float:
    """Fast ones first."""
    return -(option.tokens_per_second or 0)


def _longest(option: Option) -> int:
    """Tokens of a request, of serving."""
    settings = option.result.scenario.get(option.scenario.task)
    found = settings if isinstance(settings, dict) else {}
    return int(found.get("max_model_len") or found.get("n_ctx") or 0)


def _surely_fast(option: Option) -> tuple[int, float]:
    """Sure ones first, then fast ones."""
    return _word(option), _speed_order(option)


def _money(option: Option) -> float:
    """What a token costs; where no price is known, GPU-seconds of it."""
    rate, price = option.tokens_per_second, option.cost_per_hour
    return (price if price is not None else option.scenario.num_gpus) / (rate or 1e-9)


def _best(found: list[Option], wishes: Wishes) -> Iterator[Option]:
    """The options in the order wished for: sure ones before tight ones, no two of the same scenario."""
    orders: Mapping[str, Callable[[Option], float]] = {
        "change": lambda option: option.weight + 1000 * (option.scenario.num_gpus - 1),
        "time": _speed_order,
        "memory": lambda option: float(option.result.needed.expected),
        "money": _money,
    }
    once = {repr(option.result.scenario): option for option in reversed(found)}
    fewest = dict[str, Option]()
    for option in sorted(once.values(), key=lambda option: option.scenario.num_gpus):
        others = {key: value for key, value in option.change.items() if key != "num_gpus"}
        fewest.setdefault(f"{option.scenario.gpu} {sorted(others.items(), key=str)} {_word(option)}", option)

    def order(option: Option) -> tuple[int, float, float]:
        return _word(option), orders[wishes.rank](option), _speed_order(option) - _longest(option)

    return islice(filter(None, map(partial(_verified, wishes), sorted(fewest.values(), key=order))), MOST_OPTIONS)


def _verified(wishes: Wishes, option: Option) -> Option | None:
    """The option with its full answer, for which the allocator plays the step; None where that does not fit."""
    result = estimate(option.scenario)
    full = replace(option, result=result)
    return full if result.verdict is not None and result.verdict.fits and _is_sure_enough(full, wishes) else None


def _binding(asked: Result, reached: list[Reached], options: list[Option], wishes: Wishes) -> str:
    """What is largest where the scenario as asked needs most; by how much the best of all misses where none fits."""
    peak = next((phase for phase in asked.phases if phase.name == asked.peak_phase), None)
    largest = max(peak.components.children, key=lambda node: node.bytes, default=None) if peak is not None else None
    what = "" if largest is None or peak is None else f"{largest.name} ({format_bytes(largest.bytes)} at {peak.name})"
    if options or asked.capacity is None:
        return what
    needs = [int(one.result.needed.expected) for one in reached if "total_needed" in one.result.quantities]
    missing = min(needs, default=0) - asked.capacity.usable_bytes
    wish = f", with {', '.join(sorted(wishes.keep))} kept" if wishes.keep else ""
    if missing > 0:
        return f"{what}; the best that was tried misses by {format_bytes(missing)}{wish}"
    risk = "" if wishes.risk is None else f" with a chance of running out below {wishes.risk:g}"
    return f"{what}; nothing that was tried fits{risk}{wish}"
