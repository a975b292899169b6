from __future__ import annotations

import os
import subprocess
import sys

import pytest

import vramwise
from vramwise.cli import main as cli
from vramwise.cli.main import COMMANDS, main
from vramwise.errors import SourceError, UsageError, VramwiseError


def run(*arguments, **options):
    command = [sys.executable, "-m", "vramwise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, **options)


class FakeCommand:
    """A command that does what a test wants."""

    HELP = "for a test"

    def __init__(self, action):
        self.action = action

    def add_arguments(self, parser):
        parser.add_argument("--level")

    def run(self, args):
        return self.action(args)


@pytest.fixture
def command(monkeypatch):
    def make(action):
        monkeypatch.setattr(cli, "command_module", lambda name: FakeCommand(action))

    return make


def raiser(error):
    def action(args):
        raise error

    return action


def test_version_and_overview(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vramwise {vramwise.__version__}\n"
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert main([]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["estimat"], 'unknown command "estimat": did you mean estimate?'),
        (["zzz"], f'unknown command "zzz": expected one of {", ".join(COMMANDS)}'),
        (["--json"], 'unknown option "--json": flags stand behind a command, as in vramwise estimate MODEL --json'),
        (["Qwen3-8B"], 'unknown command "Qwen3-8B": it is a model: vramwise estimate Qwen3-8B'),
        (["fit", "4090"], 'unexpected argument "4090": did you mean --gpu 4090?'),
        (
            ["estimate", "--gpu", "4060"],
            "no model: give MODEL, --scenario FILE, or --hidden-size and its like; which "
            "models a card runs: vramwise fit --gpu 4060",
        ),
        (["version"], 'unknown command "version": vramwise --version prints it'),
        (
            ["estimate", "llama", "3", "8b"],
            'unexpected argument "3": no such file; a name with blanks stands in quotes, as "llama 3 8b"',
        ),
        (["schema", "--jsn"], 'unknown flag "--jsn": vramwise schema --help lists all'),
        (["batch", "f", "--outptu", "x"], 'unknown flag "--outptu": did you mean --output?'),
        (["batch"], "the following arguments are required: FILE  (vramwise batch --help)"),
        (["batch", "f", "-o"], "argument -o/--output: expected one argument  (vramwise batch --help)"),
        (["schema", "case", "extra"], 'unexpected argument "extra"  (vramwise schema --help)'),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(arguments, message, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"vramwise: {message}")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("no"), 2, "vramwise: no\n"),
        (SourceError("gone"), 4, "vramwise: gone\n"),
        (VramwiseError("two\nlines"), 1, "vramwise: two lines\n"),
        (OSError(28, "No space left on device"), 1, "vramwise: No space left on device\n"),
        (PermissionError(13, "Permission denied", "out.txt"), 4, "vramwise: out.txt: Permission denied\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
        (
            KeyError("boo"),
            1,
            "vramwise: internal error: KeyError 'boo' (run with VRAMWISE_DEBUG=1 for the traceback)\n",
        ),
    ],
)
def test_every_error_has_its_exit_code(error, code, line, command, capsys, monkeypatch):
    monkeypatch.delenv("VRAMWISE_DEBUG", raising=False)
    monkeypatch.setattr(cli, "_drop_output", lambda: None)
    command(raiser(error))
    assert main(["schema"]) == code
    assert capsys.readouterr().err == line


def test_debug_shows_the_traceback(command, monkeypatch):
    monkeypatch.setenv("VRAMWISE_DEBUG", "1")
    command(raiser(KeyError("boo")))
    with pytest.raises(KeyError):
        main(["schema"])


def test_a_command_gives_its_exit_code_and_flags_are_not_abbreviated(command, capsys):
    command(lambda args: 3)
    assert main(["schema", "--level", "1"]) == 3
    assert main(["schema", "--lev", "1"]) == 2
    assert 'unknown flag "--lev": did you mean --level?' in capsys.readouterr().err


def test_what_follows_two_dashes_is_no_flag(command):
    command(lambda args: 0)
    assert main(["schema", "--help"]) == 0
    assert main(["schema", "--", "--level"]) == 2


@pytest.mark.parametrize("columns", ["", "0", "-5", "wide", "1", "9" * 5000])
def test_help_is_printed_at_any_width(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["schema", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: vramwise schema")


def test_help_is_as_wide_as_columns_says(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["estimate", "--help", "all"]) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "0")
    assert main(["estimate", "--help", "all"]) == 0
    assert wide.count("\n") < capsys.readouterr().out.count("\n")


@pytest.mark.parametrize("command", ["estimate", "check", "plan", "measure", "dry-run"])
def test_help_is_one_screen_with_choices_and_all_of_it_is_there(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    screen = capsys.readouterr().out
    lines = screen.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 80
    assert "--task" in screen
    assert "train, serve, generate, load" in screen
    assert "full, lora, qlora, freeze" in screen
    assert f"vramwise {command} --help all  lists the other " in screen
    assert main([command, "-h", "all"]) == 0
    whole = capsys.readouterr().out
    assert "--moe-overload-factor" in whole
    assert main([command, "--gpu", "h100", "--", "vllm", "--help"]) != 0  # the other program's own


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vramwise", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=1800,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "vramwise: No space left on device\n")


def test_a_closed_pipe_is_quiet():
    command = f"{sys.executable} -m vramwise schema; echo $? >&2"
    shell = subprocess.run(
        ["sh", "-c", f"({command}) | true"], capture_output=True, text=True, timeout=1800, check=False
    )
    assert shell.stderr in ("0\n", "1\n")  # 0 where all of it fitted into the pipe before it closed


def test_an_ascii_terminal_does_not_break_it():
    done = run("estimat", env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_python_m_vramwise_is_the_same_program():
    assert run("--version").stdout == f"vramwise {vramwise.__version__}\n"


@pytest.mark.skipif(os.name != "posix", reason="a shell closes streams so")
@pytest.mark.parametrize(
    ("command", "code"),
    [("schema >&-", 0), ("gpus nope >&-", 2), ("gpus nope 2>&-", 2), ("schema scenario >&- 2>&-", 0)],
)
def test_streams_that_are_closed_take_nothing_and_break_nothing(command, code):
    done = subprocess.run(f"{sys.executable} -m vramwise {command}", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert "internal error" not in done.stderr


def test_a_size_in_two_words_is_told_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "qwen3-8b", "--task", "serve", "--reserve-bytes", "2", "GB"]) == 2
    assert capsys.readouterr().err == 'vramwise: unexpected argument "GB": a size is one word, such as 2GB\n'
