"""Figures of the documentation, drawn from answers: one estimate each, no number typed in.

`python tools/site/figures.py` writes the two that README shows (docs/pictures), which a test holds to be today's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import vramwise
from vramwise import svg
from vramwise.units import gib
from vramwise.utilization.profiler.analysis import analyse
from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import trace_files
from vramwise.utilization.profiler.picture import picture as trace_picture
from vramwise.verdict import percent

COLOURS = {
    "weights": "#0072b2", "adapters": "#56b4e9", "optimizer states": "#009e73", "gradients": "#e69f00",
    "activations": "#d55e00", "logits and loss": "#cc79a7", "CUDA context": "#777777",
}  # fmt: skip
OTHER = "#bbbbbb"
WORDS = {"fits": "#1a7f37", "tight": "#9a6700", "does not fit": "#cf222e"}
WIDTH = 860
LABELS = {
    "en": {
        "usable": "usable {} GiB", "peak": "{} GiB", "other": "other", "reserved": "reserved", "process": "process",
        "allocated": "allocated", "needed": "needed", "counters": "Four counters of one training step",
        "moments": "The moments of one training step", "intervals": "Three lengths of one fine-tuning run on one card",
        "tokens": "{} tokens",
        "said": {
            "allocated": "bytes in tensors", "reserved": "what torch's allocator took from the driver",
            "process": "what nvidia-smi shows", "needed": "the least with which it runs",
        },
        "word": {"fits": "fits", "tight": "tight", "does not fit": "does not fit"},
    },
    "zh": {
        "usable": "可用 {} GiB", "peak": "{} GiB", "other": "其他", "reserved": "已保留", "process": "进程",
        "allocated": "已分配", "needed": "所需", "counters": "同一训练步的四个计数",
        "moments": "一个训练步的各个时刻", "intervals": "同一张卡上三种长度的微调", "tokens": "{} 词元",
        "said": {
            "allocated": "张量占用的字节", "reserved": "torch 分配器向驱动要来的显存",
            "process": "nvidia-smi 显示的数字", "needed": "能够运行的最小显存",
        },
        "word": {"fits": "放得下", "tight": "勉强放得下", "does not fit": "放不下"},
    },
}  # fmt: skip
"""What the pictures say in each language."""


def pictures(root: Path) -> dict[str, str]:
    """Every picture by the path of its page's folder."""
    runs = {length: _run(length) for length in (512, 2048, 4096)}
    made = {"concepts/trace.svg": _trace(root)}
    for language, folder in (("en", "concepts"), ("zh", "zh/concepts")):
        said = LABELS[language]
        made[f"{folder}/counters.svg"] = counters(runs[512], said)
        made[f"{folder}/moments.svg"] = moments(runs[512], said)
        made[f"{folder}/intervals.svg"] = intervals(runs, said)
    return made


def _run(length: int) -> Any:
    return vramwise.estimate(
        "llama-3.1-8b", task="train", method="qlora", checkpointing="full", gpu="rtx-4070", sequence_length=length
    ).to_dict()


def counters(answer: dict[str, Any], said: Any) -> str:
    """The four sizes that people compare, with their intervals, against what is usable."""
    names = (("peak_allocated", "allocated"), ("peak_reserved", "reserved"), ("nvidia_smi", "process"),
             ("total_needed", "needed"))  # fmt: skip
    rows = [(said[short], said["said"][short], answer["quantities"][name], "#0072b2") for name, short in names]
    return _bars(said["counters"], rows, answer["capacity"]["usable_bytes"], said)


def intervals(answers: dict[int, dict[str, Any]], said: Any) -> str:
    """A need that fits, one that is tight and one that does not, each with its interval and probability."""
    rows = []
    for length, answer in answers.items():
        verdict = answer["verdict"]
        words = f"{said['word'][verdict['word']]}, {percent(verdict['probability'])}"
        rows.append((said["tokens"].format(f"{length:,}"), words, answer["quantities"]["total_needed"],
                     WORDS[verdict["word"]]))  # fmt: skip
    return _bars(said["intervals"], rows, answers[512]["capacity"]["usable_bytes"], said)


def _bars(title: str, rows: list[tuple[str, str, Any, str]], usable: int, said: Any) -> str:
    left, right, top, step = 150, 40, 50, 58
    most = max(usable, *(row[2]["high"] for row in rows)) * 1.04
    scale = (WIDTH - left - right) / most
    parts = [svg.text(12, 26, title, size=15, bold=True)]
    for i, (name, words, size, colour) in enumerate(rows):
        y = top + i * step
        low, expected, high = (left + size[key] * scale for key in ("low", "expected", "high"))
        parts += [
            svg.text(left - 10, y + 18, name, anchor="end", bold=True),
            svg.box(left, y, expected - left, 26, colour, opacity=0.75),
            svg.line(low, y + 13, high, y + 13, "#000", width=2),
            svg.line(low, y + 7, low, y + 19, "#000", width=2),
            svg.line(high, y + 7, high, y + 19, "#000", width=2),
            svg.text(left, y + 41, f"{' – '.join(f'{gib(size[key]):.2f}' for key in size)} GiB: {words}", size=12),
        ]  # fmt: skip
    bottom = top + len(rows) * step
    at = left + usable * scale
    parts.append(svg.line(at, top - 8, at, bottom, "#b00020", width=2, dash="6 4"))
    parts.append(
        svg.text(at, bottom + 14, said["usable"].format(f"{gib(usable):.2f}"), anchor="middle", fill="#b00020")
    )
    return svg.document(WIDTH, bottom + 26, parts, title=title, font_size=13, fixed=False)


