"""Generations that are no larger than one of the same step were seen to take no more: they give its tokens at once.

An evaluation generates for every batch of its data set, token by token. Of batches that are padded to their longest
text the largest so far is run, all others are answered with as many rows and tokens as theirs would have had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.dryrun.known import say
from vramwise.dryrun.tracer import Watcher
from vramwise.measure.libraries import library

Shapes = dict[str, tuple[int, ...]]


class Before:
    """What was generated, by step, model and settings: shapes of what was given, rows and tokens of what came."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._seen: dict[object, list[tuple[Shapes, int, int]]] = {}
        self._fake = library("torch._subclasses.fake_tensor").FakeTensor

    def answer(self, model: Any, args: tuple[object, ...], kwargs: Mapping[str, object], token: int) -> Any | None:
        """The tokens of a generation of which a larger one was seen; None where it has to be run."""
        shapes, prompt = self._given(args, kwargs)
        if prompt is None:
            return None
        for larger, rows, tokens in self._seen.get(self._key(model, kwargs), ()):
            if not _is_within(shapes, larger):
                continue
            made = prompt.new_full((rows * prompt.shape[0], tokens), token, dtype=library("torch").int64)
            if not model.config.is_encoder_decoder:
                repeated = prompt.repeat_interleave(rows, dim=0)
                made = library("torch").cat([repeated, made], dim=-1)
            with library("torch._subclasses.fake_tensor").unset_fake_temporarily():
                say(made, library("torch").full(tuple(made.shape), token))
            return made
        return None

    def remember(self, model: Any, args: tuple[object, ...], kwargs: Mapping[str, object], out: object) -> None:
        """Note a generation that was run, where what a smaller one gives follows from it."""
        shapes, prompt = self._given(args, kwargs)
        if prompt is None or not isinstance(out, self._fake) or out.ndim != 2 or out.shape[0] % prompt.shape[0]:
            return
        rows, tokens = out.shape[0] // prompt.shape[0], out.shape[1]
        if not model.config.is_encoder_decoder:
            settings: Any = kwargs.get("generation_config") or model.generation_config
            if not (kwargs.get("max_new_tokens") or settings.max_new_tokens) or prompt.ndim != 2:
                return  # so many tokens in all: those of a shorter prompt are more
            tokens -= prompt.shape[1]
        self._seen.setdefault(self._key(model, kwargs), []).append((shapes, rows, tokens))

    def _given(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Shapes, Any | None]:
        """Shapes of all tensors by name, and the prompt where it is on the card."""
        named = {**{str(place): one for place, one in enumerate(args)}, **kwargs}
        prompt = next((named[name] for name in ("0", "inputs", "input_ids", "input_features") if name in named), None)
        shapes = {name: tuple(one.shape) for name, one in named.items() if isinstance(one, self._fake)}
        return shapes, prompt if isinstance(prompt, self._fake) else None

    def _key(self, model: Any, kwargs: Mapping[str, object]) -> object:
        plain = {name: value for name, value in kwargs.items() if isinstance(value, bool | int | float | str | list)}
        settings = kwargs.get("generation_config") or model.generation_config
        return self._watcher.moment.partition("|")[0], id(model), repr(sorted(plain.items())), repr(settings)


def _is_within(shapes: Shapes, larger: Shapes) -> bool:
    return shapes.keys() == larger.keys() and all(
        len(shape) == len(larger[name]) and all(map(int.__le__, shape, larger[name])) for name, shape in shapes.items()
    )
