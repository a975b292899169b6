"""Every command's screen at 80 columns: no line is longer, and nothing that matters is cut."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from vramwise.cli.listing import table_blocks
from vramwise.cli.main import COMMANDS, main
from vramwise.site.file import add_runs
from vramwise.site.run import Run, Term

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "interop"))
logs = importlib.import_module("sample_logs")

SCREENS = [
    "estimate llama-3.1-8b",
    "estimate llama-3.1-8b --gpu 4090",
    "estimate google/gemma-2-9b --gpu 4060",
    "estimate moonshotai/Kimi-K2-Instruct-0905 --gpu v100-32gb",
    "estimate stabilityai/stable-diffusion-xl-base-1.0",
    "estimate stabilityai/stable-diffusion-xl-base-1.0 --gpu 4060",
    "estimate docs/examples/one-card/chat.toml docs/examples/one-card/tune.toml --together",
    "estimate llama-3.1-8b --task serve --gpu h100",
    "estimate llama-3.1-8b --task train --gpu 4090",
    "estimate llama-3.1-70b --task train --method qlora --gpu h100 --num-gpus 8 --zero-stage 3",
    "estimate qwen3-30b-a3b --task serve --engine sglang --gpu h200 --tensor-parallel-size 2",
    "estimate llama-3.1-8b --task serve --engine llama.cpp --gguf-quant q4_k_m --gpu 4060",
    "estimate llama-3.1-8b --task serve --engine mlx --gpu apple-m4-max-40core",
    "estimate llama-3.1-8b --task generate --gpu l4",
    "estimate llama-3.1-8b --task train --gpu h100 --explain all",
    "estimate llama-3.1-8b --task serve --gpu h100 --explain all",
    "estimate llama-3.1-8b --style huggingface",
    "estimate 7b --style simple",
    "estimate gpt2 --task train --gpu 4090 --sweep micro_batch_size=1,2,4,8 sequence_length=128..1k",
    "compare VLLM --gpu h100",
    "compare SGLANG",
    "compare LLAMA",
    "accuracy benchmarks/cases/serving-logs.jsonl --worst 3",
    "calibrate --site SITE",
    "fit --gpu 4060 --params 7b..10b --top 1",
    "plan qwen3-8b --gpu 4060 --task train --method lora",
    "plan google/gemma-1.1-2b-it --goal fine-tune --gpu 4090",
    "oom FRAGMENTED --scenario SCENARIO.toml",
    "oom TOO_LONG",
    "models llama",
    "models --types",
    "gpus",
    "gpus h100",
    "dtypes",
    "doctor",
    "doctor docs/examples/topology.txt",
    "mfu llama-3.1-8b --tokens-per-second 4800 --gpu h100-sxm-80gb --sequence-length 4096",
    "mfu llama-2-7b --task decode --gpu a100-sxm-80gb --tokens-per-second 104.9",
    "mfu gpt2 --deepspeed-output docs/examples/flops-profiler.log --gpu a100-sxm-40gb --sequence-length 1024",
    "profile docs/examples/small.pt.trace.json",
    "watch --count 1 --interval 0.01",
]
FRAGMENTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.64 GiB "
    "of which 1.12 GiB is free. Process 1234 has 22.51 GiB memory in use. Of the allocated memory 20.88 GiB is "
    "allocated by PyTorch, and 1.18 GiB is reserved by PyTorch but unallocated."
)
TOO_LONG = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (5.21 GiB). Based on the available memory, the estimated "
    "maximum model length is 42640."
)
SCENARIO = 'model = "llama-3.1-8b"\ntask = "train"\ngpu = "4090"\ntrain.method = "lora"\n'


@pytest.fixture
def places(tmp_path):
    files = {
        "VLLM": logs.VLLM, "SGLANG": logs.SGLANG, "LLAMA": logs.LLAMA_CPP, "FRAGMENTED": FRAGMENTED,
        "TOO_LONG": TOO_LONG, "SCENARIO.toml": SCENARIO,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    terms = (Term("cuda_graphs", "vllm", "0.11.2", 1.02, 0.01, "llama", 2), Term("context", "torch", "2.8.0", 5e8, 1e6))
    add_runs(str(tmp_path / "SITE"), [Run("a" * 12, "compare", "h100-sxm-80gb", terms, "2026-01-02", "570.86", "12.8")])
    return {name: str(tmp_path / name) for name in (*files, "SITE")}


@pytest.mark.parametrize("command", SCREENS)
def test_no_line_is_longer_than_the_screen(command, places, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    assert main([places.get(word, word) for word in command.split()]) in (0, 3)
    screen = capsys.readouterr().out
    paths = [path for path in places.values() if path in screen]
    long = [line for line in screen.splitlines() if len(line) > 80 and not any(path in line for path in paths)]
    assert screen.strip()
    assert long == []


def test_every_command_with_a_table_is_looked_at():
    """The others run something, read a recording, print JSON alone or one line (check)."""
    seen = {command.split()[0] for command in SCREENS}
    others = {"measure", "dry-run", "mfu", "profile", "fleet", "batch", "schema", "lengths", "check", "web"}
    assert set(COMMANDS) - seen <= others | {"completion", "mcp"}


def test_a_table_that_does_not_fit_keeps_every_cell():
    heads = ["name", *(f"number {i}" for i in range(12)), "words"]
    rows = [[f"row {r}", *(str(1000 * r + i) for i in range(12)), " ".join(f"word{r}-{i}" for i in range(30))]
            for r in range(3)]  # fmt: skip
    blocks = table_blocks(heads, rows, set(range(1, 13)), 80)
    text = "\n".join(line for block in blocks for line in block)
    assert max(map(len, text.splitlines())) <= 80
    assert all(word in text for row in [heads, *rows] for cell in row for word in cell.split())
    assert all(block[1].startswith("row 0") for block in blocks)
    assert len(table_blocks(heads[:3], [row[:3] for row in rows], {1, 2}, 80)) == 1
