"""What graph capture takes: the graphs, what flash attention keeps in their pool, and FlashInfer's work space, which is
first made while they are profiled."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node, Quantity
from vramwise.serving.common.constants import constant, graphs_here
from vramwise.serving.common.forward.libraries import cublas_work_space
from vramwise.serving.common.heads import attention_heads
from vramwise.serving.common.layouts import engine_stages
from vramwise.serving.vllm.activations import captured_bytes, forward_pass, has_plain_product
from vramwise.serving.vllm.compilation import runs_uncompiled
from vramwise.serving.vllm.drafts import drafted_tokens, has_drafter
from vramwise.serving.vllm.profile import BLACKWELL_SERVER, V2_RUNNER_ALL, capture_sizes, largest_capture
from vramwise.serving.vllm.settings import Resolved
from vramwise.serving.vllm.unpacked import unpacked_bytes
from vramwise.units import GIB, MIB, round_up

FLASHINFER_WORKSPACE = 394 * MIB  # VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE
FLASHINFER_HEADS = frozenset({64, 128, 256})
WORKSPACE_BY_CHUNK = (0, 26)  # from here on at least 16 bytes for each query element of a prefill chunk
WORKSPACE_BYTES_PER_ELEMENT = 16
FULL_GRAPHS_VERSION = (0, 11)  # cudagraph_mode FULL_AND_PIECEWISE by default; pieces alone before
ESTIMATED_GRAPHS = (0, 18)  # v1/worker/gpu_model_runner.py profile_cudagraph_memory; the second runner's from 0.29 on
MOST_SPLITS = 32  # flash_attn_max_num_splits_for_cuda_graph
LATENT_SPLITS_VERSION = (0, 13)
WIDEST_HEAD = 256  # of FlashAttention 3
WORKSPACE, SPLITS, SCORES = "FlashInfer work space", "attention splits", "indexer's scores"
MODULES = "graph_modules"
AUTOTUNED = ((0, 11), (0, 18))
SMALL_SEGMENT, LARGE_SEGMENT = 2 * MIB, 20 * MIB  # c10/cuda/CUDACachingAllocator.cpp kSmallBuffer, kLargeBuffer
FEW_SMALL_SEGMENTS = 2 * SMALL_SEGMENT
DRAFTED_SIZES_VERSION = (0, 13)  # config/vllm.py _set_cudagraph_sizes of 0.13.0 to 0.27.1: decode_query_len
PROFILED_STEPS = 2  # _FULL_GRAPH_PROFILING_SAMPLES
HOPPER, AMPERE = 9.0, 8.0
LEANER_DRIVER = 550  # the branch of CUDA 12.4
DRIVER_STEP, LEAST_GRAPH = 2 * MIB, MIB
HIP_POOL, HIP_POOL_VERSION = "graph_bytes_of_hip", (0, 14)


def estimates_graphs(r: Resolved) -> bool:
    """Whether the version estimates what graphs will take; charged from 0.20 on."""
    return r.version >= (V2_RUNNER_ALL if r.on_v2_runner else ESTIMATED_GRAPHS)


def graphs_node(model: Model, r: Resolved, gpu: Gpu | None) -> Node:
    """CUDA graphs, with the work space where graphs are in the budget."""
    ranks = r.settings.tensor_parallel_size * r.settings.pipeline_parallel_size
    graphs = graphs_here(_graphs(model, r, gpu), gpu, "vllm", r.settings.engine_version, model.config.model_type, ranks)
    if not graphs.bytes:
        return graphs
    splits = attention_splits(model, r)
    # where all attention is FlashInfer's, its work space is made before capture begins, at the warm-up of kernels
    made_here = profiles_attention(model, r) and (r.profile.graphs_in_budget or _attends_otherwise_too(model))
    beside = [
        Node(
            SPLITS, splits, "derived", formula="splits × query heads × tokens × head size × 4",
            inputs={"splits": MOST_SPLITS, "tokens": _largest_step(model, r)},
            source="vLLM v1/attention/backends/flash_attn.py max_num_splits; its flash-attention, hopper: out_accum",
        ),
        _index_scores(model, r),
        _drafter(r, whole=_whole_steps(model, r) > 0),
        *([workspace_node(model, r)] if made_here else []),
    ]  # fmt: skip
    beside = [node for node in beside if node.bytes]
    return Node.group("CUDA graphs", (graphs, *beside)) if beside else graphs


def _index_scores(model: Model, r: Resolved) -> Node:
    """Scores of a whole context for each token of the largest step that is captured whole; one start had room twice."""
    captured = model.has_indexer and r.capability in (HOPPER, BLACKWELL_SERVER) and _whole_steps(model, r)
    size = 4 * _largest_step(model, r) * r.max_model_len if captured else 0
    return Node(
        SCORES, size, "derived", size, 2 * size, formula="tokens × length × 4",
        inputs={"tokens": _largest_step(model, r), "length": r.max_model_len},
        source="vLLM 0.19.1 to 0.28.0 layers/sparse_attn_indexer.py fp8_paged_mqa_logits, whose rows are max_model_len",
    )  # fmt: skip


def workspace_node(model: Model, r: Resolved) -> Node:
    """FlashInfer's work space; 0 bytes where another backend attends."""
    return Node(
        WORKSPACE,
        flashinfer_workspace(model, r),
        "derived",
        formula="max(394 MiB, tokens × query heads × head size × 16)",
        inputs={"tokens": r.batched_tokens},
        source="vLLM v1/attention/backends/flashinfer.py _get_workspace_buffer",
    )


