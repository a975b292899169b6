"""Buffers that transformers classes register, which `accelerate estimate-memory` counts as if they were weights.

Two states of transformers are described: 4.37 (the last before rotary tables stopped being buffers; the tables that
people quote for Llama 2 were made with it or an earlier one) and 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.models import Block, Model
from vramwise.models.config import Config
from vramwise.models.operations.attention import AnyRotary
from vramwise.models.operations.routers import Router
from vramwise.models.operations.simple import Embedding
from vramwise.models.type_facts import fact_value, has_fact

RELEASES = ("4.37", "5")
OLD = (4, 37)

_INT64_BYTES = 8
_FP32_BYTES = 4
_USUAL_POSITIONS = 2048
_LAYER_BUFFERS = ("rotary_buffers", "triangle_buffers", "without_layer_buffers")
_ROPE_SCALING_OF_4_37 = frozenset({"linear", "dynamic"})


def loads_with(model: Model, release: str) -> bool:
    """Whether that release of transformers has a class for the model and accepts its rope_scaling."""
    if release != "4.37":
        return True
    scaling = model.config.get("rope_scaling") or {}
    kind = scaling.get("type") if isinstance(scaling, Mapping) else None
    known = any(has_fact("transformers", fact, model.config.model_type, OLD) for fact in _LAYER_BUFFERS)
    return known and (not scaling or kind in _ROPE_SCALING_OF_4_37)


def block_buffer_bytes(model: Model, block: Block, release: str) -> int:
    """Buffers inside one block (a layer, or the embeddings)."""
    kind = model.config.model_type
    if block.layer is None:
        return _embedding_buffer_bytes(kind, model.config, block)
    rotary = [width for _, width in _rotary_tables(block)]
    positions = _positions(model.config)
    if release == "4.37":
        tables = sum((2 * positions * width + width // 2) * _FP32_BYTES for width in rotary[:1])
        triangle = positions**2 + _FP32_BYTES
        held = {"rotary_buffers": tables, "triangle_buffers": triangle}
        return sum(size for fact, size in held.items() if has_fact("transformers", fact, kind, OLD))
    each = positions * _FP32_BYTES if has_fact("transformers", "sinusoids", kind) else 0
    sinusoids = sum(each * width for width in rotary[:1])
    return sinusoids + _FP32_BYTES * sum(map(_correction_width, block.operations(Router)))


def shared_buffer_bytes(model: Model, release: str) -> int:
    """Buffers of the whole model: from 4.38 on one rotary module of frequencies and a copy, per kind of layer."""
    if release == "4.37" or has_fact("transformers", "sinusoids", model.config.model_type):
        return 0
    tables = {table for block in model.layers() for table in _rotary_tables(block)}
    return sum(2 * (width // 2) * _FP32_BYTES for _, width in tables)


def _rotary_tables(block: Block) -> list[tuple[str, int]]:
    """Name and width of the rotary table that each rotation of the block reads."""
    return [(op.table, op.rotary_dim or op.outputs[0].width) for op in block.operations(AnyRotary)]


def _embedding_buffer_bytes(kind: str, config: Config, block: Block) -> int:
    if not block.has(Embedding):
        return 0
    rows = int(fact_value("transformers", "position_id_rows", kind) or 0)
    scale = _FP32_BYTES if has_fact("transformers", "scaled_embeddings", kind) else 0
    return rows * _positions(config) * _INT64_BYTES + scale


def _correction_width(op: Router) -> int:
    """Entries of DeepSeek V3's e_score_correction_bias, which only its sigmoid router has."""
    return op.num_experts if op.style == "deepseek_v3" else 0


def _positions(config: Config) -> int:
    own = fact_value("transformers", "default_positions", config.model_type)
    return config.size("max_position_embeddings", default=int(own or _USUAL_POSITIONS))
