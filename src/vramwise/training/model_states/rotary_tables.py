"""Cosines and sines of all positions that transformers' layers once held, each for itself.

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
        return []
    kept = fact_value("transformers", "rotary_buffers", config.model_type, library_version(train))
    if kept is None:
        return []
    narrowed = train.quantization is not None or train.fsdp != "none"
    each = dtype(kept or (train.compute_dtype if narrowed else train.param_dtype)).bytes_per_value
    positions = stated_positions(config) or UNSTATED_LENGTH
    tables = []
    for block in model.layers():
        if placement.holds_layer(block.layer, first=True):
            width = next((op.rotary_dim or op.outputs[0].width for op in block.operations(AnyRotary)), 0)
            tables += [int(positions * width * each)] * (_CACHED if width else 0)
    return tables
