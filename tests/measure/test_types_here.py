"""What a run of a type that transformers lacks says, before anything is imported."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from vramwise.cli.main import main
from vramwise.dryrun import launch
from vramwise.measure import types_here

CONFIG = {"model_type": "qwen33", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99,
          "intermediate_size": 128}  # fmt: skip


def test_the_types_in_the_files_are_those_of_the_library():
    import transformers

    assert types_here.types_here() == set(transformers.CONFIG_MAPPING)


@pytest.mark.parametrize("command", [["dry-run"], ["measure", "--device", "cpu"]])
def test_a_type_that_transformers_lacks_is_said_before_a_process_starts(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    monkeypatch.setattr(launch.subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    assert main([*command, str(tmp_path), "--task", "generate"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f'vramwise: transformers {version("transformers")} has no model_type "qwen33": did you mean')
    assert said.count("\n") == 1
    assert "qwen3" in said


def test_without_transformers_nothing_is_said(monkeypatch):
    monkeypatch.setattr(types_here, "find_spec", lambda name: None)
    types_here.refuse_type_unknown_here("qwen33")
