"""A log of few layers as the log of many: what a period of layers in the middle did, repeated in every pass.

Every event belongs to a layer or to none: by the module that ran, by the layer whose tensors an operation of no module
reads (an optimizer's lists), or by the layer of what is given back. In a pass, upwards or downwards, each layer has one
run of events; the copies of a period stand behind it where the pass goes up and before it where it goes down. A life is
known by its layer, what made it between which marks, and the how many-th such it is, so that what a copy gives back is
that of its neighbour.

Two logs of depths one period apart tell whether that holds: the shorter, spliced once, must be the longer one. What is
as large as there are layers (a stack of norms) grows by what it grew between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vramwise.dryrun.events import FREE, MARK, NOTE, TAKE, Life, Log
from vramwise.dryrun.repeated import Repeated
from vramwise.dryrun.tracer import WORKSPACE

Place = tuple[Any, ...]


class NotRegularError(Exception):
    """A log in which layers do not repeat."""


def spliced(short: Log, longer: Log, layers: Repeated) -> Log:
    """The log of `layers.count` layers, from one of `layers.depth` and one of a period more.

    Raises NotRegularError where the two do not show how it goes on.
    """
    taken = _Taken(short, layers)
    once, where = taken.repeated(1)
    growth = _growth(once, where, Log(longer.lives, in_order(longer)))
    whole, where = taken.repeated(layers.times)
    for life, (number, copied) in zip(whole.lives, where, strict=True):
        if not copied and number in growth:
            life.size += layers.times * growth[number]
    return whole


def in_order(log: Log) -> list[tuple[str, Any]]:
    """Events without notes; what is given back at once, between two other events, in the order in which it was taken.

    Autocast lets go of its copies in the order of their addresses; an allocator with nothing to do between ends alike.
    """
    found: list[tuple[str, object]] = []
    freed: list[tuple[str, object]] = []
    for event in log.events:
        if event[0] == FREE:
            freed.append(event)
        elif event[0] != NOTE:
            found += [*sorted(freed), event]
            freed = []
    return found + sorted(freed)


def _growth(once: Log, where: list[tuple[int, bool]], longer: Log) -> dict[int, int]:
    """Bytes by which lives of the shorter log grow with a period; raises NotRegularError where events differ."""
    if len(once.events) != len(longer.events) or once.events != longer.events:
        raise NotRegularError("the events of one period more are others")
    found = {}
    for mine, theirs, (number, copied) in zip(once.lives, longer.lives, where, strict=True):
        if mine.size != theirs.size:
            if copied or theirs.size < mine.size:
                raise NotRegularError("a tensor of a repeated layer has another size")
            found[number] = theirs.size - mine.size
    return found


def _of_the_next(log: Log) -> list[int | None]:
    """What each life is like; one that is like none (an optimizer's counter of steps) is as the next one."""
    found: list[int | None] = []
    following: int | None = None
    for life in reversed(log.lives):
        if life.inside or life.module:
            following = None
        elif life.like is not None:
            following = life.like
        found.append(life.like if life.like is not None else following)
    return [None if like is not None and like >= number else like for number, like in enumerate(reversed(found))]


@dataclass(slots=True)
class _Run:
    """Events in a row that belong to one layer, or to none."""

    layer: int | None
    events: list[tuple[str, Any]] = field(default_factory=list)


class _Taken:
    """A log taken apart into runs."""

    def __init__(self, log: Log, layers: Repeated) -> None:
        self.log, self.layers = log, layers
        self.layer_of: dict[int, int | None] = {}
        self.place_of: dict[int, Place] = {}
        self.runs: list[_Run] = []
        self.counts: dict[Place, int] = {}
        self.marks = 0
        self.next_like = _of_the_next(log)
        current: int | None = None
        for kind, what in in_order(log):
            layer: int | None = None
            if kind == MARK:
                current, self.marks = None, self.marks + 1
            elif kind == TAKE:
                life = log.lives[what]
                if life.inside:
                    current = self.layers.layer_of(life.module)
                layer = None if life.name == WORKSPACE else self._layer(life, current)
                self._place(life, layer)
            elif kind == FREE:
                layer = self.layer_of[what] if current is None else current
            if not self.runs or self.runs[-1].layer != layer:
                self.runs.append(_Run(layer))
            self.runs[-1].events.append((kind, what))

    def _layer(self, life: Life, current: int | None) -> int | None:
        if current is not None or life.inside:
            return current
        named = self.layers.layer_of(life.module)
        like = self.next_like[life.number]
        return self.layer_of[like] if named is None and like is not None else named

    def _place(self, life: Life, layer: int | None) -> None:
        module = life.module if layer is None else self.layers.renamed(life.module, 0)
        kind: Place = layer, self.marks, life.operation, module, life.size
        self.counts[kind] = count = self.counts.get(kind, 0) + 1
        self.layer_of[life.number], self.place_of[life.number] = layer, (*kind[1:], count)

    def repeated(self, times: int) -> tuple[Log, list[tuple[int, bool]]]:
        """The log with so many periods more, and for each of its lives which one it is of, and whether a copy."""
        made = _Made(self, times)
        for runs, step in self._passes():
            made.take(runs, step)
        return made.log, made.where

    def _passes(self) -> Iterator[tuple[list[_Run], int]]:
        """Runs in a row whose layers follow one another, and the direction in which they do (0: one alone)."""
        waiting: list[_Run] = []
        step = 0
        for run in self.runs:
            last = waiting[-1].layer if waiting else None
            onward = run.layer - last if run.layer is not None and last is not None else 0
            if waiting and abs(onward) == 1 and step in (0, onward):
                step = onward
            elif waiting:
                yield waiting, step
                waiting, step = [], 0
            waiting.append(run)
        if waiting:
            yield waiting, step


class _Made:
    """The longer log while it is put together."""

    def __init__(self, taken: _Taken, times: int) -> None:
        self.taken, self.times = taken, times
        layers = taken.layers
        self.first, self.end, self.period = layers.end - layers.period, layers.end, layers.period
        self.log = Log()
        self.where: list[tuple[int, bool]] = []
        self.numbers: dict[tuple[int | None, Place], int] = {}

    def take(self, runs: list[_Run], step: int) -> None:
        """One pass: its runs, and behind (or before) those of the period their copies."""
        inside = [run for run in runs if run.layer is not None and self.first <= run.layer < self.end]
        if inside and (len(inside) != self.period or (step == 0 and len(runs) > 1)):
            raise NotRegularError("a pass goes through some layers of the period alone")
        copies = range(self.times, 0, -1) if step < 0 else range(1, self.times + 1)
        for run in runs:
            is_last = bool(inside) and run is inside[-1]
            if inside and step < 0 and run is inside[0]:
                self._copies(inside, copies)
            self._run(run, self._shift(run.layer))
            if is_last and step >= 0:
                self._copies(inside, copies)

    def _copies(self, inside: list[_Run], copies: range) -> None:
        for number in copies:
            for run in inside:
                self._run(run, number * self.period, copied=True)

    def _shift(self, layer: int | None) -> int:
        return 0 if layer is None or layer < self.end else self.times * self.period

    def _run(self, run: _Run, shift: int, *, copied: bool = False) -> None:
        for kind, what in run.events:
            if kind == TAKE:
                self._begin(what, shift, copied)
            elif kind == FREE:
                self.log.say(FREE, self._which(run.layer, what, shift, copied))
            else:
                self.log.say(kind, what)

    def _begin(self, number: int, shift: int, copied: bool) -> None:
        life = self.taken.log.lives[number].copied()
        layer = self.taken.layer_of[number]
        key = (None if layer is None else layer + shift), self.taken.place_of[number]
        self.numbers[key] = life.number = len(self.log.lives)
        if layer is not None and shift:
            life.module = self.taken.layers.renamed(life.module, layer + shift)
        self.log.take(life)
        self.where.append((number, copied))

    def _which(self, at: int | None, number: int, shift: int, copied: bool) -> int:
        """The life that stands for `number` where layer `at` (moved by `shift`) gives it back."""
        layer = self.taken.layer_of[number]
        near = at is not None and layer is not None and abs(layer - at) <= 2 * self.period
        if copied and not near:
            raise NotRegularError("a repeated layer gives back what no neighbour has")
        if layer is not None:
            layer += shift if near else self._shift(layer)
        found = self.numbers.pop((layer, self.taken.place_of[number]), None)
        if found is None:
            raise NotRegularError("what a layer gives back is not there")
        return found
