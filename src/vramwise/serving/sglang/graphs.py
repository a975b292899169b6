"""What SGLang's captured graphs take: whole decode steps, and prefills cut at attention, which are captured unasked
from 0.5.10 on."""

from __future__ import annotations

from dataclasses import replace

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.serving.common.constants import constant
from vramwise.serving.common.layouts import capability_of, engine_stages
from vramwise.serving.sglang.activations import activations
from vramwise.serving.sglang.resolved import SglangResolved
from vramwise.units import MIB

_DECODE_SIZES = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, 4097, 32))
PREFILL_GRAPHS_VERSION = (0, 5, 10)  # server_args.py disable_piecewise_cuda_graph; enable_piecewise_cuda_graph before
LATENT_PREFILL_TOKENS = 2048
_PREFILL_SIZES = (
    *range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64), *range(1280, 4097, 256),
)  # fmt: skip
_PREFILL_STEP = 512  # from 4,608 tokens on

_CAPTURED = "SGLang 0.4.9 to 0.5.14 get_batch_sizes_to_capture: sizes up to max_running_requests"
_PIECES = "SGLang 0.5.10 to 0.5.14 server_args.py _handle_piecewise_cuda_graph, _generate_piecewise_cuda_graph_tokens"


def graphs_node(model: Model, r: SglangResolved, gpu: Gpu | None) -> Node:
    """Graphs of a rank; none in eager mode."""
    if r.settings.enforce_eager:
        return Node("CUDA graphs", 0, "exact", formula="none: enforce_eager")
    decode = _decode(model, r, gpu)
    tokens = prefill_tokens(model, r, gpu)
    return Node.group("CUDA graphs", (decode, _prefill(model, r, gpu, tokens))) if tokens else decode


def _decode(model: Model, r: SglangResolved, gpu: Gpu | None) -> Node:
    given = frozenset(r.settings.cudagraph_capture_sizes)
    most = min(r.cuda_graph_max_bs, r.max_num_seqs)
    sizes, layers = len(given) or sum(size <= most for size in _DECODE_SIZES), _layers(model, r)
    many = has_fact("sglang", "compressed_keys", model.config.model_type, r.version)
    each = constant("sglang", "graph_bytes_per_compressed_layer" if many else "graph_bytes_per_layer", r.version)
    shared = gpu is not None and gpu.unified_memory
    once = constant("sglang", "graph_modules_of_shared_memory" if shared else "graph_modules", r.version)
    low, expected, high = (
        round(MIB * (getattr(once, end) + sizes * layers * getattr(each, end))) for end in ("low", "expected", "high")
    )
    return Node(
        "CUDA graphs", expected, each.kind, low, high, formula="modules + sizes × layers × bytes",
        inputs={"sizes": sizes, "layers": layers}, source=f"{each.source}; {_CAPTURED}",
    )  # fmt: skip


def prefill_tokens(model: Model, r: SglangResolved, gpu: Gpu | None) -> int:
    """Tokens of the largest prefill that is captured, 0 where none is: pipelines, adapters, drafts, media, GGUF,
    weights on the host and some types run their prefills as before, and so do cards that are not NVIDIA's."""
    s = r.settings
    plain = s.pipeline_parallel_size == 1 and s.max_loras is None and s.speculative is None and not s.cpu_offload_gb
    if not plain or r.version < PREFILL_GRAPHS_VERSION or (gpu is not None and gpu.vendor != "NVIDIA"):
        return 0
    type_, reads_media = model.config.model_type, any(block.modality != "text" for block in model.blocks)
    indexed = any(cache.index_dim for cache in model.caches)
    if reads_media or s.quantization == "gguf" or indexed or has_fact("sglang", "no_prefill_graphs", type_, r.version):
        return 0
    most = LATENT_PREFILL_TOKENS if model.has_latent_cache else r.batched_tokens
    return min(most, s.max_total_tokens) if s.max_total_tokens else most


def beside_graphs(model: Model, r: SglangResolved, gpu: Gpu | None) -> Node:
    """Activations outside the graphs' pool: sampling alone where prefills are captured up to a whole chunk, at most
    those of a chunk that runs without its graph (prompts' logprobs, graphs left out by the command)."""
    capability = capability_of(gpu)
    whole = activations(model, r, capability, r.cuda_graph_max_bs)
    if r.settings.enforce_eager or prefill_tokens(model, r, gpu) < r.batched_tokens:
        return whole
    sampling = activations(model, replace(r, batched_tokens=1), capability, r.cuda_graph_max_bs)
    formula = f"{sampling.formula}; a prefill chunk is in the pool of its graphs"
    return replace(sampling, high=max(sampling.high, whole.high), formula=formula)


def _prefill(model: Model, r: SglangResolved, gpu: Gpu | None, tokens: int) -> Node:
    """The pool of the largest size, and what the driver keeps of each piece. None at the least: a command can leave
    them out (--disable-piecewise-cuda-graph, --cuda-graph-backend-prefill disabled)."""
    more = range(_PREFILL_SIZES[-1] + _PREFILL_STEP, tokens + 1, _PREFILL_STEP)
    sizes, layers = sum(size <= tokens for size in (*_PREFILL_SIZES, *more)), _layers(model, r)
    largest = activations(model, replace(r, batched_tokens=tokens), capability_of(gpu), 0)
    each = constant("sglang", "graph_bytes_per_piece", r.version)
    held = [round(MIB * sizes * (layers + 1) * size) for size in (each.expected, each.high)]
    return Node(
        "prefill graphs", largest.bytes + held[0], each.kind, 0, largest.high + held[1],
        formula="activations of the largest + sizes × pieces × bytes",
        inputs={"sizes": sizes, "tokens": tokens, "layers": layers}, source=f"{each.source}; {_PIECES}",
    )  # fmt: skip


def _layers(model: Model, r: SglangResolved) -> int:
    """Layers of the longest pipeline stage."""
    return max(stop - start for start, stop in engine_stages(r.settings).spans(model.num_layers))
