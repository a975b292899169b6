"""The critical path of a step, as `vramwise profile --critical-path` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.utilization.profiler.kernels import short_name


def path_lines(path: Mapping[str, Any] | None) -> list[Line]:
    """What lies on the path, and what it would save; nothing where none was asked for."""
    if path is None:
        return []
    ranks = ", ".join(f"rank {rank} {_ms(time)}" for rank, time in path["ranks"].items())
    length = f"   {path['step']}, {_ms(path['length_us'])}: {ranks}"
    rows = [("part", "on the path", "share", "twice as fast saves", "saves at most")]
    for one in (*path["parts"], *path["kernels"]):
        share = "–" if one["pct"] is None else f"{one['pct']:.2f} %"
        savings = (_ms(one["twice_as_fast_saves_us"]), _ms(one["saves_at_most_us"]))
        rows.append((short_name(one["what"], 44), _ms(one["on_path_us"]), share, *savings))
    notes = "what is hidden saves nothing; waits between streams are inferred, for a trace does not have them"
    if path["waiting_us"]:
        notes = f"{_ms(path['waiting_us'])} of the path are gaps between events; {notes}"
    lines: list[Line] = ["", [("critical path", "bold"), (length, "")]]
    lines += [f"  {line}" for line in columns(rows)]
    return [*lines, *wrapped_text("  ", notes, screen_width())]


def _ms(us: float) -> str:
    return f"{us / 1000:,.2f} ms"
