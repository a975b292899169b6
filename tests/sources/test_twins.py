"""Other owners' names for models of the catalog: ModelScope's, and those from before an organisation was renamed."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from vramwise import estimate
from vramwise.errors import SourceError
from vramwise.sources import resolve
from vramwise.sources.catalog import names, written
from vramwise.sources.known_names import known
from vramwise.sources.twins import twin_of
from vramwise.tables import rows_of

TABLE = rows_of(Path(__file__).parents[2] / "src/vramwise/sources/twins.csv")
GOLDEN = Path(__file__).parents[1] / "golden" / "modelscope_names.csv"
"""ms-swift 4.6.0 swift/model/models/*.py: `Model(ms_model_id, hf_model_id)`, where the catalog has the latter."""


def test_modelscopes_names_are_their_hub_twins() -> None:
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        pairs = list(csv.DictReader(file))
    assert len(pairs) > 100
    wrong = [
        (pair["modelscope"], pair["hub"])
        for pair in pairs
        if (found := known(pair["modelscope"])) is None or (hub := known(pair["hub"])) is None
        or found.config != hub.config
    ]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("ZhipuAI/GLM-4.5-Air", "zai-org/GLM-4.5-Air"),
        ("zhipuai/glm-4-9b-chat", "zai-org/glm-4-9b-chat"),
        ("LLM-Research/Meta-Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B-Instruct"),
        ("AI-ModelScope/gemma-2-9b-it", "google/gemma-2-9b-it"),
        ("Shanghai_AI_Laboratory/internlm2_5-7b-chat", "internlm/internlm2_5-7b-chat"),
        ("modelscope/Llama-2-7b-chat-ms", "meta-llama/Llama-2-7b-chat-hf"),
        ("THUDM/GLM-4.5-Air", "zai-org/GLM-4.5-Air"),
    ],
)
def test_the_same_checkpoint(name: str, spelling: str) -> None:
    twin = twin_of(name)
    assert twin is not None
    assert (twin.spelling, twin.same) == (spelling, True)
    source = resolve(name, network=False)
    assert source.id == spelling
    assert f"{name} is {spelling}" in (source.note or "")


def test_other_checkpoints_of_the_same_sizes_keep_their_names() -> None:
    source = resolve("Qwen/Qwen3-VL-Reranker-8B", network=False)
    assert source.id == "Qwen/Qwen3-VL-Reranker-8B"
    assert "sizes of Qwen/Qwen3-VL-8B-Instruct, the same architecture" in (source.note or "")
    result = estimate({"model": "OpenRLHF/Llama-3-8b-sft-mixture", "task": "load"})
    assert result.quantities["weights"].expected == estimate(
        {"model": "meta-llama/Meta-Llama-3-8B", "task": "load"}).quantities["weights"].expected  # fmt: skip


def test_a_quantized_name_of_another_owner() -> None:
    source = resolve("ZhipuAI/GLM-4.5-Air-AWQ", network=False)
    assert "quantization_config" in source.config


def test_names_of_nobody_stay_unknown() -> None:
    for name in ("ZhipuAI/no-such", "ZhipuAI", "ZhipuAI/", "ZhipuAI/a/b", "nobody/GLM-4.5-Air"):
        assert twin_of(name) is None
    with pytest.raises(SourceError):
        resolve("ZhipuAI/no-such", network=False)


def test_rows_lead_somewhere_and_shadow_nothing() -> None:
    owners = {name.partition("/")[0].lower() for name in names().exact}
    for row in TABLE:
        assert row["source"]
        if row["name"].endswith("/"):
            assert all(twin.endswith("/") for twin in row.words("twin"))
        else:
            assert written(row["name"]) is None  # the catalog's own entry would win
            assert written(row["twin"]) is not None
    assert any(twin[:-1].lower() in owners for row in TABLE for twin in row.words("twin"))
