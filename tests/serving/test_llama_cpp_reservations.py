"""What llama.cpp itself reserves and writes, model by model (llama.cpp 0c1e57098, which llama-cpp-python 0.3.36 ships).

`tests/golden/llama_cpp_reservations.csv`: bytes that llama-fit-params prints for files of metadata and shapes alone
(made by llama.cpp's own converter from the catalog's configs), on one RPC device that holds all layers; with the logits
of every token of a batch or, as llama-server has it, of one a slot. `tests/golden/gguf_sizes.csv`: bytes of the tensors
that llama-quantize --dry-run lists.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate
from vramwise.models import Model, describe
from vramwise.result import Result
from vramwise.serving.common.gguf.quantizer import typed_tensors
from vramwise.sources import resolve

GOLDEN = Path(__file__).parents[1] / "golden"
RESERVATIONS = list(csv.DictReader((GOLDEN / "llama_cpp_reservations.csv").read_text("utf-8").splitlines()))
SIZES = list(csv.DictReader((GOLDEN / "gguf_sizes.csv").read_text("utf-8").splitlines()))
ROUNDING = 4096  # bytes that alignment adds


@cache
def described(name: str) -> Model:
    found = resolve(name)
    return describe({key: value for key, value in found.config.items() if key != "quantization_config"}, found.id)


def served(row: dict[str, str]) -> Result:
    config = {key: value for key, value in resolve(row["model"]).config.items() if key != "quantization_config"}
    settings: dict[str, Any] = {key: int(row[key]) for key in ("n_ctx", "n_parallel", "n_ubatch")}
    settings |= {key: row[key] == "1" for key in ("flash_attn", "logits_all")}
    return estimate({"model": config, "task": "serve", "num_gpus": 1, "serve": {
        "engine": "llama.cpp", "gguf_quant": "BF16", "kv_unified": True, "ggml_backend": "other", **settings,
    }})  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("row", SIZES, ids=lambda row: row["model"])
def test_files_have_the_quantizers_own_sizes(row: dict[str, str]) -> None:
    model = described(row["model"])
    found = {kind: sum(t.bytes for t in typed_tensors(model, kind, False)) for kind in row if kind != "model"}
    for kind, size in found.items():
        assert size == pytest.approx(int(row[kind]), rel=2e-4), kind  # rotary factors and biases of one row


@pytest.mark.oracle
@pytest.mark.parametrize("row", RESERVATIONS, ids=lambda row: f"{row['model']}-{row['n_parallel']}-{row['n_ubatch']}")
def test_caches_and_host_buffers_are_those_that_are_reserved(row: dict[str, str]) -> None:
    found = served(row).quantities
    cache_bytes = sum(found[name].expected for name in ("kv_cache_bytes", "recurrent_state_bytes") if name in found)
    assert cache_bytes == pytest.approx(int(row["cache"]), abs=ROUNDING)
    assert found["host_buffer"].expected == pytest.approx(int(row["host_buffer"]), rel=0.004)


@pytest.mark.oracle
def test_compute_buffers_are_those_that_are_reserved() -> None:
    """Exact where the graph allocator leaves no holes, which it does in layers of unlike widths."""
    errors = [
        served(row).quantities["compute_buffer"].expected / int(row["compute_buffer"]) - 1 for row in RESERVATIONS
    ]
    exact = sum(abs(error) < 0.002 for error in errors)
    assert exact >= 0.77 * len(errors)
    assert max(map(abs, errors)) < 0.11
