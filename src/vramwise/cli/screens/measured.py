"""What was measured, beside the estimate: one run, a sweep, a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.cli.screens.estimate import model_title, settings_summary
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped, wrapped_text
from vramwise.measure.difference import Row, differences, largest_difference
from vramwise.measure.outcome import Measured
from vramwise.measure.sweep import Line as FittedLine
from vramwise.result import Result
from vramwise.units import MIB, counted, format_bytes

NAMES = {
    "peak_allocated": "peak allocated",
    "peak_reserved": "peak reserved",
    "nvidia_smi": "process (nvidia-smi)",
    "kv_cache_bytes": "KV cache",
    "non_torch": "outside torch",
}
SMALL_BYTES = 256 * MIB
MOST_MODULES = 12


def measured_screen(estimated: Result | None, measured: Measured, device: str) -> list[Line]:
    """The lines of `vramwise measure MODEL`."""
    width = screen_width()
    result = measured.result
    unit = unit_of([phase.bytes for phase in result.phases])
    lines = _heading(measured, device, width)
    lines += ["", *_failures(measured, width)]
    rows = differences(estimated, result, on_cpu=device == "cpu")
    table = [["", "estimated", "measured", "difference", ""]]
    for row in rows:
        name = ("  " if row.depth else "") + NAMES.get(row.name, row.name)
        table.append([name, _size(row.estimated, unit), _size(row.measured, unit), percent(row), verdict(row)])
    lines += columns(table)
    sentence = largest_difference(rows)
    if sentence:
        lines += ["", *wrapped_text("because     ", sentence, width)]
    lines += _ranks(result, unit)
    lines += _context(measured)
    lines += _modules(measured, unit)
    notes = (
        [*result.notes] if estimated is not None else [*result.notes, "no estimate: the family is not described yet"]
    )
    if device == "cpu":
        notes.append(
            "a CPU run tests the harness: kernels and dropout masks differ from CUDA's; its allocations are counted "
            "as CUDA's allocator rounds them, without library workspaces"
        )
    for note in notes:
        lines += wrapped_text(f"{'note':<12}", note, width)
    lines += [
        "",
        f"sizes in {unit}; difference is estimated − measured; moments count tensors, without the CUDA context",
    ]
    return lines


def sweep_screen(
    rows: Sequence[tuple[Mapping[str, int], Result | None, Measured]],
    failed: Sequence[tuple[Mapping[str, int], str]],
    line: FittedLine | None,
    planned: int,
    device: str,
) -> list[Line]:
    """A row a run, then the line through the peaks with its residuals."""
    width = screen_width()
    if not rows:
        return ["no run was finished"]
    keys = list(rows[0][0])
    unit = unit_of([phase.bytes for _, _, measured in rows for phase in measured.result.phases])
    table = [[*keys, "estimated", "measured", "difference", "residual"]]
    residuals = iter(line.residuals if line else ())
    for sizes, estimated, measured in rows:
        found = [row for row in differences(estimated, measured.result, on_cpu=device == "cpu")]
        peak = next((row for row in found if row.name == "peak_allocated"), None)
        cells = [f"{sizes[key]:,}" for key in keys]
        if peak is None:
            table.append([*cells, "", "OUT OF MEMORY", "", ""])
            continue
        left = next(residuals, None)
        residual = "" if left is None else _size(round(left), unit)
        table.append([*cells, _size(peak.estimated, unit), _size(peak.measured, unit), percent(peak), residual])
    lines: list[Line] = [*_heading(rows[0][2], device, width), "", *columns(table, numbers_from=0)]
    if line is not None:
        each = format_bytes(round(line.slope), "auto")
        said = f"{format_bytes(round(line.fixed), 'auto')} + {each} · {line.x}"
        worst = format_bytes(round(line.largest_residual), "auto")
        lines += [
            "",
            *wrapped_text("line        ", f"{said}; largest residual {worst}, R² {line.r_squared:.4f}", width),
        ]
    for sizes, reason in failed:
        lines += [
            "",
            *wrapped_text("failed      ", ", ".join(f"{k} {v:,}" for k, v in sizes.items()) + f": {reason}", width),
        ]
    if len(rows) + len(failed) < planned:
        lines += ["", f"interrupted: {len(rows)} of {planned} runs were finished"]
    lines += ["", f"sizes in {unit}: peak allocated"]
    return lines


def largest_screen(
    key: str, found: int | None, guess: int, tried: Mapping[int, Measured], cap_bytes: int | None
) -> list[Line]:
    """The answer, then every size that was tried."""
    under = f" within {format_bytes(cap_bytes, 'auto')}" if cap_bytes is not None else ""
    answer = f"largest {key}{under}: {found:,}" if found else f"no {key} fits{under}"
    if found is None:
        answer = "interrupted: the largest size is not known yet"
    lines: list[Line] = [[(answer, "bold"), (f"   (the search began at {guess:,})", "")], ""]
    table = [[key, "peak allocated", "peak reserved"]]
    for size, measured in sorted(tried.items()):
        numbers = measured.result.quantities
        cells = [format_bytes(int(numbers[n].expected), "auto") if n in numbers else "OUT OF MEMORY"
                 for n in ("peak_allocated", "peak_reserved")]  # fmt: skip
        table.append([f"{size:,}", cells[0], cells[1] if "peak_reserved" in numbers else ""])
    return lines + list(columns(table, numbers_from=0))


def verdict(row: Row) -> str:
    """Whether the measured number lies in the estimate's interval; of an exact number, what is missing."""
    if row.in_interval is None or row.difference is None:
        return ""
    if row.low == row.high:
        return f"off by {format_bytes(abs(row.difference), 'auto')}" if row.difference else "equal"
    return "in interval" if row.in_interval else "OUTSIDE the interval"


