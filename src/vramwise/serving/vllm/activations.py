"""The start-up profile run: the largest of its phases, not their sum (v1/worker/gpu_model_runner.py profile_run)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.memo import of_model
from vramwise.models import Model
from vramwise.models.allocator import block_bytes
from vramwise.models.lengths import text_config
from vramwise.models.operations.routers import Router
from vramwise.models.operations.simple import Conv1dLinear, Linear
from vramwise.models.type_facts import has_fact
from vramwise.result import Node
from vramwise.serving.common.forward.kernels import Pass
from vramwise.serving.common.forward.libraries import CUBLAS, cublas_work_space
from vramwise.serving.common.forward.walk import experts_workspace, fullest_of, largest_live_set, widest_attention
from vramwise.serving.common.layouts import engine_layout
from vramwise.serving.common.storage import Storage
from vramwise.serving.vllm.compilation import first_start, runs_uncompiled
from vramwise.serving.vllm.compressed import compresses_keys, gathered_bytes, indexed_bytes
from vramwise.serving.vllm.early_profiling import cross_attention_tower, profiled_sequences, waiting_outputs
from vramwise.serving.vllm.extras import ABSORBED_VERSIONS
from vramwise.serving.vllm.image_masks import masked_images
from vramwise.serving.vllm.pooling import pools
from vramwise.serving.vllm.profile import BLACKWELL_SERVER
from vramwise.serving.vllm.read_states import beside_the_drafter, read_states
from vramwise.serving.vllm.sampler import TOP_K_TOP_P, sampler_nodes
from vramwise.serving.vllm.settings import Resolved
from vramwise.serving.vllm.towers import has_encoder, media_limits, sees_nothing
from vramwise.serving.vllm.unpacked import unpacked_bytes
from vramwise.units import MIB

if TYPE_CHECKING:
    from vramwise.serving.common.encoder import VideoRule

FP8_CAPABILITY = 8.9
CONSUMER_BLACKWELL = 12.0  # its kernels read compressed keys where they are (models/deepseek_v4/nvidia/model.py)
EXPERTS, GATHERED, INDEXED = "experts' work space", "gathered keys", "indexer's gathered keys"
KEPT_WORKSPACE_VERSION = (0, 14)  # experts in 16 bits too: their kernel is modular in 0.14.1, not in 0.13.0
# until these versions 4-bit experts are one call of fused_marlin_moe, which makes its two buffers for all tokens of a
# batch and lets them go (quantization/gptq_marlin.py of 0.8.5 to 0.19.0, awq_marlin.py to 0.21.0, compressed_tensors to
# 0.22.1; then make_wna16_moe_kernel, which keeps them)
MODULAR_4_BIT_EXPERTS = {"gptq": (0, 20), "awq": (0, 22), "packed": (0, 23)}
# VLLM_FUSED_MOE_CHUNK_SIZE (envs.py of 0.6.6, 0.7.3, 0.8.5, 0.10.1, 0.11.2, 0.14.1 and 0.16.0); none from 0.18.1 on
EXPERT_CHUNKS = (((0, 12), 32_768), ((0, 18), 16_384))
LIBRARY_EXPERTS_VERSION = (0, 15)
NARROW_GATHER_VERSION = (0, 16)  # layers/fused_moe prepare_finalize: what is gathered is quantized first
# determine_chunked_prefill_workspace_size: asked in profile runs of 0.11.2, not in 0.10.2
CONTEXT_VERSION, MOST_CONTEXT_ROWS = (0, 11), 65_536
# Qwen3-VL's largest video (25,165,824 values = 12,288 tokens of 2 × 32 × 32) counts 12.5 tokens for each of its own,
# more than an image; its outputs are padded to that (0.11.2 models/qwen3_vl.py get_max_video_tokens,
# v1/worker/gpu_model_runner.py; the logs say "a budget of 153600 tokens")
LONG_VIDEO_TOKENS, LONG_VIDEO_FACTOR = 12288, 12.5
VIDEO_ALONE_VERSION = (0, 11)  # no image beside the largest video

_RUN = "vLLM v1/worker/gpu_model_runner.py profile_run"


def activation_peak(model: Model, r: Resolved, *, embeds: bool = True, samples: bool = True) -> Node:
    """Bytes above the weights at the fullest moment of the profile run, of a pipeline stage that `embeds` and `samples`
    or not; with what a start without a cache of compiled graphs takes more."""
    peak = _fullest_phase(model, r, samples=samples)
    more = first_start(model, r, peak, embeds=embeds)
    return Node.group(peak.name, (*(peak.children or (peak,)), *more), source=peak.source) if more else peak


def _fullest_phase(model: Model, r: Resolved, *, samples: bool) -> Node:
    """In V1 the encoder's outputs stay alive while the text model and the sampler run (`encoder_cache["tmp"]`)."""
    forward = forward_pass(model, r)
    # a pooler takes little beside the hidden states (_dummy_pooler_run), which is not counted
    later = fullest_of(_sampler(model, r), forward) if samples and not pools(model, r.settings) else forward
    if not has_encoder(model) or r.settings.skip_mm_profiling:
        return later
    encoder, kept = _encoder(model, r)
    if kept.bytes and r.profile.generation == "V1":
        later = Node.group(later.name, (later, kept))
    return fullest_of(later, encoder)


