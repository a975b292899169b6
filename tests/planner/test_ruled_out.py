"""What a plan passes over without an estimate: an estimate of it would have changed no answer."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from vramwise.errors import VramwiseError
from vramwise.estimation import described_model, estimate, fits_at_no_size
from vramwise.planner import door, rows, searched_layouts, tuning
from vramwise.planner.machine import machine_of
from vramwise.planner.option import Wishes
from vramwise.planner.running import best_file, best_serving, best_whole_file, is_whole
from vramwise.planner.tuning import FULL, LORA, METHODS, QLORA, best_step, fitting_step
from vramwise.planner.ways import Question, tried
from vramwise.scenario import Scenario
from vramwise.training_parts import at_any_size

DRAWN = Path(__file__).parents[1] / "frozen" / "scenarios.jsonl"

MODELS = ("qwen3-8b", "qwen3-14b", "openai/gpt-oss-20b", "Qwen/Qwen2.5-7B-Instruct-AWQ", "google/gemma-3n-E2B",
          "Qwen/Qwen1.5-14B", "google/flan-t5-xl", "google/vit-base-patch16-224")  # fmt: skip
CARDS = ({"gpu": "4060"}, {"gpu": "t4"}, {"gpu": "l40s"}, {"gpu": "4090", "num_gpus": 2}, {"gpu": "m4-pro-48gb"})
TRAINED = ("llama-3.1-8b", "mixtral-8x7b", "openai/gpt-oss-20b", "nvidia/Llama-3.1-70B-Instruct-FP8")


def question(name, **machine):
    return Question(name, described_model(name)[1], machine_of(**machine), estimate)


@pytest.mark.parametrize(("name", "card"), list(product(MODELS, CARDS)))
def test_the_best_way_is_the_same_where_it_is_wanted_and_left_out_only_where_it_is_not(name, card):
    asked = question(name, **card)
    best = best_serving(asked)
    for wanted in ({"16 bit"}, {"fp8", "Q8_0"}, {"awq", "Q6_K", "Q5_K_M", "Q4_K_M", "mxfp4"}, {"Q3_K_M"}, set()):
        found = best_serving(asked, wanted.__contains__)
        if best is not None and best.fits and is_whole(asked, best) and best.precision in wanted:
            assert found == best, wanted
        else:
            assert found is None or not found.fits or found.precision not in wanted or not is_whole(asked, found)


@pytest.mark.parametrize(("name", "card"), list(product(MODELS[:6], CARDS)))
def test_a_file_with_a_part_on_the_host_is_never_whole(name, card):
    asked = question(name, **card)
    any_file, whole = best_file(asked), best_whole_file(asked)
    if whole is None:
        assert any_file is None or not (any_file.is_sure and is_whole(asked, any_file))
    else:
        assert any_file == whole


@pytest.mark.parametrize(("name", "card"), list(product(TRAINED, CARDS[:1] + CARDS[3:4])))
def test_a_training_is_ruled_out_by_its_weights_only_where_no_step_of_it_fits(name, card):
    asked = question(name, **card)
    for method in METHODS:
        found, best = fitting_step(asked, method, replays=False), best_step(asked, method, replays=False)
        assert best.fits == (found is not None and found.fits)
        assert not best.fits or found == best


@pytest.mark.parametrize("settings", [{"method": "lora"}, {"checkpointing": "full"}, {"offload_optimizer": "cpu"}])
@pytest.mark.parametrize("name", ["qwen3-0.6b", "google/paligemma-3b-mix-224", "google/flan-t5-xl"])
def test_a_training_decided_once_needs_at_every_size_what_its_answer_says(name, settings):
    table = {"model": name, "task": "train", "gpu": "4090", "train": settings}
    found = at_any_size(Scenario.from_dict(table))
    for batch, length in ((1, 256), (1, 2048), (7, 300)):
        sizes = {"micro_batch_size": batch, "sequence_length": length}
        needed = estimate(table | {"train": settings | sizes}, replays=False).needed
        assert found.needed(batch, length) == (int(needed.expected), int(needed.high))
        assert found.held_bytes < found.least_bytes < needed.expected


@pytest.mark.parametrize(("name", "method"), [("qwen3-8b", LORA), ("qwen3-8b", FULL), ("qwen3-32b", QLORA)])
def test_the_size_of_a_step_takes_one_whole_answer(monkeypatch, name, method):
    asked = []
    monkeypatch.setattr(tuning, "tried", lambda *args, **kw: asked.append(args) or tried(*args, **kw))
    for replays in (False, True):
        asked.clear()
        assert fitting_step(question(name, gpu="4090"), method, replays=replays) is not None
        assert len(asked) == 1


def test_a_smaller_model_takes_no_estimate_where_its_weights_alone_are_more_than_the_card():
    asked = []

    def noting(scenario, **kw):
        asked.append(scenario)
        return estimate(scenario, **kw)

    there = question("llama-3.1-405b", gpu="4090")
    answer = door.door(Question(there.name, there.model, there.machine, noting), ["llama-3.1-405b"])
    trained = {one["model"] for one in asked if one["task"] == "train"} - {"llama-3.1-405b"}
    assert trained == {"huggyllama/llama-30b"} == {row.model for row in answer.instead if row.task == "train"}
    too_large = question("meta-llama/Llama-3.1-70B-Instruct", gpu="4090")
    assert not any(best_step(too_large, method).fits for method in (LORA, QLORA))


def test_why_a_row_does_not_fit_is_worked_out_when_it_is_read(monkeypatch):
    read = []
    why = rows.reasons_of
    monkeypatch.setattr(rows, "reasons_of", lambda result: read.append(result) or why(result))
    there = question("llama-3.1-70b", gpu="4090")
    answer = door.glance(there, ["llama-3.1-70b"])
    assert not read
    assert answer.runs["16 bit"].reasons == why(estimate({"model": there.name, **answer.runs["16 bit"].scenario}))
    assert len(read) == 1


def test_a_layout_whose_states_alone_are_too_much_fits_with_no_micro_batch():
    """`fits_at_no_size`: what it passes over would have been answered with "does not fit"."""
    passed_over = 0
    for line in DRAWN.read_text("utf-8").splitlines()[::5]:
        given = json.loads(line)["scenario"]
        try:
            scenario = Scenario.from_dict(given)
            if scenario.task != "train":
                continue
            if fits_at_no_size(scenario):
                found = estimate(scenario.replace(train=scenario.train.replace(micro_batch_size=1)), replays=False)
                assert found.verdict.word == "does not fit", given
                passed_over += 1
        except VramwiseError:
            continue
    assert passed_over > 5


def test_layouts_that_cannot_fit_are_not_recorded(monkeypatch):
    asked = Scenario.from_dict({"model": "llama-3.1-8b", "task": "train", "gpu": "4090", "num_gpus": 2})
    monkeypatch.setattr(searched_layouts, "needs_together", lambda *_, **__: pytest.fail("was looked at"))
    model = described_model("llama-3.1-8b")[1]
    assert searched_layouts.searched(asked, model, Wishes("fine-tune"), lambda n: None).candidates == []
