"""`suggestions` of a result: worked out where somebody asks, each with a command that gives what it promises."""

from __future__ import annotations

import json
import pickle
import shlex
from importlib import import_module

import pytest

import vramwise
from vramwise.cli.main import main
from vramwise.result import Result

_SHORT = {
    "train": {"model": "llama-3.1-8b", "task": "train", "gpu": "l40s", "train": {"sequence_length": 4096}},
    "serve": {"model": "llama-3.1-70b", "task": "serve", "gpu": "h100", "serve": {"max_model_len": 8192}},
    "generate": {"model": "llama-3.1-70b", "task": "generate", "gpu": "h100"},
}


@pytest.mark.parametrize("task", _SHORT)
def test_every_command_gives_what_its_suggestion_says(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = vramwise.estimate(_SHORT[task])
    assert result.suggestions
    for one in result.suggestions:
        assert list(one) == ["change", "command", "total_needed", "saves_bytes", "fits", "cost"]
    one = result.suggestions[0]
    words = shlex.split(one["command"])
    assert words[:2] == ["vramwise", "estimate"]
    main([*words[1:], "--json"])
    again = json.loads(capsys.readouterr().out)
    assert again["quantities"]["total_needed"] == one["total_needed"]
    assert again["verdict"]["fits"] is one["fits"]
    assert one["saves_bytes"] == result.needed.expected - one["total_needed"]["expected"]


def test_nobody_pays_for_suggestions_that_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("worked out")

    monkeypatch.setattr(import_module("vramwise.planner.suggestions"), "suggestions", refuse)
    result = vramwise.estimate(_SHORT["serve"])
    assert "suggestions" not in result.to_dict()
    assert "suggestions" not in json.loads(result.to_json())
    assert result == vramwise.estimate(_SHORT["serve"])
    assert "suggestions" not in repr(result)
    copy = pickle.loads(pickle.dumps(result))
    with pytest.raises(AssertionError, match="worked out"):
        len(copy.suggestions)


def test_they_are_worked_out_once_and_come_back_from_json() -> None:
    result = vramwise.estimate(_SHORT["serve"])
    table = result.to_dict(suggestions=True)
    assert table["suggestions"] == list(result.suggestions)
    back = Result.from_dict(json.loads(json.dumps(table)))
    assert back.to_dict(suggestions=True) == table
    assert list(pickle.loads(pickle.dumps(result)).suggestions) == table["suggestions"]


def test_json_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", "llama-3.1-70b", "--task", "serve", "--gpu", "h100", "--max-model-len", "8192", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["suggestions"] == list(vramwise.estimate(_SHORT["serve"]).suggestions)


def test_a_model_that_is_a_table_has_no_command() -> None:
    model = {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
             "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256}  # fmt: skip
    result = vramwise.estimate({**_SHORT["serve"], "model": model})
    assert result.suggestions
    assert all(one["command"] is None for one in result.suggestions)
