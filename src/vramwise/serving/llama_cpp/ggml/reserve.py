"""Bytes that llama.cpp reserves for its worst batch: the graph of a model, replayed through ggml's allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib import import_module

from vramwise.errors import UndescribedOperationError
from vramwise.memo import of_model
from vramwise.models import Block, Model
from vramwise.models.type_facts import fact_value, has_fact
from vramwise.serving.common.gguf.tensors import rotary_factors
from vramwise.serving.common.gguf.types import tensor_type
from vramwise.serving.llama_cpp.builds import (
    HALF_MASK_BUILD,
    KEPT_FOR_KERNELS_BUILD,
    METAL_ORDER_BUILD,
    METAL_TABLE_BUILD,
    METAL_WIDE_CACHE_BUILD,
    TURNED_CACHE_BUILD,
    TWO_INPUT_COPIES_BUILD,
    UNREAD_COPIES_BUILD,
    VALUE_INDEX_BUILD,
    VULKAN_ORDER_BUILD,
)
from vramwise.serving.llama_cpp.cache import cache_bytes
from vramwise.serving.llama_cpp.ggml.build import Batch, Build, GraphOf, lowerings_known
from vramwise.serving.llama_cpp.ggml.fusions import cuda_order
from vramwise.serving.llama_cpp.ggml.homes import Homes, homes_of
from vramwise.serving.llama_cpp.ggml.scheduler import (
    DEVICE_ALIGNMENT,
    LEAST_ROWS,
    METAL_ALIGNMENT,
    Prepare,
    buffer_bytes,
    takes_over_nothing,
    takes_over_products,
    takes_over_rows,
)
from vramwise.serving.llama_cpp.ggml.tensors import Tensor
from vramwise.serving.llama_cpp.scratch import deep_inputs
from vramwise.serving.llama_cpp.settings import Plan, reads_windows

FIRST_BUILD = VALUE_INDEX_BUILD  # before, keys and values were copied to the cache by other nodes
_KEPT_REPEATS = 4
_LONGEST_PERIOD = 12


@of_model
def compute_buffers(
    model: Model, plan: Plan, layer_devices: tuple[int, ...], whole: bool = False
) -> tuple[int, ...] | None:
    """Bytes of every device and, last, of the host; None where the model's graph is not described.

    Layers repeat: of equal ones in a row four or five are built, of a pattern that repeats two or three, since what
    lies in memory between two of them comes back after one or two; `whole` builds all.
    """
    if not is_described(model, plan):
        return None
    try:
        build = _graph(model, plan, layer_devices, whole)
    except UndescribedOperationError:
        return None
    return buffer_bytes(
        build.graph, plan.devices, plan.input_copies, copies_unread=plan.build >= UNREAD_COPIES_BUILD,
        prepare=_prepared_by(plan), alignment=METAL_ALIGNMENT if plan.backend == "metal" else DEVICE_ALIGNMENT,
        takes_over=_taken_over_by(plan),
    )  # fmt: skip


def _taken_over_by(plan: Plan) -> Callable[[Tensor], bool]:
    """What the devices' backend computes although a weight of it lies on the host."""
    if plan.own is not None and not plan.own.takes_over:
        return takes_over_nothing
    return takes_over_products if plan.backend == "metal" else takes_over_rows


def _prepared_by(plan: Plan) -> Prepare | None:
    """What the devices' backend does to its part of a graph."""
    if plan.backend == "vulkan" and plan.build >= VULKAN_ORDER_BUILD:
        from vramwise.serving.llama_cpp.ggml.vulkan import vulkan_order

        return vulkan_order
    if plan.backend == "metal" and plan.build >= METAL_ORDER_BUILD:
        from vramwise.serving.llama_cpp.ggml.metal import MetalRules, metal_order

        table, wide = plan.build >= METAL_TABLE_BUILD, plan.build >= METAL_WIDE_CACHE_BUILD
        return partial(metal_order, rules=MetalRules(table, wide, _is_quantized(plan.type_k)))
    return cuda_order if plan.backend == "cuda" and plan.build >= KEPT_FOR_KERNELS_BUILD else None


def is_described(model: Model, plan: Plan) -> bool:
    """Whether the graph of a model is known, and that of these settings."""
    if not any(block.layer is not None for block in model.blocks) or plan.is_ik or plan.build < FIRST_BUILD:
        return False
    if not has_fact("llama.cpp", "graph", model.config.model_type, (plan.build,)):
        return False
    if plan.latent is None and any(cache.latent_dim for cache in model.caches):
        return False
    return not plan.shares_tensors


def _is_quantized(kind: str) -> bool:
    return tensor_type(kind).block_size > 1


