"""Scripts around sentence-transformers' trainers, by what its losses keep for backward (6.2.0)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vramwise import estimate
from vramwise.errors import UsageError
from vramwise.interop.files.launches import read_files
from vramwise.interop.launch import Launch

BI_ENCODER = """
from datasets import load_dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import {loss}
from sentence_transformers.training_args import BatchSamplers

model_name = "google-bert/bert-base-uncased"
model = SentenceTransformer(model_name{more})
{line}
train = load_dataset("a/b", {part!r})
args = SentenceTransformerTrainingArguments(
    output_dir="out", per_device_train_batch_size=16, fp16=True, batch_sampler=BatchSamplers.NO_DUPLICATES,
    prompts={{"query": "query: "}},
)
trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=train, loss={loss}(model{of_loss}))
trainer.train()
"""
CROSS_ENCODER = """
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import {loss}
model = CrossEncoder({model!r}, num_labels=1{more})
args = CrossEncoderTrainingArguments(output_dir="out", per_device_train_batch_size=8, bf16=True)
CrossEncoderTrainer(model=model, args=args, train_dataset=data, loss={loss}(model{of_loss})).train()
"""


def read(folder: Path, text: str, model: str | None = None) -> tuple[Launch, dict[str, Any]]:
    file = folder / "train.py"
    file.write_text(text, "utf-8")
    launch = read_files([str(file)], model)[0].launch
    train = launch.scenario["train"]
    assert isinstance(train, dict)
    return launch, train


def bi_encoder(**given: str) -> str:
    return BI_ENCODER.format(**{"loss": "MultipleNegativesRankingLoss", "more": "", "line": "", "part": "pair",
                                "of_loss": "", **given})  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sequences"),
    [
        ({}, 32),
        ({"part": "triplet"}, 48),
        ({"loss": "TripletLoss"}, 48),
        ({"loss": "CosineSimilarityLoss"}, 32),
        ({"loss": "BatchAllTripletLoss"}, 16),
        ({"loss": "CachedMultipleNegativesRankingLoss"}, 16),  # a batch of 16 is less than the mini-batch of 32
        ({"loss": "CachedMultipleNegativesRankingLoss", "of_loss": ", mini_batch_size=4"}, 4),
    ],
)
def test_every_text_of_a_sample_is_a_sequence(tmp_path: Path, given: dict[str, str], sequences: int) -> None:
    launch, train = read(tmp_path, bi_encoder(**given))
    assert (train["micro_batch_size"], train["head"], train["precision"]) == (sequences, "none", "fp16-mixed")
    assert launch.scenario["model"] == "google-bert/bert-base-uncased"
    assert "sequence_length" not in train
    notes = " / ".join(launch.notes)
    assert "nothing says how long the texts are" in notes
    assert "batch_sampler" not in notes
    estimate(launch.scenario)


@pytest.mark.parametrize(
    "given",
    [{"line": "model.max_seq_length = 256"}, {"more": ", max_seq_length=256"}],
)
def test_lengths(tmp_path: Path, given: dict[str, str]) -> None:
    launch, train = read(tmp_path, bi_encoder(**given))
    assert train["sequence_length"] == 256
    assert "nothing says how long" not in " / ".join(launch.notes)


def test_weights_and_attention_as_its_model_arguments_say(tmp_path: Path) -> None:
    more = ', model_kwargs={"torch_dtype": "bfloat16", "attn_implementation": "eager"}'
    launch, train = read(tmp_path, bi_encoder(more=more))
    assert (train["param_dtype"], train["attention"]) == ("bf16", "eager")
    estimate(launch.scenario)


def test_adapters(tmp_path: Path) -> None:
    line = 'from peft import LoraConfig\nmodel.add_adapter(LoraConfig(r=32, target_modules=["query", "value"]))'
    _, train = read(tmp_path, bi_encoder(line=line))
    assert (train["method"], train["lora_rank"], train["lora_targets"]) == ("lora", 32, ["query", "value"])


@pytest.mark.parametrize(
    ("model", "loss", "of_loss", "sequences", "head"),
    [
        ("FacebookAI/roberta-base", "BinaryCrossEntropyLoss", "", 8, "sequence-classification"),
        ("FacebookAI/roberta-base", "MultipleNegativesRankingLoss", "", 40, "sequence-classification"),
        ("FacebookAI/roberta-base", "MultipleNegativesRankingLoss", ", num_negatives=1", 16, "sequence-classification"),
        ("FacebookAI/roberta-base", "CachedMultipleNegativesRankingLoss", "", 8, "sequence-classification"),
        ("answerdotai/ModernBERT-base", "BinaryCrossEntropyLoss", "", 8, "none"),
    ],
)
def test_a_cross_encoder_reads_both_texts_at_once(
    tmp_path: Path, model: str, loss: str, of_loss: str, sequences: int, head: str
) -> None:
    text = CROSS_ENCODER.format(model=model, loss=loss, of_loss=of_loss, more=", max_length=384")
    launch, train = read(tmp_path, text)
    assert (train["micro_batch_size"], train["head"], train["sequence_length"]) == (sequences, head, 384)
    estimate(launch.scenario)


def test_another_model_and_what_is_not_described(tmp_path: Path) -> None:
    launch, _ = read(tmp_path, bi_encoder(), "BAAI/bge-m3")
    assert launch.scenario["model"] == "BAAI/bge-m3"
    sparse = bi_encoder().replace("SentenceTransformer", "SparseEncoder")
    with pytest.raises(UsageError, match="SparseEncoder is not described"):
        read(tmp_path, sparse)
    unnamed = bi_encoder().replace('model_name = "google-bert/bert-base-uncased"', "model_name = sys.argv[1]")
    with pytest.raises(UsageError, match="the model's name is not written out"):
        read(tmp_path, unnamed)
