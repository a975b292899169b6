"""The weights of one rank of SGLang: tensors, and the tables of rotary positions."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import engine_weights, rotary_tables
from vramwise.serving.common.storage import Storage


def sglang_weights(model: Model, settings: ServeSettings, storage: Storage, stage: int | None = None) -> Node:
    """Of the heaviest pipeline stage where none is named."""
    tables = rotary_tables(model, storage.bytes_per_element)
    return engine_weights(model, settings, storage, stage, beside=tables)
