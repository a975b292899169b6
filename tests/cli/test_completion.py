"""`vramwise completion`: the scripts complete commands, flags, choices and names, in the shells themselves."""

from __future__ import annotations

import subprocess
from shutil import which

import pytest

from vramwise.cli.completion import SHELLS, words_of_everything
from vramwise.cli.main import COMMANDS, main


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main(["completion", shell]) == 0
        (folder / shell).write_text(out.getvalue())
    return folder


def in_bash(scripts, *words):
    """What bash offers for the last of the words."""
    if which("bash") is None:
        pytest.skip("needs bash")
    line = " ".join(f"'{word}'" for word in words)
    program = (
        f"source {scripts / 'bash'}; COMP_WORDS=(vramwise {line}); COMP_CWORD={len(words)}; _vramwise; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=scripts)
    assert done.stderr == ""
    return done.stdout.split()


def in_fish(scripts, line):
    if which("fish") is None:
        pytest.skip("needs fish")
    program = f"source {scripts / 'fish'}; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", program], capture_output=True, text=True, check=True, cwd=scripts
    )
    assert done.stderr == ""
    return [offer.partition("\t")[0] for offer in done.stdout.splitlines()]


def in_zsh(scripts, *words):
    if which("zsh") is None:
        pytest.skip("needs zsh")
    line = " ".join(f"'{word}'" for word in words)
    program = (
        f"compadd() {{ shift; print -l -- $@ }}; _files() {{ print FILES }}; source {scripts / 'zsh'}; "
        f"words=(vramwise {line}); CURRENT={len(words) + 1}; _vramwise"
    )
    done = subprocess.run(["zsh", "-f", "-c", program], capture_output=True, text=True, check=True, cwd=scripts)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash(scripts):
    assert in_bash(scripts, "est") == ["estimate"]
    assert set(in_bash(scripts, "")) == set(COMMANDS)
    assert "--gpu-free-bytes" in in_bash(scripts, "estimate", "--gpu-f")
    assert in_bash(scripts, "check", "--strict", "--stri") == ["--strict"]
    assert "h100-sxm-80gb" in in_bash(scripts, "estimate", "--gpu", "h100")
    assert "here" in in_bash(scripts, "check", "--gpu", "he")
    assert in_bash(scripts, "estimate", "--task", "") == ["train", "serve", "generate", "load"]
    assert set(in_bash(scripts, "estimate", "--method", "q")) == {"qlora"}
    assert "meta-llama/Llama-3.1-8B" in in_bash(scripts, "estimate", "meta-llama/Llama-3.1")
    assert in_bash(scripts, "completion", "f") == ["fish", "fish"]  # a word, and a file here of that name


def test_fish(scripts):
    assert "estimate" in in_fish(scripts, "vramwise est")
    assert "--gpu-free-bytes" in in_fish(scripts, "vramwise estimate --gpu-f")
    assert "h100-sxm-80gb" in in_fish(scripts, "vramwise estimate --gpu h100")
    assert in_fish(scripts, "vramwise check --method ql") == ["qlora"]
    assert "meta-llama/Llama-3.1-8B" in in_fish(scripts, "vramwise estimate meta-llama/Llama-3.1-8")


def test_zsh(scripts):
    assert set(in_zsh(scripts, "")) == set(COMMANDS)
    assert "h100-sxm-80gb" in in_zsh(scripts, "estimate", "--gpu", "")
    assert in_zsh(scripts, "estimate", "--task", "") == ["train", "serve", "generate", "load"]
    assert "--together" in in_zsh(scripts, "estimate", "--")
    assert "meta-llama/Llama-3.1-8B" in in_zsh(scripts, "estimate", "")
    assert in_zsh(scripts, "estimate", "--", "vllm", "serve") == ["FILES"]


def test_every_command_and_flag_is_in_it():
    words = words_of_everything()
    assert set(words.flags) == set(COMMANDS)
    assert "--gpu" in words.flags["estimate"]
    assert {"vllm", "sglang", "llama.cpp"} <= set(words.choices["--engine"])
    assert "--scenario" in words.file_flags
    assert "here" in words.gpus
    assert len(words.models) > 400


def test_another_shell_is_refused(capsys):
    assert main(["completion", "fsh"]) == 2
    assert 'expected bash, zsh or fish, got "fsh": did you mean fish?' in capsys.readouterr().err
