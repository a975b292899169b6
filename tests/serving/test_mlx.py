"""MLX against mlx-lm 0.32.2 and mlx 0.32.4 themselves, run on a CPU: bytes of quantized models and of caches.

mlx_weights.jsonl: configs as `mlx_lm.utils.quantize_model` writes them, and the bytes of the model's arrays.
mlx_caches.csv: bytes of a cache (4 heads of 64, fp16) after a prompt of so many tokens in such chunks, and the most
while it was read; `setting` is max_size of a rotating cache, or the bits of one that is quantized from 600 tokens on.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import vramwise
from vramwise.cli.main import main
from vramwise.errors import ScenarioError, UnsupportedModelError
from vramwise.interop.launch import read_command
from vramwise.models import LayerCache
from vramwise.serving.mlx.cache import CacheSettings, layers_of
from vramwise.sources import resolve
from vramwise.units import GIB

HERE = Path(__file__).parent
WEIGHTS = [json.loads(line) for line in (HERE / "mlx_weights.jsonl").read_text().splitlines()]
SERVE = {"task": "serve", "engine": "mlx", "gpu": "apple-m4-max-40core"}


def named(row):
    table = row["config"]["quantization"]
    return f"{row['config']['model_type']}-{table['bits']}-{table['group_size']}-{table.get('mode')}"


@pytest.mark.parametrize("row", WEIGHTS, ids=named)
def test_weights_are_those_of_mlx_to_the_byte(row):
    result = vramwise.estimate({"model": row["config"], "task": "load", "serve": {"engine": "mlx"}})
    assert result.quantities["weights"].expected == row["bytes"]


class OneLayer:
    """What a cache is worked out from: one layer of 4 heads of 64."""

    caches = (LayerCache("full", num_key_value_heads=4, key_head_dim=64, value_head_dim=64),)


@pytest.mark.parametrize("kind", ["plain", "rotating", "quantized"])
def test_caches_are_those_of_mlx_lm_to_the_byte(kind):
    with (HERE / "mlx_caches.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == kind]
    assert len(rows) >= 32
    for row in rows:
        setting = int(row["setting"] or 0)
        bits, size = (setting if kind == "quantized" else None), (setting if kind == "rotating" else None)
        settings = CacheSettings(bits, 64, 600, size, int(row["chunk"]), 2)
        layer = next(layers_of(OneLayer, settings, int(row["tokens"])))
        assert (layer.held, layer.prompt) == (int(row["held_bytes"]), int(row["prompt_bytes"])), row


def test_a_layer_of_its_own_format_and_one_that_stays():
    config = dict(resolve("llama-3.2-1b").config)
    plain = {"group_size": 64, "bits": 4}
    sizes = []
    for more in ({}, {"model.embed_tokens": {"group_size": 64, "bits": 8}}, {"model.embed_tokens": False}):
        table = {**config, "quantization": {**plain, **more}}
        asked = {"model": table, "task": "load", "serve": {"engine": "mlx"}}
        sizes.append(vramwise.estimate(asked).quantities["weights"].expected)
    rows = config["vocab_size"] * config["hidden_size"]
    assert sizes[1] - sizes[0] == rows // 2
    assert sizes[2] - sizes[0] == 2 * rows - rows // 2 - 2 * 2 * rows // 64


def test_a_quantization_that_mlx_does_not_have_is_refused():
    config = {**resolve("llama-3.2-1b").config, "quantization": {"group_size": 64, "bits": 7}}
    with pytest.raises(
        UnsupportedModelError, match="quantization of bits 7, group_size 64, mode affine is none of MLX's"
    ):
        vramwise.estimate({"model": config, "task": "load"})


def test_asking_for_a_format_is_as_converting():
    asked = vramwise.estimate("llama-3.2-1b", **SERVE, quantization="mlx-4bit", max_model_len=2048)
    table = {**resolve("llama-3.2-1b").config, "quantization": {"group_size": 64, "bits": 4}}
    written = vramwise.estimate({"model": table, "task": "serve", "serve": {"engine": "mlx", "max_model_len": 2048}})
    assert asked.quantities["weights"] == written.quantities["weights"]


@pytest.mark.parametrize("table", [{"task": "serve", "gpu": "apple-m4"}, {"task": "load"}], ids=["serve", "load"])
@pytest.mark.parametrize("stated", [{}, {"quantization_group_size": 32}], ids=["default", "stated"])
def test_asked_again_the_groups_are_the_same(table, stated):
    serve = {"engine": "mlx", "quantization": "mlx-8bit", **stated}
    once = vramwise.estimate({"model": "qwen2-0.5b-instruct", **table, "serve": serve})
    assert vramwise.estimate(dict(once.scenario)).quantities == once.quantities


def test_the_wired_limit_is_macos_own_and_can_be_said():
    result = vramwise.estimate("llama-3.1-8b", **SERVE, max_model_len=8192, quantization="mlx-4bit")
    assert any("iogpu.wired_limit_mb 0" in note for note in result.notes)
    assert not any("CUDA" in note for note in result.notes)
    assert result.capacity.usable_bytes < 48 * GIB
    raised = vramwise.estimate("llama-3.1-70b", **{**SERVE, "gpu_total_bytes": 44 * GIB}, quantization="mlx-4bit",
                               max_model_len=4096)  # fmt: skip
    assert raised.capacity.usable_bytes == 44 * GIB
    assert not vramwise.estimate("llama-3.1-70b", **SERVE, quantization="mlx-8bit", max_model_len=4096).verdict.fits


def test_weights_close_to_the_limit_are_warned_of_as_mlx_lm_does():
    result = vramwise.estimate("llama-3.1-8b", **{**SERVE, "gpu_total_bytes": 16 * GIB}, max_model_len=512)
    assert any("mlx-lm warns" in note for note in result.notes)


def test_the_cache_follows_its_settings_and_says_what_changed_nothing():
    long = {**SERVE, "max_model_len": 16384}
    plain, eight, four = (
        vramwise.estimate("llama-3.1-8b", **long, **more).quantities["kv_cache_bytes"].expected
        for more in ({}, {"kv_bits": 8}, {"kv_bits": 4})
    )
    assert (eight / plain, four / plain) == ((8 + 0.5) / 16, (4 + 0.5) / 16)
    short = vramwise.estimate("llama-3.1-8b", **{**SERVE, "max_model_len": 4096}, kv_bits=8)
    assert any(
        note.startswith("kv_bits changed nothing here: the cache is quantized from 5,000") for note in short.notes
    )
    rotated = vramwise.estimate("llama-3.1-8b", **long, max_kv_size=1024, kv_bits=8)
    assert any("does not quantize a rotating cache" in note for note in rotated.notes)
    assert rotated.quantities["kv_cache_bytes"].expected == 1024 * 32 * 2 * 8 * 128 * 2
    windows = vramwise.estimate("gemma-3-12b-it", **long, max_kv_size=1024)
    assert any(note.startswith("max_kv_size changed nothing here") for note in windows.notes)


def test_smaller_chunks_take_less_and_the_interval_spans_what_no_source_says():
    small, large = (vramwise.estimate("llama-3.1-8b", **SERVE, prefill_step_size=n, max_model_len=4096)
                    .quantities["activation_peak"] for n in (256, 2048))  # fmt: skip
    assert 2 * small.expected < large.expected < 8 * small.expected
    assert large.low < large.expected < large.high


def test_the_longest_request_that_fits_is_the_longest():
    keys = {**SERVE, "gpu_total_bytes": 8 * GIB, "quantization": "mlx-4bit"}
    longest = vramwise.estimate("llama-3.1-8b", **keys).quantities["max_seq"].expected
    for tokens, fits in ((longest, True), (longest + 256, False)):
        assert vramwise.estimate("llama-3.1-8b", **keys, max_model_len=tokens).verdict.fits is fits


@pytest.mark.parametrize(
    "command",
    [
        "mlx_lm.server --model mlx-community/Qwen3-8B-4bit --kv-bits 8 --prefill-step-size 512 --port 8080",
        "python -m mlx_lm.server --model mlx-community/Qwen3-8B-4bit --kv-bits 8 --prefill-step-size 512",
        "mlx_lm server --model mlx-community/Qwen3-8B-4bit --kv-bits=8 --prefill-step-size 512",
        "python3 -m mlx_lm generate --model mlx-community/Qwen3-8B-4bit --kv-bits 8 --prefill-step-size 512 -m 64",
    ],
)
def test_command_lines_are_read(command):
    launch = read_command(command.split())
    assert launch.scenario["model"] == "mlx-community/Qwen3-8B-4bit"
    assert launch.scenario["serve"] == {"engine": "mlx", "kv_bits": 8, "prefill_step_size": 512}


def test_what_a_command_line_has_beside_is_said():
    launch = read_command(["mlx_lm.generate", "--draft-model", "small", "--max-kv-size", "4096"])
    assert launch.scenario["model"] == "mlx-community/Llama-3.2-3B-Instruct-4bit"
    assert any("--draft-model" in note for note in launch.notes)


def test_names_of_mlx_repositories_are_known_models():
    result = vramwise.estimate("mlx-community/Llama-3.2-1B-Instruct-4bit", **SERVE, max_model_len=2048)
    table = {**resolve("llama-3.2-1b").config, "quantization": {"group_size": 64, "bits": 4}}
    written = vramwise.estimate({"model": table, "task": "load", "serve": {"engine": "mlx"}})
    assert result.quantities["weights"] == written.quantities["weights"]
    for engine in ("vllm", "sglang"):
        with pytest.raises(ScenarioError, match=r"MLX quantized the checkpoint, \w+ does not load it: set engine mlx"):
            vramwise.estimate("mlx-community/Llama-3.2-1B-Instruct-4bit", task="serve", engine=engine, gpu="l40s")
    with pytest.raises(ScenarioError, match="mlx-4bit is MLX's, vLLM does not read it"):
        vramwise.estimate("llama-3.2-1b", task="serve", quantization="mlx-4bit")


def test_another_makers_card_and_a_cache_dtype(capsys):
    result = vramwise.estimate("llama-3.2-1b", **{**SERVE, "gpu": "rtx-4090"})
    assert any("described for Apple silicon" in note for note in result.notes)
    with pytest.raises(ScenarioError, match=r"kv_cache_dtype"):
        vramwise.estimate("llama-3.2-1b", **SERVE, kv_cache_dtype="int8")
    words = "estimate llama-3.2-1b --task serve --engine mlx --gpu apple-m4 --explain all"
    assert main(words.split()) == 0
    said = capsys.readouterr().out
    assert "mlx-lm 0.32.2 models/cache.py" in said


def test_a_cache_that_will_be_quantized_was_whole_before():
    """An answer to a short prompt grows past the length from which on the cache is quantized: the high end holds what
    lay there then, so that a longer request never needs less."""
    asked = [
        vramwise.estimate(
            {
                "model": "OrionStarAI/Orion-14B-Base", "task": "serve", "gpu": "apple-m2-pro",
                "serve": {"engine": "mlx", "kv_bits": 2, "max_model_len": length},
            }
        ).quantities["total_needed"].high
        for length in (4096, 4999, 8192)
    ]  # fmt: skip
    assert asked == sorted(asked)


def test_no_way_on_another_makers_card_takes_mlx_weights_as_published(capsys):
    assert main(["estimate", "mlx-community/Qwen3-8B-4bit", "--gpu", "4090"]) == 0
    shown = capsys.readouterr().out
    assert "published" not in shown
    assert "llama.cpp Q4_K_M" in shown
