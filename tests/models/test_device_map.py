"""Where `device_map="auto"` lays every parameter equals what transformers and accelerate lay out of the real class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import transformers.integrations.accelerate as of_transformers
from accelerate.utils import modeling as of_accelerate
from config_strategies import STRATEGIES
from how_many import a_family
from hypothesis import given
from hypothesis import strategies as st
from transformers_models import real_model

from vramwise.models import describe
from vramwise.serving.common.storage import storage_of
from vramwise.serving.transformers.device_map import HOST, balanced, laid_out
from vramwise.serving.transformers.module_tree import module_tree

GENERATING = ("causal-lm", "seq2seq-lm", "multimodal-lm")
NEWEST, BEFORE_ITS_OWN = (5, 23), (4, 57)


def real_places(model: Any, names: Sequence[str], free: int, count: int, library: Any) -> dict[str, int | str]:
    """Every parameter's place by the library's own functions; buffers, which the estimate leaves out, taken off."""
    for module in model.modules():
        module._buffers.clear()
    room = {**dict.fromkeys(range(count), free), "cpu": 1 << 50}
    classes = list(model._no_split_modules)
    budgets = library.get_balanced_memory(model, dict(room), no_split_module_classes=classes)
    found = library.infer_auto_device_map(model, budgets, no_split_module_classes=classes)
    return {name: HOST if (place := _place(name, found)) in ("cpu", "disk") else place for name in names}


def _place(name: str, found: dict[str, int | str]) -> int | str:
    while name not in found and name:
        name = name.rpartition(".")[0]
    return found[name]


def assert_same_places(
    config: dict[str, Any], count: int, share: float, version: tuple[int, int], library: Any
) -> None:
    described = describe(config)
    if described.head not in GENERATING:
        return
    tree = module_tree(described, storage_of(described, "fp32", None, None))
    free = int(tree.root.size * share)
    ours = laid_out(tree, balanced(tree, (free,) * count, version))
    names = [parameter.name for parameter in described.all_parameters]
    theirs = real_places(real_model(config, described.head), names, free, count, library)
    assert {name: ours.place_of(name) for name in names} == theirs


TYPES = (
    *("bart", "bert-generation", "bloom", "cohere", "deepseek_v3", "falcon", "gemma2", "gemma3n_text", "gemma4_text"),
    *("glm4", "gpt2", "gpt_neox", "gpt_oss", "granite", "jamba", "llama", "mamba", "mbart", "mistral", "mixtral"),
    *("olmo2", "opt", "phi", "phi3", "qwen2", "qwen2_vl", "qwen3", "qwen3_moe", "stablelm", "starcoder2", "t5"),
)
"""Of every kind of order, ties and layers one; in some towers and layers in pieces the order of a few norms differs."""
CARDS = st.tuples(st.integers(2, 5), st.sampled_from((0.25, 0.4, 0.65, 2.0)))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", TYPES)
def test_every_parameter_lies_where_transformers_lays_it(model_type: str) -> None:
    @a_family(4)
    @given(STRATEGIES[model_type](), CARDS)
    def held(config: dict[str, Any], cards: tuple[int, float]) -> None:
        assert_same_places(config, *cards, NEWEST, of_transformers)

    held()


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", ["llama", "gpt_neox", "mixtral"])
def test_versions_before_5_lay_out_as_accelerate_does(model_type: str) -> None:
    @a_family(6)
    @given(STRATEGIES[model_type](), CARDS)
    def held(config: dict[str, Any], cards: tuple[int, float]) -> None:
        untied = {**config, "tie_word_embeddings": False}
        assert_same_places(untied, *cards, BEFORE_ITS_OWN, of_accelerate)

    held()
