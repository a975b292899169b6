"""`--lang zh`: what a person reads is Chinese; commands, keys, names and JSON are what they are in English."""

from __future__ import annotations

import json
import re
import sys
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.cli import language, parsing
from vramwise.cli.main import COMMANDS, main
from vramwise.cli.screens.paint import columns

SENTENCES: dict[str, str] = json.loads(
    (files("vramwise") / "web" / "page" / "i18n" / "sentences.zh.json").read_text("utf-8")
)
CHINESE = re.compile(r"[\u4e00-\u9fff]")
ENGLISH = re.compile(r"(?<![\w./=-])[a-z]{2,}(?: [a-z]{2,}){2,}(?![\w=-])")
SCREENS = [
    "estimate llama-3.1-8b",
    "estimate llama-3.1-8b --gpu 4090",
    "estimate mixtral-8x7b --gpu 4090",
    "estimate llama-3.1-8b --gpu 4090 --task train --method lora",
    "estimate llama-3.1-8b --gpu 4090 --task train --method qlora --checkpointing full",
    "estimate llama-3.1-8b --gpu h100 -n 8 --task train --fsdp full-shard",
    "estimate llama-3.1-8b --gpu 4090 --task serve",
    "estimate llama-3.1-8b --gpu h100 --task serve --engine sglang",
    "estimate llama-3.1-8b --gpu 4060 --task serve --engine llama.cpp --gguf-quant Q4_K_M",
    "estimate llama-3.1-8b --gpu 4090 --task generate",
    "estimate flux-dev",
    "estimate sd3.5-large --gpu 3060",
    "estimate sd3.5-large --gpu 3060 --task generate --offload group --quantization nf4",
    "estimate flux-dev --gpu 4090 --task generate",
    "estimate llama-3.1-8b --gpu v100-32gb --task train --attention flash",
    "estimate gpt2 --gpu 4090 --task train --sweep micro_batch_size=1,2",
    "estimate 7b --style simple",
    "estimate deepseek-v3 --task serve --gpu 4060",
    "estimate moonshotai/Kimi-K2.7-Code",
    "estimate docs/examples/one-card/chat.toml docs/examples/one-card/tune.toml --together",
    "fit --gpus 4090,3090 --task run --family qwen3 --params 8b..8.5b",
    "plan llama-3.1-8b --gpu 4090 --goal run",
    "check llama-3.1-8b --gpu 4090 --task train --method lora",
    "gpus rtx-4090",
    "estimate llama3.1 --task serve",
    "estimate docs/examples/files/axolotl.yml --gpu 4060",
    "estimate --gpu h100 -- vllm serve Qwen/Qwen3-8B --max-model-len 8192 --api-key x --port 8000 --foo 1",
    "estimate --gpu 4090 -- ollama run qwen3:8b",
    "estimate --gpu 4090 -- llama-server -hf unsloth/Qwen3-8B-GGUF:UD-Q4_K_XL -c 8192 --jinja",
    "estimate llama-3.1-8b --style table",
    "estimate llama-3.1-8b --style huggingface",
    "estimate unsloth/Qwen3-8B-GGUF:UD-Q4_K_XL --task serve --gpu 4090",
    "estimate qwen3:30b-a3b-q4_K_M --task serve --gpu 4090",
    "estimate unsloth/Qwen3-8B-GGUF:Q4_K_M --gpu 4090",
    "estimate mixtral-8x7b --gpu 2x4090",
    "estimate phi-4 --task serve --engine mlx --gpu m3-max",
    "estimate llama-3.1-70b --gpu 2xa100-80gb --task generate",
    "estimate moonshotai/Kimi-K2-Base --gpu 8xb200",
    "estimate gpt-oss-20b --gpu 24GB --task serve --engine llama.cpp",
    "estimate --gpu 4090 -- python train.py --model gpt2",
    "estimate --gpu 4090 -- trl dpo --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --bf16",
    "estimate --gpu 4090 -- trl grpo --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --use_peft --use_vllm",
]


