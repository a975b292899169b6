"""Where the description of a model comes from: the catalog, a folder or config.json, the Hub's cache, a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise import come_when_asked_for
from vramwise.sources.resolve import ModelSource, resolve

if TYPE_CHECKING:
    from vramwise.sources.elsewhere import is_elsewhere, model_elsewhere
else:
    __getattr__ = come_when_asked_for(__name__, {"is_elsewhere": "elsewhere", "model_elsewhere": "elsewhere"})

__all__ = ["ModelSource", "is_elsewhere", "model_elsewhere", "resolve"]
