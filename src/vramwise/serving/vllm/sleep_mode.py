"""What loading frees of sleep mode's own pool, which the budget then takes for memory of torch's.

Weights lie in a pool whose segments are unmapped behind torch where nothing in them is in use once loading ends
(device_allocator/cumem.py use_memory_pool); torch goes on counting them as reserved. Up to 0.26 what is outside torch
is used − reserved, so it is less by as much, and the KV cache is larger (utils/mem_utils.py, 0.11.2 to 0.26.0; 0.27.0
counts what the process took, "which goes negative when pluggable allocators" are there).
"""

from __future__ import annotations

from math import prod

from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.weights import stage_weights
from vramwise.serving.vllm.settings import Resolved

UNMAPPED_VERSIONS = ((0, 11), (0, 27))
REPACKED_COPIES = 2  # a layer's weights as they were stored and as the kernel takes them


def freed_in_its_pool(model: Model, r: Resolved, stage: int) -> Node | None:
    """The head that a tied model makes and drops, and at most a layer's quantized weights before and after repacking.

    `None` without sleep mode, and in versions that do not overlook it.
    """
    if not r.settings.sleep_level or not UNMAPPED_VERSIONS[0] <= r.version < UNMAPPED_VERSIONS[1]:
        return None
    layout = engine_layout(r.settings)
    is_last = stage == layout.pipeline_parallel_size - 1
    makes = is_last and has_fact("vllm", "makes_a_tied_head", model.config.model_type, r.version)
    heads = (p for p in model.all_parameters if makes and p.part == "head" and p.tied_to is not None)
    head = r.storage.bytes_per_element * sum(prod(layout.cut.shape(p)) for p in heads)
    repacked = 0
    if r.storage.quantization is not None:
        held = stage_weights(model, r.storage, layout)[stage]
        layers = held.layers[1] - held.layers[0]
        inside = sum(size for part, size in held.by_part if part in ("attention", "mlp", "experts"))
        repacked = REPACKED_COPIES * inside // max(1, layers)
    return Node(
        "freed while loading", head, "derived", head, head + repacked, formula="head that is tied + repacked weights",
        source="vLLM 0.11.2 to 0.26.0 device_allocator/cumem.py use_memory_pool, utils/mem_utils.py",
    )  # fmt: skip
