"""The screen of a serving estimate: budget in the engine's words, requests at once, flags that give more."""

from __future__ import annotations

import re

import pytest

from vramwise.cli.main import main

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def screen(capsys):
    def show(*flags):
        main(["estimate", LLAMA, "--task", "serve", *flags])
        return capsys.readouterr().out

    return show


def test_the_terms_of_the_budget_add_up(screen):
    out = screen("--engine", "vllm", "--gpu", "rtx-4090", "--max-model-len", "32768")
    text = " ".join(out[out.index("budget") : out.index("outside it")].split())
    whole, terms = text.partition(" = ")[2].split(":", 1)
    numbers = [float(number) for number in re.findall(r" (-?\d+\.\d\d)(?!\d)", terms)]
    assert float(whole) == pytest.approx(sum(numbers), abs=0.03)
    assert "gpu_memory_utilization 0.92" in text


def test_graphs_are_outside_the_share_of_older_versions(screen):
    out = screen("--engine", "vllm", "--engine-version", "0.11.2", "--gpu", "rtx-4090", "--max-model-len", "8192")
    outside = out[out.index("outside it") : out.index("at once")]
    assert "CUDA graphs" in outside


def test_requests_at_once_shrink_with_their_length(screen):
    out = screen("--engine", "vllm", "--gpu", "h100-sxm-80gb")
    line = " ".join(out[out.index("at once") : out.index("more room")].split())
    many = [float(number.replace(",", "")) for number in re.findall(r"tokens ([\d,.]+)", line)]
    assert len(many) == 4
    assert many == sorted(many, reverse=True)


def test_the_flags_that_give_more_are_named(screen):
    out = screen("--engine", "sglang", "--gpu", "rtx-4090", "--max-model-len", "4096")
    table = out[out.index("more room for requests") :]
    assert "quantization fp8" in table
    assert "tensor_parallel_size 2" in table


@pytest.mark.parametrize("flags", [("--engine", "llama.cpp", "--gpu", "rtx-4090"), ("--engine", "vllm")])
def test_without_a_pool_or_a_card_there_is_no_budget(screen, flags):
    assert "at once" not in screen(*flags)


def test_the_title_names_the_type_of_the_file(screen):
    title = screen("--engine", "llama.cpp", "--gguf-quant", "Q4_K_M", "--n-ctx", "4096").splitlines()[0]
    assert "llama.cpp · Q4_K_M · context 4,096" in title


def test_more_room_is_counted_in_the_requests_that_its_heading_names(screen):
    """SGLang lowers the length to what its cache holds: with more room it would take longer requests, not more."""
    out = screen("--engine", "sglang", "--gpu", "rtx-4090")
    table = out[out.index("more room for requests") :].split("\n\n")[0].splitlines()
    length = int(re.findall(r"of ([\d,]+)", table[0])[0].replace(",", ""))
    assert length < 131_072
    for row in table[1:]:
        tokens, many = (float(n.replace(",", "")) for n in re.findall(r"([\d,]+) +([\d,]+\.\d\d) ", row)[0])
        assert many == pytest.approx(tokens / length, rel=0.01)


def test_what_a_card_serves_at_once_is_no_micro_batch(screen):
    assert "largest batch" in screen("--engine", "vllm", "--gpu", "h100-sxm-80gb")


def test_counters_are_whole_but_for_the_concurrency(screen):
    out = screen("--engine", "vllm", "--gpu", "h100-sxm-80gb", "--max-model-len", "8192")
    line = " ".join(out[out.index("counters") : out.index("\n\n", out.index("counters"))].split())
    assert re.search(r"requests of full length [\d,]+\.\d\d(?!\d)", line), line
    assert re.search(r"tokens in cache [\d,]+ blocks [\d,]+ ", line), line


def test_what_to_set_is_something_to_try_and_no_cause(screen):
    out = screen("--engine", "vllm", "--gpu", "rtx-4090")
    assert "\ntry         set max_model_len to " in out
    assert not re.search(r"because +set ", out)
