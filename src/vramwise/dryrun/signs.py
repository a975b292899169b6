"""Numbers that cannot be negative, whatever they are: norms, squares, and sums of such.

Code that cuts gradients asks whether a norm is below zero, by which some libraries mean that it was no number
(deepspeed/runtime/utils.py `is_invalid_grad_norm`). Every norm of a dry run is a number, so the answer is no.
"""

from __future__ import annotations

from typing import Any, Final

from vramwise.dryrun.known import generation_of
from vramwise.dryrun.values import KNOWN
from vramwise.measure.libraries import library

_SIGN: Final = "_vramwise_not_negative"
_ALWAYS: Final = frozenset({
    "linalg_vector_norm", "norm", "_foreach_norm", "abs", "_foreach_abs", "sqrt", "_foreach_sqrt", "square", "exp",
    "sigmoid", "relu", "_softmax", "softplus", "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones",
})  # fmt: skip
_AS_ITS_TENSORS: Final = frozenset({
    "sum", "mean", "max", "min", "amax", "amin", "stack", "cat", "clone", "_to_copy", "detach", "view", "reshape",
    "squeeze", "unsqueeze", "select", "slice", "alias", "copy", "maximum", "minimum", "expand", "where", "allreduce",
    "broadcast",
})  # fmt: skip
_OF_NUMBERS_TOO: Final = frozenset({"add", "mul", "div", "full_like", "masked_fill"})


class Signs:
    """Follows through operations on fake tensors which of them hold no negative number."""

    def __init__(self) -> None:
        self._fake = library("torch._subclasses.fake_tensor").FakeTensor
        self._leaves = library("torch.utils._pytree").tree_leaves

    def before(self, func: Any, args: Any, kwargs: object) -> bool:
        """Whether what an operation gives, and what it writes to, is never negative."""
        name = func._schema.name.rpartition("::")[2].rstrip("_")
        if name in _ALWAYS:
            return True
        if name == "pow":
            return self._of_power(args[0], args[1])
        if name == "masked_fill" and getattr(args[1], KNOWN, None) is False:
            return self._is_not_negative(args[0])
        if name not in _AS_ITS_TENSORS and name not in _OF_NUMBERS_TOO:
            return False
        given = self._leaves((args, kwargs))
        numbers = [one for one in given if isinstance(one, int | float)] if name in _OF_NUMBERS_TOO else []
        tensors = [one for one in given if isinstance(one, self._fake)]
        return all(one >= 0 for one in numbers) and self._all_not_negative(tensors)

    def after(self, func: Any, args: Any, out: Any, told: bool) -> None:
        """An operation has run; `told`: what `before` said of it."""
        name = func._schema.name.rpartition("::")[2]
        if name in ("lt", "ge") and isinstance(args[1], int | float) and args[1] <= 0 and isinstance(out, self._fake):
            if self._is_not_negative(args[0]):
                setattr(out, KNOWN, name == "ge")
        elif told:
            written = args[:1] if func._schema.is_mutable or func.namespace == "c10d" else ()
            for one in self._leaves((out, written)):
                if isinstance(one, self._fake):
                    setattr(one, _SIGN, generation_of(one))

    def _of_power(self, base: object, exponent: object) -> bool:
        is_even = isinstance(exponent, int | float) and exponent % 2 == 0
        return is_even or self._is_not_negative(base)

    def _all_not_negative(self, tensors: list[Any]) -> bool:
        counted = [one for one in tensors if one.dtype != library("torch").bool]
        return bool(counted) and all(map(self._is_not_negative, counted))

    def _is_not_negative(self, tensor: object) -> bool:
        if not isinstance(tensor, self._fake):
            return isinstance(tensor, int | float) and tensor >= 0
        return getattr(tensor, _SIGN, None) == generation_of(tensor)
