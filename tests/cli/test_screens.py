"""The pieces of a screen: bars, columns, wrapped text, the kinds of training memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.cli.screens import paint
from vramwise.cli.screens.bar import FILLS, bar, segments_of
from vramwise.cli.screens.breakdown import EXPLICIT, IMPLICIT, breakdown, breakdown_lines, fragmentation_bytes
from vramwise.cli.screens.explain import size_text
from vramwise.cli.screens.paint import columns, plain, screen_width, wrapped, wrapped_text
from vramwise.estimation import estimate
from vramwise.result import Node
from vramwise.units import GIB, MIB

PARTS = st.lists(st.tuples(st.just("part"), st.integers(0, 10**12)), min_size=1, max_size=len(FILLS))


@given(PARTS, st.none() | st.integers(1, 10**12), st.integers(20, 200))
def test_a_bar_is_never_wider_than_its_width(parts, capacity, width):
    assert len(plain(bar(parts, capacity, width))) <= width


@given(PARTS, st.integers(1, 10**12), st.integers(20, 200))
def test_the_card_ends_where_its_share_of_the_bar_ends(parts, capacity, width):
    text = "".join(piece for piece, _ in bar(parts, capacity, width))
    used = sum(size for _, size in parts)
    assert len(text) == width
    assert text.count("|") == 1
    assert text.index("|") == min(round(capacity / max(used, capacity) * width), width - 1)


@given(PARTS, st.integers(20, 200))
def test_each_part_takes_its_share_to_the_cell(parts, width):
    total = sum(size for _, size in parts)
    text = "".join(piece for piece, _ in bar(parts, None, width))
    for mark, (_, size) in zip(FILLS, parts, strict=False):
        assert abs(text.count(mark) - size / max(total, 1) * width) <= 1


def test_a_bar_shows_headroom_as_spaces_and_excess_behind_the_edge():
    def draw(size, capacity):
        return "".join(piece for piece, _ in bar([("weights", size)], capacity, 40))

    assert draw(10, 40) == "█" * 10 + " " * 29 + "|"
    assert draw(80, 40) == "█" * 20 + "|" + "█" * 19


def test_small_components_become_one():
    leaves = [Node(f"part {i}", i, "exact") for i in range(1, 10)]
    parts = segments_of(Node.group("peak", leaves))
    assert parts == [("part 9", 9), ("part 8", 8), ("part 7", 7), ("part 6", 6), ("part 5", 5), ("other", 10)]
    assert segments_of(Node("weights", 7, "exact")) == [("weights", 7)]


def test_columns_set_numbers_to_the_right():
    assert columns([["name", "GiB"], ["a", "1.00"], ["bb", "10.00"], ["c"]]) == [
        "name     GiB",
        "a       1.00",
        "bb     10.00",
        "c",
    ]


WORDS = st.lists(st.text("abc", min_size=1, max_size=12), max_size=30)


@given(WORDS, st.integers(20, 80))
def test_wrapped_keeps_every_word_in_order_and_the_width(words, width):
    lines = wrapped(words, width, indent=4, gap=" ")
    assert " ".join(lines).split() == words
    assert all(len(line) <= width for line in lines)


def test_a_piece_that_is_wider_than_the_screen_ends_its_lines_between_words():
    targets = "LoRA r=8, q_proj, v_proj, o_proj, gate_proj, up_proj, down_proj (19.7 M trainable, 0.2708 %)"
    lines = wrapped(["zephyr 7b beta", targets, "adamw"], 80, gap=" · ")
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).replace(" · ", " ").split() == ["zephyr", "7b", "beta", *targets.split(), "adamw"]


@given(WORDS, st.integers(30, 80))
def test_wrapped_text_hangs_below_its_first_word(words, width):
    first, *rest = wrapped_text("note  ", " ".join(words), width)
    assert first.startswith("note  ")
    assert " ".join([first.removeprefix("note  "), *rest]).split() == words
    assert all(line.startswith(" " * 6) and len(line) <= width for line in rest)


@pytest.mark.parametrize(("columns_of_terminal", "width"), [("20", 80), ("80", 80), ("137", 137), ("999", 200)])
def test_widths_stay_between_80_and_200(columns_of_terminal, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns_of_terminal)
    assert screen_width() == width


def test_show_writes_plain_text_into_a_pipe(capsys):
    paint.show(["a", [("b", "bold red"), ("c ", "")]])
    assert capsys.readouterr().out == "a\nbc\n"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (12, "12 B"), (99 * MIB, "99.00 MiB"), (100 * MIB, "0.10 GiB"), (3 * GIB, "3.00 GiB")],
)
def test_terms_are_shown_in_the_unit_that_shows_something(size, text):
    assert size_text(size) == text


TRAINING = {"model": "gpt2", "task": "train", "train": {"micro_batch_size": 2}}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "lora"},
        {"method": "qlora", "quantization": "nf4"},
        {"precision": "bf16-master", "optimizer": "sgd"},
        {"zero_stage": 3, "framework": "deepspeed", "precision": "bf16-master"},
        {"checkpointing": "full", "precision": "fp32"},
    ],
)
def test_every_byte_of_a_moment_has_one_kind(settings):
    result = estimate({**TRAINING, "num_gpus": 2, "train": {**TRAINING["train"], **settings}})
    for phase in result.phases:
        kinds = breakdown(phase.components)
        assert sum(kinds.values()) == phase.bytes
        assert all(size >= 0 for size in kinds.values())


def test_the_kinds_add_up_to_explicit_and_implicit():
    result = estimate(TRAINING)
    lines = breakdown_lines(result, 200)
    for line, names in zip(lines, (EXPLICIT, IMPLICIT), strict=False):
        total, *sizes = (
            float(piece.partition(" (")[0].rstrip(":").split()[-1])
            for piece in line.split("   ")
            if piece.strip()[-1:] in "0123456789:)" and piece.strip()
        )
        assert len(sizes) == len(names)
        assert total == pytest.approx(sum(sizes), abs=0.011)
    assert fragmentation_bytes(result) > 0
    assert "functionality-specific" in lines[-1]


def test_gradients_that_the_peak_does_not_hold_are_said_with_their_own_moment():
    train = {"sequence_length": 4096, "micro_batch_size": 2, "checkpointing": "full"}
    result = estimate({"model": "llama-2-7b", "task": "train", "train": train})
    assert result.peak_phase == "loss"
    assert "gradients 0.00 (12.55 at backward end)" in breakdown_lines(result, 200)[0]
    kept = estimate({"model": "llama-2-7b", "task": "train", "train": {**train, "gradient_accumulation_steps": 4}})
    assert "gradients 12.55   " in breakdown_lines(kept, 200)[0]


def test_other_tasks_have_no_such_kinds():
    assert breakdown_lines(estimate({"model": "gpt2", "task": "load"}), 100) == []
