"""The built-in catalog: complete, strict JSON, unique names, sources, and nothing that is not a hyperparameter."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import vramwise.sources as sources
from vramwise.errors import UndescribedTypeError
from vramwise.estimation import estimate
from vramwise.models import describe, supported_types
from vramwise.models.lengths import model_length
from vramwise.sources import resolve
from vramwise.sources.catalog import CatalogEntry, catalog
from vramwise.sources.known_names import size_in_name

LINES = (Path(sources.__file__).parent / "catalog.jsonl").read_text(encoding="utf-8").splitlines()
SETS_NO_SIZE = {"max_position_embeddings", "quantization_config", "rope_scaling", "torch_dtype", "dtype"}
NAMED_OTHERWISE = {
    "GaLore/llama_1b": "1.34 billion, cut off",
    "LargeWorldModel/LWM-Text-Chat-1M": "its context",
    "EuroBERT/EuroBERT-210m": "without its head",
    "Qwen/Qwen2.5-Omni-": "without its towers and talker",
    "Salesforce/blip2-opt-2.7b": "that of its language model",
    "Salesforce/codegen-2B": "2.78 billion, cut off",
    "Salesforce/xLAM-2-1b-fc-r": "1.54 billion, that of Qwen2.5-1.5B",
    "allenai/OLMoE-1B-7B": "the active ones",
    "/Llama-4-": "the active ones",
    "allenai/OLMo-2-0425-1B": "without its head and embeddings",
    "deepseek-community/Janus-Pro-1B": "1.87 billion with its towers",
    "eustlb/csm-1b": "1.63 billion with its codec",
    "-it-assistant": "that of the model it drafts for",
    "llava-hf/llava-onevision-qwen2-0.5b": "that of its language model",
    "ibm-granite/granite-speech-3.3-2b": "that of its language model",
    "ibm-granite/granite-4.0-h-1b": "1.46 billion, cut off",
    "meta-llama/Llama-Guard-3-1B": "1.50 billion: Llama 3.2's and a head of its own",
    "mistralai/Voxtral-Mini-3B": "without its tower and embeddings",
    "openbmb/MiniCPM-2B": "without embeddings",
    "tiiuae/Falcon3-1B": "without embeddings",
}
"""Parts of names whose size is not that of all parameters, and what it is."""
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


PUBLISHED = {row["id"]: int(row["total"]) for row in golden_rows("published_counts.csv")}


def by_architecture() -> dict[str, list[CatalogEntry]]:
    """Entries of types that are described, those of equal sizes together."""
    found: dict[str, list[CatalogEntry]] = {}
    for one in catalog():
        sizes = {key: value for key, value in one.hyperparameters.items() if key not in SETS_NO_SIZE}
        if one.model_type in supported_types():
            found.setdefault(json.dumps(sizes, sort_keys=True), []).append(one)
    return found


def test_at_least_600_checkpoints_sorted_by_id() -> None:
    ids = [json.loads(line)["id"] for line in LINES]
    assert len(ids) >= 600
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("line", LINES, ids=lambda line: json.loads(line)["id"])
def test_a_line_is_strict_json_with_a_source_and_sizes(line: str) -> None:
    row = json.loads(line, parse_constant=refuse)
    how = ["like"] if "like" in row else ["model_type", "kind"]
    assert list(row) == ["id", "aliases", *how, "source", "hyperparameters"]
    assert row["source"]
    assert "recalled" not in line
    assert "not recorded" not in line
    if "like" not in row:
        assert row["hyperparameters"]["model_type"] == row["model_type"]
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
    names = [name.lower() for one in catalog() for name in (one.id, *one.aliases)]
    assert len(names) == len(set(names))


def test_every_name_of_the_catalog_resolves_to_its_line() -> None:
    for one in catalog():
        for name in (one.id, *one.aliases):
            found = resolve(name)
            assert found.id == name
            assert found.config is one.hyperparameters
            said = f"{name}: sizes of {one.like}, the same architecture" if one.like else None
            assert found.note == said or str(found.note).startswith("the name says ")
            assert found.origin == f"catalog: {one.source}"


@pytest.mark.parametrize(
    "entries", by_architecture().values(), ids=lambda entries: min((one.id for one in entries), key=len)
)
def test_parameters_and_positions_are_those_that_names_say(entries: list[CatalogEntry]) -> None:
    """One of each architecture is described; sizes in names are rounded, published totals are exact."""
    model = describe(entries[0].hyperparameters, entries[0].id)
    assert model_length(model) > 0
    for one in entries:
        assert model.num_parameters == PUBLISHED.get(one.id, model.num_parameters)
        stated = size_in_name(one.id)
        if stated is not None and not any(part in one.id for part in NAMED_OTHERWISE):
            assert 0.75 * stated <= model.num_parameters <= 1.35 * stated, one.id


def test_a_checkpoint_like_another_has_its_own_differences() -> None:
    base, tuned = resolve("Qwen/Qwen2-7B"), resolve("Qwen/Qwen2-7B-Instruct")
    assert (base.config["max_position_embeddings"], tuned.config["max_position_embeddings"]) == (131072, 32768)
    quantized = resolve("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int8").config
    assert quantized["quantization_config"]["bits"] == 8
    plain = {key: value for key, value in quantized.items() if key != "quantization_config"}
    assert plain == resolve("Qwen/Qwen2.5-14B-Instruct").config


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("meta-llama/Llama-2-13b-hf", 4096),
        ("meta-llama/Llama-2-70b-hf", 4096),
        ("meta-llama/Llama-2-70b-chat-hf", 4096),
        ("Qwen/QwQ-32B", 40960),
        ("mistralai/Mistral-7B-Instruct-v0.2", 32768),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 131072),
    ],
)
def test_contexts_are_those_of_the_current_files(name: str, positions: int) -> None:
    assert model_length(describe(resolve(name).config, name)) == positions


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


def test_every_quantized_checkpoint_of_a_described_type_is_answered() -> None:
    """One that no reader knows would end `fit` over the whole catalog."""
    asked = [entry for entry in catalog() if "quantization_config" in entry.hyperparameters]
    assert len(asked) > 100
    for entry in asked:
        try:
            estimate({"model": entry.id, "task": "load"})
        except UndescribedTypeError:
            continue


def test_a_plain_checkpoint_is_not_quantized_because_its_copy_was() -> None:
    for name in ("Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen2.5-Omni-7B"):
        source = resolve(name)
        assert "quantization_config" not in source.config
        assert "AWQ copy" in source.origin


def test_golden_counts_name_every_model_of_the_catalog() -> None:
    rows = golden_rows("parameter_counts.csv")
    assert [row["id"] for row in rows] == [one.id for one in catalog() if one.like is None]
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
    found = [one.id for one in catalog("meta-llama/ 3.1 8b")]
    assert found == ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"]
    assert catalog("no such model") == []
