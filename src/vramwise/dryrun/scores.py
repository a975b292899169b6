"""What scores a model and is not on this machine: metrics of evaluate, corpora of nltk.

A score decides nothing about memory, so that a script goes on to its steps without one: a metric takes whatever it is
given, and each of its numbers is nan. A corpus is there until somebody reads it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from typing import Any

from vramwise.errors import VramwiseError, clipped


class Scores(dict[str, float]):
    """The numbers of a metric that is not there."""

    def __missing__(self, _: str) -> float:
        return float("nan")


class MissingMetric:
    """Stands in for `evaluate.EvaluationModule`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add(self, **_: Any) -> None:
        """A prediction and what is true."""

    def add_batch(self, **_: Any) -> None:
        """Predictions and what is true."""

    def compute(self, **_: Any) -> Scores:
        return Scores()


class MissingCorpus:
    """Stands in for the path of an nltk corpus; reading it raises VramwiseError."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __fspath__(self) -> str:
        name = self.name.split("/")[1 if "/" in self.name else 0].partition(".")[0]
        raise VramwiseError(
            f"nltk's {clipped(self.name, 80)} is not on this machine, and a dry run opens no connection: "
            f"python -m nltk.downloader {clipped(name, 40)}"
        )

    open = __fspath__


class MissingScores:
    """What a script asked for in vain."""

    def __init__(self) -> None:
        self.metrics: list[str] = []

    @contextmanager
    def stood_in_for(self) -> Iterator[None]:
        """Stand-ins inside the block, once a script imports these libraries."""
        finder = _Changing({"evaluate": self._metrics, "nltk.data": self._corpora})
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)

    def remarks(self) -> list[str]:
        named = ", ".join(dict.fromkeys(self.metrics))
        return [f"not on this machine, so that its numbers are nan: metric {named}"] if named else []

    def _metrics(self, evaluate: Any) -> None:
        load = evaluate.load

        def loaded(path: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return load(path, *args, **kwargs)
            except OSError:  # the hub's own errors are some, too
                if str(path).endswith(".py"):
                    raise
                self.metrics.append(clipped(str(path), 40))
                return MissingMetric(str(path))

        evaluate.load = loaded

    def _corpora(self, data: Any) -> None:
        find = data.find

        def found(name: str, *args: Any, **kwargs: Any) -> Any:
            try:
                return find(name, *args, **kwargs)
            except LookupError:
                return MissingCorpus(name)

        data.find = found


class _Changing:
    """Changes modules when they are imported: importing them for it would take seconds."""

    def __init__(self, changes: dict[str, Callable[[Any], None]]) -> None:
        self.changes = changes

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        change = self.changes.pop(name, None)
        spec = importlib.util.find_spec(name) if change else None
        if change is None or spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def ran(module: Any) -> None:
            run(module)
            change(module)

        spec.loader.exec_module = ran  # type: ignore[method-assign]
        return spec
