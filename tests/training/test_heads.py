"""Models under another head than their own hold the parameters of the real class."""

from __future__ import annotations

import pytest
import torch
from test_replay import job
from transformers import AutoModel, AutoModelForSequenceClassification, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from vramwise import estimate
from vramwise.errors import UnsupportedModelError
from vramwise.models import describe
from vramwise.training.recipe.heads import with_head

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 200}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [("gemma2", "Gemma2ForCausalLM"), ("llama", "LlamaForCausalLM")])
def test_a_classifier_takes_the_place_of_the_output_layer(kind: str, name: str) -> None:
    """Gemma 2 caps its logits behind the output layer, which its classifier does not."""
    config: PreTrainedConfig = CONFIG_MAPPING[kind](**SIZES, pad_token_id=0)
    with torch.device("meta"):
        real = AutoModelForSequenceClassification.from_config(config)
    ours = with_head(describe({**config.to_dict(), "architectures": [name]}, kind), "sequence-classification")
    assert ours.num_parameters == sum(parameter.numel() for parameter in real.parameters())
    assert ours.blocks[-1].ops[-1].module == "score"


@pytest.mark.parametrize(
    "kind",
    ["bert", "camembert", "deberta", "deberta-v2", "electra", "modernbert", "mpnet", "nomic_bert", "xlm-roberta"],
)
def test_an_encoder_without_its_head_is_what_auto_model_builds(kind: str) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "vocab_size": 200, "embedding_size": 64, "pad_token_id": 0}  # fmt: skip
    config: PreTrainedConfig = CONFIG_MAPPING[kind](**sizes)
    with torch.device("meta"):
        real = AutoModel.from_config(config)
    with_its_head = describe({**config.to_dict(), "architectures": None}, kind)
    ours = with_head(with_its_head, "none")
    assert ours.head == "none"
    assert {parameter.name: parameter.shape for parameter in ours.all_parameters} == {
        name: tuple(parameter.shape) for name, parameter in real.named_parameters()
    }
    assert with_head(ours, "none") is ours
    asked = job({"model": {**config.to_dict(), "architectures": None}, "task": "train", "train": {
        "framework": "transformers", "head": "none", "precision": "fp16-mixed", "micro_batch_size": 2,
        "sequence_length": 32,
    }})  # fmt: skip
    assert not [run for run in asked.shape(asked.ranks[0]).at({"batch": 2, "sequence": 32}) if run.name == "loss"]


def test_a_model_without_its_head_has_no_loss_of_its_own_either() -> None:
    """Granite Speech's class computes another loss than its text model's."""
    text = {**SIZES, "model_type": "granite", "num_hidden_layers": 1}
    encoder = {"model_type": "granite_speech_plus_encoder", "input_dim": 2, "num_layers": 1, "hidden_dim": 32,
               "feedforward_mult": 2, "num_heads": 2, "output_dim": 6, "context_size": 4}  # fmt: skip
    config = {"model_type": "granite_speech_plus", "text_config": text, "encoder_config": encoder}
    asked = job({"model": config, "task": "train", "train": {
        "framework": "transformers", "head": "none", "micro_batch_size": 2, "sequence_length": 32,
    }})  # fmt: skip
    assert not [run for run in asked.shape(asked.ranks[0]).at({"batch": 2, "sequence": 32}) if run.name == "loss"]


def test_a_classifier_without_a_pooler_below_it_is_refused_in_one_line() -> None:
    model = describe({"model_type": "modernbert", "vocab_size": 200}, "modernbert")
    with pytest.raises(UnsupportedModelError, match="a classifier on modernbert is not described"):
        with_head(model, "sequence-classification")


@pytest.mark.parametrize("kind", ["llama", "internlm2", "gpt_neox"])
@pytest.mark.parametrize(("framework", "kept"), [("transformers", [2 * 200 * 64]), ("litgpt", [])])
def test_a_head_outside_the_quantization_keeps_autocasts_copy(kind: str, framework: str, kept: list[int]) -> None:
    """Whatever its name is: `lm_head`, `output`, `embed_out`. Lightning's plugin quantizes it like any other layer."""
    config = {**SIZES, "model_type": kind}
    asked = job({"model": config, "task": "train", "train": {
        "framework": framework, "method": "qlora", "quantization": "nf4", "precision": "bf16-mixed",
        "param_dtype": "fp32", "kbit_preparation": True, "micro_batch_size": 1, "sequence_length": 32,
    }})  # fmt: skip
    runs = asked.shape(asked.ranks[0]).at({"batch": 1, "sequence": 32})
    assert [run.weight_casts for run in runs if run.is_head and run.weight_casts] == kept


T5 = {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 4096,
      "feed_forward_proj": "gated-gelu"}  # fmt: skip


@pytest.mark.parametrize(
    ("ties", "version", "own"),
    [(False, "transformers 4.26.0", True), (False, "transformers 4.57.3", True), (False, "transformers 5.0.0", False),
     (False, "", False), (True, "transformers 4.26.0", False)],
)  # fmt: skip
def test_an_output_layer_that_files_of_t5_hold_is_trained_before_transformers_5(
    ties: bool, version: str, own: bool
) -> None:
    """4.57.3 models/t5/configuration_t5.py hands `tie_word_embeddings` on; 5.0.0 forces it."""
    train = {"precision": "fp32", "sequence_length": 64} | ({"framework_version": version} if version else {})
    found = estimate({"model": {**T5, "tie_word_embeddings": ties}, "task": "train", "num_gpus": 1, "train": train})
    tied = estimate({"model": {**T5, "tie_word_embeddings": True}, "task": "train", "num_gpus": 1,
                     "train": {"precision": "fp32", "sequence_length": 64}})  # fmt: skip
    more = found.quantities["weights"].expected - tied.quantities["weights"].expected
    assert more == (4 * 64 * 4096 if own else 0)
