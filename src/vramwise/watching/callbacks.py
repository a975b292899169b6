"""Callbacks that run a watch inside transformers' Trainer and Lightning's; both libraries are imported when asked for.

from vramwise.watching.callbacks import VramwiseCallback
Trainer(..., callbacks=[VramwiseCallback()])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.watching.following import lightning_class, trainer_class
from vramwise.watching.watch import watch_of

if TYPE_CHECKING:
    VramwiseCallback: type[object]
    VramwiseLightningCallback: type[object]

_MAKERS = {"VramwiseCallback": trainer_class, "VramwiseLightningCallback": lightning_class}


def __getattr__(name: str) -> type[object]:
    if name not in _MAKERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _MAKERS[name](watch_of)
    return made
