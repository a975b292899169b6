"""`torch.Generator` of the card, which a build for CPU does not make: one of the CPU that says it is the card's.

Numbers that it draws have shapes alone, so that its state is all that is asked of it.
"""

from __future__ import annotations

from typing import Any

from vramwise.measure.libraries import library


def card_generator() -> type:
    """The class that stands in for `torch.Generator`."""
    torch = library("torch")
    real = torch.Generator

    class OfTheCard(real):  # type: ignore[misc, valid-type]
        device = torch.device("cuda", 0)

    class EitherKind(type):
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, real)

        def __call__(cls, device: object = None) -> Any:
            kind = torch.device("cpu" if device is None else device).type
            return OfTheCard() if kind == "cuda" else real(kind)

    return EitherKind("Generator", (), {"__doc__": real.__doc__, "__module__": "torch"})
