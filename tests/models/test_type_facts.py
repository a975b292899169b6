"""What hangs on a type of model in one program: every row can be read, has a source, and names types that there are."""

from __future__ import annotations

import pytest

from vramwise.models.family_of_type import FAMILY_OF_TYPE
from vramwise.models.towers.towers_by_type import TOWERS
from vramwise.models.type_facts import ANY, fact_value, facts, has_fact, types_with

# named in a program's list, and by no family here
UNDESCRIBED = frozenset({"inkling_model", "mimo_v2", "qwen3_vl_moe_text", "step3p5"})


@pytest.mark.parametrize(("program", "fact"), sorted(facts()))
def test_every_row_has_types_and_a_source(program: str, fact: str) -> None:
    for row in facts()[program, fact]:
        assert row.types or row.beginnings
        assert len(row.source) > 10
        assert row.stop is None or row.start < row.stop


def test_a_fact_holds_from_its_version_on_and_not_from_the_last() -> None:
    assert not has_fact("vllm", "video_counts_more", "qwen3_vl", (0, 10, 2))
    assert has_fact("vllm", "video_counts_more", "qwen3_vl", (0, 11))
    assert has_fact("vllm", "video_counts_more", "qwen3_vl", (0, 12, 999))
    assert not has_fact("vllm", "video_counts_more", "qwen3_vl", (0, 13))


def test_a_beginning_stands_for_all_types_that_begin_so() -> None:
    assert has_fact("llama.cpp", "deep_vision_inputs", "qwen3_vl_moe")
    assert not has_fact("llama.cpp", "deep_vision_inputs", "qwen3")


def test_a_value_is_that_of_the_row_that_holds() -> None:
    assert fact_value("transformers", "bare_class", "bert") == "BertModel"
    assert fact_value("transformers", "bare_class", "llama") is None


def test_a_fact_that_no_row_has_is_an_error() -> None:
    with pytest.raises(KeyError):
        has_fact("vllm", "no_such_fact", "llama")
    with pytest.raises(KeyError):
        types_with(ANY, "no_such_fact")


def test_types_are_described_or_known_as_undescribed() -> None:
    named = {name for program, fact in facts() for name in types_with(program, fact)}
    assert sorted(named - set(FAMILY_OF_TYPE) - set(TOWERS) - UNDESCRIBED) == []
