"""The API without a server: names, bodies, errors; the numbers are the command line's."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from vramwise.cli.main import main
from vramwise.units import format_bytes
from vramwise.web.api import ANSWERS, answer, answer_text

SERVING = {"model": "llama-3.1-8b", "task": "serve", "gpu": "4090", "serve": {"max_model_len": 4096}}
TRAINING = {"model": "qwen2.5-0.5b", "task": "train", "gpu": "4090", "train": {"method": "lora", "micro_batch_size": 2}}


def test_an_estimate_is_what_the_command_prints_byte_for_byte(capsys):
    main(["estimate", "llama-3.1-8b", "--task", "serve", "--gpu", "4090", "--max-model-len", "4096", "--json"])
    assert answer_text("estimate", json.dumps(SERVING)) == capsys.readouterr().out


def test_a_result_leaves_out_the_suggestions_alone():
    whole = answer("estimate", TRAINING)
    suggested = whole.pop("suggestions")
    assert answer("result", TRAINING) == whole
    assert answer("suggestions", TRAINING) == {"suggestions": suggested}


def test_models_are_found_by_their_words():
    pipelines = answer("models", {"query": "flux", "limit": 9})["models"]
    assert {(one["id"], one["task"]) for one in pipelines} >= {("black-forest-labs/FLUX.1-dev", "generate")}
    found = answer("models", {"query": "llama 3.1 8b instruct", "limit": 1})
    assert found["models"][0]["task"] == "serve"
    assert found["models"][0]["id"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert found["models"][0]["num_parameters"] == 8030261248
    assert found["total"] >= 1


def test_a_key_says_its_kind_choices_bounds_and_owners():
    listed = answer("keys", {})
    keys = {(one["table"], one["key"]): one for one in listed["keys"]}
    assert keys["train", "method"]["choices"] == ["full", "lora", "qlora", "freeze"]
    assert keys["train", "micro_batch_size"] | {"minimum": 1, "default": 1} == keys["train", "micro_batch_size"]
    [owner] = keys["train", "lora_rank"]["owners"]
    assert listed["owners"][owner]["key"] == "method"
    assert "qlora" in listed["owners"][owner]["values"]


def test_words_say_a_scenario_in_every_form(tmp_path, capsys):
    said = answer("words", {"scenario": TRAINING})
    (tmp_path / "one.toml").write_text(said["toml"])
    (tmp_path / "one.json").write_text(said["json"])
    asked = answer_text("estimate", json.dumps(TRAINING))
    for name in ("one.toml", "one.json"):
        main(["estimate", "--scenario", str(tmp_path / name), "--json"])
        assert capsys.readouterr().out == asked
    main([*said["command"].split()[1:], "--json"])
    assert capsys.readouterr().out == asked
    need = format_bytes(json.loads(asked)["quantities"]["total_needed"]["expected"])
    assert ElementTree.fromstring(said["badge"])[0].text == f"vramwise: {need} · fits"
    assert said["address"] == "model=qwen2.5-0.5b&task=train&gpu=4090&train.method=lora&train.micro_batch_size=2"


@pytest.mark.parametrize(
    ("name", "body", "kind", "part"),
    [
        ("estimte", "{}", "UnknownNameError", "did you mean estimate?"),
        ("estimate", "{", "UsageError", "the body is no JSON"),
        ("estimate", "[]", "UsageError", "expected a table"),
        ("estimate", "{}", "ScenarioError", "model"),
        ("estimate", "[" * 100_000, "UsageError", "nested too deeply"),
        ("estimate", '{"model":' + '{"a":' * 500 + "1" + "}" * 501, "UsageError", "nested"),
        ("words", '{"scenario": 3}', "UsageError", "scenario: expected a table, got 3"),
        ("models", '{"limit": 1e9}', "UsageError", "limit: expected a whole number"),
        ("models", '{"qery": ""}', "UsageError", "did you mean query?"),
        ("hub", '{"query": " "}', "UsageError", "query: expected a part of a model's name"),
        ("gpus", '{"query": "4900 \\u001b[31m"}', "UnknownNameError", "did you mean"),
    ],
)
def test_what_is_wrong_with_a_body_is_said_in_one_line(name, body, kind, part):
    error = json.loads(answer_text(name, body))["error"]
    assert (error["kind"], error["exit_code"]) == (kind, 2)
    assert part in error["message"]
    assert error["message"].isprintable()


def test_a_wrong_key_is_named_by_its_path():
    error = answer("estimate", {**TRAINING, "train": {"methd": "lora"}})["error"]
    assert (error["path"], error["exit_code"]) == ("train.methd", 2)


def test_every_name_says_what_it_answers():
    assert answer("version", {})["names"].keys() == ANSWERS.keys()