@pytest.fixture(autouse=True)
def english_afterwards(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("VRAMWISE_SITE", "")
    yield
    language.choose(["--lang", "en"])


def said(command, capsys):
    code = main(command.split())
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("command", SCREENS)
def test_a_screen_has_no_english_sentence_left(command, capsys):
    code, english, _ = said(command, capsys)
    same_code, chinese, _ = said(f"--lang zh {command}", capsys)
    assert (same_code, english.count("\n") > 0) == (code, True)
    prose = "\n".join(line for line in chinese.splitlines() if "vramwise " not in line and "--" not in line)
    assert CHINESE.search(prose)
    assert ENGLISH.findall(prose) == []


@pytest.mark.parametrize("command", SCREENS[:4])
def test_figures_and_commands_are_those_of_the_english_screen(command, capsys):
    english, chinese = said(command, capsys)[1], said(f"{command} --lang zh", capsys)[1]
    figures = re.compile(r"\d[\d,]*\.\d+|--[\w-]+")
    assert sorted(figures.findall(chinese)) == sorted(figures.findall(english))


def test_json_is_the_same(capsys):
    command = "estimate gpt2 --gpu 4090 --task train --json"
    assert said(f"{command} --lang zh", capsys) == said(command, capsys)


def test_the_variable_chooses_and_the_flag_is_before_it(capsys, monkeypatch):
    monkeypatch.setenv("VRAMWISE_LANG", "zh_CN.UTF-8")
    assert "用法" in said("--help", capsys)[1]
    assert "usage" in said("--help --lang en", capsys)[1]


@pytest.mark.parametrize("words", [["--lang", "fr"], ["--lang=klingon"], ["--lang"]])
def test_a_language_that_is_not_spoken_is_refused(words, capsys):
    assert main(["gpus", *words]) == 2
    assert "is no language that vramwise speaks: en, zh" in capsys.readouterr().err


def test_another_programs_flags_are_left_alone():
    assert language.choose(["estimate", "--", "vllm", "--lang", "fr"]) == ["estimate", "--", "vllm", "--lang", "fr"]


def test_a_terminal_without_the_signs_is_spoken_to_in_english(monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    language.choose(["--lang", "zh"])
    assert not language.is_translated()


def test_errors_are_chinese_and_end_as_they_do_in_english(capsys):
    code, out, err = said("estimate gpt2 --gpu h10 --lang zh", capsys)
    assert (code, out) == (2, "")
    assert "未知 GPU “h10”" in err


@pytest.mark.parametrize(
    "command",
    [
        "estimate gpt2 --gpu 12g",
        "estimate gpt2 --n-ctx 512",
        "estimate gpt2 --dtype fp16",
        "estimate gpt2 --task train --batch-size 4",
        "estimate gpt2 --gpu",
        "estimate --gpu 4090",
        "estimate EMPTY.json",
        "estimate EMPTY.gguf",
        "estimate --scenario EMPTY.toml",
        "estimate --scenario .",
        "estimate llama-3.1-8b --export nosuch",
        "fit --gpu nosuch",
        "check",
        "check EMPTY.sh",
        "check -- vllm serve",
        "compare EMPTY.log",
        "oom EMPTY.log",
        "profile EMPTY.json",
        "mfu --tflops 100",
    ],
)
def test_a_mistake_is_told_in_chinese(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for word in command.split():
        if word.startswith("EMPTY"):
            (tmp_path / word).touch()
    code, out, err = said(f"--lang zh {command}", capsys)
    assert code in (1, 2, 4)
    assert (out, err.count("\n")) == ("", 1)
    assert CHINESE.search(err)
    assert ENGLISH.findall(re.sub(r"vramwise [a-z]+", "", err)) == []


def test_the_summary_of_a_batch_is_chinese(tmp_path, capsys):
    (tmp_path / "lines.jsonl").write_text("{}\n[]\n{}\n", encoding="utf-8")
    _, _, err = said(f"--lang zh batch {tmp_path / 'lines.jsonl'}", capsys)
    assert err == "vramwise: 3 行中有 3 行出错：第 1，2，3 行\n"


@pytest.mark.parametrize("command", ["dry-run gpt2 --task train", "measure gpt2 --task train", "mfu --measure-peak"])
def test_that_torch_is_missing_is_told_in_chinese(command, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, err = said(f"--lang zh {command}", capsys)
    assert code == 1
    assert re.search("需要 torch.*：pip install", err)


def test_every_help_is_there(monkeypatch):
    found: dict[str, str] = {}

    def collect(parser: parsing.CommandParser, _arguments: object) -> None:
        found.update({(action.help or "").replace("%%", "%"): action.dest for action in parser._actions})
        found.update({text: "" for group in parser._action_groups for text in (group.title, group.description) if text})
        found[parser.description or ""] = ""
        raise SystemExit(0)

    monkeypatch.setattr(parsing.CommandParser, "_help_in_brief", collect)
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
    language.choose(["--lang", "zh"])
    told = {text: language.help_said(key, text) for text, key in found.items() if text}
    assert len(told) > 400
    assert [text for text, other in told.items() if not CHINESE.search(other) and ENGLISH.search(text)] == []


def test_a_translation_has_only_holes_of_its_text():
    holes = re.compile(r"{(\w+)}")
    assert [text for text, other in SENTENCES.items() if set(holes.findall(other)) != set(holes.findall(text))] == []
    assert all(text.strip() and other.strip() for text, other in SENTENCES.items())


def test_names_stay_and_columns_stand_below_each_other():
    language.choose(["--lang", "zh"])
    head, job = columns([["job", "GPU-hours"], [language.AsIs("train"), "12.0"]])
    assert job.startswith("train ")
    assert head.startswith("作业")
    assert language.cells(head) == language.cells(job)


def test_the_first_line_of_a_long_command_is_chinese_and_its_flags_stay():
    language.choose(["--lang", "zh"])
    assert language.said_line("next: vramwise estimate qwen3-8b \\") == "接着：vramwise estimate qwen3-8b \\"
    assert language.said_line("        --task serve \\") == "        --task serve \\"


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_any_text_can_be_looked_up(text):
    language.choose(["--lang", "zh"])
    assert language.said(text) is not None
    assert "".join(language.broken(text, 20)).replace(" ", "") == "".join(text.split()).replace(" ", "")


def test_values_that_are_asked_for_are_those_that_are_taken(capsys):
    """Names of tasks have Chinese words on the screen; in a refusal they are what is to be written."""
    err = said("estimate gpt2 --task trian --lang zh", capsys)[2]
    assert "train, serve, generate, load" in err
    assert "是不是 train？" in err
    assert "训练" not in err


def test_the_lists_of_formats_have_chinese_heads_and_sources_as_they_are(capsys):
    chinese = said("dtypes --lang zh", capsys)[1]
    for head in ("数值格式。", "权重量化：", "GGUF 张量类型。", "其他名称", "存储方式依据", "每块权重数"):
        assert head in chinese
    rows = [line for line in chinese.splitlines() if line.startswith(("int8 ", "gptq-marlin", "mxfp4 "))]
    assert not any(CHINESE.search(line) for line in rows)


MESSAGES = [
    "Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.12 GiB is free. Including "
    "non-PyTorch memory, this process has 22.50 GiB memory in use. Of the allocated memory 20.80 GiB is allocated by "
    "PyTorch, and 1.18 GiB is reserved by PyTorch but unallocated.",
    "Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.12 GiB is free. Of the allocated "
    "memory 21.80 GiB is allocated by PyTorch, and 0.18 GiB is reserved by PyTorch but unallocated.",
]
OTHER_LOGS = [
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (5.20 GiB). Based on the available memory, the estimated "
    "maximum model length is 42640.",
    "Killed\n[12345.6] Out of memory: Killed process 4242 (python) total-vm:98765432kB, anon-rss:60000000kB",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory\n"
    "llama_kv_cache_init: failed to allocate buffer for kv cache",
]


@pytest.mark.parametrize(
    "message", [f"torch.OutOfMemoryError: CUDA out of memory. {one}" for one in MESSAGES] + OTHER_LOGS
)
def test_why_memory_ran_out_is_said_in_chinese(message, capsys, tmp_path):
    log = tmp_path / "log.txt"
    log.write_text(f"{message}\n")
    chinese = said(f"oom {log} --lang zh", capsys)[1]
    prose = "\n".join(line for line in chinese.splitlines() if "ALLOC_CONF" not in line)
    assert CHINESE.search(prose)
    assert ENGLISH.findall(prose) == []
