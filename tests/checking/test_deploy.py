"""What `deploy/` holds, run through bash with stand-ins for Slurm's programs; shellcheck where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SHELL = [DEPLOY / "github-action/check.sh", DEPLOY / "slurm/vramwise-sbatch", DEPLOY / "slurm/task_prolog.sh"]
SMALL = "#!/bin/bash\n#SBATCH --gres=gpu:1\nvllm serve Qwen/Qwen2.5-0.5B --max-model-len 2048\n"
LARGE = "#!/bin/bash\n#SBATCH --gres=gpu:1\nvllm serve meta-llama/Llama-3.1-70B\n"
OTHER = "#!/bin/bash\n./simulate --steps 10\n"
pytestmark = pytest.mark.skipif(which("bash") is None, reason="needs bash")


@pytest.fixture
def shell(tmp_path):
    """Runs a program with a PATH on which vramwise and Slurm's programs are; gives exit code, output and complaints."""
    programs = tmp_path / "bin"
    programs.mkdir()

    def install(name, text):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)

    install("vramwise", f'exec {sys.executable} -m vramwise "$@"')
    install("sbatch", 'echo "Submitted batch job 7: $*"')
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path]),
        "VRAMWISE_BIN": str(programs),
    }

    def run(*words, **more):
        done = subprocess.run(
            [str(word) for word in words],
            env=environment | more,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout, done.stderr

    run.install = install
    return run


@pytest.fixture
def scripts(tmp_path):
    for name, text in (("small.sbatch", SMALL), ("large.sbatch", LARGE), ("other.sbatch", OTHER)):
        (tmp_path / name).write_text(text)


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_the_shell_is_sound(script):
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    checker = which("shellcheck") or which("shellcheck", path=str(Path(sys.executable).parent))
    if checker is None:
        pytest.skip("needs shellcheck")
    done = subprocess.run([checker, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_sbatch_is_called_for_what_fits(shell, scripts):
    code, out, err = shell(SHELL[1], "--partition=a100", "small.sbatch", "argument", VRAMWISE_GPU="a100-sxm-80gb")
    assert (code, out) == (0, "Submitted batch job 7: --partition=a100 small.sbatch argument\n")
    assert err.startswith("fits (")


def test_what_does_not_fit_is_not_submitted(shell, scripts):
    code, out, err = shell(SHELL[1], "large.sbatch", VRAMWISE_GPU="a100-sxm-80gb")
    assert (code, out) == (3, "")
    assert "does not fit" in err
    assert err.endswith("vramwise-sbatch: not submitted\n")


def test_what_is_not_understood_is_submitted_unless_it_is_strict(shell, scripts):
    code, out, err = shell(SHELL[1], "other.sbatch", VRAMWISE_GPU="a100-sxm-80gb")
    assert code == 0
    assert out.startswith("Submitted")
    assert err.startswith("vramwise: ")
    code, out, _ = shell(SHELL[1], "other.sbatch", VRAMWISE_GPU="a100-sxm-80gb", VRAMWISE_STRICT="1")
    assert (code, out) == (2, "")


def test_without_a_script_sbatch_is_called_as_it_is(shell):
    assert shell(SHELL[1], "--wrap", "hostname")[:2] == (0, "Submitted batch job 7: --wrap hostname\n")


def test_the_prolog_prints_a_line_and_never_fails(shell, scripts, tmp_path):
    shell.install("scontrol", f'cp "{tmp_path / "large.sbatch"}" "$4"')
    code, out, _ = shell(SHELL[2], SLURM_JOB_ID="7")
    assert code == 0
    assert out.startswith("print vramwise: ")
    assert out.count("\n") == 1
    assert shell(SHELL[2], SLURM_JOB_ID="7", SLURM_PROCID="1")[:2] == (0, "")
    shell.install("scontrol", "exit 1")
    assert shell(SHELL[2], SLURM_JOB_ID="7")[:2] == (0, "")


# -- the GitHub Action -------------------------------------------------------------------------------------------------


def action(shell, tmp_path, **inputs):
    """Runs the step `check` of action.yml as a runner does: inputs as variables, files for outputs and summary."""
    described = yaml.safe_load((DEPLOY / "github-action/action.yml").read_text("utf-8"))
    values = {name: str(one.get("default", "")) for name, one in described["inputs"].items()} | inputs
    step = next(step for step in described["runs"]["steps"] if step.get("id") == "check")
    assert step["shell"] == "bash"
    environment = {}
    for name, value in step["env"].items():
        key = value.removeprefix("${{ inputs.").removesuffix(" }}")
        environment[name] = values[key]
    outputs, summary = tmp_path / "outputs", tmp_path / "summary"
    for file in (outputs, summary):
        file.write_text("")
    code, out, err = shell(
        "bash", "-e", "-c", step["run"], **environment, GITHUB_ACTION_PATH=str(DEPLOY / "github-action"),
        GITHUB_OUTPUT=str(outputs), GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    return code, out + err, outputs.read_text(), summary.read_text()


def test_the_action_takes_the_worst_of_several_files(shell, scripts, tmp_path):
    code, said, outputs, summary = action(shell, tmp_path, file="small.sbatch\nlarge.sbatch\n", gpu="a100-sxm-80gb")
    assert code == 3
    assert "small.sbatch: {" in said
    assert outputs.startswith("word=does not fit\njson<<END_OF_ANSWERS\n")
    answers = [json.loads(line) for line in outputs.splitlines()[2:-1]]
    assert [answer["word"] for answer in answers] == ["fits", "does not fit"]
    assert summary.count("| vramwise check |") == 1
    assert "| large.sbatch | {" in summary


def test_the_action_takes_a_command_and_flags(shell, tmp_path):
    command = "vllm serve Qwen/Qwen2.5-0.5B --max-model-len 2048"
    code, _, outputs, _ = action(shell, tmp_path, command=command, gpu="a100-sxm-80gb", flags="--reserve-bytes 2GiB")
    assert (code, outputs.splitlines()[0]) == (0, "word=fits")


def test_the_action_runs_nothing_of_its_inputs(shell, tmp_path):
    evil = f"$(touch {tmp_path}/owned); `touch {tmp_path}/owned`"
    assert action(shell, tmp_path, command=evil, gpu="h100")[0] == 2
    assert action(shell, tmp_path, file=evil, gpu=evil)[0] == 2
    assert not (tmp_path / "owned").exists()


def test_the_action_without_anything_to_check_fails(shell, tmp_path):
    code, said, _, _ = action(shell, tmp_path, gpu="h100")
    assert code == 2
    assert "give the input file or command" in said


def test_the_pre_commit_hook_is_a_command_that_there_is(shell, scripts):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    code, _, err = shell(*hook["entry"].split(), *hook["args"], "small.sbatch")
    assert (code, err) == (0, "")
    code, out, _ = shell(*hook["entry"].split(), *hook["args"], "small.sbatch", "large.sbatch")  # several at once
    assert code == 3
    assert out.startswith("large.sbatch: does not fit")
