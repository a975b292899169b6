"""The weights of one rank of SGLang: tensors, and the tables of rotary positions."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import engine_weights, rotary_tables
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.versions import version_of

FP32_TABLES_VERSION, FP32_BYTES = (0, 4, 2), 4  # layers/rotary_embedding.py RotaryEmbedding of its own; vLLM's before

# 0.5.19 models/qwen2_classification.py, qwen2_rm.py, llama_reward.py, llama_embedding.py, qwen3_embedding.py: classes
# without a head; one that makes text keeps its head under --is-embedding (qwen3.py)
_WITHOUT_HEAD = ("ForSequenceClassification", "ForRewardModel", "EmbeddingModel", "MistralModel", "Qwen3Model")


def sglang_weights(model: Model, settings: ServeSettings, storage: Storage, stage: int | None = None) -> Node:
    """Of the heaviest pipeline stage where none is named. Tables are in fp32 (`if not _is_cuda: cache.to(dtype)`)."""
    fp32 = version_of(settings.engine_version) >= FP32_TABLES_VERSION
    tables = rotary_tables(model, FP32_BYTES if fp32 else storage.bytes_per_element)
    return engine_weights(model, settings, storage, stage, beside=tables, left_out=_left_out(model))


def _left_out(model: Model) -> frozenset[str]:
    named = map(str, model.config.items("architectures") or [])
    return frozenset({"head"}) if any(name.endswith(_WITHOUT_HEAD) for name in named) else frozenset()
