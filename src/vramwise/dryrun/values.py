"""Values that nobody has: printing one works, deciding by one stops with the user's line."""

from __future__ import annotations

import math
import sys
from typing import Any, Final

from vramwise.dryrun.assumed import Assumptions
from vramwise.dryrun.known import value_of
from vramwise.errors import VramwiseError
from vramwise.measure.libraries import library

_ADVICE: Final = (
    "a dry run has shapes and no values. Say what it is (--assume {line}=VALUE), take what decides from the batch on "
    "the CPU, or leave it out for the dry run"
)
_NO_KERNEL: Final = "a dry run knows no shapes of this operation: give it a fake kernel (torch.library.register_fake)"
_LIBRARIES: Final = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/vramwise/dryrun/",
    "<frozen",
    ".pxi",
    ".pyx",
    "<string>",
    "/runpy.py",
)


KNOWN: Final = "_vramwise_known"
"""Attribute of a tensor of truth values: what every element of it is."""


class NoValueError(VramwiseError):
    """Code asked for a number that a fake tensor does not have; the message names the line."""


def unknown_value(what: str) -> NoValueError:
    """The error of code that needs a value, with the user's line and what to do."""
    line = users_line()
    return NoValueError(f"{line}: {what}, and {_ADVICE.format(line=line.rpartition('/')[2])}")


def refusal_of(problem: BaseException, line: str) -> str | None:
    """What torch's own refusals of fake tensors mean, as a line; None for any other problem."""
    fakes = library("torch._subclasses.fake_tensor")
    short = line.rpartition("/")[2]
    if isinstance(problem, fakes.DataDependentOutputException):
        return f"{line}: {problem.func} reads a value of a tensor on the card, and {_ADVICE.format(line=short)}"
    if isinstance(problem, fakes.DynamicOutputShapeException):
        said = f"{line}: how large the result of {problem.func} is hangs on values, and"
        return f"{said} {_ADVICE.format(line=short)}"
    if isinstance(problem, fakes.UnsupportedOperatorException | fakes.UnsupportedFakeTensorException):
        return f"{line}: {getattr(problem, 'func', problem)}: {_NO_KERNEL}"
    return None


_EVALUATIONS: Final = "nested_numpify"
"""What hands an evaluation's losses to numpy in transformers' Trainer (trainer_pt_utils.py): their mean is nan."""


class Unknown(float):
    """The number of a fake tensor: it prints as nan and goes on through arithmetic, but decides what was assumed."""

    assumed: Assumptions

    def __new__(cls, assumed: Assumptions) -> Unknown:
        made = super().__new__(cls, "nan")
        made.assumed = assumed
        return made

    def _unknown(self, *_: object) -> Unknown:
        return self

    def known(self, method: str, *others: object) -> Any:
        """What a method of the number that was assumed answers."""
        value = self.assumed.value("item", users_line())
        if value is None:
            raise unknown_value("this decides by the value of a tensor")
        return getattr(float(value), method)(*others)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _unknown
    __neg__ = __abs__ = __pow__ = __rpow__ = _unknown

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _unknown

    def __round__(self, *_: object) -> Unknown:  # type: ignore[override]
        return self


class UnknownCount(Unknown):
    """The whole number of a fake tensor: also what would be counted or chosen by it is not known."""

    def __format__(self, form: str) -> str:
        return float.__format__(self, form.rstrip("bcdoxX"))


def _decides(method: str) -> object:
    return lambda self, *others: self.known(method, *others)


for _method in (
    "__bool__",
    "__int__",
    "__trunc__",
    "__floor__",
    "__ceil__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__eq__",
    "__ne__",
    "__hash__",
):
    setattr(Unknown, _method, _decides(_method))


UnknownCount.__index__ = _decides("__int__")  # type: ignore[attr-defined]


def users_line() -> str:
    """File and line of the innermost frame that is the user's own, else of the innermost at all."""
    frame = sys._getframe(1)
    first = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not first and "/vramwise/dryrun/" not in name and "/torch/" not in name:
            first = f"{name}:{frame.f_lineno}"
        if not any(part in name for part in _LIBRARIES):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return first


def line_in(trace: Any) -> str:
    """File and line of the last frame of a traceback that is the user's own, else of the last one."""
    found = last = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        last = f"{name}:{trace.tb_lineno}"
        if not any(part in name for part in _LIBRARIES):
            found = last
        trace = trace.tb_next
    return found or last


def without_values(assumed: Assumptions) -> list[tuple[object, str, object]]:
    """What reads a tensor's numbers, replaced for fake tensors; what was assumed is answered."""
    torch = library("torch")
    fake = library("torch._subclasses.fake_tensor").FakeTensor
    tensor = torch.Tensor
    real_item, real_array, real_list = tensor.item, tensor.numpy, tensor.tolist

    def is_valueless(one: object) -> bool:  # the part of a distributed tensor that this rank holds is a fake one
        return isinstance(one, fake) or isinstance(getattr(one, "_local_tensor", None), fake)

    def refused(what: str) -> Any:
        raise unknown_value(f"{what} reads the values of a tensor on the card")

    def reading(name: str, answer: Any) -> tuple[object, str, object]:
        real = getattr(tensor, name)

        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            return answer(self) if is_valueless(self) else real(self, *args, **kwargs)

        return tensor, name, read

    def number(self: Any) -> Any:
        known = value_of(self)
        if known is not None:
            return real_item(known)
        value = assumed.value("item", users_line())
        if value is not None:
            return float(value) if self.dtype.is_floating_point else value
        return Unknown(assumed) if self.dtype.is_floating_point else UnknownCount(assumed)

    def decision(self: object, name: str) -> Any:
        known = getattr(self, KNOWN, None)
        if known is not None:
            return known
        known = value_of(self)
        if known is not None:
            return getattr(known, name)()
        value = assumed.value("bool" if name == "__bool__" else "item", users_line())
        if value is None:
            return refused(name)
        return bool(value) if name == "__bool__" else int(value)

    def array(self: Any) -> Any:
        known = value_of(self)
        if known is not None:
            return real_array(known)
        value = assumed.value("numpy", users_line())
        if value is None and self.dim() == 1 and sys._getframe(2).f_code.co_name == _EVALUATIONS:
            value = math.nan
        if value is None:
            return refused(".numpy()")
        return library("numpy").full(tuple(self.shape), value, str(self.dtype).removeprefix("torch."))

    def listed(self: Any) -> Any:
        known = value_of(self)
        if known is not None:
            return real_list(known)
        value = assumed.value("item", users_line())
        if value is None:
            return refused(".tolist()")
        made: object = value
        for size in reversed(self.shape):
            made = [made] * size
        return made

    def shown(self: Any) -> str:
        return f"tensor(…, size={tuple(self.shape)}, dtype={self.dtype}, device='{self.device}')"

    written = tensor.__format__

    def formatted(self: Any, form: str) -> str:
        if not is_valueless(self):
            return str(written(self, form))
        return shown(self) if self.dim() else format(number(self), form)

    return [
        reading("item", number),
        reading("__float__", number),
        reading("__repr__", shown),
        *(reading(name, lambda self, n=name: decision(self, n)) for name in ("__bool__", "__int__", "__index__")),
        reading("tolist", listed),
        reading("numpy", array),
        (tensor, "__format__", formatted),
    ]  # fmt: skip