def percent(row: Row) -> str:
    """A signed difference in percent, or how much there is where nothing was measured."""
    if row.difference is None:
        return "–"
    return f"{100 * row.relative:+.2f} %" if row.relative is not None else ("0" if not row.difference else "–")


def unit_of(sizes: Sequence[int]) -> str:
    """GiB, or MiB where everything is small."""
    return "GiB" if max(sizes, default=0) >= SMALL_BYTES else "MiB"


def _size(size: int | None, unit: str) -> str:
    return "–" if size is None else format_bytes(size, unit, 3).partition(" ")[0]


def _heading(measured: Measured, device: str, width: int) -> list[Line]:
    result, versions = measured.result, measured.facts.get("versions", {})
    words = [model_title(result.model.id), *settings_summary(result)]
    card = measured.facts.get("gpu") or device
    ran = [f"torch {versions.get('torch', '?')}", f"transformers {versions.get('transformers', '?')}"]
    if measured.facts.get("driver"):
        ran.append(f"driver {measured.facts['driver']}")
    lines: list[Line] = list(wrapped(words, width, gap=" · "))
    lines += wrapped([f"measured on {card}", counted(measured.steps, "step"), *ran], width, gap=" · ")
    return lines


def _failures(measured: Measured, width: int) -> list[Line]:
    lines: list[Line] = []
    for failure in measured.failures:
        asked = f"   asked for {format_bytes(failure.asked, 'auto')}" if failure.asked is not None else ""
        lines.append([("OUT OF MEMORY", "bold red"), (asked, "")])
        lines += wrapped_text("  ", failure.cause, width)
        lines += [f"  {change.what} (cost: {change.cost})" for change in failure.changes]
        lines.append("")
    if not measured.failures and measured.result.quantities["oom"].expected:
        lines += [[("OUT OF MEMORY", "bold red")], ""]
    return lines


def _ranks(result: Result, unit: str) -> list[Line]:
    """The peak of every rank where there are several; the table above is the worst one's."""
    peaks = " · ".join(f"{rank.name} {_size(rank.bytes, unit)}" for rank in result.ranks)
    return list(wrapped_text("peaks       ", peaks, screen_width())) if peaks else []


def _context(measured: Measured) -> list[Line]:
    size = measured.facts.get("context_bytes")
    if size is None:
        return []
    return ["", f"CUDA context {format_bytes(int(size), 'MiB')}: the process with one tensor of one element"]


def _modules(measured: Measured, unit: str) -> list[Line]:
    shares = sorted(measured.modules, key=lambda share: -share.kept)[:MOST_MODULES]
    if not shares:
        return []
    kept = {share.name for share in shares}
    table = [["forward kept, by module", "modules", "weights", "kept"]]
    table += (
        [f"  {share.name}", f"{share.count:,}", _size(share.weights, unit), _size(share.kept, unit)]
        for share in measured.modules
        if share.name in kept
    )
    return ["", *columns(table)]