def profiles_attention(model: Model, r: Resolved) -> bool:
    """Whether attention runs while graphs are profiled, so that its work space is counted with them.

    The first model runner plans attention for whole steps alone (v1/worker/gpu_model_runner.py of 0.20.1 to 0.33.0
    _warmup_and_capture: force_attention), the second for pieces too (v1/worker/gpu/cudagraph_utils.py
    prepare_inputs_to_capture).
    """
    return r.on_v2_runner or _whole_steps(model, r) > 0


def _attends_otherwise_too(model: Model) -> bool:
    """Whether some layers have states in place of a cache: then FlashInfer's attention is not warmed up before capture
    (0.13.0 to 0.24.0 model_executor/warmup/kernel_warmup.py: all groups of layers must be FlashInfer's)."""
    return any(cache.kind == "recurrent" for cache in model.caches)


def _drafter(r: Resolved, *, whole: bool) -> Node:
    """What capturing the drafter's own graphs takes on the second model runner, with the logits that it makes then: its
    prefill by pieces and, where `whole` steps are captured, those and a step of drafting
    (v1/worker/gpu/spec_decode/autoregressive/speculator.py)."""
    if not (r.on_v2_runner and has_drafter(r)):
        return Node("drafter", 0, "exact")
    found = constant("vllm", "drafter_graphs" if whole else "drafter_graphs_of_pieces", r.version)
    low, size, high = (round(end * GIB) for end in (found.low, found.expected, found.high))
    return Node("drafter", size, found.kind, low, high, formula="a constant", source=found.source)


