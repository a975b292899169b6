"""The built-in catalog: complete, strict JSON, unique names, sources, and nothing that is not a hyperparameter."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import vramwise.sources as sources
from vramwise.sources import catalog, resolve

LINES = (Path(sources.__file__).parent / "catalog.jsonl").read_text(encoding="utf-8").splitlines()
GOLDEN = Path(__file__).parents[1] / "golden"


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(keys_of(part) for part in value.values()))
    return set().union(*(keys_of(part) for part in value)) if isinstance(value, list) else set()


def golden_rows(name: str) -> list[dict[str, str]]:
    with open(GOLDEN / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_at_least_300_models_sorted_by_id() -> None:
    ids = [json.loads(line)["id"] for line in LINES]
    assert len(ids) >= 300
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("line", LINES, ids=lambda line: json.loads(line)["id"])
def test_a_line_is_strict_json_with_a_source_and_sizes(line: str) -> None:
    row = json.loads(line, parse_constant=refuse)
    assert list(row) == ["id", "aliases", "variants", "model_type", "kind", "source", "hyperparameters"]
    assert row["source"]
    assert row["hyperparameters"]["model_type"] == row["model_type"]
    assert "not recorded" not in line
    assert not keys_of(row["hyperparameters"]) & {
        "auto_map",
        "transformers_version",
        "id2label",
        "bos_token_id",
        "rope_theta",
        "initializer_range",
        "_name_or_path",
    }


def test_no_name_means_two_models() -> None:
    names = [name.lower() for one in catalog() for name in (one.id, *one.aliases, *one.variants)]
    assert len(names) == len(set(names))


def test_every_name_of_the_catalog_resolves_to_its_line() -> None:
    for one in catalog():
        assert resolve(one.id).id == one.id
        assert resolve(one.id).config is one.hyperparameters
        assert resolve(one.id).note is None
        assert all(resolve(alias).id == one.id and resolve(alias).note is None for alias in one.aliases)
        assert all(one.id in str(resolve(variant).note) for variant in one.variants)


def test_golden_llama_line() -> None:
    config = resolve("meta-llama/Llama-3.1-8B").config
    assert {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }.items() <= config.items()


def test_quantized_checkpoints_keep_what_sets_their_bytes() -> None:
    assert resolve("deepseek-ai/DeepSeek-V3").config["quantization_config"]["weight_block_size"] == [128, 128]
    assert resolve("openai/gpt-oss-20b").config["quantization_config"]["quant_method"] == "mxfp4"
    skipped = resolve("nvidia/MiniMax-M2.5-NVFP4").config["quantization_config"]["ignore"]
    assert "model.layers.[0-61].block_sparse_moe.gate" in skipped


def test_a_plain_checkpoint_is_not_quantized_because_its_copy_was() -> None:
    for name in ("Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen2.5-Omni-7B"):
        source = resolve(name)
        assert "quantization_config" not in source.config
        assert "AWQ copy" in source.origin


def test_golden_counts_name_every_model_of_the_catalog() -> None:
    rows = golden_rows("parameter_counts.csv")
    assert [row["id"] for row in rows] == [one.id for one in catalog()]
    counted = [row for row in rows if row["total"]]
    assert len(counted) >= 320
    assert all(int(row["total"]) > 0 and row["source"] for row in counted)
    totals = {row["id"]: row["total"] for row in rows}
    assert totals["meta-llama/Llama-2-7b-hf"] == "6738415616"
    assert totals["meta-llama/Meta-Llama-3.1-8B"] == "8030261248"


def test_golden_counts_of_default_configurations() -> None:
    rows = golden_rows("default_parameter_counts.csv")
    assert len({row["model_type"] for row in rows}) == len(rows)
    assert sum(bool(row["total"]) for row in rows) >= 100


def test_query_filters_by_every_word() -> None:
    found = [one.id for one in catalog("llama 3.1 8b")]
    assert found == ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"]
    assert catalog("no such model") == []
