"""Cosines and sines of all positions that transformers' layers once held, each for itself, and torchtune's do.

Until 4.41 to 4.48, by class, every layer's rotary module made two tables of `max_position_embeddings` rows when it was
built and registered them as buffers: 512 MiB in the 32 layers of a Mistral 7B in 16 bit. Later one module turns the
positions of a batch, and keeps frequencies alone. Buffers are cut by nothing: every rank has them whole.
"""

from __future__ import annotations

from vramwise.formats import dtype
from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version
from vramwise.models.lengths import UNSTATED_LENGTH, stated_positions, text_config
from vramwise.models.model import Model
from vramwise.models.operations.attention import AnyRotary
from vramwise.models.type_facts import fact_value, has_fact
from vramwise.training.layout.parallel import Placement
from vramwise.training.resolved import ResolvedTrain

_CACHED = 2  # cos and sin
_FP32_BYTES = 4


def has_one_table(model: Model, train: ResolvedTrain) -> bool:
    """Whether the layers share one table of sinusoids, where each registered its own before."""
    kind, version = model.config.model_type, library_version(train)
    return framework_of(train).classes == "as they are" and has_fact(
        "transformers", "one_sinusoid_table", kind, version
    )


def rotary_table_bytes(model: Model, train: ResolvedTrain, placement: Placement) -> list[int]:
    """Bytes of each table of the layers that a rank holds; empty where classes of that version hold none.

    positions × rotary columns × bytes, two a layer. They are made in torch's default dtype, which is that of the
    weights while a checkpoint is loaded, quantized or not, and FSDP casts buffers to the compute dtype; some classes
    keep fp32. Source: transformers 4.31.0 to 4.48.3 modeling_*.py register_buffer("cos_cached"). Not counted: a table
    that grows with a sequence beyond the positions of the config.
    """
    config = text_config(model)
    if framework_of(train).classes != "as they are":
        return _own_tables(model, train, placement)
    kept = fact_value("transformers", "rotary_buffers", config.model_type, library_version(train))
    if kept is None:
        return []
    narrowed = train.quantization is not None or train.fsdp != "none"
    each = dtype(kept or (train.compute_dtype if narrowed else train.param_dtype)).bytes_per_value
    positions = stated_positions(config) or UNSTATED_LENGTH
    widths = _rotary_widths(model, placement)
    return [int(positions * width * each) for width in widths for _ in range(_CACHED)]


def _own_tables(model: Model, train: ResolvedTrain, placement: Placement) -> list[int]:
    """Of a framework's own classes: as many as its record says, in fp32."""
    cache = framework_of(train).rotary_cache(train, model)
    if cache is None:
        return []
    positions = stated_positions(text_config(model)) or UNSTATED_LENGTH
    each = [positions * width * cache.columns * _FP32_BYTES for width in _rotary_widths(model, placement)]
    return each if cache.in_every_layer else each[:1]


def _rotary_widths(model: Model, placement: Placement) -> list[int]:
    """Rotary columns of every layer that a rank holds and that has some."""
    held = [block for block in model.layers() if placement.holds_layer(block.layer, first=True)]
    widths = (next((op.rotary_dim or op.outputs[0].width for op in b.operations(AnyRotary)), 0) for b in held)
    return [int(width) for width in widths if width]
