"""`vramwise estimate --sweep`: grids, pictures, refusals."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vramwise.cli.main import main
from vramwise.cli.screens.answer_picture import answer_picture
from vramwise.cli.screens.picture import HEIGHT, MOST_LINES, TOP, picture
from vramwise.cli.sweep import Axis, Point, axes_of
from vramwise.errors import UsageError
from vramwise.estimation import estimate
from vramwise.units import GIB, gib

TRAIN = ["estimate", "gpt2", "--task", "train", "--gpu", "t4", "--sweep"]
GRID = ["micro_batch_size=1,4", "sequence_length=256..1k"]


def printed(capsys, *arguments, code=0):
    assert main([*arguments]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def needed(batch, sequence):
    train = {"micro_batch_size": batch, "sequence_length": sequence}
    return estimate({"model": "gpt2", "task": "train", "gpu": "t4", "train": train}).quantities["total_needed"].expected


def test_every_cell_is_the_estimate_of_its_own_settings(capsys):
    rows = [line.split() for line in printed(capsys, *TRAIN, *GRID).splitlines()]
    header = next(row for row in rows if row[:1] == ["micro_batch_size"])
    assert header[-3:] == ["256", "512", "1,024"]
    for batch in (1, 4):
        row = next(row for row in rows if row[:1] == [str(batch)])
        cells = [float(cell) for cell in row[1:] if cell != "×"]
        assert cells == [round(gib(needed(batch, sequence)), 2) for sequence in (256, 512, 1024)]


def test_json_holds_settings_sizes_and_verdicts(capsys):
    table = json.loads(printed(capsys, *TRAIN, "micro_batch_size=1,64", "--json", code=0))["sweep"]
    assert table["keys"] == ["micro_batch_size"]
    assert [point["settings"] for point in table["points"]] == [{"micro_batch_size": 1}, {"micro_batch_size": 64}]
    assert [point["fits"] for point in table["points"]] == [True, False]
    assert table["points"][0]["needed_bytes"] == needed(1, 1024)


def test_the_exit_code_says_when_nothing_fits(capsys):
    printed(capsys, *TRAIN, "micro_batch_size=64,128", code=3)
    printed(capsys, *TRAIN, "micro_batch_size=1,128", code=0)


def test_a_combination_without_an_answer_says_why(capsys):
    screen = printed(capsys, *TRAIN, "tensor_parallel_size=1,5", "--num-gpus", "5")
    assert "–" in screen
    assert "tensor_parallel_size=5" in screen


def test_other_tasks_and_top_keys(capsys):
    screen = printed(capsys, "estimate", "gpt2", "--task", "generate", "--sweep", "gpu=t4,h100", "dtype=fp32,bf16")
    firsts = [line.split()[0] for line in screen.splitlines() if line.strip()]
    assert {"t4", "h100"} <= set(firsts)


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        (["batch_size=1,2"], ["no key", "micro_batch_size"]),
        (["task=load"], ["no key"]),
        (["lora_rank=8,x"], ["lora_rank", "whole number"]),
        (["sequence_length=8k..1k"], ["range"]),
        (["sequence_length=1..9999999999999"], ["range"]),
        (["sequence_length=1.." + "9" * 5000], ["range"]),
        (["sequence_length"], ["KEY=VALUES"]),
        (["sequence_length=1", "lora_rank=8", "micro_batch_size=1"], ["one or two keys"]),
        (["lora_rank=8", "lora_rank=16"], ["twice"]),
        (["compile=maybe"], ["compile", "true or false"]),
        (["sequence_length=1..1m", f"lora_rank={','.join(['8'] * 300)}"], ["6,300 combinations"]),
    ],
)
def test_what_cannot_be_swept_is_refused_in_a_line(capsys, sweep, words):
    assert main([*TRAIN, *sweep]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words), error


@pytest.mark.parametrize(
    "arguments",
    [["--sweep", "lora_rank=8", "--style", "simple"], ["--sweep", "lora_rank=8", "--explain"]],
)
def test_flags_that_contradict_a_sweep(capsys, arguments):
    task = [] if "--style" in arguments else ["--task", "train"]
    assert main(["estimate", "gpt2", *task, *arguments]) == 2
    assert "--sweep" in capsys.readouterr().err


def test_models_are_swept_and_need_no_other_name(capsys):
    asked = ("--task", "train", "--sweep", "model=gpt2,no-such-model", "micro_batch_size=1,2", "--json")
    answer = json.loads(printed(capsys, "estimate", *asked))
    points = answer["sweep"]["points"]
    assert answer["model"] is None
    assert [point["settings"]["model"] for point in points] == ["gpt2", "gpt2", "no-such-model", "no-such-model"]
    assert "unknown model" in points[2]["error"]
    alone = estimate({"model": "gpt2", "task": "train", "train": {"micro_batch_size": 2}})
    assert points[1]["needed_bytes"] == alone.needed.expected
    screen = printed(capsys, "estimate", "--task", "train", "--sweep", "model=gpt2,gpt2-medium")
    assert "gpt2-medium  " in screen
    assert "124" not in screen.splitlines()[0]  # no parameters of one of them


# -- the picture -------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_has_a_line_for_each_value_and_the_cards_limit(capsys, tmp_path):
    path = tmp_path / "sweep.svg"
    printed(capsys, *TRAIN, *GRID, "--plot", str(path))
    root = ET.fromstring(path.read_text("utf-8"))
    assert len(root.findall(f"{SVG}polyline")) == 2
    assert len(root.findall(f"{SVG}circle")) == 6
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"micro_batch_size 4", "sequence_length", "1,024"} <= set(texts)
    assert any(text.startswith("usable ") for text in texts)


def test_the_picture_of_one_answer_has_a_row_for_each_moment(capsys, tmp_path):
    path = tmp_path / "answer.svg"
    printed(capsys, "estimate", "gpt2", "--task", "train", "--gpu", "t4", "--plot", str(path))
    result = estimate({"model": "gpt2", "task": "train", "gpu": "t4"})
    texts = [element.text for element in ET.fromstring(path.read_text("utf-8")).iter(f"{SVG}text")]
    assert set(texts) >= {phase.name for phase in result.phases} | {"fits", "weights", "activations"}
    assert [text for text in texts if text in {phase.name for phase in result.phases}] == [
        p.name for p in result.phases
    ]
    assert f"{gib(max(phase.bytes for phase in result.phases)):,.2f}" in texts
    assert any(text.startswith("usable ") for text in texts)


def test_widths_of_a_moment_add_up_to_its_size():
    result = estimate({"model": "gpt2", "task": "serve", "gpu": "t4", "serve": {"engine": "vllm"}})
    boxes = ET.fromstring(answer_picture(result)).findall(f"{SVG}rect")
    rows: dict[str, float] = {}
    for one in boxes:
        if one.find(f"{SVG}title") is not None:
            rows[one.get("y")] = rows.get(one.get("y"), 0) + float(one.get("width"))
    sizes = [phase.bytes for phase in result.phases]
    widths = list(rows.values())
    assert [width / widths[-1] for width in widths] == pytest.approx([size / sizes[-1] for size in sizes], abs=0.01)


def test_a_moment_with_terms_of_no_bytes_is_drawn():
    serve = {"engine": "vllm", "tensor_parallel_size": 16}
    result = estimate({"model": "moonshotai/Kimi-K3", "task": "serve", "gpu": "h200", "num_gpus": 16, "serve": serve})
    assert any(not term.bytes for phase in result.phases for term in phase.components.children)
    assert ">weights<" in answer_picture(result)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpt2"], "--plot needs --task"),
        (["gpt2", "--style", "simple"], "--plot needs --task"),
        (["gpt2", "--task", "serve", "--export", "vllm"], "--plot an answer"),
    ],
)
def test_a_picture_of_no_answer_is_refused(capsys, arguments, words):
    assert main(["estimate", *arguments, "--plot", "x.svg"]) == 2
    assert words in capsys.readouterr().err


def test_heights_are_in_proportion_and_open_marks_do_not_fit():
    axes = (Axis("micro_batch_size", ("1", "2"), (1, 2)),)
    points = [Point(("1",), 10 * GIB, "fits"), Point(("2",), 20 * GIB, "does not fit")]
    root = ET.fromstring(picture("a < b & c", axes, points, 15 * GIB))
    first, second, *_ = root.findall(f"{SVG}circle")
    floor = HEIGHT - 60
    assert float(second.get("cy")) - floor == pytest.approx(2 * (float(first.get("cy")) - floor), abs=0.2)
    assert float(second.get("cy")) >= TOP
    assert (first.get("fill") == "#fff", second.get("fill") == "#fff") == (False, True)
    texts = {element.text for element in root.iter(f"{SVG}text")}
    assert {"fits", "does not fit"} <= texts
    assert "tight" not in texts


@given(st.floats(0.001, 99_999))
@example(0.13)
@example(7.5)
def test_the_axis_goes_up_in_a_few_round_steps_to_the_largest(largest_gib):
    axes = (Axis("micro_batch_size", ("1",), (1,)),)
    root = ET.fromstring(picture("", axes, [Point(("1",), largest_gib * GIB)], None))
    shown = [text.text for text in root.iter(f"{SVG}text") if text.get("text-anchor") == "end"]
    ticks = [Decimal(text.replace(",", "")) for text in shown]
    step = ticks[1]
    assert step.normalize().as_tuple().digits in {(1,), (2,), (2, 5), (5,)}
    assert ticks == [i * step for i in range(len(ticks))]
    assert len(ticks) <= 7
    assert ticks[-2] < largest_gib <= float(ticks[-1]) * 1.000001


def test_the_picture_names_method_card_and_checkpointing(capsys, tmp_path):
    path = tmp_path / "sweep.svg"
    flags = ("--method", "lora", "--checkpointing", "full")
    printed(capsys, *TRAIN, "micro_batch_size=1,2", *flags, "--plot", str(path))
    texts = [element.text for element in ET.fromstring(path.read_text("utf-8")).iter(f"{SVG}text")]
    assert "Tesla T4" in texts[0]
    assert any("LoRA r=8" in text and "checkpointing full" in text for text in texts)


def test_too_many_lines_and_other_endings_are_refused(capsys, tmp_path):
    labels = tuple(str(i) for i in range(1, MOST_LINES + 2))
    axes = (Axis("lora_rank", labels, labels), Axis("micro_batch_size", ("1",), (1,)))
    with pytest.raises(UsageError, match="too many to tell apart"):
        picture("", axes, [Point((label, "1"), GIB) for label in labels], None)
    assert main([*TRAIN, *GRID, "--plot", str(tmp_path / "x.gif")]) == 2
    assert ".svg or .png" in capsys.readouterr().err
    assert main([*TRAIN, *GRID, "--plot", str(tmp_path / "no" / "x.svg")]) == 4


def test_a_png_without_its_converter_is_one_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cairosvg", None)
    assert main([*TRAIN, *GRID, "--plot", str(tmp_path / "x.png")]) == 2
    assert "pip install 'vramwise[plot]'" in capsys.readouterr().err


def test_ranges_double():
    (axis,) = axes_of(["sequence_length=1k..6k,100"], "train")
    assert axis.values == (1024, 2048, 4096, 100)


def test_two_sweeps_are_one_grid_and_a_gpu_is_no_number(capsys):
    arguments = ["estimate", "gpt2", "--task", "train", "--sweep", "gpu=4090,h100"]
    out = printed(capsys, *arguments, "--sweep", "sequence_length=512,1024")
    assert out == printed(capsys, *arguments, "sequence_length=512,1024")
    rows = [line.split() for line in out.splitlines()]
    assert next(row for row in rows if row[:1] == ["gpu"])[-2:] == ["512", "1,024"]
    assert any(row[:1] == ["4090"] for row in rows)