def _sampler(model: Model, r: Resolved) -> Node:
    """Sampling, beside what the forward pass left."""
    rows = min(profiled_sequences(model, r), r.batched_tokens)
    terms = (
        *sampler_nodes(model, r, rows),
        *_libraries(model, r, at_forward=False),
        *_kept(model, r, at_forward=False),
    )
    return Node.group("profile run: sampler", terms, source=_RUN)


def forward_pass(model: Model, r: Resolved) -> Node:
    """One pass of max_num_batched_tokens through the layer that holds most; dense layers before the first routed
    experts run when these have no buffers yet."""
    beside = [*_libraries(model, r, at_forward=True), *waiting_outputs(model, r)]
    unpacked = unpacked_bytes(model, r)
    if unpacked:
        beside.append(Node("unpacked weight", unpacked, "derived", 0, unpacked, source="vLLM quantization/awq.py"))
    first = Node.group("profile run: forward", (_layer(model, r, dense=True), *beside), source=_RUN)
    layer = _layer(model, r, dense=False)
    kept = (*_kept(model, r, at_forward=True), *beside)
    others = Node.group("profile run: forward", (layer, *read_states(model, r), *kept), source=_RUN)
    drafter = beside_the_drafter(model, r)
    if drafter:
        others = fullest_of(Node.group("profile run: drafter", (layer, *drafter, *kept), source=_RUN), others)
    return fullest_of(others, first)


def _layer(model: Model, r: Resolved, *, dense: bool) -> Node:
    """The largest live set of a layer: as Python's names keep it, which is what eager mode holds where a model's code
    gives them as most do. At least what is still to be read; compiled models (V1 by default) may also hold queries,
    keys and values until the next attention."""
    eager = r.profile.generation == "V0" or bool(r.settings.enforce_eager) or runs_uncompiled(model, r)
    reuses = eager and has_fact("vllm", "mlp_reuses_a_name", text_config(model).model_type, r.version)
    run = _pass(r, r.batched_tokens, _context_rows(r), reuses_a_name=reuses)
    named = largest_live_set(model, run, named=True, dense=dense)
    least = replace(run, pads_experts=False)
    low = min(named.bytes, largest_live_set(model, least, named=False, dense=dense).bytes)
    high = named.bytes
    if named.bytes and not eager:
        high += widest_attention(model, run.ranks) * run.tokens * run.element_bytes
    return Node(
        "layer", named.bytes, "derived", low, high,
        formula="Σ blocks alive while its fullest operation runs",
        inputs={"tokens": r.batched_tokens, "operation": named.moment, "tensor_parallel_size": run.ranks},
        source="vLLM model_executor/models, model_executor/layers: their kernels and names",
    )  # fmt: skip


def captured_bytes(model: Model, r: Resolved, tokens: int) -> int:
    """The largest live set of a layer while a graph of so many tokens is captured: attention sees no earlier tokens."""
    run = _pass(r, tokens)
    return max(largest_live_set(model, run, named=True, dense=dense).bytes for dense in (False, True))


