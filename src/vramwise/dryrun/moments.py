"""Moments of a replayed run, each at its largest in a whole step, with the names that `estimate` gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vramwise.dryrun.detail import groups_of
from vramwise.dryrun.events import Life
from vramwise.dryrun.recorder import Replay, Span, shares

ORDER: Final = (
    "load", "forward", "loss", "forward return", "forward end", "backward: head", "backward: layers", "backward end",
    "clipping", "optimizer step", "between steps", "prefill", "decode",
    "text encoder", "denoise step", "VAE decode",
)  # fmt: skip
FIRST_STEP: Final = "first step"
_OF_A_FIRST: Final = ("1|optimizer step", "1|between steps")
"""Moments whose largest may be that of the first step: states are made, and nothing runs after the last step."""
_HAS_STATES: Final = (*_OF_A_FIRST, "1|end")
_NOT_SHOWN: Final = ("inputs", "end", "loaded", "")
_STARTS: Final = {"backward: head": "forward end", "clipping": "backward end", "optimizer step": "backward end"}

Moment = dict[str, Any]


def moments_of(replay: Replay) -> list[Moment]:
    """Name, bytes, bytes by category and who allocated them, in the order of a step; last what the first step takes
    before the optimizer has states."""
    largest: dict[str, tuple[int, tuple[Life, ...]]] = {}
    steps = [int(span.label.partition("|")[0] or 0) for span in replay.spans if span.label]
    whole = min(2, max(steps, default=0))
    after_clipping: set[int] = set()
    for span in replay.spans:
        step_text, _, name = span.label.partition("|")
        if not span.label or (0 < int(step_text) < whole):
            continue
        if name == "loaded":
            _keep(largest, "load", span.start, span.at_start)
        if name in _NOT_SHOWN or name == "load":
            continue
        start = _STARTS.get(name)
        if start is not None and not (name == "optimizer step" and int(step_text) in after_clipping):
            _keep(largest, start, span.start, span.at_start)
        if name == "clipping":
            after_clipping.add(int(step_text))
        _keep(largest, name, span.peak, span.at_peak)
    first = [span for span in replay.spans if span.label.startswith("1|")] if whole > 1 else []
    stateless = [span for span in first if span.label not in _HAS_STATES]
    if stateless:
        top = max(stateless, key=lambda span: span.peak)
        largest[FIRST_STEP] = top.peak, top.at_peak
    for span in first:
        if span.label in _OF_A_FIRST:
            _keep(largest, span.label.partition("|")[2], span.peak, span.at_peak)
    known = {name: place for place, name in enumerate((*ORDER, FIRST_STEP))}
    names = sorted(largest, key=lambda name: known.get(name, len(ORDER)))
    return [_moment(name, *largest[name]) for name in names]


def _keep(largest: dict[str, tuple[int, tuple[Life, ...]]], name: str, size: int, lives: tuple[Life, ...]) -> None:
    if name not in largest or size > largest[name][0]:
        largest[name] = size, lives


def _moment(name: str, size: int, lives: Sequence[Life]) -> Moment:
    found: Mapping[str, int] = shares(lives, size)
    return {"name": name, "bytes": size, "categories": dict(found), "groups": groups_of(lives)}


def peak_span(replay: Replay) -> Span | None:
    """The span in which most was allocated, after loading."""
    run = [span for span in replay.spans if span.label and not span.label.startswith("0|")] or replay.spans
    return max(run, key=lambda span: span.peak, default=None)
