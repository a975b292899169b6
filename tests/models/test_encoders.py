"""What only encoders have: the bare model that `AutoModel` counts, with and without its pooler."""

from __future__ import annotations

from typing import Any

import pytest

transformers = pytest.importorskip("transformers")

import torch
from transformers_models import parameter_table, real_model

from vramwise.models import describe
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
                         "vocab_size": 60, "max_position_embeddings": 40}  # fmt: skip

BARE_CLASSES = {
    "bert": "BertModel", "big_bird": "BigBirdModel", "electra": "ElectraModel", "megatron-bert": "MegatronBertModel",
    "rembert": "RemBertModel", "roberta": "RobertaModel", "roc_bert": "RoCBertModel", "roformer": "RoFormerModel",
    "xlm-roberta-xl": "XLMRobertaXLModel", "xmod": "XmodModel",
}  # fmt: skip


def bare(model_type: str, **overrides: Any) -> Any:
    config = transformers.CONFIG_MAPPING[model_type](**SMALL, **overrides)
    with torch.device("meta"):
        return transformers.AutoModel.from_config(config)


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", sorted(BARE_CLASSES))
def test_bare_model_has_the_parameters_that_auto_model_has(model_type: str) -> None:
    name = BARE_CLASSES[model_type]
    described = describe({**SMALL, "model_type": model_type, "architectures": [name]})
    real = {name: tuple(parameter.shape) for name, parameter in bare(model_type).named_parameters()}
    assert {parameter.name: parameter.shape for parameter in described.all_parameters} == real
    assert described.head == "none"


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", ["bert", "roberta"])
def test_bare_model_without_pooler_is_the_masked_lm_without_its_head(model_type: str) -> None:
    described = describe({**SMALL, "model_type": model_type})
    real = bare(model_type, architectures=None)
    without_pooler = sum(p.numel() for name, p in real.named_parameters() if not name.startswith("pooler."))
    base = [p for p in described.parameters if p.name.startswith(f"{model_type}.")]
    assert sum(p.numel for p in base) == without_pooler


@pytest.mark.parametrize("name", ["BartModel", "MBartModel", "PegasusModel", "WhisperModel", "ProphetNetModel"])
def test_encoder_decoders_published_as_bare_models_keep_their_projection(name: str) -> None:
    described = describe({"model_type": name.removesuffix("Model").lower(), "architectures": [name]})
    assert described.head == "seq2seq-lm"
    assert described.logit_width > 8000


@pytest.mark.oracle
@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("bert", "BertForSequenceClassification"),
        ("camembert", "CamembertForSequenceClassification"),
        ("roberta", "RobertaForSequenceClassification"),
        ("xlm-roberta", "XLMRobertaForSequenceClassification"),
    ],
)
def test_rerankers_have_a_classifier_instead_of_a_language_model_s_head(
    model_type: str, name: str, labels: int
) -> None:
    config = {**SMALL, "model_type": model_type, "architectures": [name]}
    labelled = {**config, "id2label": {str(label): f"LABEL_{label}" for label in range(labels)}}
    described = describe(labelled)
    real, ties = parameter_table(real_model({**config, "num_labels": labels}, "none"))
    assert {parameter.name: parameter.shape for parameter in described.all_parameters} == real
    assert (described.head, ties) == ("none", {})


def test_types_whose_name_says_less_than_their_class() -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
             "vocab_size": 50}  # fmt: skip
    mixed = {**sizes, "num_experts": 4, "moe_topk": 2}
    named = describe({**mixed, "model_type": "hunyuan", "architectures": ["HunYuanMoEV1ForCausalLM"]})
    assert named.parameters == describe({**mixed, "model_type": "hunyuan_v1_moe"}).parameters
    linear = describe({"model_type": "bailing_hybrid", "architectures": ["BailingMoeV2_5ForCausalLM"]})
    assert linear.parameters == describe({"model_type": "bailing_moe_linear"}).parameters


def test_published_counts_of_bert_base() -> None:
    """110 million parameters (Devlin et al. 2018); 109 482 240 is what `AutoModel` counts for the uncased model."""
    config = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
              "vocab_size": 30522, "max_position_embeddings": 512, "model_type": "bert"}  # fmt: skip
    assert describe({**config, "architectures": ["BertModel"]}).num_parameters == 109_482_240
    assert describe(config).num_parameters == 109_514_298


def test_bare_model_runs_without_a_loss() -> None:
    described = describe({**SMALL, "model_type": "bert", "architectures": ["BertModel"]})
    runs = record_forward(described, Execution(), batch=2, sequence=16).runs
    assert [run.name for run in runs] == ["embeddings", "encoder.layer.0", "encoder.layer.0", "pooler"]