def _pass(r: Resolved, tokens: int, context_rows: int = 0, *, reuses_a_name: bool = False) -> Pass:
    return Pass(
        tokens,
        r.storage.bytes_per_element,
        r.settings.tensor_parallel_size,
        engine_layout(r.settings).cut.expert_parallel_size,
        context_rows,
        _input_copy_bytes(r),
        0 if _keeps_expert_buffers(r) else _expert_tokens(r, tokens * r.settings.data_parallel_size),
        reuses_a_name,
        fp4_experts=_has_fp4_experts(r),
        library_experts=_runs_in_library(r, "nvfp4"),
        data_ranks=r.settings.data_parallel_size,
        narrow_gather=r.version >= NARROW_GATHER_VERSION,
    )


def _runs_in_library(r: Resolved, layout: str) -> bool:
    """Whether FlashInfer's kernels of TensorRT-LLM run routed experts of this layout, which keep no buffers: NVFP4 and
    blocks of 8 bits on compute capability 10.x, unless others are asked for (0.15.1 to 0.33.0
    layers/fused_moe/oracle/nvfp4.py, fp8.py: the first that is supported; workspace_shapes of 0 elements)."""
    rule, asked = r.storage.quantization, (r.settings.moe_backend or "auto").lower()
    if rule is None or r.version < LIBRARY_EXPERTS_VERSION or int(r.capability or 0) != BLACKWELL_SERVER:
        return False
    in_blocks = layout != "fp8" or rule.weight_block_size is not None
    return rule.layout == layout and in_blocks and asked in ("auto", "flashinfer_trtllm")


def _has_fp4_experts(r: Resolved) -> bool:
    """Whether routed experts run in vLLM's own 4-bit kernels: on Blackwell, where asked for, and not as whole experts
    on a rank (0.19.0 to 0.33.0 layers/fused_moe/oracle/nvfp4.py, CutlassExpertsFp4)."""
    rule, asked = r.storage.quantization, (r.settings.moe_backend or "").lower()
    if asked != "cutlass" or r.settings.expert_parallel or r.capability is None or r.capability < BLACKWELL_SERVER:
        return False
    return rule is not None and rule.layout == "nvfp4"


def _gathered(model: Model, r: Resolved) -> int:
    return gathered_bytes(model, r.batched_tokens, r.max_model_len)


def _expert_tokens(r: Resolved, tokens: int) -> int:
    """Tokens whose routed experts run at once. Copies of the model bring theirs together, each rank's experts see all
    of them (layers/fused_moe/layer.py forward_impl, device_communicators/all2all.py of 0.10.1 to 0.33.0: naive, then
    all-gather and reduce-scatter, the default of all2all_backend)."""
    if _calls_marlin_once(r):
        return tokens
    return min(next((size for until, size in EXPERT_CHUNKS if r.version < until), tokens), tokens)


def _calls_marlin_once(r: Resolved) -> bool:
    """Whether one call runs the routed experts, without chunks or buffers that stay: see MODULAR_4_BIT_EXPERTS."""
    rule = r.storage.quantization
    until = None if rule is None else MODULAR_4_BIT_EXPERTS.get(rule.layout)
    return until is not None and r.version < until and r.capability is not None


def _keeps_expert_buffers(r: Resolved) -> bool:
    return r.version >= KEPT_WORKSPACE_VERSION and not _calls_marlin_once(r)


def _context_rows(r: Resolved) -> int:
    """Rows of the tensor in which latent attention of a profile run stands for keys and values of earlier tokens."""
    if r.version < CONTEXT_VERSION:
        return 0
    wanted = min(max(8 * r.max_model_len, 4 * r.max_num_seqs * r.block_size), MOST_CONTEXT_ROWS)
    return max(wanted, r.max_num_seqs * r.block_size)


def _input_copy_bytes(r: Resolved) -> float:
    """Bytes for each value of the copies in 8 bits that products with 8-bit weights read; fp8 from compute capability
    8.9 on, before Marlin's kernels take 16 bits (quantization/fp8.py, compressed_tensors)."""
    rule = r.storage.quantization
    if rule is None or rule.layout not in ("fp8", "by-channel"):
        return 0
    if rule.name.startswith("fp8") and r.capability is not None and r.capability < FP8_CAPABILITY:
        return 0
    return 1 + 4 / rule.weight_block_size[1] if rule.weight_block_size else 1


