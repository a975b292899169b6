"""Which layers of a decoder see a window only, by the config's list or the class's pattern."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.errors import clipped
from vramwise.models.config import Config
from vramwise.models.layers.decoder_design import LayerKind, sliding_window


def full_layers(c: Config) -> list[LayerKind]:
    return [LayerKind()] * c.num_hidden_layers


def typed_layers(c: Config, default: Sequence[str], *, unturned: str = "", tables: bool = False) -> list[LayerKind]:
    """Windows by `layer_types`; layers of kind `unturned` have no rotary positions."""
    window = sliding_window(c)
    return [
        LayerKind(window if kind == "sliding_attention" else None, kind != unturned, kind if tables else "")
        for kind in c.layer_types() or default
    ]


def pattern_length(c: Config) -> int:
    """How many layers EXAONE's pattern has, a number or letters that name one layer each ("LLLG")."""
    given = c.get("sliding_window_pattern")
    if isinstance(given, str) and given:
        if set(given[:-1]) - {"L"} or given[-1] != "G":
            raise c.error(f'sliding_window_pattern: expected layers "L" and then one "G", got {clipped(given)}')
        return len(given)
    return c.size("sliding_window_pattern", default=4)


def every(c: Config, period: int) -> list[str]:
    """Every `period`th layer full, the others sliding."""
    return ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(c.num_hidden_layers)]
