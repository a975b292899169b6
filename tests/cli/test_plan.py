"""`vramwise plan` on a terminal, as JSON, and with wishes that cannot be understood."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from vramwise.cli.main import main
from vramwise.planner import recorded_shapes


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(recorded_shapes.SWITCH, str(tmp_path))
    recorded_shapes._folder.cache_clear()
    recorded_shapes._recalled.clear()
    yield tmp_path
    recorded_shapes._folder.cache_clear()
    recorded_shapes._recalled.clear()


ASKED = ["plan", "Qwen/Qwen3-0.6B", "--gpu", "t4-16gb", "--sequence-length", "8192", "--keep", "num_gpus"]


def test_the_screen_has_figures_changes_and_a_command_that_runs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*ASKED, "--goal", "fine-tune", "--tokens", "1b", "--price", "0.4"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "as asked: needs" in shown
    assert "tokens/s   an hour" in shown
    assert "next: vramwise estimate Qwen/Qwen3-0.6B --task train" in shown
    assert "binding" in shown
    command = shown[shown.index("next: ") + 6 :].split("\n\n")[0].replace("\\\n", "")
    assert "\n" not in command  # what is copied is one command
    assert main([*ASKED, "--goal", "fine-tune", "--option", "1"]) == 0
    assert shlex.split(command) == shlex.split(capsys.readouterr().out)


def test_json_has_what_the_contract_names(capsys):
    assert main([*ASKED, "--goal", "fine-tune", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["goal"] == "fine-tune"
    assert found["searched"] > len(found["options"]) > 0
    first = found["options"][0]
    assert first.keys() >= {
        "scenario", "change", "command", "total_needed", "probability", "step_time_s", "cost_per_hour"
    }  # fmt: skip
    assert first["total_needed"]["low"] <= first["total_needed"]["expected"] <= first["total_needed"]["high"]
    assert 0.5 <= first["probability"] <= 1


def test_an_option_is_printed_as_its_command(capsys):
    assert main([*ASKED, "--goal", "fine-tune", "--option", "1"]) == 0
    assert capsys.readouterr().out.startswith("vramwise estimate Qwen/Qwen3-0.6B --task train --gpu t4-16gb")


def test_an_option_is_written_for_the_tool_that_runs_it(capsys, tmp_path):
    file = tmp_path / "axolotl.yaml"
    asked = [*ASKED, "--goal", "fine-tune", "--option", "1", "--export", "axolotl"]
    assert main([*asked, "-o", str(file)]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "run: " in shown.err
    assert "sequence_len: 8192" in file.read_text()
    assert main([*asked, "-o", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_nothing_feasible_says_by_how_much_and_exits_with_3(capsys):
    wishes = ["--keep", "method,num_gpus,sequence_length", "--no-offload", "--max-recompute", "none"]
    assert main(["plan", "llama-3.1-70b", "--goal", "train", "--gpu", "4090", "-n", "1", *wishes]) == 3
    shown = capsys.readouterr().out
    assert "nothing that was tried fits" in shown
    assert "misses by" in shown


def test_where_nothing_fits_a_model_of_the_family_that_does_stands_beside_it(capsys):
    wishes = ["--keep", "num_gpus", "--no-offload"]
    assert main(["plan", "llama-3.1-405b", "--goal", "fine-tune", "--gpu", "4060", *wishes]) == 3
    shown = capsys.readouterr().out
    assert "of its family  fine-tune it: " in shown
    words = shlex.split(shown[shown.index("next: ") + 6 : shown.index("\n\nbinding")].replace("\\\n", ""))
    assert main([*words[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["word"] == "fits"


def test_what_is_on_the_host_is_said_of_what_was_asked_too(capsys):
    assert main(["plan", "qwen3-30b-a3b", "--goal", "run", "--gpu", "4060", "--engine", "llama.cpp"]) == 0
    assert "as asked (11.65 GiB of host memory on a node)" in capsys.readouterr().out


def test_a_change_that_changes_nothing_beside_another_is_no_option(capsys):
    assert main(["plan", "sdxl", "--goal", "run", "--gpu", "4060", "--json"]) == 0
    changes = [one["change"] for one in json.loads(capsys.readouterr().out)["options"]]
    assert {"quantization": "bitsandbytes-nf4"} in changes
    assert all("vae_tiling" not in one for one in changes)  # images of 1,024: one tile


def test_how_many_cards_a_server_takes_is_an_option_where_their_number_is_open(capsys):
    asked = ["plan", "llama-3.1-405b", "--goal", "run", "--gpu", "h200", "--json"]
    assert main(asked) == 0
    options = json.loads(capsys.readouterr().out)["options"]
    (over_more,) = [one for one in options if one["change"] == {"tensor_parallel_size": 8, "num_gpus": 8}]
    assert main([*shlex.split(over_more["command"])[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["word"] == "fits"
    assert main([*asked, "-n", "1"]) == 0
    assert all("num_gpus" not in one["change"] for one in json.loads(capsys.readouterr().out)["options"])


def test_a_task_or_a_command_implies_the_goal(capsys):
    assert main(["plan", "Qwen/Qwen3-0.6B", "--task", "serve", "--gpu", "t4-16gb"]) == 0
    assert "· run ·" in capsys.readouterr().out
    assert main(["plan", "--gpu", "l4", "--", "vllm", "serve", "Qwen/Qwen3-0.6B"]) == 0
    assert "· run ·" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["llama-3.1-8b", "--gpu", "h100"], "--goal is missing: expected one of run, fine-tune, train"),
        (["llama-3.1-8b", "--goal", "finetune", "--gpu", "h100"], "did you mean fine-tune"),
        (["llama-3.1-8b", "--goal", "run"], "no card to plan for: give --gpu CARD"),
        (["llama-3.1-8b", "--goal", "run", "--task", "train", "--gpu", "h100"], "needs --task serve, got --task train"),
        (["llama-3.1-8b", "--task", "load", "--gpu", "h100"], "needs --task serve, generate or train"),
        (["llama-3.1-8b", "--goal", "train", "--gpu", "h100", "--keep", "batch"], 'unknown setting "batch"'),
        (["llama-3.1-8b", "--goal", "train", "--gpu", "h100", "--risk", "2"], "expected a probability"),
        (["llama-3.1-8b", "--goal", "train", "--gpu", "h100", "--price", "free"], "--price: expected a number"),
        (["llama-3.1-8b", "--goal", "train", "--gpu", "h100", "--tokens", "-1"], "--tokens: expected a number above 0"),
        (["llama-3.1-8b", "--goal", "train", "--gpu", "h100", "--rank", "fame"], "--rank: expected one of change"),
        (["llama-3.1-8b", "--goal", "run", "--gpu", "h100", "--inventory", "none.toml"], "none.toml"),
        (["gpt2", "--goal", "train", "--gpu", "h100", "-n", "9" * 14], "a plan looks at 1,000,000 cards at most"),
        (["gpt2", "--goal", "train", "--gpu", "h100", "--price", "0"], "--price: expected a number above 0, got 0"),
        (["gpt2", "--goal", "train", "--gpu", "h100", "--tokens", "1e30"], "--tokens: expected a number such as"),
        (["gpt2", "--goal", "train", "--gpu", "h100", "--sequence-length", "9" * 20], "below 2^53"),
        (
            ["gpt2", "--goal", "train", "--gpu", "h100", "--max-recompute", "none", "--checkpointing", "full"],
            "--max-recompute none and checkpointing full contradict one another",
        ),
        (
            ["gpt2", "--goal", "train", "--gpu", "h100", "--no-offload", "--offload-optimizer", "cpu"],
            "--no-offload and offload_optimizer cpu contradict one another",
        ),
        (["llama-3.1-8b", "--goal", "run", "--gpu", "h100", "--option", "99"], "--option: expected 1 to"),
        (["llama-3.1-8b", "--goal", "run", "--gpu", "h100", "--option", "0"], "from 1, got 0"),
        (["llama-3.1-8b", "--goal", "run", "--gpu", "h100", "--export", "vllm"], "--option N says which"),
        (["llama-3.1-8b", "--goal", "run", "--gpu", "h100", "-o", "file"], "--option N --export TOOL"),
        (["llama-3.1-8b", "--goal", "run", "--gpu", "h100", "--option", "1", "--export", "vlm"], "did you mean vllm"),
    ],
)
def test_a_wish_that_cannot_be_understood_is_one_clear_line(capsys, words, said):
    assert main(["plan", *words]) in (2, 4)
    shown = capsys.readouterr()
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""


def test_recorded_shapes_are_kept_for_the_next_plan_and_change_nothing(cache, capsys):
    asked = [*ASKED, "--goal", "fine-tune", "--json"]
    assert main(asked) == 0
    first = capsys.readouterr().out
    (kept,) = (file for file in cache.rglob("*") if file.is_file())
    again = subprocess.run([sys.executable, "-m", "vramwise", *asked], capture_output=True, text=True, check=True)
    assert again.stdout == first
    kept.write_bytes(b"broken")
    again = subprocess.run([sys.executable, "-m", "vramwise", *asked], capture_output=True, text=True, check=True)
    assert again.stdout == first


def test_a_model_that_no_catalog_knows_leaves_nothing(cache, tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    tiny = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 100}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(tiny), "utf-8")
    assert main(["plan", str(folder), "--goal", "fine-tune", "--gpu", "4090", "--json"]) == 0
    capsys.readouterr()
    assert [file for file in cache.rglob("*") if file.is_file()] == [folder / "config.json"]


def test_what_a_pipeline_runs_is_a_generation(capsys):
    """Its layers stay on the host where they do not fit, which is said with their bytes."""
    for words in (["flux.1-dev", "--goal", "run"], ["flux.1-dev", "--task", "generate"]):
        assert main(["plan", *words, "--gpu", "4060"]) == 0
        shown = capsys.readouterr().out
        assert "--task generate --gpu 4060 --offload sequential" in shown
        assert "at once" not in shown


def test_layers_on_the_host_have_their_bytes(capsys):
    assert main(["plan", "llama-3.1-405b", "--goal", "run", "--gpu", "4090", "--keep", "num_gpus"]) == 0
    assert "207.81 GiB of host" in " ".join(capsys.readouterr().out.split())


def test_the_plain_no_names_every_unequal_card(capsys):
    assert main(["plan", "qwen3-14b", "--goal", "train", "--gpus", "4090,3090"]) == 0
    assert "no: not in the memory of GeForce RTX 4090 + GeForce RTX 3090" in capsys.readouterr().out


def test_an_exported_option_says_what_the_tools_own_defaults_make_of_it(capsys):
    """TRL checkpoints unasked: its file is another training than the option, and needs another amount."""
    asked = ["plan", "Qwen/Qwen3-4B", "--goal", "fine-tune", "--gpu", "4090", "-n", "1", "--keep", "checkpointing"]
    assert main([*asked, "--option", "1", "--export", "trl"]) == 0
    said = capsys.readouterr()
    assert "gradient_checkpointing: true" in said.out
    told = [line for line in said.err.splitlines() if line.startswith("defaults: ")]
    assert len(told) == 1
    assert "is trl's own (checkpointing full" in told[0]
    assert "the option " in told[0]