def _kept(model: Model, r: Resolved, *, at_forward: bool) -> tuple[Node, ...]:
    """What the first pass makes and keeps, and `at_forward` what stands for the buffers of experts in blocks of 8 bits
    in FlashInfer's kernels: vLLM's own, for these starts take 0.8 to 1.9 GiB more than FlashInfer's code makes."""
    library = _runs_in_library(r, "nvfp4") or _runs_in_library(r, "fp8")
    shared = _experts(model, r) if at_forward or not library else _indexed(model, r)
    if not compresses_keys(model) or r.capability is None or r.capability < CONSUMER_BLACKWELL:
        return shared
    source = "vLLM 0.24.0 to 0.33.0 models/deepseek_v4/nvidia/flashinfer_sparse.py DeepseekV4FlashInferSM120Attention"
    return (*shared, Node("FlashInfer work space", 128 * MIB, "exact", source=source))


def _experts(model: Model, r: Resolved) -> tuple[Node, ...]:
    """Buffers of routed experts, which stay after the first pass from KEPT_WORKSPACE_VERSION on."""
    index = _indexed(model, r)
    if not _keeps_expert_buffers(r):
        return index
    tokens = _expert_tokens(r, r.batched_tokens * r.settings.data_parallel_size)
    ranks, expert_ranks = r.settings.tensor_parallel_size, engine_layout(r.settings).cut.expert_parallel_size
    fp4 = _has_fp4_experts(r)
    elements = 0 if _runs_in_library(r, "nvfp4") else experts_workspace(model, tokens, ranks, expert_ranks, fp4=fp4)
    held = block_bytes(elements * r.storage.bytes_per_element)
    gathered = 0 if r.capability is None or r.capability >= CONSUMER_BLACKWELL else _gathered(model, r)
    if index and index[0].bytes > max(held, gathered):
        return index
    if gathered > held:  # both are views of one buffer, which is as large as the largest that was asked for
        return (
            Node(GATHERED, block_bytes(gathered), "derived",
                 formula="4 requests × (length / 4 + window + tokens) × 512 × 2",
                 inputs={"tokens": r.batched_tokens, "length": r.max_model_len},
                 source="vLLM 0.20.0 to 0.33.0 models/deepseek_v4/nvidia/flashmla.py, v1/worker/workspace.py"),
        )  # fmt: skip
    if not held:
        return ()
    return (
        Node(EXPERTS, held, "derived",
             formula="tokens × chosen × (gate and up + max(2 × gate and up, hidden)) × dtype" if fp4 else
             "tokens × chosen × (max(inner, hidden) + max(gate and up, hidden)) × dtype",
             inputs={"tokens": tokens, "tensor_parallel_size": ranks},
             source="vLLM 0.14.1 to 0.33.0 v1/worker/workspace.py, layers/fused_moe workspace_shapes"),
    )  # fmt: skip


def _indexed(model: Model, r: Resolved) -> tuple[Node, ...]:
    """Room for the keys that an indexer gathers, of the same buffer as the experts'."""
    size = indexed_bytes(model, r.max_model_len)
    if not size or r.capability is None or r.version < KEPT_WORKSPACE_VERSION:
        return ()
    return (
        Node(INDEXED, block_bytes(size), "derived", formula="40 × length (of V4 a fourth) × (width + 4)",
             inputs={"length": r.max_model_len},
             source="vLLM 0.19.1 to 0.28.0 layers/sparse_attn_indexer.py, v1/worker/workspace.py"),
    )  # fmt: skip


def _libraries(model: Model, r: Resolved, *, at_forward: bool) -> tuple[Node, ...]:
    """cuBLAS takes its work space from torch at the first product after the weights are loaded: in the first layer, or,
    where every product there is another library's, at the logits. 0.7 multiplies latent projections while it loads."""
    first, last = ABSORBED_VERSIONS
    if first <= r.version < last and model.has_latent_cache:
        return ()
    if at_forward and not has_plain_product(model, r.storage):
        return ()
    return (cublas_work_space(r.capability),)


