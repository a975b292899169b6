"""What to change so that an engine starts on the card: each is a full estimate of the changed scenario, and fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType

from vramwise.engines import engine_named
from vramwise.errors import VramwiseError
from vramwise.hardware import Gpu
from vramwise.largest import largest_within
from vramwise.memo import Memo
from vramwise.models import Model
from vramwise.records import record
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.scenario.inference import ServeSettings, counts
from vramwise.serving.common.resolved import ResolvedServe
from vramwise.serving.common.storage import storage_of
from vramwise.site import is_in_force
from vramwise.verdict import Advice, LateReasons

MOST_RANKS = 8
MOST_STAGES = 8
LEAST_LENGTH = 256  # a server of shorter requests is no answer to anybody
HIGHEST_RAISED, HIGHEST_LOWERED = 97, 99  # percent: above the first, little is left for what nobody counts
NOTHING = "no setting of this engine is enough: take a larger GPU, or more of them"
_LENGTHS = ("max_model_len", "n_ctx")
_AT_MOST = {"max_model_len": " at most"}
Change = Mapping[str, object]
Again = Callable[[Scenario], Result]
NO_CHANGE: Change = MappingProxyType({})


@record
class Trials:
    """A scenario that does not fit in `usable_bytes`, its settings with defaults in, and what others come to: `again`
    is the whole answer to another scenario."""

    scenario: Scenario
    resolved: ResolvedServe
    model: Model
    again: Again
    gpu: Gpu | None
    usable_bytes: int

    def need(self, changes: Change) -> int:
        """Bytes that the changed scenario needs; more than there are where it does not start for another reason."""
        settings = self.scenario.serve.replace(**changes)
        ranks = gpus_used(settings)
        changed = self.scenario.replace(serve=settings, num_gpus=max(self.scenario.num_gpus, ranks))
        told = self._told(changed)
        if told.needed is None:
            return self.usable_bytes + 1
        needed = told.needed if self.is_beside_others else told.total_needed
        if self.scenario.reserve_bytes:  # a pool may fill what must stay free
            needed = max(needed, told.process)
        return needed if told.fits else max(needed, self.usable_bytes + 1)

    def _told(self, changed: Scenario) -> _Told:
        """What the answer to another scenario says; kept, since a search comes to many of them more than once."""
        if is_in_force():  # whose answer also says which terms it asked for
            return _told_by(self.again, changed)
        given = changed.explicit, changed.serve.explicit
        key = changed, given, self.model, self.gpu
        return _known.get(key, lambda: _told_by(self.again, changed))

    def fit(self, changes: Change) -> bool:
        return self.need(changes) <= self.usable_bytes

    @property
    def is_beside_others(self) -> bool:
        """Whether less than the whole card is usable, so that a smaller share may fit where larger ones do not."""
        return self.scenario.gpu_free_bytes is not None or bool(self.scenario.reserve_bytes)


@record
class _Told:
    """Expected bytes that an answer says; None and nothing where the scenario is refused."""

    needed: int | None = None
    total_needed: int = 0
    process: int = 0
    fits: bool = False


def _told_by(again: Again, changed: Scenario) -> _Told:
    try:
        answer = again(changed)
    except VramwiseError:
        return _Told()
    said = answer.quantities
    process = int(said["nvidia_smi"].expected) if "nvidia_smi" in said else 0
    fits = answer.verdict is not None and answer.verdict.fits
    return _Told(int(answer.needed.expected), int(said["total_needed"].expected), process, fits)


_known: Memo[tuple[Scenario, tuple[frozenset[str], ...], Model, Gpu | None], _Told] = Memo(4096)


def gpus_used(settings: ServeSettings) -> int:
    """GPUs over which the engine spreads a model and its copies."""
    return settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.data_parallel_size


def advice(trials: Trials) -> Iterator[str]:
    """Changes that make it fit: on the GPUs that are there first, then on more of them."""
    more = [*_ranks(trials)]
    there = [said(change) for ranks, change in more if ranks <= trials.scenario.num_gpus]
    alone = (_length, _share, _cache, _eager, _half, _format)
    found = there + [said(change) for search in alone for change in search(trials)]
    found = found or [said(change) for change in _together(trials)]
    found += [said(change) for ranks, change in more if ranks > trials.scenario.num_gpus]
    if not found:
        yield NOTHING
    yield from found


def has_advice(trials: Trials) -> bool:
    """Whether any change makes it fit: the first that does ends it, and what takes few estimates comes first."""
    searches = (_ranks, _half, _format, _eager, _length, _cache, _share, _together)
    return any(True for search in searches for _ in search(trials))


def late_reasons(problem: str, trials: Trials) -> LateReasons:
    """What is short, and what to change, which is worked out when it is read."""
    return LateReasons([problem], lambda: advice(trials), lambda: () if has_advice(trials) else (NOTHING,))


def said(changes: Change, of: str = "") -> Advice:
    """`set KEY to VALUE and KEY to VALUE`, `of` how many."""
    pairs = (f"{key} to {text_of(key, value)}{_AT_MOST.get(key, '')}" for key, value in changes.items())
    return Advice(f"set {' and '.join(pairs)}{of}", changes)


def text_of(key: str, value: object) -> str:
    """A setting's value as a person reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(text_of(key, one) for one in value)
    return f"{value:,}" if key in _LENGTHS else str(value)


