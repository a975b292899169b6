"""The screens of `vramwise mfu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramwise.cli.language import cells, padded
from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.paint import Line, columns, fitted, screen_width, wrapped_text
from vramwise.units import counted, format_bytes

Answer = Mapping[str, Any]
WIDE = 136
"""Below this many columns the table of conventions leaves out who uses them (--json has it)."""


def training_lines(answer: Answer) -> list[Line]:
    """The figures first, then what they rest on, then the alternatives."""
    lines: list[Line] = [_title(answer), ""]
    rows: list[tuple[str, str, str]] = []
    if "tokens_per_s_per_gpu" in answer:
        rows.append(("throughput", f"{answer['tokens_per_s_per_gpu']:,.1f} tokens/s/GPU", answer["worked_out"]))
    if answer.get("mfu_pct") is not None:
        rows.append(("MFU", f"{answer['mfu_pct']:.2f} %", f"{answer['tflops_per_gpu']:,.1f} of {_peak(answer)}"))
        rows.append(("HFU", f"{answer['hfu_pct']:.2f} %", _hardware(answer)))
    elif "flops_per_token" in answer:
        rows.append(("model FLOPs", f"{answer['tflops_per_gpu']:,.1f} TFLOPS", "a GPU; --gpu NAME gives the share"))
    if "utilization_pct" in answer:
        share = f"{answer['tflops_per_gpu']:,g} of {_peak(answer)}"
        rows.append(("utilization", f"{answer['utilization_pct']:.2f} %", f"{share}, as the tool counts FLOPs"))
    if "reference" in answer:
        other = answer["reference"]
        rows.append(("of reference", f"{other['pct']:.2f} %", f"of {other['tokens_per_s_per_gpu']:,g} tokens/s/GPU"))
    lines += _facts(rows)
    lines += _basis(answer)
    if answer.get("conventions"):
        lines += ["", *_conventions(answer)]
    if answer.get("published"):
        lines += ["", *_published(answer)]
    elif "conventions" in answer and answer["gpu"]:
        lines += ["", "no published run of this size, length and dtype on this GPU is in the table"]
    if answer["deepspeed"]:
        lines += ["", *_deepspeed(answer["deepspeed"])]
    return lines


def _facts(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """What, how much, and where from; the last as long as the screen allows, then below itself."""
    lines = columns(rows, numbers_from=3)
    if max(map(cells, lines), default=0) <= screen_width():
        return lines
    heads = columns([row[:2] for row in rows], numbers_from=2)
    widest = max(map(cells, heads), default=0)
    return [
        line
        for head, row in zip(heads, rows, strict=True)
        for line in wrapped_text(f"{padded(head, widest)}   ", row[2], screen_width())
    ]


def inference_lines(answer: Answer) -> list[Line]:
    """The ceiling, the usual band below it, and what was reached."""
    rows = [("ceiling", f"{answer['bound_tokens_per_s']:,.1f} tokens/s", f"{answer['limit']}: {answer['formula']}")]
    band = answer["published_band"]
    if band:
        low, high = (answer["bound_tokens_per_s"] * band[key] for key in ("low", "high"))
        share = f"{100 * band['low']:.0f} – {100 * band['high']:.0f} % of it, as {band['runs']} published runs reach"
        rows.append(("usual", f"{low:,.0f} – {high:,.0f} tokens/s", share))
    if answer["tokens_per_s"] is not None:
        share = f"{100 * answer['fraction_of_bound']:.1f} % of the ceiling"
        rows.append(("reached", f"{answer['tokens_per_s']:,.1f} tokens/s", share))
    title = f"{model_title(answer['model'])} · {answer['task']} · {answer['num_gpus']} × {answer['gpu']}"
    lines: list[Line] = [[(title, "bold")], "", *_facts(rows), ""]
    read = f"{format_bytes(answer['weight_bytes'])} of weights ({answer['weight_dtype']}, without the input embedding)"
    cache = f"{format_bytes(answer['cache_bytes_per_sequence'], 'auto')} of 16-bit cache a sequence"
    text = f"{read}, {cache} × {answer['batch_size']}; {answer['bandwidth_gb_s']:,g} GB/s a GPU"
    if answer["task"] == "decode":
        lines += wrapped_text("a step reads  ", text, screen_width())
    return [*lines, *answer["notes"]]


def _title(answer: Answer) -> Line:
    parts = [model_title(answer["model"])] if answer["model"] else []
    parts += [f"{answer['sequence_length']:,} tokens"] if answer["model"] else []
    parts += [f"{answer['num_gpus']} × {answer['gpu']}"] if answer["gpu"] else [counted(answer["num_gpus"], "GPU")]
    return [(" · ".join(parts), "bold")]


def _peak(answer: Answer) -> str:
    return f"{answer['peak_tflops']:,g} TFLOPS"


def _hardware(answer: Answer) -> str:
    what = {"none": "nothing recomputed", "selective": "attention recomputed", "full": "every layer recomputed"}
    return f"{answer['hardware_tflops_per_gpu']:,.1f} of {_peak(answer)}, {what[answer['recompute']]}"


def _basis(answer: Answer) -> list[Line]:
    """Names everything that was chosen: two MFUs compare only when all of it agrees."""
    width = screen_width()
    lines: list[Line] = []
    if "flops_per_token" in answer:
        attention = {"full": "every pair of tokens counted", "causal": "pairs that a causal mask hides left out"}
        rule = attention[answer["attention_rule"]]
        if not answer["attention_told_apart"]:
            rule = "every pair of tokens counted (this model's attention runs as plain products)"
        active = answer["num_active_parameters"]
        counted = f"{answer['num_parameters']:,} parameters"
        if active != answer["num_parameters"]:
            counted += f", {active:,} active"
        flops = f"{answer['flops_per_token'] / 1e9:,.3f} GFLOPs a token by the model's blocks"
        text = f"{flops}, tensor by tensor: {counted}; attention: {rule}; method: {answer['method']}"
        lines += ["", *wrapped_text("counted   ", text, width)]
    if answer["peak_source"]:
        lines += [*wrapped_text("peak      ", f"{_peak(answer)}, {answer['peak_source']}", width)]
    for note in answer["notes"]:
        lines += wrapped_text("note      ", note, width)
    return lines


def _conventions(answer: Answer) -> list[Line]:
    rows: list[tuple[str, ...]] = [("by another convention", "", "used by", "GFLOPs/token", "TFLOPS", "")]
    for one in answer["conventions"]:
        share = "–" if one["pct"] is None else f"{one['kind']} {one['pct']:.2f} %"
        figures = (f"{one['flops_per_token'] / 1e9:,.3f}", f"{one['tflops_per_gpu']:,.1f}", share)
        rows.append((one["name"], one["formula"], one["used_by"], *figures))
    if screen_width() < WIDE:
        rows = [row[:2] + row[3:] for row in rows]
    return list(fitted(rows, ("",), numbers_from=len(rows[0]) - 3))


def _published(answer: Answer) -> list[Line]:
    rows: list[tuple[str, ...]] = [
        ("published", "source", "GPUs", "tokens", "recompute", "tokens/s/GPU", "MFU", "yours")
    ]
    for run in answer["published"]:
        mfu = "–" if run["mfu_pct"] is None else f"{run['mfu_pct']:g} %"
        ratio = f"{100 * answer['tokens_per_s_per_gpu'] / run['tokens_per_s_per_gpu']:.0f} %"
        figures = (
            f"{run['sequence_length']:,}",
            run["recompute"] or "–",
            f"{run['tokens_per_s_per_gpu']:,.0f}",
            mfu,
            ratio,
        )
        rows.append((run["model"], run["source"].partition(" ")[0][:40], f"{run['num_gpus'] or '–'}", *figures))
    lines: list[Line] = list(fitted(rows, ("source",), numbers_from=2))
    remarks = dict.fromkeys(run["measured_on"] for run in answer["published"] if run["measured_on"])
    return [*lines, *(f"  {remark}" for remark in remarks)]


def _deepspeed(profile: Answer) -> list[Line]:
    width = screen_width()
    lines: list[Line] = []
    if "counted_pct" in profile:
        text = (
            f"DeepSpeed counted {profile['counted_pct']:.1f} % of the forward FLOPs that the model's blocks have "
            f"({profile['forward_flops'] / 1e12:,.2f} of {profile['forward_flops_by_blocks'] / 1e12:,.2f} TFLOPs)"
        )
        lines += wrapped_text("", text, width)
    for spot in profile["blind_spots"]:
        lines += wrapped_text("  beware  ", spot, width)
    return lines
