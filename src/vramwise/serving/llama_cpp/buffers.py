"""Compute, host and output buffers: what the graph allocator reserves for the worst batch.

The graph allocator reuses memory from node to node, so a device needs the larger of its moments: the logits, or a
block with its masks. Checked against buffer lines of logs and against llama-fit-params of 0c1e57098 (scratch.py);
u = physical batch, V = vocabulary, E = hidden size, H = heads, n = cells of one stream.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models import Model
from vramwise.result import Node
from vramwise.serving.constants import constant
from vramwise.serving.llama_cpp.cache import cache_bytes
from vramwise.serving.llama_cpp.placement import Placement
from vramwise.serving.llama_cpp.scratch import Sizes, attention_bytes, feed_forward_bytes, index_bytes, sizes_of
from vramwise.serving.llama_cpp.settings import (
    HALF_MASK_BUILD,
    IK_HALF_MASK_BUILD,
    TWO_INPUT_COPIES_BUILD,
    Plan,
    reads_windows,
)

INDEX_BYTES, IK_INDEX_BYTES = 24, 12  # a token's ids, position, output and cache slots
OFFLOADED_EXPERTS_BATCH = 4096  # ik_llama.cpp: from this batch on, experts on the host are computed on the GPU

_SOURCE = "buffer lines of llama.cpp and ik_llama.cpp start-up logs"


def compute_node(model: Model, plan: Plan, placed: Placement) -> Node:
    """Compute buffers, a child for each of several devices."""
    s = sizes_of(model)
    if not plan.devices:
        return Node("compute buffer", 0, "exact", formula="none: nothing runs on a GPU")
    work = _Work(model, plan, placed, s)
    alone = plan.devices == 1 or plan.pipelined
    exact_form = s.latent is None and alone and plan.output_on_gpu and not work.experts
    spread = constant("llama.cpp", "compute_spread" if exact_form else "compute_spread_other", (0,))
    main = placed.output_device if plan.output_on_gpu else 0  # the first device computes what lies on the host
    used = sorted({main, 0 if work.experts else main, *(one for one in placed.layer_devices if one >= 0)})
    nodes = []
    for device in range(plan.devices):
        part = work.on_device(device, device == main, device == used[0]) if device in used else 0
        nodes.append(Node(
            device_name(device), part, "calibrated", round(part * spread.low), round(part * spread.high),
            formula=work.formula, inputs=work.inputs, source=_SOURCE,
        ))  # fmt: skip
    if len(nodes) == 1:
        return replace(nodes[0], name="compute buffer")
    return Node.group("compute buffer", nodes, formula="Σ over devices", source=_SOURCE)


class _Work:
    """What one ubatch needs on a device: the logits, or a block with its masks, whichever is more."""

    def __init__(self, model: Model, plan: Plan, placed: Placement, s: Sizes) -> None:
        u, n = min(plan.n_ubatch, plan.n_ctx), plan.cells
        self.plan, self.s, self.u, self.n = plan, s, u, n
        self.logits = _logits_bytes(plan, s, u)
        if not plan.output_on_gpu and u >= 32:
            self.logits += placed.output_bytes
        self.attention, self.feed_forward = attention_bytes(plan, s, u, n), feed_forward_bytes(plan, s, u)
        narrow = (cache_bytes(model, plan).window_cells or n) if reads_windows(model) else 0
        self.masks = (2 if plan.flash else 4) * u * (n + narrow) + index_bytes(plan, s, u)
        casts = plan.flash and not plan.is_ik and plan.build < HALF_MASK_BUILD
        self.cast = 6 * u * (n + narrow) + 8 * u * s.hidden if casts else 0  # the f32 mask beside its copy in f16
        copied = placed.host_expert_bytes and not (plan.is_ik and plan.settings.fused_moe)
        self.experts = placed.host_expert_bytes if copied else 0
        self.inputs = {"u": u, "V": s.vocabulary, "E": s.hidden, "H": s.heads, "n": n, "copies": plan.input_copies,
                       "copied_output_bytes": placed.output_bytes if not plan.output_on_gpu else 0,
                       "copied_expert_bytes": self.experts}  # fmt: skip
        self.formula = "max(4·u·(V + E) + copied output, block + masks + copied experts)"

    def on_device(self, device: int, has_output: bool, is_first: bool) -> int:
        """Pipelined devices keep every copy of their inputs beside whichever is larger. Experts that lie on the host
        are computed on the first device, which copies them (ggml-backend.cpp, backend of a tensor by its weight)."""
        block = max(self.attention, self.feed_forward)
        if self.plan.input_copies > 1:
            hidden = (1 if is_first else 2) * 4 * self.u * self.s.hidden
            kept = self.plan.input_copies * (self.masks + hidden)
            return max(self.logits if has_output else 0, block) + kept
        if not block and not has_output:
            return self._unknown_block()
        experts = self.experts if device == 0 else 0
        block = max(self.cast, max(self.attention, self.feed_forward + experts) + self.masks)
        return max(self.logits, block) if has_output else block

    def _unknown_block(self) -> int:
        """ik_llama.cpp's block with flash attention."""
        masks = constant("llama.cpp", "device_mask_bytes_per_cell", (0,)).expected
        copies = constant("llama.cpp", "device_hidden_copies", (0,)).expected
        rest = constant("llama.cpp", "device_bytes_per_token", (0,)).expected
        return round(self.u * (masks * self.n + 4 * copies * self.s.hidden + rest))


