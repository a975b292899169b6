"""Buffers that transformers classes register, which `accelerate estimate-memory` counts as if they were weights.

Two states of transformers are described: 4.37 (the last before rotary tables stopped being buffers; the tables that
people quote for Llama 2 were made with it or an earlier one) and 5.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.models import Block, Model
from vramwise.models.config import Config

RELEASES = ("4.37", "5")

_INT64_BYTES = 8
_FP32_BYTES = 4
# Classes of 4.37 whose every layer held cos and sin of all positions in fp32 (modeling_*.py, register_buffer).
_ROTARY_TABLES = frozenset({"llama", "mistral", "mixtral", "qwen2", "phi", "falcon", "gpt_neox"})
# Classes of 4.37 whose every layer held a triangle of booleans, positions × positions, and one fp32 number.
_TRIANGLES = frozenset({"gpt2", "gpt_neox", "gptj"})
_WITHOUT_TABLES = frozenset({"bert", "roberta", "distilbert", "opt", "bloom", "t5"})
_KNOWN_TO_4_37 = _ROTARY_TABLES | _TRIANGLES | _WITHOUT_TABLES
_ROPE_SCALING_OF_4_37 = frozenset({"linear", "dynamic"})
_DEFAULT_POSITIONS = {"mistral": 131072, "mixtral": 131072, "qwen2": 32768, "bert": 512, "roberta": 512,
                      "distilbert": 512, "gpt2": 1024}  # fmt: skip
# Classes whose embedding module scales its output by a number that it keeps as a buffer.
_SCALED_EMBEDDINGS = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text"})


def loads_with(model: Model, release: str) -> bool:
    """Whether that release of transformers has a class for the model and accepts its rope_scaling."""
    if release != "4.37":
        return True
    scaling = model.config.get("rope_scaling") or {}
    kind = scaling.get("type") if isinstance(scaling, Mapping) else None
    return model.config.model_type in _KNOWN_TO_4_37 and (not scaling or kind in _ROPE_SCALING_OF_4_37)


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
        return (tables if kind in _ROTARY_TABLES else 0) + (triangle if kind in _TRIANGLES else 0)
    sinusoids = sum(positions * width * _FP32_BYTES for width in rotary[:1]) if kind == "gptj" else 0
    return sinusoids + _FP32_BYTES * sum(_correction_width(op.settings) for op in block.ops if op.kind == "router")


def shared_buffer_bytes(model: Model, release: str) -> int:
    """Buffers of the whole model: from 4.38 on one rotary module of frequencies and a copy, per kind of layer."""
    if release == "4.37" or model.config.model_type == "gptj":
        return 0
    tables = {table for block in model.layers() for table in _rotary_tables(block)}
    return sum(2 * (width // 2) * _FP32_BYTES for _, width in tables)


def _rotary_tables(block: Block) -> list[tuple[str, int]]:
    """Name and width of the rotary table that each rotation of the block reads."""
    return [
        (op.settings.get("table", "default"), op.settings.get("rotary_dim") or op.outputs[0].width)
        for op in block.ops
        if op.kind.startswith("rotary")
    ]


def _embedding_buffer_bytes(kind: str, config: Config, block: Block) -> int:
    if not any(op.kind == "embedding" for op in block.ops):
        return 0
    rows = {"bert": 2, "roberta": 2, "distilbert": 1}.get(kind, 0)
    return rows * _positions(config) * _INT64_BYTES + (_FP32_BYTES if kind in _SCALED_EMBEDDINGS else 0)


def _correction_width(settings: Mapping[str, object]) -> int:
    """Entries of DeepSeek V3's e_score_correction_bias, which only its sigmoid router has."""
    experts = settings.get("num_experts", 0)
    return experts if settings.get("style") == "deepseek_v3" and isinstance(experts, int) else 0


def _positions(config: Config) -> int:
    return config.size("max_position_embeddings", default=_DEFAULT_POSITIONS.get(config.model_type, 2048))
