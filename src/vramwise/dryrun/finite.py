"""Questions whether numbers are numbers: every value of a dry run is finite, so these alone have an answer.

A loop that ends at a loss of nan, a scaler that skips a step and a distribution that looks at its arguments go on.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Final

from vramwise.dryrun.known import Values
from vramwise.dryrun.values import KNOWN, Unknown
from vramwise.measure.libraries import library

_ANSWERS: Final = {"isnan": False, "isinf": False, "isposinf": False, "isneginf": False, "isfinite": True}
_KEEP: Final = frozenset({
    "any", "all", "clone", "_to_copy", "detach", "view", "reshape", "squeeze", "unsqueeze", "alias", "max", "min",
    "amax", "amin",
})  # fmt: skip
_TURN: Final = frozenset({"logical_not", "bitwise_not"})
_JOIN: Final = {"logical_or": any, "bitwise_or": any, "logical_and": all, "bitwise_and": all}
_GOES_ON: Final = ("exp", "log", "log2", "log10", "log1p", "expm1", "sqrt", "pow", "tanh", "fabs")


def all_finite() -> list[tuple[object, str, object]]:
    """Attributes of torch, math and numpy to replace."""
    torch = library("torch")
    fake = library("torch._subclasses.fake_tensor").FakeTensor
    found: list[tuple[object, str, object]] = []

    def answering(ask: Callable[..., Any], answer: bool) -> Callable[..., Any]:
        def asked(one: object, *args: object, **kwargs: object) -> Any:
            if isinstance(one, Unknown):
                return answer
            out = ask(one, *args, **kwargs)
            if isinstance(out, fake):
                setattr(out, KNOWN, answer)
            return out

        return asked

    for name, answer in _ANSWERS.items():
        owners = [torch, torch.Tensor, math, sys.modules.get("numpy")]
        found += [(o, name, answering(getattr(o, name), answer)) for o in owners if hasattr(o, name)]
    found += [(math, name, _going_on(getattr(math, name))) for name in _GOES_ON]
    distribution = library("torch.distributions").Distribution
    return [
        *found,
        (distribution, "_validate_args", False),
        (torch.amp.GradScaler, "get_scale", lambda scaler: float(scaler._init_scale) if scaler._enabled else 1.0),
    ]


def _going_on(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers, of which an unknown one gives an unknown one."""

    def asked(one: object, *others: object) -> Any:
        unknown = next((given for given in (one, *others) if isinstance(given, Unknown)), None)
        return function(one, *others) if unknown is None else unknown

    return asked


def passed_on(operation: str, args: Any, out: object, values: Values) -> None:
    """What is known of a tensor of truth values is known of what is made of it; few elements then have a value."""
    if not args or isinstance(out, tuple | list):
        return
    known = getattr(args[0], KNOWN, None)
    if known is None:
        return
    if operation in _JOIN and len(args) > 1:
        other = getattr(args[1], KNOWN, None)
        if other is None:
            return
        known = _JOIN[operation]((known, other))
    elif operation in _TURN:
        known = not known
    elif operation not in _KEEP:
        return
    setattr(out, KNOWN, known)
    values.fill(out, known)