def device_name(device: int) -> str:
    """A GPU as the result calls it."""
    return f"GPU {device}"


def _hidden_copies(plan: Plan, s: Sizes) -> int:
    """ik_llama.cpp keeps the residual beside the normed hidden states, but for layers with norms after them and for
    the graphs of GLM-4.5 to 4.7 (compute lines of their logs: 4·u·(V + E) to the byte)."""
    return 2 if plan.is_ik and not s.one_copy else 1


def _logits_bytes(plan: Plan, s: Sizes, u: int) -> int:
    """4·u·(V + E); ik_llama.cpp caps logits (Gemma 2 and 4) into a tensor of their own: no in-place operation of its
    graph allocator, ggml-alloc.c ggml_op_can_inplace."""
    capped = 2 if plan.is_ik and s.caps_logits else 1
    return 4 * u * (capped * s.vocabulary + _hidden_copies(plan, s) * s.hidden)


def host_node(model: Model, plan: Plan) -> Node:
    """Pinned inputs beside a GPU (mask, embeddings), or the whole compute buffer of a run on the CPU."""
    s = sizes_of(model)
    u, n = min(plan.n_ubatch, plan.n_ctx), plan.cells
    narrow = (cache_bytes(model, plan).window_cells or n) if reads_windows(model) else 0
    inputs = {"u": u, "n": n, "E": s.hidden, "window_cells": narrow}
    if not plan.devices:
        logits = _logits_bytes(plan, s, u)
        attention = 0 if plan.flash or not s.heads else 4 * u * s.heads * n + 4 * u * n + 16 * u * s.hidden
        size = max(logits, attention and attention + 4 * u * narrow)
        spread = constant("llama.cpp", "cpu_spread", (0,))
        return Node(
            "host buffer", size, "calibrated", round(size * spread.low), round(size * spread.high),
            formula="as a compute buffer: max(4·u·(V + E), attention)", inputs=inputs, source=_SOURCE,
        )  # fmt: skip
    cells, copies = u * (n + narrow) * plan.input_copies, _input_copies(model, plan, u) + plan.input_copies - 1
    rest = copies * 4 * u * s.hidden + (IK_INDEX_BYTES if plan.is_ik else INDEX_BYTES) * u
    rest += index_bytes(plan, s, u) * plan.input_copies * (2 if reads_windows(model) else 1)  # a cache of each kind
    half, whole = 2 * cells + rest, 4 * cells + rest
    stated = plan.build_is_stated
    newest = plan.build >= (IK_HALF_MASK_BUILD if plan.is_ik else HALF_MASK_BUILD)
    expected = half if plan.flash and newest and (stated or not plan.is_ik) else whole
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
