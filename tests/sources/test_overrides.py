"""A model whose config is other in places: by a key of the scenario, and by the flags of engines and trainers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import vramwise
from vramwise.checking import check
from vramwise.cli.main import main
from vramwise.errors import ScenarioError, SourceError, UsageError
from vramwise.estimation import model_of
from vramwise.interop.export import export
from vramwise.interop.launch import read_command
from vramwise.models.lengths import model_length
from vramwise.scenario import Scenario
from vramwise.sources import resolve
from vramwise.sources.overrides import with_overrides

QWEN = "Qwen/Qwen3-8B"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
SERVE = {"model": QWEN, "task": "serve", "gpu": "h100"}


def asked(**more: object) -> Scenario:
    return Scenario.from_dict({**SERVE, **more})


def test_a_key_of_the_config_is_other_and_the_rest_stays() -> None:
    whole, two = (model_of(one)[1] for one in (asked(), asked(hf_overrides={"num_hidden_layers": 2})))
    assert (whole.num_layers, two.num_layers) == (36, 2)
    assert two.config.hidden_size == whole.config.hidden_size
    assert model_of(asked())[1] is whole


def test_a_description_is_made_once_for_the_same_keys() -> None:
    one = model_of(asked(hf_overrides={"num_hidden_layers": 2, "vocab_size": 1024}))[1]
    assert model_of(asked(hf_overrides={"vocab_size": 1024, "num_hidden_layers": 2}))[1] is one


def test_tables_in_the_config_change_key_by_key() -> None:
    found = resolve({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 8, "a": {}}})
    changed = with_overrides(found, {"text_config": {"hidden_size": 16, "a": 1}, "b": {"c": 2}})
    assert changed.config["text_config"] == {"model_type": "gemma3_text", "hidden_size": 16, "a": 1}
    assert changed.config["b"] == {"c": 2}
    assert "b" not in found.config


def test_a_stretched_context_is_the_models_own_length() -> None:
    assert model_length(model_of(asked(hf_overrides={"rope_scaling": YARN}))[1]) == 131_072
    serve = {"engine": "vllm", "max_model_len": 131_072}
    plain, stretched = (
        vramwise.estimate(asked(serve=serve, **more)) for more in ({}, {"hf_overrides": {"rope_scaling": YARN}})
    )
    said = "max_model_len 131,072 is beyond"
    assert any(note.startswith(said) for note in plain.notes)
    assert not any(note.startswith(said) for note in stretched.notes)
    train = {"sequence_length": 65_536, "checkpointing": "full"}
    for more, is_beyond in (({}, True), ({"hf_overrides": {"rope_scaling": YARN}}, False)):
        result = vramwise.estimate({"model": QWEN, "task": "train", "train": train, **more})
        assert any("beyond the model's own" in note for note in result.notes) is is_beyond


@pytest.mark.parametrize(
    "line",
    [
        f"vllm serve {QWEN} --hf-overrides '{json.dumps({'rope_scaling': YARN})}'",
        f"vllm serve {QWEN} --rope-scaling '{json.dumps(YARN)}'",
        f"vllm serve {QWEN} --hf-overrides.rope_scaling.rope_type yarn --hf-overrides.rope_scaling.factor 4.0 "
        "--hf-overrides.rope_scaling.original_max_position_embeddings 32768",
        f"python -m sglang.launch_server --model-path {QWEN} "
        f"--json-model-override-args '{json.dumps({'rope_scaling': YARN})}'",
    ],
)
def test_engines_are_told_so_by_their_flags(line: str) -> None:
    launch = read_command(shlex.split(line))
    assert launch.scenario["hf_overrides"] == {"rope_scaling": YARN}
    assert not any("override" in note or "rope" in note for note in launch.notes)
    assert model_length(model_of(Scenario.from_dict(launch.scenario))[1]) == 131_072


def test_axolotl_is_told_so_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"base_model: {QWEN}\noverrides_of_model_config: {{num_hidden_layers: 2}}\n", "utf-8")
    launch = read_command(["axolotl", "train", str(file)])
    assert launch.scenario["hf_overrides"] == {"num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("tool", "more"),
    [("vllm", {}), ("sglang", {"serve": {"engine": "sglang"}}), ("axolotl", {"task": "train"})],
)
def test_tools_are_told_so_again(tool: str, more: dict[str, object], tmp_path: Path) -> None:
    scenario = asked(hf_overrides={"num_hidden_layers": 2}, **more)
    written = export(scenario, tool, str(tmp_path / "file.yaml"))
    assert not [said for said in written.not_expressed if not said.startswith("data:")]


def test_the_command_line_says_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["estimate", QWEN, "--task", "serve", "--gpu", "4090", "--json", "--hf-overrides"]
    assert main([*words, '{"num_hidden_layers": 2}']) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["scenario"]["hf_overrides"] == {"num_hidden_layers": 2}
    assert Scenario.from_dict(result["scenario"]).hf_overrides == {"num_hidden_layers": 2}
    for text in ("[1", "7", "[" * 100_000):
        assert main([*words, text]) == 2
        assert "--hf-overrides: expected keys of a config.json" in capsys.readouterr().err


def test_what_no_config_holds_is_refused() -> None:
    with pytest.raises(ScenarioError, match="hf_overrides: expected keys"):
        asked(hf_overrides=7)
    with pytest.raises(SourceError, match="hidden_size is inf"):
        vramwise.estimate(asked(hf_overrides={"hidden_size": float("inf")}))
    deep: dict[str, object] = {}
    for _ in range(2000):
        deep = {"a": deep}
    with pytest.raises(SourceError, match="nested deeper"):
        vramwise.estimate(asked(hf_overrides=deep))
    with pytest.raises(UsageError, match="--hf-overrides: expected a JSON object"):
        check(f"vllm serve {QWEN} --hf-overrides '[1'", gpu="h100")
