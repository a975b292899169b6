"""The weights of one rank of vLLM, with the tables, copies and buffers that it keeps beside them."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.constants import constant
from vramwise.serving.common.layouts import engine_layout, engine_weights, rotary_tables
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.versions import Version, version_of
from vramwise.serving.common.weight_nodes import heaviest_stage
from vramwise.serving.vllm.extras import extra_weights, towers_kept_whole
from vramwise.serving.vllm.towers import towers_left_out
from vramwise.units import MIB

# rotary_embedding/mrope.py, 0.8.5 to 0.33.0 (since Qwen2.5-VL came): four times the positions, for the time index
# of long videos
MROPE_VERSION, MROPE_FACTOR = (0, 7, 2), 4


def vllm_weights(
    model: Model, settings: ServeSettings, storage: Storage, capability: float | None, stage: int | None = None
) -> Node:  # fmt: skip
    """Tensors of the checkpoint and of a GGUF file, of the heaviest stage where none is named; without the towers that
    nothing may come for."""
    version, layout = version_of(settings.engine_version), engine_layout(settings)
    chosen = heaviest_stage(model, storage, layout) if stage is None else stage
    left_out = towers_left_out(model, settings)
    whole = towers_kept_whole(model, storage, layout, version) if chosen == 0 and not left_out else ()
    wide = has_fact("vllm", "fp32_rotary_tables", model.config.model_type, version)
    beside = (
        *rotary_tables(model, 4 if wide else storage.bytes_per_element, _positions_factor(model, version)),
        *extra_weights(model, storage, layout, version, capability, chosen),
        *whole,
        _buffers(version),
    )
    return engine_weights(model, settings, storage, chosen, beside=beside, left_out=left_out)


def _positions_factor(model: Model, version: Version) -> int:
    plain = has_fact("vllm", "plain_rotary_tables", model.config.model_type, version)
    return MROPE_FACTOR if version >= MROPE_VERSION and not plain else 1


def _buffers(version: Version) -> Node:
    buffers = constant("vllm", "weight_buffers", version)
    low, expected, high = (round(size * MIB) for size in (buffers.low, buffers.expected, buffers.high))
    return Node("runtime buffers", expected, buffers.kind, low, high, source=buffers.source)