def attention_splits(model: Model, r: Resolved) -> int:
    """Bytes that FlashAttention 3 keeps for partial results of captured decode steps on a rank; 0 without it.

    splits · query heads · tokens · value head size · 4, for the largest step that is captured whole: a graph cannot
    choose the number of splits later, so that the most (MOST_SPLITS) have room in it. Version 3 runs on compute
    capability 9.0 alone, in 16 bit; latent attention has it since LATENT_SPLITS_VERSION (platforms/cuda.py of 0.13.0 to
    0.33.0: FLASH_ATTN_MLA comes first), but not for a cache in 8 bit nor sparse. The captured steps of vLLM 0.19.0 on
    H100 begin with 4 to 12 MiB more than this (llm-d-planner accuracy/results/v0.19.0, 13 models).
    """
    if r.capability != HOPPER or r.version < FULL_GRAPHS_VERSION or r.storage.bytes_per_element != 2:
        return 0
    latent = next((cache for cache in model.caches if cache.kind == "latent"), None)
    if latent is not None:
        unsplit = latent.index_dim or r.cache_element_bytes != 2 or r.version < LATENT_SPLITS_VERSION
        width = 0 if unsplit else latent.latent_dim
    else:
        heads = [cache for cache in model.caches if cache.kind in ("full", "sliding", "chunked")]
        width = max((cache.value_head_dim for cache in heads), default=0)
        if width > WIDEST_HEAD:
            return 0
    heads_of_rank = -(-attention_heads(model) // r.settings.tensor_parallel_size)
    return MOST_SPLITS * heads_of_rank * _largest_step(model, r) * width * 4


def _largest_step(model: Model, r: Resolved) -> int:
    """Tokens of the largest decode step that is captured whole."""
    query_length = 1 + drafted_tokens(r)
    given = r.settings.cudagraph_capture_sizes
    return min(max(given) if given else largest_capture(r.version, r.capability), r.max_num_seqs * query_length)


def printed_graphs(model: Model, r: Resolved, graphs: Node) -> Quantity:
    """What "Graph capturing finished, took" says: the graphs, less what capture frees before its first graph.

    From compute capability 9.0 on FlashInfer's autotuner runs a whole batch before capture; torch.cuda.graph empties
    PyTorch's pool of it within the measured span, which makes the printed difference small or negative, until vLLM
    empties the pool before (0.17.1 does not yet, 0.18.1 does). A negative difference counts as none.
    """
    outside = "" if _attends_otherwise_too(model) else WORKSPACE
    pool = Node.group("pool", [node for node in graphs.children or (graphs,) if node.name != outside])
    if r.on_v2_runner and r.version >= V2_RUNNER_ALL:
        known = _kept_by_the_driver(model, r)
        return Quantity(max(0, pool.low - known), max(0, pool.bytes - known), pool.high)
    tunes = r.capability is not None and r.capability >= HOPPER
    if not pool.bytes or not tunes or not AUTOTUNED[0] <= r.version < AUTOTUNED[1]:
        return Quantity(pool.low, pool.bytes, pool.high)
    freed = forward_pass(model, r)
    return Quantity(max(0, pool.low - freed.high), max(0, pool.bytes - freed.bytes), pool.high)


def _kept_by_the_driver(model: Model, r: Resolved) -> int:
    """Bytes of graphs that the profile has captured before: the driver gives them to those of the real capture, whose
    free memory before and after does not show them.

    The second runner profiles all pieces and PROFILED_STEPS whole steps (0.29.0 to 0.33.0 v1/worker/gpu/
    cudagraph_utils.py profile_cudagraph_memory). Seen in one log: Llama-3.1-8B on A100, 0.31.0, 0.23 GiB. HIP gives a
    graph's pool back with the graph (hipamd/src/hip_graph_internal.hpp ~GraphKernelArgManager).
    """
    if _has_hip_pools(model, r):
        return 0
    pieces, steps = _rates(model, r)
    layers, sizes = _layers(model, r), _sizes(r, 1 + drafted_tokens(r))
    known = sizes * (layers + 1) * pieces + min(PROFILED_STEPS, _whole_steps(model, r)) * layers * steps
    return round(known * MIB)


def _rates(model: Model, r: Resolved) -> tuple[float, float]:
    """MiB of a size and piece, and of a whole step and layer."""
    names = _rate_names(model, r)
    return constant("vllm", names[0], r.version).expected, constant("vllm", names[1], r.version).expected


def _rate_names(model: Model, r: Resolved) -> tuple[str, str]:
    """Cards since Blackwell run with newer drivers, which keep less for a graph; uncompiled models more.

    So do drivers before LEANER_DRIVER: the same capture took 3.81 GiB on A10G with the driver of CUDA 12.2 or 12.3 and
    1.14 with that of 12.4, and as much on L4, whatever CUDA torch was built for (vllm-project/vllm#5517).
    """
    if runs_uncompiled(model, r):
        return ("graph_bytes_per_layer_uncompiled",) * 2
    if r.driver_branch is not None and r.driver_branch < LEANER_DRIVER and not r.on_rocm:
        return ("graph_bytes_per_layer_older",) * 2
    newer = r.version >= FULL_GRAPHS_VERSION and r.capability is not None and r.capability >= BLACKWELL_SERVER
    return ("graph_bytes_per_layer_newer",) * 2 if newer else ("graph_bytes_per_layer", "graph_bytes_per_layer_of_step")


def _graphs(model: Model, r: Resolved, gpu: Gpu | None) -> Node:
    """Graphs of pieces between attention layers, graphs of whole decode steps, NCCL's kernels in both."""
    if r.settings.enforce_eager:
        return Node("CUDA graphs", 0, "exact", formula="none: enforce_eager")
    layers, newer = _layers(model, r), r.version >= FULL_GRAPHS_VERSION
    whole = _whole_steps(model, r) if newer else 0
    drafted = drafted_tokens(r) if r.version >= DRAFTED_SIZES_VERSION else 0
    sizes = _sizes(r, 1 + drafted, whole_queries=r.on_v2_runner or bool(whole))
    one_size, one_step = _of_one(model, r, gpu)
    terms = [(sizes * count, name) for count, name in one_size]
    if newer:
        terms += [*((whole * count, name) for count, name in one_step), (1, _modules(gpu))]
    values = [(count, constant("vllm", name, r.version)) for count, name in terms]
    held = _pool_bytes(model, r) if newer else 0
    low, expected, high = (
        max(0, held + round(MIB * sum(count * getattr(value, end) for count, value in values)))
        for end in ("low", "expected", "high")
    )
    by_layer = "sizes × pieces × bytes + whole steps × layers × bytes"
    counted = "(sizes × pieces + whole steps) × bytes" if _has_hip_pools(model, r) else by_layer
    formula = f"live set and work space of the largest + modules + {counted}"
    return Node(
        "CUDA graphs", expected, values[0][1].kind, low, high,
        formula=formula if newer else "sizes × layers × bytes",
        inputs={"sizes": sizes, "whole_steps": whole, "layers": layers}, source=values[0][1].source,
    )  # fmt: skip


def _modules(gpu: Gpu | None) -> str:
    """The constant of what a first capture brings beside its graph. Where the card shares the host's memory, what is
    free is the whole system's: what the process compiles and pins on the host counts too, and what others give back."""
    return "graph_modules_of_shared_memory" if gpu is not None and gpu.unified_memory else MODULES


def _of_one(model: Model, r: Resolved, gpu: Gpu | None) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """How often each constant counts for one size that is captured by pieces, and for one whole step."""
    layers = _layers(model, r)
    if _has_hip_pools(model, r):
        return [(layers + 1, HIP_POOL)], [(1, HIP_POOL)]
    piece, step = _rate_names(model, r)
    pieces, steps = [(layers + (r.version >= FULL_GRAPHS_VERSION), piece)], [(layers, step)]
    if flashinfer_workspace(model, r) and int(r.capability or 0) != BLACKWELL_SERVER:
        steps.append((1, "graph_flashinfer_plan"))
    if r.version >= (0, 9) and _calls_nccl(r, gpu):
        pieces.append((2 * layers, "graph_bytes_per_nccl_call"))
        steps.append((2 * layers, "graph_bytes_per_nccl_call"))
    return pieces, steps


def _has_hip_pools(model: Model, r: Resolved) -> bool:
    """Whether each graph holds a pool of its own, however many operations it has.

    HIP allocates room for the arguments of a graph's kernels when the graph is made, their sizes and 128 KiB, on the
    card where the host reaches all of its memory: hipamd/src/hip_graph_internal.cpp AllocGraphKernargPool. With ROCm 6
    (ROCm/clr) that was about 0.25 MiB (0.11.0rc2, MI300X: 1.02 GiB of 4,288 graphs); since the pool is executable
    (ROCm/rocm-systems, flags.executable_) it is 2. Pieces are graphs of their own, whole steps are one, so that pieces
    take most (vllm-project/vllm#19579). Profiles of models that are not compiled do not see it: 1.3 GiB of Kimi K3 on
    MI355X, whose capture takes 4.7 to 16.9 (vllm-project/vllm#51590).
    """
    return r.on_rocm and r.version >= HIP_POOL_VERSION and not runs_uncompiled(model, r)


def estimated_node(model: Model, r: Resolved, gpu: Gpu | None, graphs: Node) -> Node:
    """What the first runner's profile says that graphs will take: of the first captures of pieces and of whole steps,
    which bring what all others share, it counts the larger alone, and of what follows it captures one of each and takes
    that for all. The driver hands out whole DRIVER_STEPs, so that this one is between two whole numbers of them.

    Source: 0.18.1 to 0.33.0 v1/worker/gpu_model_runner.py profile_cudagraph_memory (max of shared_memory_estimate;
    per_graph, at least 1 MiB); the debug lines of llm-d-planner accuracy/results/v0.19.0 are all even.
    """
    if not graphs.bytes or r.on_v2_runner or not estimates_graphs(r) or not _whole_steps(model, r):
        return graphs
    one_size, one_step = _of_one(model, r, gpu)
    held = _pool_bytes(model, r)
    beside = sum(node.bytes for node in graphs.children if node.name in (SPLITS, SCORES, WORKSPACE))
    further = _sizes(r, 1 + drafted_tokens(r)) - 1, _whole_steps(model, r) - 1

    def said(whole: int, end: str, steps: Callable[[float], float]) -> int:
        def of_one(terms: list[tuple[int, str]]) -> float:
            return MIB * sum(count * float(getattr(constant("vllm", name, r.version), end)) for count, name in terms)

        each = of_one(one_size), of_one(one_step)
        once = max(0, min(held + of_one([(1, _modules(gpu))]) + each[0], beside + each[1]))
        others = sum(count * (_one_more(size, steps) - size) for count, size in zip(further, each, strict=True))
        return max(0, round(whole - once + others))

    size = said(graphs.bytes, "expected", float)
    low, high = min(size, said(graphs.low, "low", floor)), max(size, said(graphs.high, "high", ceil))
    formula = "larger first capture + further ones × what the second takes"
    return Node("CUDA graphs", size, graphs.kind, low, high, formula=formula, source=graphs.source)


def _one_more(size: float, steps: Callable[[float], float]) -> float:
    """What a second capture of `size` bytes takes of free memory, and counts as."""
    return max(steps(size / DRIVER_STEP) * DRIVER_STEP, LEAST_GRAPH)


def _layers(model: Model, r: Resolved) -> int:
    """Layers of the longest pipeline stage."""
    return max(stop - start for start, stop in engine_stages(r.settings).spans(model.num_layers))


def _pool_bytes(model: Model, r: Resolved) -> int:
    """What the largest captured size leaves in the pool that all graphs share, and cuBLAS's work space for the stream
    of capture where a layer has a product of its own.

    Sizes are captured from the largest down (v1/worker/gpu_model_runner.py capture_model), so that the others find
    room. First captures of pieces on H100 (0.19.0, 30 starts of 12 models) are up to 66 MiB more than this.
    """
    query_length, given = 1 + drafted_tokens(r), r.settings.cudagraph_capture_sizes
    most = max(given) if given else min(largest_capture(r.version, r.capability), 2 * r.max_num_seqs * query_length)
    work = cublas_work_space(r.capability).bytes if has_plain_product(model, r.storage) else 0
    live = captured_bytes(model, r, min(most, r.batched_tokens)) + unpacked_bytes(model, r)
    return round_up(live, LARGE_SEGMENT if live > FEW_SMALL_SEGMENTS else SMALL_SEGMENT) + work


def _calls_nccl(r: Resolved, gpu: Gpu | None) -> bool:
    """Whether all-reduces are NCCL's: between cards without links, where these are more than two, or reach no memory of
    one another (GeForce). Else vLLM's own kernel runs (distributed/device_communicators/custom_all_reduce.py of 0.9.2
    to 0.33.0: world_size > 2 and not fully_connected, _can_p2p)."""
    ranks = r.settings.tensor_parallel_size
    if ranks == 1 or gpu is None or gpu.is_linked:
        return False
    return ranks > 2 or gpu.name.startswith("GeForce")


def _whole_steps(model: Model, r: Resolved) -> int:
    """Decode batches that are captured whole, up to max_num_seqs requests.

    FlashInfer captures whole steps of single tokens only, but for compute capability 10.x (AttentionCGSupport).
    """
    drafted = drafted_tokens(r)
    if drafted and flashinfer_workspace(model, r) and int(r.capability or 0) != BLACKWELL_SERVER:
        return 0
    return _sizes(r, 1 + drafted, of_requests=True)


def _sizes(r: Resolved, query_length: int, *, of_requests: bool = False, whole_queries: bool = True) -> int:
    """Graphs of one mode: of tokens, or of whole steps of requests; `whole_queries`: see capture_sizes."""
    return capture_sizes(
        r.profile, r.max_num_seqs, r.settings.cudagraph_capture_sizes, of_requests=of_requests,
        query_length=query_length, whole_queries=whole_queries,
        most_tokens=largest_capture(r.version, r.capability),
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
    latent = model.has_latent_cache
    if latent or not widths or not widths <= FLASHINFER_HEADS:
        return 0
    server = int(r.capability) == BLACKWELL_SERVER
    if not server and not (r.settings.kv_cache_dtype.startswith("fp8") and r.capability != HOPPER):
        return 0
    if server or r.version < WORKSPACE_BY_CHUNK:
        return FLASHINFER_WORKSPACE
    heads = -(-attention_heads(model) // r.settings.tensor_parallel_size)
    return max(FLASHINFER_WORKSPACE, r.batched_tokens * heads * max(widths) * WORKSPACE_BYTES_PER_ELEMENT)
