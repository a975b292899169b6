"""The table of ollama's library: names, default tags and types, held against sizes that the library prints."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from vramwise.errors import UsageError
from vramwise.estimation import described_model, estimate
from vramwise.interop.launch import read_command
from vramwise.serving.common.gguf.quantizer import typed_tensors
from vramwise.sources import ollama_library
from vramwise.sources.ollama_library import library_model

TABLE = Path(ollama_library.__file__).with_name("ollama_library.csv")
with TABLE.open(newline="", encoding="utf-8") as table:
    ROWS = list(csv.DictReader(table))

OWN_QUANTIZER = {
    # ollama's own quantizer before v0.30 kept the output apart from a tied embedding, or per-layer embeddings in 16
    # bit; neither lies on a GPU beside what is counted
    "qwen3:0.6b", "qwen3:1.7b", "gemma4:e2b", "gemma4:e4b",
    # early file with the embedding in Q8_0
    "gemma:2b",
    # more tensors in Q6_K and Q8_0 than llama.cpp's mix has, and layers for multi-token prediction
    "qwen3.5:35b", "qwen3.5:122b",
}  # fmt: skip
TOWER = ("vision", "audio", "speech", "projector")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['name']}:{row['tag']}")
def test_every_row_is_a_model_of_the_catalog_whose_size_the_library_prints(row: dict[str, str]) -> None:
    model = described_model(row["model"])[1]
    size = sum(typed.bytes for typed in typed_tensors(model, row["gguf_quant"], False))
    tower = [p for p in model.parameters if p.part in TOWER and p.tied_to is None]
    size += sum(p.numel * (4 if len(p.shape) == 1 else 2) for p in tower)
    assert row["source"]
    if f"{row['name']}:{row['tag']}" not in OWN_QUANTIZER:
        assert size / 1e9 == pytest.approx(float(row["size_gb"]), rel=0.06)


def test_a_name_has_at_most_one_default() -> None:
    defaults = [row["name"] for row in ROWS if row["latest"]]
    assert len(defaults) == len(set(defaults))
    tags = [(row["name"], row["tag"]) for row in ROWS]
    assert len(tags) == len(set(tags))


@pytest.mark.parametrize(
    ("named", "model", "kind"),
    [
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "Q4_K_M"),
        ("deepseek-r1:8b", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "Q4_K_M"),
        ("deepseek-r1:8b-llama-distill-q8_0", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "Q8_0"),
        ("gemma3", "google/gemma-3-4b-it", "Q4_K_M"),
        ("gemma3:latest", "google/gemma-3-4b-it", "Q4_K_M"),
        ("gemma3:27b-it-qat", "google/gemma-3-27b-it", "Q4_0"),
        ("llama3.1", "meta-llama/Llama-3.1-8B-Instruct", "Q4_K_M"),
        ("llama3.1:8b-instruct-q8_0", "meta-llama/Llama-3.1-8B-Instruct", "Q8_0"),
        ("llama3.1:70b-instruct-q4_K_M", "meta-llama/Llama-3.1-70B-Instruct", "Q4_K_M"),
        ("llama3.2", "meta-llama/Llama-3.2-3B-Instruct", "Q4_K_M"),
        ("llama3.2:1b", "meta-llama/Llama-3.2-1B-Instruct", "Q8_0"),
        ("qwen3", "Qwen/Qwen3-8B", "Q4_K_M"),
        ("qwen3:30b-a3b", "Qwen/Qwen3-30B-A3B", "Q4_K_M"),
        ("mistral", "mistralai/Mistral-7B-Instruct-v0.3", "Q4_K_M"),
        ("gpt-oss", "openai/gpt-oss-20b", "BF16"),
        ("gpt-oss:120b", "openai/gpt-oss-120b", "BF16"),
        ("phi4", "microsoft/phi-4", "Q4_K_M"),
        ("qwen2.5", "Qwen/Qwen2.5-7B-Instruct", "Q4_K_M"),
        ("qwen2.5-coder:14b", "Qwen/Qwen2.5-Coder-14B-Instruct", "Q4_K_M"),
        ("qwen2.5vl", "Qwen/Qwen2.5-VL-7B-Instruct", "Q4_K_M"),
        ("gemma2", "google/gemma-2-9b-it", "Q4_0"),
        ("codellama", "codellama/CodeLlama-7b-hf", "Q4_0"),
        ("Library/Phi4:fp16", "microsoft/phi-4", "F16"),
    ],
)
def test_names_and_tags(named: str, model: str, kind: str) -> None:
    scenario = read_command(["ollama", "run", named]).scenario
    assert (scenario["model"], scenario["serve"]["gguf_quant"]) == (model, kind)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("foo", r'"foo" is not in the table of its library'),
        ("lama3.1", "did you mean llama3.1"),
        ("llama3.1:9b", r"expected one of llama3\.1:\{8b, 70b, 405b\}"),
        ("ministral-3", r'the default of "ministral-3" is not known'),
        ("someone/gemma3:4b", "not in the table"),
        ("gpt-oss:120b-cloud", "takes no memory here"),
        ("qwen3.5:9b-int4", "type of .* is not known"),
    ],
)
def test_what_the_table_does_not_know_is_never_another_model(named: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_command(["ollama", "run", named])


def test_the_answer_says_what_was_taken_and_what_the_library_prints() -> None:
    note = library_model("qwen2.5-coder:14b").note
    assert note == (
        "ollama's qwen2.5-coder:14b is taken as Qwen/Qwen2.5-Coder-14B-Instruct, Q4_K_M (its library prints 9 GB)"
    )
    launch = read_command(["ollama", "run", "gpt-oss:20b"])
    result = estimate(launch.scenario)
    assert result.quantities["weights"].expected == pytest.approx(13_793_441_244, rel=0.002)
    assert any("MXFP4" in note for note in launch.notes)


@pytest.mark.parametrize(
    "line",
    ["ollama run qwen3 hello", "ollama run --verbose qwen3", "ollama pull qwen3", "ollama launch claude --model qwen3",
     "docker exec -it ollama ollama run qwen3"],
)  # fmt: skip
def test_the_model_is_found_whatever_is_done_with_it(line: str) -> None:
    assert read_command(line.split()).scenario["model"] == "Qwen/Qwen3-8B"


def test_an_application_that_is_launched_without_a_model_names_none() -> None:
    with pytest.raises(UsageError, match="names no model"):
        read_command(["ollama", "launch", "claude"])


@pytest.mark.parametrize("size", ["0.5b", "1.5b", "3b", "7b", "14b", "32b"])
def test_a_coder_is_called_a_coder(size: str) -> None:
    launch = read_command(["ollama", "run", f"qwen2.5-coder:{size}"])
    assert launch.scenario["model"] == f"Qwen/Qwen2.5-Coder-{size.upper()}-Instruct"