def moments(answer: dict[str, Any], said: Any) -> str:
    """Each moment as a stacked bar; the largest is the peak."""
    left, right, top, step, bar = 150, 90, 78, 27, 20
    phases = answer["phases"]
    usable = answer["capacity"]["usable_bytes"]
    scale = (WIDTH - left - right) / (max(usable, *(phase["bytes"] for phase in phases)) * 1.02)
    parts = [svg.text(12, 26, said["moments"], size=15, bold=True)]
    at = 12.0
    for name, colour in (*COLOURS.items(), (said["other"], OTHER)):
        parts += [svg.box(at, 40, 11, 11, colour), svg.text(at + 15, 50, name, size=12)]
        at += 27 + 6.6 * len(name)
    for i, phase in enumerate(phases):
        y, x = top + i * step, float(left)
        peak = phase["name"] == answer["peak_phase"]
        parts.append(svg.text(left - 10, y + 15, phase["name"], anchor="end", bold=peak))
        for part in phase["components"]["children"]:
            width = part["bytes"] * scale
            title = f"{part['name']}: {gib(part['bytes']):.2f} GiB"
            parts.append(svg.box(x, y, width, bar, COLOURS.get(part["name"], OTHER), title=title))
            x += width
        parts.append(svg.text(x + 6, y + 15, said["peak"].format(f"{gib(phase['bytes']):.2f}"), size=12, bold=peak))
    bottom = top + len(phases) * step
    line = left + usable * scale
    parts.append(svg.line(line, top - 6, line, bottom, "#b00020", width=2, dash="6 4"))
    parts.append(
        svg.text(line, bottom + 14, said["usable"].format(f"{gib(usable):.2f}"), anchor="middle", fill="#b00020")
    )
    return svg.document(WIDTH, bottom + 26, parts, title=said["moments"], font_size=13, fixed=False)


def _trace(root: Path) -> str:
    """The picture that `vramwise profile --plot` draws of the example trace."""
    (file,) = trace_files([str(root / "docs/examples/small.pt.trace.json")])
    recording = read_trace(file, partial=False)
    return trace_picture([recording], analyse([recording], top=1))


ERROR_ROW = re.compile(r"^ (\w+) +([\d,/]+) +(\S+) +(\S+) +(\S+) +(\S+) +(\d+) % ")


def accuracy(root: Path) -> str:
    """The table of docs/accuracy.md as a picture: median and 90th percentile of absolute errors, a line a counter."""
    engine, rows = "", []
    for line in (root / "docs/accuracy.md").read_text("utf-8").splitlines():
        found = ERROR_ROW.match(line)
        if found and int(found[2].split("/")[0].replace(",", "")) >= 20:
            rows.append((engine, found[1], found[2], float(found[4]), float(found[5].replace(",", ""))))
        elif re.fullmatch(r"[a-z][\w.-]*", line):
            engine = line
    left, top, step, right = 250, 74, 20, 60
    most = 100.0
    scale = (WIDTH - left - right) / most
    parts = [svg.text(12, 26, "How far estimates are from what others measured", size=15, bold=True),
             svg.text(12, 46, "absolute error in %: dot = median, line's end = nine in ten cases are nearer; "
                      "counters with 20 cases and more", size=12)]  # fmt: skip
    for tick in range(0, 101, 20):
        x = left + tick * scale
        parts += [svg.line(x, top - 8, x, top + step * len(rows)), svg.text(x, top - 12, f"{tick} %", anchor="middle")]
    for i, (whose, name, count, median, p90) in enumerate(rows):
        y = top + i * step + 8
        end = left + min(p90, most) * scale
        parts += [
            svg.text(left - 10, y + 4, f"{whose} {name} ({count})", anchor="end", size=12),
            svg.line(left, y, end, y, "#0072b2", width=3),
            f'<circle cx="{left + min(median, most) * scale:.1f}" cy="{y}" r="4.5" fill="#d55e00"/>',
        ]
    return svg.document(WIDTH, top + step * len(rows) + 14, parts, title="Errors of estimates", font_size=12)


SESSION = re.compile(r"```console\n(\$ vramwise estimate --gpu l40s -- vllm serve.*?)^(?:```|\$ )", re.DOTALL | re.M)


def terminal(root: Path) -> str:
    """What docs/serving.md shows of a pasted command line, as a terminal shows it."""
    found = SESSION.search((root / "docs/serving.md").read_text("utf-8"))
    if found is None:
        raise SystemExit("docs/serving.md has no block that begins with a pasted command line")
    lines = found[1].rstrip().splitlines()
    wide = max(map(len, lines))
    parts = [svg.box(0, 0, 24 + 7.85 * wide, 32 + 17 * len(lines), "#0d1117")]
    for i, line in enumerate(lines):
        colour = "#7ee787" if line.startswith("$ ") else "#e6edf3"
        words = svg.text(12, 28 + 17 * i, line, fill=colour)
        parts.append(words.replace("<text ", f'<text xml:space="preserve" textLength="{7.8 * len(line):.0f}" ', 1))
    drawn = svg.document(
        round(24 + 7.85 * wide), 32 + 17 * len(lines), parts, title="vramwise in a terminal", font_size=13
    )
    return drawn.replace('font-family="sans-serif"', 'font-family="DejaVu Sans Mono,Menlo,Consolas,monospace"')


COMMITTED = {"docs/pictures/accuracy.svg": accuracy, "docs/pictures/terminal.svg": terminal}
"""What README shows, by path."""

if __name__ == "__main__":
    here = Path(__file__).parents[2]
    for path, draw in COMMITTED.items():
        (here / path).parent.mkdir(exist_ok=True)
        (here / path).write_text(draw(here), "utf-8")
