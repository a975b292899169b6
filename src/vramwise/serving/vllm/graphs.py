"""What graph capture takes: the graphs, and FlashInfer's work space, which is first made while they are profiled."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.result import Node
from vramwise.serving.constants import constant
from vramwise.serving.refusals import attention_heads
from vramwise.serving.vllm.profile import capture_sizes
from vramwise.serving.vllm.settings import Resolved
from vramwise.serving.weights import stage_layers
from vramwise.units import GIB, MIB

FLASHINFER_WORKSPACE = 394 * MIB  # VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE
FLASHINFER_HEADS = frozenset({64, 128, 256})
WORKSPACE_BY_CHUNK = (0, 26)  # from here on at least 16 bytes for each query element of a prefill chunk
WORKSPACE_BYTES_PER_ELEMENT = 16
BLACKWELL_SERVER, HOPPER, AMPERE = 10, 9.0, 8.0


def graphs_node(model: Model, r: Resolved) -> Node:
    """CUDA graphs, with the work space where graphs are in the budget."""
    graphs = _graphs(model, r)
    workspace = flashinfer_workspace(model, r) if r.profile.graphs_in_budget and graphs.bytes else 0
    if not workspace:
        return graphs
    space = Node(
        "FlashInfer work space", workspace, "derived", formula="max(394 MiB, tokens × query heads × head size × 16)",
        inputs={"tokens": r.batched_tokens}, source="vLLM v1/attention/backends/flashinfer.py _get_workspace_buffer",
    )  # fmt: skip
    return Node.group("CUDA graphs", (graphs, space))


def _graphs(model: Model, r: Resolved) -> Node:
    """Captured sizes × layers × calibrated bytes."""
    if r.settings.enforce_eager:
        return Node("CUDA graphs", 0, "exact", formula="none: enforce_eager")
    sizes = capture_sizes(r.profile, r.max_num_seqs)
    layers = max(stop - start for start, stop in stage_layers(model.num_layers, r.settings.pipeline_parallel_size))
    value = constant("vllm", "graph_bytes_per_layer", r.version)
    first = constant("vllm", "graph_first_captures", r.version)
    low, expected, high = (
        round(size * MIB * sizes * layers + base * GIB)
        for size, base in ((value.low, first.low), (value.expected, first.expected), (value.high, first.high))
    )
    return Node(
        "CUDA graphs", expected, value.kind, low, high,
        formula="sizes × layers × bytes" + (" + first captures" if first.expected else ""),
        inputs={"sizes": sizes, "layers": layers}, source=value.source,
    )  # fmt: skip


def flashinfer_workspace(model: Model, r: Resolved) -> int:
    """Bytes of FlashInfer's work space on a rank; 0 where another backend attends.

    FlashInfer comes first on compute capability 10.x, and is taken elsewhere where flash attention has no fp8 cache
    (not on 9.0). Sources: vLLM 0.24.0 and 0.33.0 platforms/cuda.py _get_backend_priorities, v1/attention/backends/
    fa_utils.py, flashinfer.py. Latent attention has kernels of its own.
    """
    if r.capability is None or r.capability < AMPERE:
        return 0
    widths = {cache.key_head_dim for cache in model.caches if cache.kind in ("full", "sliding", "chunked")}
    latent = any(cache.kind == "latent" for cache in model.caches)
    if latent or not widths or not widths <= FLASHINFER_HEADS:
        return 0
    server = int(r.capability) == BLACKWELL_SERVER
    if not server and not (r.settings.kv_cache_dtype.startswith("fp8") and r.capability != HOPPER):
        return 0
    if server or r.version < WORKSPACE_BY_CHUNK:
        return FLASHINFER_WORKSPACE
    heads = -(-attention_heads(model) // r.settings.tensor_parallel_size)
    return max(FLASHINFER_WORKSPACE, r.batched_tokens * heads * max(widths) * WORKSPACE_BYTES_PER_ELEMENT)
