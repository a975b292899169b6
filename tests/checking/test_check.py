"""`vramwise check` and `vramwise.check`: one line, exact keys, exit codes; what is not understood is never 0."""

from __future__ import annotations

import json
import re
import shlex

import pytest

import vramwise
from vramwise.cli.main import main
from vramwise.errors import ScenarioError, UsageError
from vramwise.hardware.machine import nvml
from vramwise.hardware.machine.facts import DriverFacts, GpuFacts
from vramwise.scenario import Scenario
from vramwise.units import GIB, MIB

SERVE = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192"
LONGER = "vllm serve Qwen/Qwen3-8B --max-model-len 65536"
LONG = "vllm serve meta-llama/Llama-3.1-8B"


@pytest.fixture(autouse=True)
def no_card_here(monkeypatch):
    monkeypatch.setattr(nvml, "this_machine", lambda: None)


def run(capsys, *words):
    code = main(["check", *words])
    out, err = capsys.readouterr()
    return code, out, err


def tight_card(scenario):
    """Bytes of a card on which a scenario is tight."""
    needed = vramwise.estimate(scenario).quantities["total_needed"]
    return int(needed.expected + (needed.high - needed.expected) // 4)


def test_what_fits_is_one_line_and_0(capsys):
    code, out, err = run(capsys, "--gpu", "h100", "--", *shlex.split(SERVE))
    assert (code, err) == (0, "")
    assert out.startswith("fits (9")
    assert out.count("\n") == 1


def test_what_does_not_fit_is_3_and_names_a_change_that_fits(capsys):
    code, out, _ = run(capsys, "--json", "--gpu", "4090", "--", *shlex.split(LONG))
    found = json.loads(out)
    assert code == 3
    assert list(found) == ["word", "probability", "need_bytes", "room_bytes", "change", "command"]
    assert found["word"] == "does not fit"
    assert found["need_bytes"] > found["room_bytes"]
    changed = shlex.split(found["command"])
    assert changed[:2] == ["vramwise", "estimate"]
    assert main([*changed[1:], "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["verdict"]["fits"]
    assert all(result["scenario"]["serve"][key] == value for key, value in found["change"].items())


def test_a_tight_one_is_0_and_3_with_strict(capsys):
    asked = {"model": "llama-3.1-8b", "task": "load"}
    flags = ["llama-3.1-8b", "--task", "load", "--gpu-total-bytes", str(tight_card(asked))]
    code, out, _ = run(capsys, *flags)
    assert (code, out[:7]) == (0, "tight (")
    assert run(capsys, "--strict", *flags)[0] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu", "h100", "--", "make", "me", "a", "sandwich"], "no engine in"),
        (["--gpu", "h100", "nosuch.sbatch"], '"nosuch.sbatch" is no file here'),
        (["--gpu", "h100"], "nothing to check"),
        ([], "nothing to check"),
        (["--", *shlex.split(SERVE)], "no GPU answers on this machine"),
        (["--gpu", "h1000", "--", *shlex.split(SERVE)], "unknown GPU"),
        (["--gpu", "h100", "--nonsense"], "unknown flag"),
        (["--gpu", "tpu-v7", "--num-gpus", "0", "--", "llama-server", "-m", "llama-3.1-8b"], ""),
        (["--strict", "--gpu", "h100", "--", *shlex.split(SERVE), "--foo", "1"], "unknown to vLLM, left out: --foo"),
    ],
)
def test_what_is_not_understood_is_2(capsys, words, said):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err


def test_a_file_that_starts_nothing_is_not_said_to_be_missing(capsys, tmp_path):
    notes = tmp_path / "NOTES.md"
    notes.write_text("nothing to run here\n", encoding="utf-8")
    code, _, err = run(capsys, "--gpu", "h100", str(notes))
    assert code == 2
    assert "starts no program that is known here" in err


def test_an_unknown_model_is_not_0(capsys):
    assert run(capsys, "--gpu", "h100", "--", "vllm", "serve", "nobody/nothing-77b")[0] == 4


def test_an_unknown_flag_is_said(capsys):
    code, out, err = run(capsys, "--gpu", "h100", "--", *shlex.split(SERVE), "--foo", "1")
    assert code == 0
    assert out.startswith("fits")
    assert err == "vramwise: note: unknown to vLLM, left out: --foo\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{SERVE} --tensor-paralel-size 2", "--tensor-paralel-size: did you mean --tensor-parallel-size?"),
        (
            "trl sft --model_name_or_path gpt2 --per-device-train-batchsize 2",
            "--per-device-train-batchsize: did you mean --per-device-train-batch-size?",
        ),
    ],
)
def test_a_misspelt_flag_that_counts_is_never_0(capsys, command, said):
    code, out, err = run(capsys, "--gpu", "h100", "--", *shlex.split(command))
    assert (code, out, err) == (2, "", f"vramwise: not understood: {said}\n")
    with pytest.raises(UsageError, match="did you mean"):
        vramwise.check(command, gpu="h100")


