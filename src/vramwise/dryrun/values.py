"""Values that nobody has: printing one works, deciding by one stops with the user's line."""

from __future__ import annotations

import sys
from typing import Any, Final

from vramwise.errors import VramwiseError
from vramwise.measure.libraries import library

_ADVICE: Final = (
    "a dry run has shapes and no values. Take what decides from the batch on the CPU, leave it out for the dry run, or "
    "give a custom kernel its shapes (torch.library.register_fake)"
)
_LIBRARIES: Final = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/vramwise/dryrun/",
    "<frozen",
    "<string>",
    "/runpy.py",
)


class NoValueError(VramwiseError):
    """Code asked for a number that a fake tensor does not have; the message names the line."""


class Unknown(float):
    """The number of a fake tensor: it prints as nan and goes on through arithmetic, but decides nothing."""

    def __new__(cls) -> Unknown:
        return super().__new__(cls, "nan")

    def _unknown(self, *_: object) -> Unknown:
        return self

    def _refused(self, *_: object) -> Any:
        raise NoValueError(f"{users_line()}: this decides by the value of a tensor, and {_ADVICE}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _unknown
    __neg__ = __abs__ = __pow__ = __rpow__ = _unknown
    __bool__ = __int__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __hash__ = _refused

    def __round__(self, *_: object) -> Unknown:  # type: ignore[override]
        return self


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


def without_values() -> list[tuple[Any, str, Any]]:
    """What reads a tensor's numbers, replaced for fake tensors."""
    torch = library("torch")
    fake = library("torch._subclasses.fake_tensor").FakeTensor
    tensor = torch.Tensor

    def is_valueless(one: Any) -> bool:  # the part of a distributed tensor that this rank holds is a fake one
        return isinstance(one, fake) or isinstance(getattr(one, "_local_tensor", None), fake)

    def refused(self: Any, what: str) -> Any:
        raise NoValueError(f"{users_line()}: {what} reads the values of a tensor on the card, and {_ADVICE}")

    def reading(name: str, answer: Any) -> tuple[Any, str, Any]:
        real = getattr(tensor, name)

        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            return answer(self) if is_valueless(self) else real(self, *args, **kwargs)

        return tensor, name, read

    def number(self: Any) -> Any:
        return Unknown() if self.dtype.is_floating_point else refused(self, ".item()")

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
        *(reading(name, lambda self, n=name: refused(self, n)) for name in ("__bool__", "__int__", "__index__")),
        *(reading(name, lambda self, n=name: refused(self, f".{n}()")) for name in ("tolist", "numpy")),
        (tensor, "__format__", formatted),
    ]  # fmt: skip
