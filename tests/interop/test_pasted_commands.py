"""A text that holds a command line: read alike by the command line, the page and the library, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vramwise
from vramwise.cli.main import main
from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files
from vramwise.interop.files.pasted_commands import pasted_commands
from vramwise.web.api import answer

VLLM = "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --tensor-parallel-size 2"
AS_PASTED = {
    "alone": VLLM,
    "behind a prompt": f"$ {VLLM}\n",
    "behind a prompt that says where": f"(venv) me@box:~/work$ {VLLM}",
    "of root in a container": f"[root@gpu-1 work]# {VLLM}",
    "over several lines": VLLM.replace(" --", " \\\n    --"),
    "with the second prompt": "$ " + VLLM.replace(" --", " \\\n> --"),
    "from Windows": VLLM.replace(" --", " ^\r\n  --") + "\r\n",
    "in PowerShell": "PS C:\\work> " + VLLM.replace(" --", " `\n  --"),
    "with quotes": VLLM + ' --served-model-name "my model"',
    "in a fence": f"```bash\n{VLLM}\n```\n",
    "in a fence, prose around it": f"Start it like this:\n\n~~~\n{VLLM}\n~~~\nand don't wait.\n",
    "in a fence, with output": f"```console\n$ {VLLM}\nINFO started: it's up\n```\n",
    "after others": f"export CUDA_VISIBLE_DEVICES=0,1\npip install vllm\n{VLLM}",
    "with a comment": f"# two cards\n{VLLM}  # don't",
}
GGUF = r"llama-server.exe -m models\Qwen3-8B-Q4_K_M.gguf -c 16384 -ngl 99"
IN_ONE_ARGUMENT = {
    **AS_PASTED,
    "a program of Windows": "C:\\llama\\" + GGUF,
    "a program in a folder with a blank": '"C:\\Program Files\\llama\\llama-server.exe"'
    + GGUF.removeprefix("llama-server.exe"),
    "called by PowerShell": '& ".\\llama-server.exe"' + GGUF.removeprefix("llama-server.exe"),
    "variables that the text sets": "M=Qwen/Qwen3-8B; vllm serve $M --max-model-len ${LEN:-8192} -tp ${TP:-2}",
    "quotes and dashes of a word processor": VLLM.replace("Qwen/Qwen3-8B", "“Qwen/Qwen3-8B”").replace("--", "—"),
    "output that goes elsewhere": VLLM + " 2>&1 | tee log &",
}
NOT_COMMANDS = {
    "prose": "hello vllm serve\nand more",
    "a question": "why does vllm take so much?",
    "an open quote": 'vllm serve "open',
    "a comment": "# vllm serve Qwen/Qwen3-8B",
    "a log": f"$ {VLLM}\nINFO 10-10 10:00 [worker.py:3] Model loading took 15.27 GiB\n",
    "another language in a fence": f"```python\nrun({VLLM!r})\n```\n",
    "an unknown program": "serve-it Qwen/Qwen3-8B",
    "too much": VLLM + " " + "a" * 70_000,
    "nothing": "",
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("text", AS_PASTED.values(), ids=AS_PASTED)
@pytest.mark.parametrize("name", ["pasted.txt", "pasted"])
def test_a_command_line_is_read_as_it_is_passed_on(name: str, text: str) -> None:
    Path(name).write_text(text, "utf-8")
    (found,) = read_files([name])
    assert found.launch.scenario["model"] == "Qwen/Qwen3-8B"
    serve = found.launch.scenario["serve"]
    assert isinstance(serve, dict)
    assert (serve["engine"], serve["max_model_len"], serve["tensor_parallel_size"]) == ("vllm", 8192, 2)


@pytest.mark.parametrize("text", NOT_COMMANDS.values(), ids=NOT_COMMANDS)
def test_what_holds_anything_else_is_none(text: str) -> None:
    assert pasted_commands(text) is None


def test_paths_of_windows_stay_whole() -> None:
    Path("run.cmd").write_text(
        "llama-server.exe -m C:\\models\\Qwen3-8B-Q4_K_M.gguf ^\r\n  -c 8192 ^\r\n  -ngl 99\r\n", "utf-8"
    )
    (found,) = read_files(["run.cmd"])
    assert str(found.launch.scenario["model"]).endswith("Qwen3-8B")


def test_command_line_page_and_library_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pasted.txt").write_text(AS_PASTED["with the second prompt"], "utf-8")
    given = {"name": "pasted.txt", "text": AS_PASTED["with the second prompt"], "gpu": "h100-sxm-80gb"}
    page = answer("read", given)
    assert page["kind"] == "command"
    needed = page["programs"][0]["report"]["quantities"]["total_needed"]
    assert main(["estimate", "pasted.txt", "--gpu", "h100-sxm-80gb"]) == 0
    assert f"needs  {needed['expected'] / 2**30:.2f} GiB" in capsys.readouterr().out
    assert vramwise.check("pasted.txt", gpu="h100-sxm-80gb").need_bytes == needed["expected"]


def test_a_plan_takes_a_tools_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pasted.txt").write_text("$ vllm serve Qwen/Qwen3-8B --max-model-len 8192", "utf-8")
    assert main(["plan", "pasted.txt", "--gpu", "4060"]) == 0
    assert "as asked: needs" in capsys.readouterr().out
    Path("two.sh").write_text("vllm serve Qwen/Qwen3-8B\nvllm serve Qwen/Qwen3-4B\n", "utf-8")
    assert main(["plan", "two.sh", "--gpu", "4060"]) == 2
    assert "--service NAME says which: two, two-2" in capsys.readouterr().err


def test_a_message_below_a_command_is_a_message() -> None:
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    text = f"```\n{VLLM}\n```\n```text\n{message}```\n"
    assert answer("read", {"name": "pasted.txt", "text": text})["kind"] == "oom"


@pytest.mark.parametrize("name", ["notes.txt", "./notes.txt"])
def test_a_file_that_holds_nothing_known_is_no_unknown_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("buy milk\n", "utf-8")
    assert main(["estimate", name, "--task", "serve"]) == 4
    assert f"{name}: holds no model, command line or configuration" in capsys.readouterr().err


@pytest.mark.parametrize("how", IN_ONE_ARGUMENT)
def test_one_argument_is_the_command_as_it_was_pasted(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = IN_ONE_ARGUMENT[how]
    plain = GGUF if "llama" in text else VLLM
    wanted = vramwise.check(plain.replace("\\", "/").split(), gpu="4090")
    assert vramwise.check(text, gpu="4090") == wanted
    main(["check", "--gpu", "4090", "--json", "--", text])
    quoted = capsys.readouterr()
    assert (quoted.out, quoted.err) == (json.dumps(wanted.to_dict()) + "\n", "")
    assert answer("check", {"command": text, "settings": {"gpu": "4090"}}) == wanted.to_dict()


def test_a_variable_that_nobody_sets_is_named_as_the_model() -> None:
    with pytest.raises(UsageError, match=r"\$MODEL is set nowhere here"):
        vramwise.check("vllm serve $MODEL --max-model-len 4096", gpu="4090")
