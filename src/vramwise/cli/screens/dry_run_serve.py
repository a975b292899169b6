"""vLLM's own start beside the estimate: a row a figure, then what is alive at the largest moment."""

from __future__ import annotations

from vramwise.cli.screens.estimate import model_title, settings_summary, verdict_segment
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped, wrapped_text
from vramwise.dryrun.vllm_serve import StartRow, VllmStart
from vramwise.units import format_bytes

_TITLES = {
    "weights": "model weights",
    "runner_buffers": "runner's buffers",
    "activation_peak": "activation peak",
    "kv_cache_bytes": "KV cache",
    "kv_cache_blocks": "KV cache blocks",
    "kv_cache_tokens": "KV cache tokens",
    "max_concurrency": "maximum concurrency",
}
MOST_PLACES = 6


def start_screen(start: VllmStart) -> list[Line]:
    """The lines of `vramwise dry-run -- vllm serve …`."""
    width, result = screen_width(), start.estimated
    words = [model_title(result.model.id), *settings_summary(result)]
    card = str(result.scenario.get("gpu") or "")
    table = columns([["", f"vLLM {start.version}", "estimate", "difference"], *(_cells(row) for row in start.rows)])
    lines: list[Line] = [*wrapped([*words, card] if card else words, width, gap=" · "), "", *table]
    if result.verdict is not None:
        lines += ["", [verdict_segment(result.verdict)]]
    lines += _places(start)
    lines.append("")
    for note in (*start.notes, *result.notes):
        lines += wrapped_text(f"{'note':<12}", note, width)
    return lines


def _cells(row: StartRow) -> list[str]:
    estimated = row.estimated
    if estimated is None:
        return [_TITLES[row.name], _text(row.name, row.found), "–", ""]
    low, expected, high = (_text(row.name, one) for one in (estimated.low, estimated.expected, estimated.high))
    said = expected if low == high else f"{expected} ({low.removesuffix(' GiB')} – {high})"
    return [_TITLES[row.name], _text(row.name, row.found), said, _difference(row.found, estimated.expected)]


def _text(name: str, value: float) -> str:
    if name == "max_concurrency":
        return f"{value:,.2f}"
    return (
        f"{round(value):,}" if name.startswith("kv_cache_") and name != "kv_cache_bytes" else format_bytes(int(value))
    )


def _difference(found: float, estimated: float) -> str:
    """Of the estimate from what vLLM's code does."""
    if not found:
        return "" if estimated else "0"
    return f"{100 * (estimated / found - 1):+.1f} %".replace("-", "−")


def _places(start: VllmStart) -> list[Line]:
    if not start.places:
        return []
    rows = [["alive at the largest moment", "", "shape", "made by"]]
    for one in start.places[:MOST_PLACES]:
        shape = " × ".join(f"{size:,}" for size in one["shape"])
        times = f"{one['count']} × " if one["count"] > 1 else ""
        rows.append([f"  {one['operation']}", format_bytes(one["bytes"]), f"{times}{shape} {one['dtype']}",
                     one["function"].rpartition("/")[2]])  # fmt: skip
    return ["", *(line[: screen_width()] for line in columns(rows, left={2, 3}))]
