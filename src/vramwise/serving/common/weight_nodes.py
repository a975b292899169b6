"""The weights of one rank as a tree."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from vramwise.formats import dtype
from vramwise.models import Model
from vramwise.result import Node
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.weights import Layout, StageWeights, stage_weights

PART_NAMES = {
    "embedding": "embeddings",
    "attention": "attention",
    "mlp": "MLP",
    "experts": "experts",
    "router": "routers",
    "norm": "norms",
    "head": "output head",
    "mixer": "mixers",
    "vision": "vision tower",
    "audio": "audio tower",
    "speech": "speech",
    "projector": "projector",
}
ALLOCATOR = "torch c10/cuda/CUDACachingAllocator.cpp: 512-byte sizes, 2 MiB segments, remainders of up to 1 MiB kept"


@lru_cache(maxsize=512)
def weights_node(model: Model, storage: Storage, layout: Layout, stage: int, rounded: bool = True) -> Node:
    """Weights of one stage by part; `rounded` adds what PyTorch's allocator counts on top."""
    weights = stage_weights(model, storage, layout)[stage]
    leaves = [_part(model, part, size, storage, layout) for part, size in weights.by_part]
    if rounded and weights.rounding:
        leaves.append(
            Node("allocator rounding", weights.rounding, "derived", formula="Σ block − tensor", source=ALLOCATOR)
        )
    return Node.group("weights", leaves)


def with_buffers(weights: Node, model: Model, storage: Storage) -> Node:
    """Beside the weights the large tensors that modules register beside their parameters, such as codebooks."""
    size = sum(prod(one.shape) * int(dtype(one.dtype or storage.dtype).bytes_per_value) for one in model.buffers)
    if not size:
        return weights
    source = "transformers 5.23 models/*/modeling_*.py: register_buffer, nn.Buffer"
    formula = "Σ elements × bytes of the dtype"
    return Node.group("weights", (*weights.children, Node("buffers", size, "exact", formula=formula, source=source)))


def heaviest_stage(model: Model, storage: Storage, layout: Layout) -> int:
    """The pipeline stage with the most bytes of weights."""
    stages: tuple[StageWeights, ...] = stage_weights(model, storage, layout)
    return max(range(len(stages)), key=lambda i: stages[i].total)


def _part(model: Model, part: str, size: int, storage: Storage, layout: Layout) -> Node:
    rule = storage.quantization
    stored = storage.dtype
    if rule is not None and not rule.stays_high_precision(part, (64, 64), True):
        stored = f"{rule.name}, the rest {storage.dtype}"
    inputs = {
        "parameters": model.parts.get(part, 0),
        "stored": stored,
        "tensor_parallel_size": layout.cut.tensor_parallel_size,
    }
    if layout.pipeline_parallel_size > 1:
        inputs["pipeline_parallel_size"] = layout.pipeline_parallel_size
    source = "tensor shapes of the model" if rule is None else f"tensor shapes of the model; {rule.source}"
    formula = (
        "Σ elements on this rank × bytes of the dtype" if rule is None else "Σ quantized tensors with their scales"
    )
    return Node(PART_NAMES.get(part, part), size, "exact", formula=formula, inputs=inputs, source=source)
