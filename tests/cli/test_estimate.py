"""`vramwise estimate`: what a person reads, what a program reads, and exit codes."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from by_turns import is_thorough
from vramwise.cli.main import main
from vramwise.result import Result

TRAIN = ["gpt2", "--task", "train", "--sequence-length", "1024"]
SERVE = ["qwen2.5-7b", "--task", "serve"]
GENERATE = ["gpt2", "--task", "generate"]
LOAD = ["gpt2", "--task", "load"]
TASKS = {"train": TRAIN, "serve": SERVE, "generate": GENERATE, "load": LOAD}


def estimate(capsys, *arguments, code=0):
    assert main(["estimate", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys, *arguments):
    code = main(["estimate", *arguments])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("vramwise: ")
    assert captured.err.count("\n") == 1
    return code, captured.err.removeprefix("vramwise: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gpt2", "--task", "train", "--lora"], 'unknown flag "--lora": did you mean --method lora?'),
        (["gpt2", "--task", "train", "--seq-len", "8"], 'unknown flag "--seq-len": did you mean --sequence-length?'),
        (["gpt2", "--task", "train", "--batch-size", "4"], "not to --task train: there it is --micro-batch-size"),
        (["gpt2", "--task", "serve", "--sequence-length", "4"], "not to --task serve: there it is --max-model-len"),
    ],
)
def test_what_is_called_otherwise_here_is_named(arguments, says, capsys):
    assert says in refused(capsys, *arguments)[1]


def test_a_size_alone_is_no_model_that_is_known(capsys):
    code, says = refused(capsys, "7b")
    simple = "vramwise estimate 7b --style simple takes a size alone"
    assert (code, f"{simple}; --hidden-size and its like describe a model" in says) == (4, True)


def test_the_overview_shows_precisions_tasks_and_cards(capsys):
    screen = estimate(capsys, "llama-3.1-8b", "--style", "table")
    assert "8,030,261,248 parameters" in screen
    assert "context 131,072" in screen
    for word in ("fp32", "bf16", "int8", "nf4", "weights", "+ 8k context", "LoRA r=8", "AdamW", "H200 141 GB"):
        assert word in screen
    (bf16,) = (line for line in screen.splitlines() if line.startswith("bf16"))
    assert bf16.split()[1:3] == ["14.96", "GiB"]
    assert "next: vramwise estimate" in screen
    assert "not the answer" in " ".join(screen.split())


OVERVIEWS = ["llama-3.1-8b", "Llama 3.1 70B", "openai/whisper-large-v3", "google/vit-base-patch16-224", "deepseek-v3",
             "llama-3.1-405b", "gpt2"]  # fmt: skip


@pytest.mark.parametrize("model", OVERVIEWS if is_thorough() else OVERVIEWS[::2])
def test_the_next_command_can_be_copied_and_fits_on_its_card(model, capsys):
    screen = estimate(capsys, model, "--style", "table")
    words = shlex.split(screen[screen.index("next: ") + 6 :].replace("\\\n", ""))
    assert words[:3] == ["vramwise", "estimate", model]
    result = json.loads(estimate(capsys, *words[2:], "--json", code=0))
    assert result["verdict"]["word"] == "fits"


def test_the_overview_tells_what_small_cards_can_do(capsys):
    table = json.loads(estimate(capsys, "llama-3.1-8b", "--json"))
    assert table["cards_needed"]["qlora"] == dict.fromkeys(table["cards_needed"]["qlora"], 1) | {"rtx-4060": None}
    alone = ("--task", "train", "--method", "qlora", "--checkpointing", "full", "--json")
    needed = json.loads(estimate(capsys, "llama-3.1-8b", *alone))["quantities"]["total_needed"]["expected"]
    assert table["needed_bytes"]["nf4"]["checkpointed"] == needed
    assert table["needed_bytes"]["nf4"]["checkpointed"] < table["needed_bytes"]["nf4"]["lora"]


@pytest.mark.parametrize(
    ("model", "says", "says_not"),
    [("google/vit-base-patch16-224", "a step of one sample", ("serve", "context", "tokens")),
     ("openai/whisper-large-v3", "+ 448 tokens", ("8k", "2,048"))],
)  # fmt: skip
def test_a_model_without_long_texts_is_not_asked_for_them(model, says, says_not, capsys):
    screen = estimate(capsys, model, "--style", "table")
    table = screen[: screen.index("rules of thumb")]
    assert says in table
    assert not [word for word in says_not if word in table.partition("\n\n")[2]]


def test_the_overview_as_json(capsys):
    table = json.loads(estimate(capsys, "gpt2", "--json"))
    assert table["num_parameters"] == 124_439_808
    assert table["needed_bytes"]["fp32"]["weights"] >= 4 * 124_439_808
    assert table["cards_needed"]["serve"]["t4-16gb"] == 1


def test_an_inline_model_has_an_overview(capsys):
    screen = estimate(capsys, "--model-type", "gpt2", "--hidden-size", "768", "--num-hidden-layers", "12",
                      "--num-attention-heads", "12", "--vocab-size", "50257", "--style", "table")  # fmt: skip
    assert "124,439,808 parameters" in screen


@pytest.mark.parametrize("task", TASKS)
def test_a_screen_says_answer_then_why(task, capsys):
    screen = estimate(capsys, *TASKS[task], "--gpu", "a100-80gb", code=0)
    assert screen.index("needs  ") < screen.index("counters") < screen.index("because")
    assert "A100" in screen.splitlines()[1]
    assert "fits with" in screen
    assert "sizes in GiB (2^30 bytes)" in screen


def test_a_card_whose_driver_total_nobody_printed_has_more_than_is_usable(capsys):
    """The RTX 4060 reports 8,188 MiB; what is usable is less."""
    line = estimate(capsys, *TRAIN, "--gpu", "rtx-4060", code=0).splitlines()[1]
    total, usable = (float(number) for number in re.findall(r"([\d.]+) GiB", line))
    assert total == pytest.approx(8188 / 1024, abs=0.05)
    assert usable < total


def test_a_size_alone_stands_for_a_card(capsys):
    assert estimate(capsys, *TRAIN, "--gpu-total-bytes", "8GiB", code=0).splitlines()[1].startswith("a card · 8.00 GiB")


def test_thousands_have_commas_in_every_line(capsys):
    screen = estimate(capsys, "deepseek-v3", "--task", "train", "--gpu", "h100", code=3)
    assert not re.search(r"(?<![\d.,])\d{4,}\.\d\d", screen)
    assert re.search(r"needs  \d,\d{3}\.\d\d GiB", screen)


def test_a_terminal_of_ascii_alone_gets_signs_that_it_has():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "vramwise", "estimate", *TRAIN, "--gpu", "4060"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.isascii()
    assert "?" not in done.stdout
    assert "# optimizer states" in done.stdout or "# activations" in done.stdout


def test_without_a_gpu_there_is_no_verdict(capsys):
    screen = estimate(capsys, *TRAIN)
    assert "fits" not in screen.lower()
    assert "because" not in screen


def test_what_does_not_fit_is_exit_3_and_says_what_saves_most(capsys):
    screen = estimate(capsys, "llama-2-7b", "--task", "train", "--gpu", "4090", code=3)
    assert "DOES NOT FIT by" in screen
    assert "GeForce RTX 4090 · 23.99 GiB in total" in screen
    rows = [row for row in screen[screen.index("what saves most") :].splitlines()[1:] if " GiB " in row]
    needs = [float(row.split(" GiB")[0].split()[-1]) for row in rows if "sizes in GiB" not in row]
    assert needs
    assert max(needs) < 23.64
    assert all("   fits" in row or "   tight, " in row for row in rows if "sizes in GiB" not in row)


LORA_8B = ("qwen3-8b", "--task", "train", "--method", "lora", "--checkpointing", "full", "--micro-batch-size", "4")


def test_a_tight_run_says_so_everywhere_and_exits_0(capsys):
    needed = json.loads(estimate(capsys, *LORA_8B, "--json"))["quantities"]["total_needed"]
    total = str((needed["expected"] + needed["high"]) // 2)
    screen = estimate(capsys, *LORA_8B, "--gpu-total-bytes", total, code=0)
    answer = next(line for line in screen.splitlines() if line.startswith("needs  "))
    verdict = json.loads(estimate(capsys, *LORA_8B, "--gpu-total-bytes", total, "--json", code=0))["verdict"]
    said = f"fits with {math.floor(100 * verdict['probability'])} %"
    assert (verdict["word"], verdict["fits"]) == ("tight", True)
    assert f"TIGHT: {said}" in answer
    assert f"because     tight: it {said}" in screen


@pytest.mark.parametrize(
    "command",
    [("--gpu", "4090", "--", "python", "train.py", "--model_name_or_path", "Qwen/Qwen3-8B", "--load_in_4bit",
      "--per_device_train_batch_size", "8", "--use_peft", "--gradient_checkpointing", "--max_length", "2048"),
     ("llama-3.1-8b", "--task", "serve", "--gpu", "4060"),
     ("llama-3.1-8b", "--task", "serve", "--engine", "sglang", "--gpu", "4090", "--max-model-len", "131072"),
     ("qwen3-32b", "--task", "serve", "--engine", "llama.cpp", "--gguf-quant", "q8_0", "--gpu", "3090",
      "--num-gpus", "2", "--n-ctx", "131072", "--n-gpu-layers", "99")],
)  # fmt: skip
def test_what_is_missing_is_the_difference_of_two_numbers_on_the_screen(command, capsys):
    screen = estimate(capsys, *command, code=3)
    needs, missing, usable = (
        float(re.search(pattern, screen)[1])  # type: ignore[index]
        for pattern in (r"\nneeds  ([\d.]+) GiB", r"DOES NOT FIT by ([\d.]+) GiB", r"([\d.]+) GiB usable")
    )
    assert needs - usable == pytest.approx(missing, abs=0.011)


@pytest.mark.parametrize("task", TASKS)
def test_json_is_one_result_and_nothing_else(task, capsys):
    out = estimate(capsys, *TASKS[task], "--json")
    assert out.count("\n") == 1
    result = Result.from_dict(json.loads(out))
    assert result.scenario["task"] == task
    assert result.peak_phase in {phase.name for phase in result.phases}


def test_exit_3_holds_for_json_too(capsys):
    result = json.loads(estimate(capsys, "llama-2-7b", "--task", "train", "--gpu", "4090", "--json", code=3))
    assert result["verdict"]["fits"] is False


def test_explain_shows_formula_inputs_and_source(capsys):
    screen = estimate(capsys, *TRAIN, "--explain")
    assert screen.startswith("moment: ")
    assert "= adamw on 124,439,808 trained values" in screen
    assert "source: " in screen
    assert "[exact]" in screen


@pytest.mark.parametrize("path", ["optimizer states", "optimizer step/optimizer states"])
def test_explain_takes_a_term_or_a_path(path, capsys):
    screen = estimate(capsys, *TRAIN, "--explain", path)
    assert screen.startswith(path)
    assert "gradients" not in screen


def test_explain_all_shows_every_moment(capsys):
    screen = estimate(capsys, *TRAIN, "--explain", "all")
    assert screen.count("moment: ") == len(
        json.loads(estimate(capsys, *TRAIN, "--json"))["phases"]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no model: give MODEL, --scenario FILE, or --hidden-size and its like"),
        (["gpt2", "--task", "trian"], 2, '--task: expected one of train, serve, generate, load; got "trian"'),
        (["gpt2", "--n-ctx", "512"], 2, "--n-ctx needs --task serve"),
        (["gpt2", "--dtype", "fp16"], 2, "--dtype needs --task: expected serve, generate"),
        (["gpt2", "--lora-rank", "8", "--n-ctx", "9"], 2, "--lora-rank needs --task: expected train, serve, generate"),
        (["gpt2", "--explain"], 2, "--explain needs --task: expected train, serve, generate or load"),
        ([*TRAIN, "--json", "--explain"], 2, "--json holds every term already: leave out --explain"),
        ([*TRAIN, "--explain", "optimiser"], 2, 'unknown term "optimiser": did you mean optimizer'),
        ([*TRAIN, "--gpu", "4900"], 2, 'unknown GPU "4900": did you mean'),
        ([*TRAIN, "--batch-size", "2"], 2, "--batch-size belongs to --task generate, not to --task train"),
        ([*TRAIN, "--micro-batch-size", "two"], 2, '--micro-batch-size: expected a whole number ≥ 1, got "two"'),
        ([*TRAIN, "--micro-batch-size", "2k"], 2, '(such as 2000 or 2048, written out), got "2k"'),
        ([*TRAIN, "--style", "simple"], 2, "--task does not enter --style simple: leave one of them out"),
        (["gpt2", "--style", "haiku"], 2, '--style: expected one of huggingface, simple, table, got "haiku"'),
        (["gpt2", "--style", "huggingface", "--gpu", "4090"], 2, "--gpu does not enter --style huggingface"),
        (["--num-parameters", "7b"], 2, "--num-parameters is not enough for an estimate: give MODEL, or add --style"),
        (["gpt2", "--hidden-size", "768"], 2, "--hidden-size describes a model of its own: leave out the other model"),
        (["no-such-model-anywhere"], 4, '"no-such-model-anywhere"'),
        (["./no/such/folder"], 4, "./no/such/folder"),
        (["--scenario", "missing.toml"], 4, "missing.toml"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_exit_code(arguments, code, message, capsys):
    found, line = refused(capsys, *arguments)
    assert found == code
    assert message in line


@pytest.mark.parametrize(("said", "tokens"), [("2k", 2048), ("1K", 1024), ("1000", 1000), ("1_000", 1000)])
def test_a_length_is_written_as_people_say_it(said, tokens, capsys):
    table = json.loads(estimate(capsys, *TRAIN, "--sequence-length", said, "--json"))["scenario"]["train"]
    assert table["sequence_length"] == tokens


def test_a_scenario_file_is_enough_and_flags_override_it(tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_text('model = "gpt2"\ntask = "train"\n[train]\nmicro_batch_size = 4\n')
    four = json.loads(estimate(capsys, "--scenario", str(path), "--json"))
    one = json.loads(estimate(capsys, "--scenario", str(path), "--micro-batch-size", "1", "--json"))
    assert four["scenario"]["train"]["micro_batch_size"] == 4
    assert one["quantities"]["total_needed"]["expected"] < four["quantities"]["total_needed"]["expected"]


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(
    "arguments",
    [
        ["llama-2-7b", "--task", "train", "--method", "lora", "--gpu", "4090"],
        ["mixtral-8x7b"],
        [*SERVE, "--gpu", "4090"],
        ["gpt2", "--task", "train", "--explain", "optimizer step"],
        ["llama-2-7b", "--style", "huggingface"],
        ["llama-2-7b", "--style", "simple", "--gpu", "4090"],
    ],
)
def test_a_screen_stays_within_the_terminal(arguments, width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    main(["estimate", *arguments])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    bars = [line for line in lines if line.startswith("██")]
    assert all(len(line) <= width - 2 for line in bars)
    assert len(lines) < 60


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}])
def test_a_pipe_gets_no_escape_codes(variables):
    done = subprocess.run(
        [sys.executable, "-m", "vramwise", "estimate", *LOAD, "--gpu", "4090"],
        capture_output=True, timeout=1800, check=False, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


def on_a_terminal(*arguments, **variables):
    """What the program writes to a terminal of 100 columns."""
    pty = pytest.importorskip("pty")
    main_end, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "vramwise", "estimate", *arguments], stdout=terminal, stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **variables},
    )  # fmt: skip
    os.close(terminal)
    written = b""
    try:
        while piece := os.read(main_end, 65536):
            written += piece
    except OSError:  # Linux says EIO when the other end is closed
        pass
    finally:
        os.close(main_end)
        process.wait(timeout=1800)
    return written.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_gets_colours_and_no_color_takes_them_away(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = on_a_terminal(*LOAD, "--gpu", "4090")
    plain = on_a_terminal(*LOAD, "--gpu", "4090", NO_COLOR="1")
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert "fits with" in plain


def test_the_heading_tells_16_bit_weights_under_autocast_from_fp32_ones(capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", "llama-3.1-8b", "--task", "train"])
    assert "bf16-mixed over bf16 weights · adamw" in capsys.readouterr().out
    main(["estimate", "llama-3.1-8b", "--task", "train", "--precision", "bf16-mixed"])
    assert "full training · bf16-mixed · adamw" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "tool", "command"),
    [
        ("base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\n", "axolotl", "axolotl train run.yaml"),
        ("model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: lora\n", "LLaMA-Factory",
         "llamafactory-cli train run.yaml"),
        ("model: {_component_: torchtune.models.qwen3.qwen3_8b}\ncheckpointer: {checkpoint_dir: /tmp/Qwen3-8B}\n",
         "torchtune", "tune run full_finetune_distributed --config run.yaml"),
        ("checkpoint_dir: checkpoints/Qwen/Qwen3-8B\nlora_r: 4\ntrain:\n  micro_batch_size: 1\n", "litgpt",
         "litgpt finetune_lora --config run.yaml"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("flags", [(), ("--scenario",)])
def test_a_tools_file_is_read_as_the_command_that_runs_it(text, tool, command, flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(text, encoding="utf-8")
    of_file = json.loads(estimate(capsys, *flags, "run.yaml", "--json"))
    of_command = json.loads(estimate(capsys, "--json", "--", *command.split()))
    assert of_file["scenario"] == of_command["scenario"]
    assert of_file["notes"][0].startswith(f"run.yaml is a configuration of {tool}")
    assert of_file["notes"][0].endswith(f"read as {command}")


def test_a_flag_beside_a_file_wins_and_a_model_replaces_the_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("ax.yml").write_text("base_model: Qwen/Qwen3-8B\nmicro_batch_size: 8\n", encoding="utf-8")
    found = json.loads(estimate(capsys, "qwen3-0.6b", "--num-gpus", "1", "ax.yml", "--micro-batch-size", "2", "--json"))
    assert found["scenario"]["model"] == "qwen3-0.6b"
    assert found["scenario"]["train"]["micro_batch_size"] == 2


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("acc.yaml", "distributed_type: FSDP\n", "acc.yaml says nothing of the model: vramwise estimate MODEL"),
        ("ds.json", '{"zero_optimization": {"stage": 3}}', "ds.json says nothing of the model"),
        ("docker-compose.yml", "services:\n  a:\n    image: nginx\n",
         "a file of Docker Compose that starts no program known here"),
        ("pod.yaml", "apiVersion: v1\nkind: Pod\n", "a manifest of Kubernetes that starts no program known here"),
        ("job.sh", "echo hello\n", "a script that starts no program known here"),
        ("job", "#!/bin/bash\n", "a script that starts no program known here"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("flags", [("--scenario",), ("--gpu", "h100")])
def test_a_file_that_names_no_model_says_what_to_do(name, text, said, flags, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text, encoding="utf-8")
    words = [*flags, name] if flags == ("--scenario",) else [name, *flags]
    code, line = refused(capsys, *words)
    assert code == 2
    assert said in line


def test_several_services_are_several_answers_or_the_one_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("compose.yml").write_text(
        "services:\n  a:\n    image: vllm/vllm-openai\n    command: --model gpt2\n"
        "  b:\n    image: vllm/vllm-openai\n    command: [--model, facebook/opt-125m]\n", encoding="utf-8")  # fmt: skip
    lines = [json.loads(line) for line in estimate(capsys, "compose.yml", "--json").splitlines()]
    assert [(line["id"], line["result"]["scenario"]["model"]) for line in lines] == [
        ("a", "gpt2"), ("b", "facebook/opt-125m")]  # fmt: skip
    one = json.loads(estimate(capsys, "compose.yml", "--service", "b", "--json"))
    assert one["scenario"]["model"] == "facebook/opt-125m"
    screen = estimate(capsys, "compose.yml")
    assert "a:\n" in screen
    assert "b:\n" in screen
    assert 'no service "c" that runs a model: expected a, b' in refused(capsys, "compose.yml", "--service", "c")[1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.yaml", "model: gpt2\ntask: train\ntrain:\n  micro_batch_size: 2\n"),
        ("job.json", '{"model": "gpt2", "task": "train", "train": {"micro_batch_size": 2}}'),
        ("job.toml", 'model = "gpt2"\ntask = "train"\n[train]\nmicro_batch_size = 2\n'),
    ],
)
def test_a_scenarios_file_may_stand_for_the_model(name, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text, encoding="utf-8")
    assert estimate(capsys, name, "--json") == estimate(capsys, "--scenario", name, "--json")
    assert json.loads(estimate(capsys, name, "--gpu", "4090", "--json"))["scenario"]["gpu"] == "4090"


def test_a_broken_scenario_for_the_model_says_what_is_wrong_with_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("model: [", encoding="utf-8")
    assert "job.yaml: not YAML" in refused(capsys, "job.yaml")[1]
    Path("job.toml").write_text('modle = "gpt2"\ntask = "load"\n', encoding="utf-8")
    assert "no model: give MODEL" in refused(capsys, "job.toml")[1]


def test_a_checkpoint_of_a_known_architecture_keeps_its_own_name(capsys):
    assert estimate(capsys, "qwen2.5-7b", "--task", "load").startswith("Qwen2.5 7B · load")
    assert estimate(capsys, "DeepSeek-R1-0528", "--task", "load").startswith("DeepSeek R1 0528")


def test_a_file_that_is_nobodys_is_read_as_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("model: gpt2\ntask: load\n", encoding="utf-8")
    assert main(["estimate", "--scenario", "a.yaml"]) == 0
    Path("a.yaml").write_text("model: [\n", encoding="utf-8")
    assert main(["estimate", "--scenario", "a.yaml"]) == 4
    Path("Modelfile").write_text("PARAMETER a 1\n", encoding="utf-8")
    assert main(["estimate", "Modelfile"]) == 4
    assert "holds no model, command line or configuration that is known here" in capsys.readouterr().err


@pytest.mark.parametrize("before", [(), ("--gpu", "l40s")])
def test_a_quoted_command_line_is_a_command_line(before, capsys):
    command = "vllm serve Qwen/Qwen3-8B --max-model-len 8192"
    assert estimate(capsys, *before, command, "--json") == estimate(capsys, *before, "--json", "--", *command.split())


def test_a_text_with_blanks_that_starts_nothing_is_a_name(capsys):
    assert main(["estimate", "it's a model"]) == 4
    assert 'unknown model "it\'s a model"' in capsys.readouterr().err


def test_a_command_of_nobody_gets_the_training_tools_named_too(capsys):
    assert main(["estimate", "--", "foo", "bar"]) == 2
    said = capsys.readouterr().err
    for tool in ("axolotl train", "llamafactory-cli train", "tune run", "swift sft", "litgpt finetune", "trl sft"):
        assert tool in said


def test_a_batch_of_images_has_samples_and_no_tokens(capsys):
    main(["estimate", "google/vit-base-patch16-224", "--task", "train", "--sequence-length", "4096"])
    screen = capsys.readouterr().out
    assert "1 sample ·" in screen
    assert "tokens" not in screen
    assert "sequence_length changed nothing here" in screen


def test_where_no_hint_fits_the_planner_is_named_and_finds_more(capsys):
    asked = ["qwen3-14b", "--task", "train", "--method", "lora", "--gpu", "4060"]
    screen = " ".join(estimate(capsys, *asked, code=3).split())
    assert "nor do the combinations that were tried; vramwise plan, asked the same, tries many more" in screen
    assert main(["plan", *asked]) == 0
    capsys.readouterr()
    nothing = estimate(capsys, "llama-3.1-70b", "--task", "generate", "--gpu", "4060", code=3)
    assert "no single change makes it fit" in nothing
    assert "vramwise plan" not in nothing  # which takes no generate