def test_what_a_program_leaves_on_the_host_is_said(capsys):
    code, out, _ = run(capsys, "--gpu", "rtx-3060-12gb", "--", "ollama", "run", "llama3.1:70b")
    assert code == 0
    assert out.startswith("fits (9")
    assert out.endswith("; 18 of 81 layers on the GPU, the rest on the host\n")


def test_what_ends_for_another_reason_than_memory_is_said(capsys):
    code, out, err = run(capsys, "--gpu", "h100", "--", *shlex.split(LONGER))
    assert (code, out[:4]) == (0, "fits")
    assert "beyond the model's own 40,960; vLLM does not start with it without a RoPE scaling or VLLM_ALLOW" in err
    _, _, err = run(capsys, "bert-base-uncased", "--task", "train", "--sequence-length", "4096", "--gpu", "4090")
    assert err.endswith("the run fails\n")


def test_what_a_training_asks_of_the_host_is_said(capsys):
    line = "tune run --nproc_per_node 8 full_finetune_distributed --config llama3_1/70B_full"
    _, out, _ = run(capsys, "--gpu", "a100-sxm-80gb", "-n", "8", "--", *line.split())
    assert re.fullmatch(r"fits \(.*; [\d.]+ GiB of host memory on a node\n", out)
    _, out, _ = run(capsys, "--gpu", "a100-sxm-80gb", "-n", "8", "--host-memory-bytes", "2TiB", "--", *line.split())
    assert "host memory" not in out


@pytest.mark.parametrize("command", ["python train.py", "accelerate launch train.py"])
def test_a_script_that_says_all_in_its_code_is_asked_for_as_a_file(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import trl\n")
    code, _, err = run(capsys, "--gpu", "h100", "--", *command.split())
    assert (code, err) == (2, "vramwise: train.py says in its code what it runs: give it as a FILE, without --\n")


def test_without_a_gpu_it_takes_the_card_here(capsys, monkeypatch):
    facts = GpuFacts(
        0, "NVIDIA GeForce RTX 4090", total_bytes=24564 * MIB, free_bytes=3 * GIB, reserved_bytes=400 * MIB
    )
    monkeypatch.setattr(nvml, "this_machine", lambda: DriverFacts("NVML", "580", gpus=(facts,)))
    code, out, _ = run(capsys, "--json", "--", *shlex.split(SERVE))
    assert code == 3
    assert json.loads(out)["room_bytes"] == 3 * GIB


def test_a_file_of_ours_and_a_script(capsys, tmp_path):
    ours = tmp_path / "job.toml"
    ours.write_text('model = "llama-3.1-8b"\ntask = "serve"\n[serve]\nmax_model_len = 8192\n')
    assert run(capsys, "--gpu", "h100", str(ours))[0] == 0
    assert run(capsys, "--gpu", "t4", str(ours))[0] == 3
    script = tmp_path / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH --gres=gpu:1\nset -e\n{SERVE} &\n{LONG} --gpu-memory-utilization 0.3\n")
    code, out, _ = run(capsys, "--gpu", "h100", str(script))
    assert code == 3  # the worse of the two programs
    assert "does not fit" in out


def test_a_script_that_starts_nothing_known_is_2(capsys, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\nrsync -a a b\n")
    assert run(capsys, "--gpu", "h100", str(script))[0] == 2


# -- the library ---------------------------------------------------------------------------------------------------


def test_the_library_gives_the_same_record(capsys):
    found = vramwise.check(LONG, gpu="4090")
    assert json.loads(run(capsys, "--json", "--gpu", "4090", "--", *shlex.split(LONG))[1]) == found.to_dict()
    assert vramwise.check(shlex.split(LONG), gpu="4090") == found
    assert not found.fits


def test_every_way_to_ask(tmp_path):
    table = {"model": "llama-3.1-8b", "task": "serve", "gpu": "h100", "serve": {"max_model_len": 8192}}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(table))
    answers = [
        vramwise.check(table),
        vramwise.check(Scenario.from_dict(table)),
        vramwise.check(file),
        vramwise.check(str(file)),
        vramwise.check("llama-3.1-8b", task="serve", gpu="h100", max_model_len=8192),
    ]
    assert answers == [answers[0]] * 5
    assert vramwise.check(table, max_model_len=4096).need_bytes <= answers[0].need_bytes


def test_what_the_library_refuses(tmp_path):
    with pytest.raises(ScenarioError, match="no GPU answers"):
        vramwise.check(SERVE)
    with pytest.raises(UsageError, match="no such file"):
        vramwise.check(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="no engine in"):
        vramwise.check("echo hello", gpu="h100")
    with pytest.raises(UsageError, match="cannot be read"):
        vramwise.check("vllm serve 'x", gpu="h100")
    with pytest.raises(ScenarioError, match="no_such_key"):
        vramwise.check(SERVE, gpu="h100", no_such_key=1)