def _ranks(trials: Trials) -> Iterator[tuple[int, Change]]:
    """The least power of two of tensor-parallel ranks, beyond a node with stages, with the GPUs that it takes.

    No further ones of unequal GPUs, which copies of the model share out whole.
    """
    settings = trials.resolved.settings
    for layout in _layouts(settings):
        for beside in _experts(trials):
            change = {**layout, **beside}
            used = gpus_used(settings.replace(**change))
            if trials.scenario.gpus and used > trials.scenario.num_gpus:
                return
            if trials.scenario.gpus and trials.scenario.num_gpus % used:
                continue
            if trials.fit(change):
                yield used, change
                return


def _layouts(settings: ServeSettings) -> Iterator[Change]:
    ranks, stages = settings.tensor_parallel_size, settings.pipeline_parallel_size
    while ranks < MOST_RANKS:
        ranks *= 2
        yield {"tensor_parallel_size": ranks}
    while stages < MOST_STAGES and counts(settings.engine, "pipeline_parallel_size"):
        stages *= 2
        yield {"tensor_parallel_size": ranks, "pipeline_parallel_size": stages}


def _experts(trials: Trials) -> tuple[Change, ...]:
    """As it is, then with whole experts on each rank, where an engine refuses to cut them (blocks of fp8)."""
    cut = (
        counts(trials.resolved.settings.engine, "expert_parallel")
        and not trials.resolved.settings.expert_parallel
        and trials.model.parts.get("experts")
    )
    return (NO_CHANGE, {"expert_parallel": True}) if cut else (NO_CHANGE,)


def _length(trials: Trials, beside: Change = NO_CHANGE) -> Iterator[Change]:
    """The longest requests that fit, where that is less than was asked for and not below LEAST_LENGTH."""
    asked, below = trials.resolved.max_model_len, LEAST_LENGTH - 1
    if asked <= LEAST_LENGTH:
        return

    def need(more: int) -> int:
        return trials.need({**beside, "max_model_len": below + more})

    more = largest_within(need, trials.usable_bytes, asked - 1 - below)
    if more:
        yield {**beside, "max_model_len": below + more}


def _share(trials: Trials, beside: Change = NO_CHANGE) -> Iterator[Change]:
    """The least larger share that fits, else the largest smaller one, in steps of a hundredth."""
    key = engine_named(trials.resolved.settings.engine).memory_share
    if key is None or trials.resolved.settings.kv_cache_memory_bytes is not None:
        return
    percent = round(100 * getattr(trials.resolved.settings, key), 6)
    up = range(int(percent) + 1, HIGHEST_RAISED + 1)
    down = range(min(-int(-percent // 1) - 1, HIGHEST_LOWERED), 0, -1)
    for steps in (up, down):
        least = None
        for step in steps:
            change = {**beside, key: step / 100}
            need = trials.need(change)
            if need <= trials.usable_bytes:
                yield change
                return
            if least is not None and need > least and not trials.is_beside_others:
                break  # from here on the other side of the share lacks more and more
            least = need


def _cache(trials: Trials) -> Iterator[Change]:
    """The largest cache of a given size that fits, with shorter requests where it holds none of those asked for."""
    given = trials.resolved.settings.kv_cache_memory_bytes
    if given is None:
        return
    most = given - (trials.need(NO_CHANGE) - trials.usable_bytes)
    change = {"kv_cache_memory_bytes": most}
    if most > 0 and trials.fit(change):
        yield change
    elif most > 0:
        yield from _length(trials, change)


def _eager(trials: Trials) -> Iterator[Change]:
    change = {"enforce_eager": True}
    if not trials.resolved.settings.enforce_eager and trials.fit(change):
        yield change


def _half(trials: Trials) -> Iterator[Change]:
    """16 bits for what is computed in 32."""
    if trials.resolved.settings.dtype == "fp32":
        change = {"dtype": "fp16" if trials.gpu is not None and trials.gpu.supports("bf16") is False else "bf16"}
        if trials.fit(change):
            yield change


def _format(trials: Trials) -> Iterator[Change]:
    """8-bit weights, else 4-bit ones."""
    yield from islice((change for change in _formats(trials) if trials.fit(change)), 1)


def _formats(trials: Trials) -> Iterator[Change]:
    """Formats with fewer bits for weights that have none."""
    settings, gpu = trials.scenario.serve, trials.gpu
    storage = storage_of(trials.model, settings.dtype, settings.quantization, settings.quantization_group_size)
    if storage.quantization is not None:
        return
    for name in engine_named(settings.engine).narrower_weights:
        if name != "fp8" or gpu is None or gpu.supports("fp8_weights") is not False:
            yield {"quantization": name}


def _together(trials: Trials) -> Iterator[Change]:
    """Several changes where no single one is enough: share and length, with fewer bits where that takes it."""
    for beside in (NO_CHANGE, *_formats(trials)):
        found = [change for search in (_length, _share) if beside for change in search(trials, beside)]
        if not found and trials.resolved.max_model_len > LEAST_LENGTH:
            short = {**beside, "max_model_len": LEAST_LENGTH}
            found = [change for share in _share(trials, short) for change in _length(trials, share)]
        if found:
            yield from found
            return