def _graph(model: Model, plan: Plan, layer_devices: Sequence[int], whole: bool) -> Build:
    sequences = plan.slots
    tokens = -(-min(plan.n_ubatch, plan.n_ctx) // sequences) * sequences
    windows, own = reads_windows(model), plan.own
    turned = plan.build >= TURNED_CACHE_BUILD
    batch = Batch(
        tokens=tokens,
        outputs=min(plan.outputs, tokens),
        sequences=sequences,
        streams=plan.streams,
        cells=plan.cells,
        window_cells=cache_bytes(model, plan).window_cells or plan.cells,
        flash=plan.flash,
        half_masks=plan.build >= HALF_MASK_BUILD or (own is not None and own.ready_masks),
        ready_embeddings=plan.build >= TWO_INPUT_COPIES_BUILD,
        windows=windows,
        states_kept=plan.states_kept,
        turned_keys=turned and _is_quantized(plan.type_k),
        turned_values=turned and _is_quantized(plan.type_v),
        copied_keys=plan.copied_caches[0],
        copied_values=plan.copied_caches[1],
        key_type=tensor_type(plan.type_k),
        value_type=tensor_type(plan.type_v),
        own_order=own is not None and own.text_alone,
        joint_experts=own is not None and own.joint_experts,
        cache_on_devices=plan.kv_on_gpu,
        keeps_norms=tokens < LEAST_ROWS or plan.gpu_layers > plan.num_layers,
    )
    _load_lowerings(model)
    build = Build(batch, _graph_of(model, plan.build))
    hidden: Tensor | None = None
    for block, device, is_last, homes in _kept(model, plan, layer_devices, whole):
        hidden = build.run(block, hidden, device, is_last, homes)
    if hidden is not None:
        build.graph.expand(hidden, True)
    return build


@lru_cache(maxsize=64)
def _load_lowerings(model: Model) -> None:
    """Those of plain decoders, and further ones only for a model that has them: the start stays quick."""
    for name in ("decoders", "experts", "latent", "delta_net", "gemma"):
        if lowerings_known(_kinds(model)[0]):
            return
        import_module(f"vramwise.serving.llama_cpp.ggml.{name}")


@lru_cache(maxsize=64)
def _graph_of(model: Model, number: int) -> GraphOf:
    kind = model.config.model_type
    widths = (c.num_key_value_heads * c.value_head_dim for block in model.layers() for c in block.caches)
    return GraphOf(
        value_width=max(widths, default=0),
        positions=4 if has_fact("any", "three_positions", kind) else 1,  # llama_hparams n_pos_per_embd
        sum_order=fact_value("llama.cpp", "parallel_sum", kind) or "",
        residual_first=fact_value("llama.cpp", "residual_first", kind) or "",
        scales_queries=has_fact("llama.cpp", "scales_queries", kind),
        normalizes_experts=has_fact("llama.cpp", "normalizes_experts", kind),
        scales_experts=model.config.get("routed_scaling_factor") not in (None, 0, 1),
        late_rows=fact_value("llama.cpp", "late_rows", kind, (number,)) or "",
        deep_inputs=deep_inputs(model),
        joint_experts=has_fact("llama.cpp", "joint_experts", kind),
        rotary_factors=max((tensor.numel for tensor in rotary_factors(model)), default=0),
    )


def _kept(model: Model, plan: Plan, devices: Sequence[int], whole: bool) -> Iterator[tuple[Block, int, bool, Homes]]:
    """Blocks in order, of repeating ones as many as matter, each with its device, whether it is the last layer, and
    where its parameters lie."""
    blocks, kinds = _kinds(model)
    layers = [index for index, block in enumerate(blocks) if block.layer is not None]
    first, last = layers[0], layers[-1]
    held = tuple(devices[min(blocks[i].layer or 0, len(devices) - 1)] for i in layers)
    places = (held[0],) * first + held  # norms of the embeddings run with the first layer
    places += (devices[-1],) * (len(blocks) - len(places))
    deep = deep_inputs(model)
    firsts = tuple(block.layer is not None and block.layer < deep for block in blocks)
    keys = list(zip(kinds, places, homes_of(model, plan, blocks, places), firsts, strict=True))
    place = 0
    while place < len(blocks):
        period, repeats = (1, 1) if whole or place >= last else _repeats(keys, place, last)
        least = _KEPT_REPEATS if period == 1 else 2
        kept = min(repeats, least + (repeats - least) % 2)
        for index in range(place, place + period * kept):
            yield blocks[index], keys[index][1], index == last, keys[index][2]
        place += period * repeats


@lru_cache(maxsize=64)
def _kinds(model: Model) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    """The blocks of the language model, and a number for each that equal ones share."""
    blocks = tuple(block for block in model.blocks if block.modality == "text")
    met: dict[object, int] = {}
    return blocks, tuple(met.setdefault((block.signature, block.caches), len(met)) for block in blocks)


def _repeats(keys: Sequence[object], place: int, end: int) -> tuple[int, int]:
    """The period and number of repeats that take most blocks from a place on, before the end."""
    best = (1, 1)
    for period in range(1, _LONGEST_PERIOD + 1):
        many = 1
        first = keys[place : place + period]
        while place + (many + 1) * period <= end and first == keys[place + many * period : place + (many + 1) * period]:
            many += 1
        if many > 1 and period * many > best[0] * best[1]:
            best = (period, many)
    return best
