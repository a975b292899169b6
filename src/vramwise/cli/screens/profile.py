"""The screens of `vramwise profile`: per rank where the time went, then kernels, steps, collectives, other ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramwise.cli.screens.paint import Line, columns, fitted, screen_width, wrapped, wrapped_text
from vramwise.cli.screens.profile_memory import memory_lines, memory_table
from vramwise.units import counted, format_bytes
from vramwise.utilization.profiler.kernels import short_name

Figures = Mapping[str, Any]
WIDE, COMMON = 130, 100
"""Below so many columns the table of kernels leaves out categories, which have their own line; cuts names shorter."""
NO_GPU = "no GPU events: a trace of the CPU alone, or recorded without ProfilerActivity.CUDA"
_PARTS = (
    ("compute", "compute_us"),
    ("exposed communication", "exposed_comm_us"),
    ("exposed copies", "exposed_memory_us"),
    ("other", "other_us"),
    ("idle", "idle_us"),
)
_BLOCKS = "█▓▒░·"


def profile_lines(answer: Figures, *, steps: bool, memory: bool = False) -> list[Line]:
    """All ranks, one below the other, then what holds across them."""
    lines: list[Line] = []
    for rank, figures in answer["ranks"].items():
        lines += [*_rank(rank, figures, steps=steps, memory=memory), ""]
    lines += _across(answer["across"])
    return lines[:-1] if lines and lines[-1] == "" else lines


def definition_lines(answer: Figures) -> list[Line]:
    """The same trace by every definition of "utilization" in use, with the window of each."""
    lines: list[Line] = []
    for rank, figures in answer["ranks"].items():
        lines.append([(f"rank {rank}", "bold"), (f"   {figures['file']}", "")])
        if figures["hta"] is None:
            lines += [f"  {NO_GPU}", ""]
            continue
        rows = [("definition", "window", "busy", "compute", "comm", "overlap of comm"), *_definition_rows(figures)]
        lines += [f"  {line}" for line in columns(rows, numbers_from=2)]
        lines += ["", *_definition_notes(figures), ""]
    return lines[:-1]


def _definition_rows(figures: Figures) -> list[tuple[str, ...]]:
    every, own, hta, board = (figures[name] for name in ("all_events", "classified", "hta", "tensorboard"))
    rows: list[tuple[str, ...]] = [
        ("all GPU events, classes by name", _ms(every["span_us"]), _busy(every),
         _pct(every["compute_pct"]), _pct(every["comm_pct_of_span"]), _pct(every["overlap_pct_of_comm"])),
        ("all GPU events, our classes", _ms(own["span_us"]), _busy(own),
         _pct(own["compute_pct"]), _pct(own["comm_pct_of_span"]), _pct(own["overlap_pct_of_comm"])),
        ("Holistic Trace Analysis 0.5", _ms(hta["kernel_time_us"]), _busy(hta),
         _pct(hta["compute_pct"]), "–", _pct(hta["overlap_pct_of_comm"])),
    ]  # fmt: skip
    if board is not None:
        rows.append(
            ("TensorBoard plugin 0.4.3", _ms(board["window_us"]), _pct(board["gpu_utilization_pct"]), "–", "–", "–")
        )
    return rows


def _definition_notes(figures: Figures) -> list[Line]:
    width, hta, board, cores = screen_width(), figures["hta"], figures["tensorboard"], figures["tensor_cores"]
    left = len(figures["window"]["steps"]) > 1
    dropped = f"kept {hta['gpu_events_kept']:,} of {figures['all_events']['gpu_events']:,} GPU events" + (
        ": those launched before the last step" if left else ""
    )
    notes = [("  HTA           ", f"{dropped}; rounding: {hta['rounding']}")]
    if board is not None:
        efficiency = f"SM efficiency {_pct(board['sm_efficiency_pct'])}, occupancy {_pct(board['occupancy_pct'])}"
        notes.append(("  TensorBoard   ", f"kernels alone, within the steps on the CPU; {efficiency}"))
    shares = f"{_pct(cores['yes_pct'])} of compute kernels' time by our rules, {_pct(cores['unknown_pct'])} unknown"
    notes.append(("  tensor cores  ", f"{shares}; {_pct(cores['old_list_pct'])} of all kernels by the list of 2021"))
    notes.append(
        ("  none of them  ", "is MFU: a GPU that is busy all the time can do a tenth of its peak (vramwise mfu)")
    )
    return [line for label, text in notes for line in wrapped_text(label, text, width)]


def _rank(rank: str, figures: Figures, *, steps: bool, memory: bool) -> list[Line]:
    gpu = figures["gpu"] or "GPU not named"
    title: list[Line] = [[(f"rank {rank}", "bold"), (f"   {gpu}   {figures['file']}", "")]]
    window = figures["window"]
    if figures["hta"] is None:
        return [*title, f"  {NO_GPU} ({counted(window['events'], 'event')})"]
    own = figures["classified"]
    lines = [*title, *(f"  {line}" for line in wrapped(_window(figures), screen_width() - 2, gap=" · ")), ""]
    if not own["span_us"]:
        return [*lines, "  the GPU events have no length"]
    lines.append(f"  {_bar(own)}")
    rows = [(name, _ms(own[key]), _pct(100 * own[key] / own["span_us"])) for name, key in _PARTS if own[key]]
    lines += [f"  {line}" for line in columns([*rows, ("span", _ms(own["span_us"]), "100.00 %")])]
    lines += ["", *_said(figures)]
    if memory and figures["memory"]:
        lines += ["", *memory_table(figures["memory"])]
    lines += ["", *_kernel_lines(figures)]
    if figures["collectives"]:
        lines += ["", *_collective_lines(figures["collectives"])]
    if steps and figures["steps"]:
        lines += ["", *_step_lines(figures["steps"])]
    return lines


def _window(figures: Figures) -> list[str]:
    window, every = figures["window"], figures["all_events"]
    parts = [
        f"{every['gpu_events']:,} GPU events of {window['events']:,}",
        f"window {_ms(window['span_us'])}: all of them",
    ]
    if window["steps"]:
        first, last, number = window["steps"][0], window["steps"][-1], len(window["steps"])
        parts.append(f"{number} steps ({first} – {last})" if number > 1 else f"1 step ({first})")
    if figures["orphans"]:
        parts.append(f"{figures['orphans']:,} without a launch in the trace")
    parts += [f"{count:,} {what} left out" for what, count in window["left_out"].items()]
    if window["truncated"]:
        parts.append("TRUNCATED file")
    return parts


def _bar(own: Figures) -> str:
    """The span as one strip; each part at least a mark wide where there is any of it."""
    width = screen_width() - 4
    cells = [round(width * own[key] / own["span_us"]) or int(own[key] > 0) for _, key in _PARTS]
    cells[cells.index(max(cells))] += width - sum(cells)
    return "".join(block * count for block, count in zip(_BLOCKS, cells, strict=True))


def _said(figures: Figures) -> list[Line]:
    width, own, causes, cores = (
        screen_width(),
        figures["classified"],
        figures["idle_causes"],
        figures["tensor_cores"],
    )
    said: list[tuple[str, str]] = []
    if own["n_comm"]:
        overlap = _pct(own["overlap_pct_of_comm"])
        said.append(("overlap", f"{overlap} of {_ms(own['comm_us'])} communication ran under compute"))
    if causes["idle_us"]:
        shares = [
            (f"{_pct(100 * causes[key] / causes['idle_us'])} {what}")
            for key, what in (
                ("cpu_late_us", "the CPU was late (launch-bound)"),
                ("launch_latency_us", "launch latency"),
                ("waiting_us", "launched before, waited for something else"),
                ("unknown_us", "unknown: no launch in the trace"),
            )
            if causes[key]
        ]
        said.append(("idle", f"{causes['gaps']:,} gaps: {', '.join(shares)}"))
    said.append(
        ("tensor cores", f"{_pct(cores['yes_pct'])} of compute kernels' time yes, {_pct(cores['no_pct'])} no, "
         f"{_pct(cores['unknown_pct'])} unknown (by kernel name; a share of time, not of peak)")
    )  # fmt: skip
    if figures["products"]:
        products = figures["products"]
        rate = (
            f"{products['tflops']:,.1f} TFLOPS while {products['count']:,} of them ran ({_ms(products['kernel_us'])})"
        )
        said.append(("products", f"{rate}, by the shapes in the trace"))
    if own["renamed"]:
        names = ", ".join(short_name(name, 40) for name in own["renamed"][:3])
        said.append(("reclassified", f"{names}: communication, which rules by name (nccl…Kernel) call compute"))
    lines = [line for label, text in said for line in wrapped_text(f"  {label:<13}", text, width)]
    return [*lines, *memory_lines(figures["memory"])]


def _kernel_lines(figures: Figures) -> list[Line]:
    rows: list[tuple[str, ...]] = [("kernel", "category", "tensor cores", "calls", "mean", "sum", "of kernels")]
    for one in figures["kernels"]:
        figures_of_it = (f"{one['count']:,}", _us(one["mean_us"]), _ms(one["sum_us"]), _pct(one["pct"]))
        rows.append(
            (
                short_name(one["name"], 44 if screen_width() >= COMMON else 34),
                one["category"],
                one["tensor_cores"],
                *figures_of_it,
            )
        )
    if screen_width() < WIDE:
        rows = [row[:1] + row[2:] for row in rows]
    lines: list[Line] = [
        f"  {line}" for line in fitted(rows, ("mean",), indent=2, numbers_from=len(rows[0]) - 4, gap=2)
    ]
    return [*lines, "", *_category_lines(figures["categories"])]


def _category_lines(categories: Sequence[Figures]) -> list[Line]:
    text = ", ".join(f"{one['category']} {_pct(one['pct'])}" for one in categories)
    return list(wrapped_text("  categories   ", text, screen_width()))


def _collective_lines(table: Sequence[Figures]) -> list[Line]:
    rows = [("collective", "number", "sum", "of span", "overlap", "bytes", "algorithm GB/s", "bus GB/s", "ranks")]
    for one in table:
        size = "–" if one["bytes"] is None else format_bytes(one["bytes"], "auto")
        sizes = ", ".join(map(str, one["group_sizes"])) or "–"
        rates = (_rate(one["algorithm_gb_s"]), _rate(one["bus_gb_s"]))
        shares = (_pct(one["pct_of_span"]), _pct(one["overlap_pct"]))
        rows.append((one["kind"], f"{one['count']:,}", _ms(one["sum_us"]), *shares, size, *rates, sizes))
    said = "overlap: of its time, under compute; time includes waiting for the slowest rank: a floor"
    shown = fitted(rows, ("algorithm GB/s", "number"), indent=2, gap=2)
    return [*(f"  {line}" for line in shown), *wrapped_text("  ", said, screen_width())]


def _step_lines(table: Sequence[Figures]) -> list[Line]:
    rows = [("step", "on the CPU", "GPU events", "span", "compute", "exposed comm", "exposed copies", "idle")]
    spare = ("GPU events", "on the CPU")
    for one in table:
        times = (_ms(one[f"{key}_us"]) for key in ("span", "compute", "exposed_comm", "exposed_memory", "idle"))
        rows.append((one["step"], _ms(one["cpu_us"]), f"{one['gpu_events']:,}", *times))
    return [f"  {line}" for line in fitted(rows, spare, indent=2)]


def _across(together: Figures | None) -> list[Line]:
    if together is None:
        return []
    matched = f"{together['matched_collectives']:,} collectives matched by {together['matched_by']}"
    lines: list[Line] = [[("across ranks", "bold"), (f"   {matched}; transfer {_ms(together['transfer_us'])}", "")]]
    rows = [("rank", "in collectives", "of it waiting")]
    rows += [(rank, _ms(one["communication_us"]), _ms(one["waiting_us"])) for rank, one in together["ranks"].items()]
    lines += [f"  {line}" for line in columns(rows)]
    late = ", ".join(f"rank {rank}" for rank in together["stragglers"])
    lines.append(f"  {f'late: {late} (the others wait for it)' if late else 'no rank makes the others wait'}")
    lines.append(f"  largest skew of one collective: {_ms(together['worst_skew_us'])}")
    return lines


def _busy(figures: Figures) -> str:
    return "–" if figures["idle_pct"] is None else _pct(100 - figures["idle_pct"])


def _ms(us: float) -> str:
    return f"{us / 1000:,.2f} ms"


def _us(us: float) -> str:
    return f"{us:,.1f} µs"


def _pct(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f} %"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"
