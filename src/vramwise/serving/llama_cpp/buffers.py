"""Compute, host and output buffers: what the graph allocator reserves for the worst batch.

Formulas fitted to buffer lines of llama.cpp and ik_llama.cpp logs and checked there (constants.csv names them);
u = physical batch, V = vocabulary, E = hidden size, H = heads, n = cells of one stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from vramwise.models import Model
from vramwise.result import Node
from vramwise.serving.constants import constant
from vramwise.serving.llama_cpp.cache import cache_bytes
from vramwise.serving.llama_cpp.placement import Placement
from vramwise.serving.llama_cpp.settings import HALF_MASK_BUILD, TWO_INPUT_COPIES_BUILD, Plan, reads_windows
from vramwise.units import MIB

NO_FLASH_BYTES_PER_TOKEN = 8192  # newest builds without flash attention
INDEX_BYTES, IK_INDEX_BYTES = 24, 12  # a token's ids, position, output and cache slots
OFFLOADED_EXPERTS_BATCH = 4096  # ik_llama.cpp: from this batch on, experts on the host are computed on the GPU

_SOURCE = "buffer lines of llama.cpp and ik_llama.cpp start-up logs"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the formulas read of a model."""

    vocabulary: int
    hidden: int
    heads: int
    head_bytes: int
    latent: bool
    recurrent: bool
    one_copy: bool


@lru_cache(maxsize=256)
def sizes_of(model: Model) -> Sizes:
    """Vocabulary, widths and heads of a model."""
    heads = width = 0
    latent = recurrent = False
    for block in model.layers():
        for cache in block.caches:
            latent |= cache.kind == "latent"
            recurrent |= cache.kind == "recurrent"
        for op in block.ops:
            if op.kind.endswith("attention") and not heads:
                heads = op.settings["num_heads"]
                width = op.inputs[1].width + op.inputs[2].width
    norms = max((sum(op.kind in ("rms_norm", "layer_norm") and op.module.count(".") == 0 for op in block.ops)
                 for block in model.layers()), default=0)  # fmt: skip
    one_copy = norms > 2 or model.config.model_type in _ONE_HIDDEN_COPY
    return Sizes(model.logit_width, model.hidden_size, heads, 2 * width, latent, recurrent, one_copy)


def compute_node(model: Model, plan: Plan, placed: Placement) -> Node:
    """Compute buffers, a child for each of several devices."""
    s = sizes_of(model)
    u, n = min(plan.n_ubatch, plan.n_ctx), plan.cells
    if not plan.devices:
        return Node("compute buffer", 0, "exact", formula="none: nothing runs on a GPU")
    logits = 4 * u * (s.vocabulary + _hidden_copies(plan, s) * s.hidden)
    size = max(logits, _scores(plan, s, u, n), _latent_scratch(plan, s, u, n))
    inputs: dict[str, int] = {"u": u, "V": s.vocabulary, "E": s.hidden, "H": s.heads, "n": n}
    exact_form = not s.latent and plan.devices == 1 and plan.output_on_gpu
    if not plan.output_on_gpu and u >= 32:
        size += placed.output_bytes
        inputs["copied_output_bytes"] = placed.output_bytes
    if placed.host_expert_bytes and not (plan.is_ik and plan.settings.fused_moe):
        size += placed.host_expert_bytes
        inputs["copied_expert_bytes"] = placed.host_expert_bytes
        exact_form = False
    spread = constant("llama.cpp", "compute_spread" if exact_form else "compute_spread_other", (0,))
    formula = "max(4·u·(V + E), 4·u·H·n + 4·u·n + 16·u·E without flash attention) + copied weights"
    main, other = max(placed.output_device, 0), _device_without_output(plan, s, u, n)
    used = {main, *(one for one in placed.layer_devices if one >= 0)}
    parts = [size if device == main else other if device in used else 0 for device in range(plan.devices)]
    nodes = tuple(
        Node(
            device_name(device), part, "calibrated", round(part * spread.low), round(part * spread.high),
            formula=formula if device == main else "attention and MLP of a device without the output",
            inputs=inputs, source=_SOURCE,
        ) for device, part in enumerate(parts)
    )  # fmt: skip
    if len(nodes) == 1:
        return replace(nodes[0], name="compute buffer")
    return Node.group("compute buffer", nodes, formula="Σ over devices", source=_SOURCE)


def device_name(device: int) -> str:
    """A GPU as the result calls it."""
    return f"GPU {device}"


_ONE_HIDDEN_COPY = frozenset({"glm4_moe", "glm4_moe_lite"})


