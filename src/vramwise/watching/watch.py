"""`vramwise.watch()`: follows a user's own run step by step and says when it takes other memory than estimated."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from vramwise.errors import UsageError, VramwiseError
from vramwise.estimation import estimate
from vramwise.result import Quantity, Result
from vramwise.scenario import Scenario
from vramwise.site import file_to_write
from vramwise.units import counted, format_bytes
from vramwise.watching.account import Account, StepRow
from vramwise.watching.exposition import (
    Family,
    estimated_family,
    job_of_this_process,
    measured_family,
    place_of,
    served,
)
from vramwise.watching.following import lightning_class, trainer_class
from vramwise.watching.given import COUNTERS, Given, expected, scenario_of, with_card
from vramwise.watching.hooks import Hooks, Observed
from vramwise.watching.meters import Meter, device_here, meter_for
from vramwise.watching.reasons import Departure, departures

LABELS: Final = {"peak_allocated": "allocated", "peak_reserved": "reserved", "nvidia_smi": "process"}
GROWTH: Final = 0.01
"""A peak that grows by more than this share is told at once."""


def watch(
    given: Given | None = None,
    *,
    model: object = None,
    optimizer: object = None,
    device: str | None = None,
    every: int = 100,
    log: Callable[[str], None] | None = None,
    calibrate: bool = False,
    site: str | os.PathLike[str] | None = None,
    serve: str | None = None,
) -> Watch:
    """A watch over a training (or generation) of your own: estimated against actual, with reasons.

        with vramwise.watch("scenario.toml", model=model, optimizer=optimizer) as watched:
            for batch in batches:
                ...
                watched.step()

    `given` is a Scenario, a Result, a table of either, or a file. Without it the callbacks read the scenario off the
    trainer's own objects, and a plain loop is followed without an estimate. With `model` (a torch module) and
    `optimizer` the steps are cut into moments and the reasons name batch, length and terms. `device` is `cuda:N` or
    `cpu`, by default the one in use. A line is logged for the first two steps, a new peak, and every `every` steps;
    `log` takes each line (standard error otherwise). With `calibrate` the terms that a run's counters determine go into
    `site` (the user's own file where none is named) when it ends well, for later estimates. `serve` (`:9400`) exports
    estimated and actual memory and the steps for Prometheus while the watch runs. No library is imported before the
    watch begins. Raises UsageError for anything else than the above.
    """
    return Watch(
        given, model=model, optimizer=optimizer, device=device, every=every, log=log, calibrate=calibrate, site=site,
        serve=serve,
    )  # fmt: skip


class Watch:
    """One watch; `rows`, `departures` and `measured` hold what it saw, also after it ended."""

    def __init__(
        self,
        given: Given | None,
        *,
        model: object = None,
        optimizer: object = None,
        device: str | None = None,
        every: int = 100,
        log: Callable[[str], None] | None = None,
        calibrate: bool = False,
        site: str | os.PathLike[str] | None = None,
        serve: str | None = None,
    ) -> None:
        if every < 1:
            raise UsageError(f"watch: every is a number of steps from 1 on, got {every}")
        self.scenario: Scenario | None = None
        self.result: Result | None = None
        self.departures: list[Departure] = []
        self.account = Account(Observed())
        self._stated = scenario_of(given) if given is not None else None
        self._attached = (model, optimizer)
        self._device, self._every = device, every
        self._site = file_to_write(site) if calibrate else None
        self._log = log if log is not None else _to_standard_error
        self._meter: Meter | None = None
        self._hooks: Hooks | None = None
        self._expected: dict[str, Quantity] = {}
        self._told: set[str] = set()
        self._compared: dict[str, int] = {}
        self._shown_peak = 0
        self._serve, self._serving = serve, ExitStack()
        if serve is not None:
            place_of(serve)

    @property
    def device(self) -> str:
        """The watched device: `cuda:0` or `cpu`."""
        if self._device is None:
            self._device = device_here()
        return self._device

    @property
    def on_cpu(self) -> bool:
        """Whether no CUDA device is watched."""
        return not self.device.startswith("cuda")

    @property
    def is_running(self) -> bool:
        """Between `begin` and `end`."""
        return self._meter is not None

    @property
    def rows(self) -> list[StepRow]:
        """One row a step, the last ten thousand."""
        return list(self.account.rows)

    @property
    def measured(self) -> Result | None:
        """What was seen as a Result, moments and terms included; None without an estimate to hold it against."""
        return self.account.measured(self.result) if self.result is not None else None

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)

    def begin(self, model: object = None, optimizer: object = None) -> Self:
        """Start to follow; `with` does this. Raises UsageError where it runs already."""
        if self._meter is not None:
            raise UsageError("watch: it is running already")
        if model is not None:
            self._attached = (model, optimizer)
        self.account = Account(Observed())
        if self._stated is not None:
            scenario, result = self._stated
            self.hold_against(with_card(scenario, self.device) if result is None else scenario, result)
        meter = meter_for(self.device, *self._attached)
        meter.open("step")
        self._meter = meter
        trains = self.scenario is None or self.scenario.task == "train"
        self._hooks = Hooks(meter.mark, self.account.observed, self.device, trains=trains)
        self._hooks.attach(*self._attached)
        if self._serve is not None:
            self.say(f"exporting at {self._serving.enter_context(served(self._serve, self._families))}")
        return self

    def attach(self, model: object = None, optimizer: object = None) -> None:
        """Look at a model and an optimizer that were made after the watch began. Raises UsageError before it has."""
        if self._hooks is None:
            raise UsageError("watch: attach a model while the watch runs")
        self._hooks.attach(model, optimizer)

    def hold_against(self, scenario: Scenario, result: Result | None = None) -> None:
        """Compare with this scenario from now on. Raises what `estimate` raises."""
        self.result = result if result is not None else estimate(scenario)
        self.scenario = scenario
        self._expected = expected(self.result, on_cpu=self.on_cpu)
        self._told.clear()
        self._compared.clear()
        if self.on_cpu:
            self.say("on a CPU only tensors are counted; the estimate is CUDA's, without its context and workspaces")

    def step(self) -> StepRow:
        """The end of one optimizer step (or call of generate): compare, log, warn. Raises UsageError outside `with`."""
        if self._meter is None:
            raise UsageError("watch: step() belongs inside the with block")
        records = self._meter.close()
        is_larger = any((record.reserved or 0) > (self.account.reserved or 0) for record in records)
        is_due = is_larger or (self.account.steps + 1) % self._every == 0
        row = self.account.add(records, self._meter.process() if is_due else None)
        self._tell(row)
        self._warn(is_last=False)
        self._meter.open("step")
        return row

    def end(self, error: BaseException | None = None) -> None:
        """Stop to follow, say what was seen; an out-of-memory error is read, and never swallowed."""
        if self._meter is None:
            return
        self._serving.close()
        meter, self._meter = self._meter, None
        records = meter.close()
        if self._hooks is not None:
            self._hooks.remove()
        if error is not None or not self.account.steps:
            self.account.add(records, meter.process())
        if error is not None:
            self._read_failure(error)
        self._warn(is_last=error is None)
        for line in self.summary():
            self.say(line)
        if self._site is not None and error is None:
            self._learn(self._site)

    def _learn(self, path: str) -> None:
        """Keep what the run showed of this machine."""
        from vramwise.watching.learning import run_of_watch

        if self.scenario is None or self.account.steps < 2:
            self.say("calibrate: nothing was learned: it takes a scenario and two whole steps")
            return
        run, unlearned = run_of_watch(self.scenario, self.account, self.device)
        if run is not None:
            from vramwise.site.file import add_runs

            shown = add_runs(path, [run]).shown
            self.say(f"calibrate: {', '.join(term.shown for term in run.terms)} kept in {shown}")
        for text in unlearned:
            self.say(f"calibrate: not learned: {text}")

    def say(self, line: str) -> None:
        """Log a line; of several ranks the first one speaks, the others only warn."""
        if os.environ.get("RANK", "0") == "0":
            self._log(line)

    def summary(self) -> list[str]:
        """A line a counter: estimated with its interval, actual, difference."""
        actual = self.account.counters()
        if not actual:
            return []
        peak = self.account.peak
        where = f", most at step {peak.step} ({peak.moment})" if peak is not None else ""
        beside = (f"  {LABELS[n]:<10} {_beside(actual[n], self._expected.get(n))}" for n in COUNTERS if n in actual)
        return [f"{counted(self.account.steps, 'step')}{where}", *beside]

    def metrics(self) -> Mapping[str, float]:
        """The last step's counters and the estimates in GiB, for a logger."""
        from vramwise.units import gib

        if not self.account.rows:
            return {}
        row = self.account.rows[-1]
        actual = {"peak_allocated": row.allocated, "peak_reserved": row.reserved, "nvidia_smi": self.account.process}
        found = {f"vramwise/{LABELS[n]}_gib": gib(size) for n, size in actual.items() if size is not None}
        known = {n: q for n, q in self._expected.items() if actual.get(n) is not None}
        return found | {f"vramwise/{LABELS[n]}_estimated_gib": gib(int(q.expected)) for n, q in known.items()}

    def _families(self) -> list[Family]:
        """What a scrape gets: estimated and actual counters, and how many steps there were."""
        labels = job_of_this_process()
        actual = [({**labels, "counter": name}, float(size)) for name, size in self.account.counters().items()]
        steps = Family("vramwise_steps", "Steps that were watched.", [(labels, float(self.account.steps))], "counter")
        return [estimated_family(self._expected, labels), measured_family(actual), steps]

    def save(self, path: str) -> None:
        """Add the run to a file of measured cases, with the sizes that were seen; `vramwise accuracy` reads it.

        Raises UsageError without an estimate or before two whole steps, SourceError for a file that cannot be written.
        """
        from vramwise.measure.saving import save_case
        from vramwise.watching.saving import WHOLE_STEPS, watched_case

        if self.scenario is None or self.result is None:
            raise UsageError("watch: a run without a scenario is no measured case")
        if self.account.steps < WHOLE_STEPS:
            raise UsageError(f"watch: a measured case has {WHOLE_STEPS} whole steps, this run had {self.account.steps}")
        save_case(path, watched_case(self.scenario, self.result, self.account, self.device))

    def trainer_callback(self) -> object:
        """A transformers.TrainerCallback that runs this watch: `callbacks=[vramwise.watch().trainer_callback()]`."""
        return trainer_class(watch_of)(self)

    def lightning_callback(self) -> object:
        """The same for Lightning's Trainer."""
        return lightning_class(watch_of)(self)

    def _tell(self, row: StepRow) -> None:
        peak = max(row.allocated, row.reserved or 0)
        is_news = row.step <= 2 or row.step % self._every == 0 or peak > self._shown_peak * (1 + GROWTH)
        self._shown_peak = max(self._shown_peak, peak)
        if not is_news:
            return
        actual = {"peak_allocated": row.allocated, "peak_reserved": row.reserved, "nvidia_smi": row.process}
        parts = [
            f"{LABELS[n]} {_beside(size, self._expected.get(n))}" for n, size in actual.items() if size is not None
        ]
        self.say(f"step {row.step}: " + " · ".join(parts))

    def _warn(self, *, is_last: bool) -> None:
        """Above the interval at once; below it only at the end, when no longer batch can come."""
        counters = self.account.counters()
        if self.scenario is None or self.result is None or (counters == self._compared and not is_last):
            return
        self._compared = counters
        self.departures = departures(self.scenario, self.result, self.account, on_cpu=self.on_cpu)
        for found in self.departures:
            key = f"{found.counter} {found.is_above} {[reason.term for reason in found.reasons]}"
            if (found.is_above or is_last) and key not in self._told:
                self._told.add(key)
                head, *reasons = found.lines()
                self._log(f"{'WARNING ' if found.is_above else ''}{_rank()}{head}")
                for line in reasons:
                    self._log(line)

    def _read_failure(self, error: BaseException) -> None:
        from vramwise.measure.diagnosis import diagnose_text

        if "out of memory" not in f"{type(error).__name__} {error}".lower().replace("outofmemory", "out of memory"):
            return
        last = self.account.rows[-1]
        self._log(f"WARNING {_rank()}out of memory at step {last.step} ({last.moment})")
        try:
            found = diagnose_text(f"{type(error).__name__}: {error}")
        except VramwiseError:
            return
        for item in found:
            self._log(f"  because {item.cause}")
            for change in item.changes:
                self._log(f"  try {change.what} (cost: {change.cost})")


def watch_of(given: Watch | Given | None = None, **options: Any) -> Watch:
    """A watch as it is, or one of what `watch()` takes."""
    return given if isinstance(given, Watch) else watch(given, **options)


def _beside(size: int, estimated: Quantity | None) -> str:
    """`12.31 GiB (estimate 12.10 GiB, 11.90 – 12.50)`; the estimate in the same unit."""
    if estimated is None:
        return format_bytes(size, "auto")
    ends = " – ".join(format_bytes(int(end), "auto") for end in (estimated.low, estimated.high))
    side = "" if estimated.low <= size <= estimated.high else " ABOVE" if size > estimated.high else " below"
    return f"{format_bytes(size, 'auto')}{side} (estimate {format_bytes(int(estimated.expected), 'auto')}, {ends})"


def _rank() -> str:
    rank = os.environ.get("RANK")
    return f"rank {rank}: " if rank not in (None, "0") else ""


def _to_standard_error(line: str) -> None:
    bars = sys.modules.get("tqdm")
    if bars is not None:  # a trainer's progress bar stays whole
        bars.tqdm.write(f"vramwise: {line}", file=sys.stderr)
    else:
        print(f"vramwise: {line}", file=sys.stderr, flush=True)
