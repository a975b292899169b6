"""Which class of transformers a run makes: the one that the config names, else the one that the estimate describes."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

import transformers
from transformers.initialization import no_init_weights

from vramwise.measure.building import config_of
from vramwise.measure.classes import fills_masks, loader_of
from vramwise.sources import resolve

CHOICES = [
    ({"model_type": "bert"}, "AutoModelForMaskedLM"),
    ({"model_type": "bert", "is_decoder": True}, "AutoModelForCausalLM"),
    ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, "AutoModelForSequenceClassification"),
    ({"model_type": "deberta-v2"}, "AutoModelForMaskedLM"),
    ({"model_type": "llama"}, "AutoModelForCausalLM"),
    ({"model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"]}, "AutoModelForImageTextToText"),
    ({"model_type": "llama4"}, "AutoModelForImageTextToText"),
    ({"model_type": "t5"}, "AutoModelForSeq2SeqLM"),
]


@pytest.mark.parametrize(("values", "expected"), CHOICES)
def test_the_class_is_the_one_that_is_described(values, expected):
    config = transformers.AutoConfig.for_model(**values)
    assert loader_of(config, "causal-lm").__name__ == expected


def test_a_head_that_is_asked_for_comes_before_what_the_config_names():
    config = transformers.BertConfig(architectures=["BertForMaskedLM"])
    assert loader_of(config, "sequence-classification").__name__ == "AutoModelForSequenceClassification"


def test_what_fills_masks_has_no_cache():
    with no_init_weights():
        model = transformers.BertForMaskedLM(transformers.BertConfig(num_hidden_layers=1, vocab_size=50))
    assert fills_masks(model)


def test_what_a_config_works_out_itself_is_not_set():
    found = config_of({"model_type": "falcon", "hidden_size": 128, "num_attention_heads": 2, "head_dim": 32})
    assert found.head_dim == 64


@pytest.mark.parametrize(
    ("name", "lacks"),
    [("google/gemma-4-12B", "rope_theta"), ("mistralai/Ministral-3-3B-Base-2512", "llama_4_scaling_beta"),
     ("microsoft/Phi-4-mini-instruct", "long_factor")],
)  # fmt: skip
def test_a_catalogs_positions_have_what_their_class_reads(name, lacks):
    """The catalog keeps of a table of rotary positions what decides sizes; the class reads the rest of it too."""
    config = resolve(name).config
    text = config_of(config).get_text_config()
    table = text.rope_parameters
    assert lacks in (table.get("full_attention") or table)
    assert lacks not in str(config)