def _hidden_copies(plan: Plan, s: Sizes) -> int:
    """ik_llama.cpp keeps the residual beside the normed hidden states, but for layers with norms after them and for
    the graphs of GLM-4.5 to 4.7 (compute lines of their logs: 4·u·(V + E) to the byte)."""
    return 2 if plan.is_ik and not s.one_copy else 1


def _scores(plan: Plan, s: Sizes, u: int, n: int) -> int:
    """Attention without flash attention: scores of all heads, the mask, and four hidden-size tensors."""
    if plan.flash or not s.heads:
        return 0
    return 4 * u * s.heads * n + 4 * u * n + 16 * u * s.hidden


def _latent_scratch(plan: Plan, s: Sizes, u: int, n: int) -> int:
    """ik's -mla 2 and 3 with flash attention unpack keys and values of every head; -amb caps the scores."""
    if not s.latent or not plan.is_ik or plan.latent not in (2, 3):
        return 0
    scores = 4 * u * s.heads * n
    cap = (plan.settings.attn_max_b or 0) * MIB
    unpacked = s.heads * s.head_bytes * n
    return unpacked + (min(scores, cap) if cap else scores) + 2 * u * (s.vocabulary + s.hidden)


def _device_without_output(plan: Plan, s: Sizes, u: int, n: int) -> int:
    """Attention and MLP of a device that does not hold the output."""
    scratch = max(_scores(plan, s, u, n), _latent_scratch(plan, s, u, n))
    if scratch:
        return scratch
    masks = constant("llama.cpp", "device_mask_bytes_per_cell", (0,)).expected
    copies = constant("llama.cpp", "device_hidden_copies", (0,)).expected
    rest = constant("llama.cpp", "device_bytes_per_token", (0,)).expected
    return round(u * (masks * n + 4 * copies * s.hidden + rest))


def host_node(model: Model, plan: Plan) -> Node:
    """Pinned inputs beside a GPU (mask, embeddings), or the whole compute buffer of a run on the CPU."""
    s = sizes_of(model)
    u, n = min(plan.n_ubatch, plan.n_ctx), plan.cells
    narrow = (cache_bytes(model, plan).window_cells or n) if reads_windows(model) else 0
    inputs = {"u": u, "n": n, "E": s.hidden, "window_cells": narrow}
    if not plan.devices:
        logits = 4 * u * (s.vocabulary + _hidden_copies(plan, s) * s.hidden)
        attention = _scores(plan, s, u, n)
        size = max(logits, attention and attention + 4 * u * narrow)
        spread = constant("llama.cpp", "cpu_spread", (0,))
        return Node(
            "host buffer", size, "calibrated", round(size * spread.low), round(size * spread.high),
            formula="as a compute buffer: max(4·u·(V + E), attention)", inputs=inputs, source=_SOURCE,
        )  # fmt: skip
    cells, copies = u * (n + narrow), _input_copies(model, plan, u)
    rest = copies * 4 * u * s.hidden + (IK_INDEX_BYTES if plan.is_ik else INDEX_BYTES) * u
    newest = plan.build >= HALF_MASK_BUILD
    rest += NO_FLASH_BYTES_PER_TOKEN * u if newest and not plan.flash and not plan.is_ik else 0
    half, whole = 2 * cells + rest, 4 * cells + rest
    stated = plan.settings.engine_version is not None
    expected = half if newest and plan.flash and not plan.is_ik else whole
    low = half if plan.flash and (newest or not stated) else expected
    high = whole if newest and not stated else expected
    return Node(
        "host buffer", expected, "calibrated", low, max(high, expected),
        formula="(2 or 4)·u·n of the mask (and of the windowed one) + copies · 4·u·E of the embeddings",
        inputs=inputs, source=_SOURCE,
    )  # fmt: skip


def _input_copies(model: Model, plan: Plan, u: int) -> int:
    """Hidden-size inputs; ik_llama.cpp keeps every chosen expert's output where experts run on the host."""
    chosen = max((op.settings["experts_per_token"] for b in model.layers() for op in b.ops if op.kind == "experts"),
                 default=0)  # fmt: skip
    if plan.is_ik:
        return chosen if chosen and plan.experts_on_host and u < OFFLOADED_EXPERTS_BATCH else 1
    return 2 if plan.build >= TWO_INPUT_COPIES_BUILD else 1


def output_node(model: Model, plan: Plan) -> Node:
    """Logits of one token a slot on the host: 4·V·slots; ik logs show one or two."""
    one = 4 * model.logit_width
    size = one * plan.slots
    high = 2 * size if plan.is_ik else size
    return Node(
        "output buffer", size, "calibrated" if plan.is_ik else "derived", size, high, formula="4 · V · slots",
        inputs={"V": model.logit_width, "slots": plan.slots}, source="llama.cpp src/llama-context.cpp output_reserve",
    )  # fmt: skip