@of_model
def has_plain_product(model: Model, storage: Storage) -> bool:
    """Whether a layer has a product of weights that are not quantized, which is cuBLAS's."""
    return any(
        isinstance(op, Linear | Conv1dLinear | Router) and p.is_linear and not storage.quantizes(p)
        for block in model.layers()
        for op in block.ops
        for p in op.parameters
    )


def kept_bytes(activation: Node, end: str = "bytes") -> int:
    """Bytes of a profile run's peak that are still held when it is over; `end` takes low or high ends."""
    if activation.children:
        return sum(kept_bytes(child, end) for child in activation.children)
    return int(getattr(activation, end)) if activation.name in (CUBLAS, EXPERTS, GATHERED, INDEXED, TOP_K_TOP_P) else 0


def _encoder(model: Model, r: Resolved) -> tuple[Node, Node]:
    """The vision tower over as many of its largest items as the encoder's budget of tokens takes, and its outputs."""
    from vramwise.serving.common.encoder import encoder_work

    tower = None if sees_nothing(model, r.settings) else cross_attention_tower(model, r)
    if tower is not None:
        return tower, Node("encoder cache", 0, "exact", 0, 0, source=_RUN)
    work = encoder_work(
        model, r.batched_tokens, r.storage.bytes_per_element, r.settings.tensor_parallel_size, r.max_num_seqs,
        _video_rule(model, r),
    )  # fmt: skip
    size, kept = (0, 0) if sees_nothing(model, r.settings) else (work.bytes, work.kept_bytes)
    mask = masked_images(model, r, work.patches) if size else None
    formula = "patches × largest live set of the tower's layers × dtype + encoder cache"
    # what one product reads and makes is alive at once: 0.33 to 0.45 of the live set in every described tower of linear
    # layers; and no tensor of 16 bits takes more than in fp32
    low, high = size // 3, 2 * size
    if mask is not None:
        formula += ", or attention's, with a mask of patches²"
        low, size, high = mask.beside(low), mask.beside(size), mask.beside(high)
    running = Node(
        "profile run: encoder",
        size,
        "assumed",
        low,
        high,
        formula=formula,
        inputs={"patches": work.patches, "elements_per_patch": work.elements_per_patch},
        source=_RUN,
    )
    cache = Node(
        "encoder cache", kept, "derived", kept // 3, kept, formula="tokens of the items × hidden size × levels × dtype",
        inputs={"hidden_size": model.hidden_size}, source=_RUN,
    )  # fmt: skip
    return running, cache


def _video_rule(model: Model, r: Resolved) -> VideoRule | None:
    """The largest video that the version profiles, where it counts more tokens than an image does."""
    from vramwise.serving.common.encoder import VideoRule

    limits = media_limits(r.settings)
    if limits.get("video") == 0:
        return None
    if has_fact("vllm", "video_fills_the_request", model.config.model_type, r.version):
        return VideoRule(_frames_tokens(r), 1, padded=False) if r.profile.generation == "V1" else None
    counted = has_fact("vllm", "video_counts_more", model.config.model_type, r.version)
    return VideoRule(LONG_VIDEO_TOKENS, LONG_VIDEO_FACTOR, padded=True) if counted else None


def _frames_tokens(r: Resolved) -> int:
    """Qwen2-VL's and 2.5-VL's largest video: as many of the largest images as max_model_len takes, two frames in each,
    at most 14 frames; before 0.11 16 frames, and an image beside them (models/qwen2_vl.py
    get_num_frames_with_most_features of 0.8.5, 0.11.2, 0.19 and 0.33; the logs of 0.8 and 0.23 say budgets of 98,304
    and of 114,688 tokens for 128,000).
    """
    from vramwise.serving.common.encoder import LARGEST_DYNAMIC_TOKENS

    alone = r.version >= VIDEO_ALONE_VERSION or media_limits(r.settings).get("image") == 0
    room = r.max_model_len - (0 if alone else LARGEST_DYNAMIC_TOKENS)
    most = 7 if r.version >= VIDEO_ALONE_VERSION else 8
    return LARGEST_DYNAMIC_TOKENS * max(1, min(most, room // LARGEST_DYNAMIC_TOKENS))
