"""The weights of one rank of SGLang: tensors, and the tables of rotary positions."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import engine_weights, rotary_tables
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.versions import version_of

FP32_TABLES_VERSION, FP32_BYTES = (0, 4, 2), 4  # layers/rotary_embedding.py RotaryEmbedding of its own; vLLM's before


def sglang_weights(model: Model, settings: ServeSettings, storage: Storage, stage: int | None = None) -> Node:
    """Of the heaviest pipeline stage where none is named. Tables are in fp32 (`if not _is_cuda: cache.to(dtype)`)."""
    fp32 = version_of(settings.engine_version) >= FP32_TABLES_VERSION
    tables = rotary_tables(model, FP32_BYTES if fp32 else storage.bytes_per_element)
    return engine_weights(model, settings, storage, stage, beside=tables)
