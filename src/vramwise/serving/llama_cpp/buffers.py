"""Compute, host and output buffers: what the graph allocator reserves for the worst batch.

The graph allocator reuses memory from node to node, so a device needs the larger of its moments: the logits, or a
block with its masks. Checked against buffer lines of logs and against llama-fit-params of 0c1e57098 (scratch.py);
u = physical batch, o = tokens of it with logits, V = vocabulary, E = hidden size, H = heads, n = cells of one stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vramwise.memo import of_model
from vramwise.models import Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.result import Node
from vramwise.serving.common.constants import constant
from vramwise.serving.llama_cpp.builds import (
    HALF_MASK_BUILD,
    IK_HALF_MASK_BUILD,
    IK_SLOTS_ALONE_BUILD,
    KEPT_FOR_KERNELS_BUILD,
    TWO_INPUT_COPIES_BUILD,
)
from vramwise.serving.llama_cpp.cache import cache_bytes
from vramwise.serving.llama_cpp.devices import HOST
from vramwise.serving.llama_cpp.ggml.reserve import compute_buffers
from vramwise.serving.llama_cpp.own_engine import most_pool_bytes
from vramwise.serving.llama_cpp.placement import Placement, told_device, told_rules
from vramwise.serving.llama_cpp.scratch import (
    Sizes,
    attention_bytes,
    feed_forward_bytes,
    index_bytes,
    masks_of_a_cache,
    mixer_bytes,
    sizes_of,
)
from vramwise.serving.llama_cpp.settings import Plan, reads_windows, runs_itself

INDEX_BYTES, IK_INDEX_BYTES = 24, 12  # a token's ids, position, output and cache slots
LEAST_OFFLOADED_BATCH = 32  # tokens from which on a product with a weight on the host is computed on the GPU
OFFLOADED_EXPERTS_BATCH = 4096  # ik_llama.cpp: from this batch on, experts on the host are computed on the GPU

_WHOLE_MASK, _CAST_MASK = 2, 4  # bytes of a cell in f32 more than in f16; in f32 beside the f16 made of it
_GRAPH_SOURCE = "llama.cpp src/llama-graph.cpp, ggml/src/ggml-alloc.c, ggml-backend.cpp (0c1e57098)"
_SOURCE = "buffer lines of llama.cpp and ik_llama.cpp start-up logs"


def compute_node(model: Model, plan: Plan, placed: Placement) -> Node:
    """Compute buffers, a child for each of several devices."""
    if not plan.devices:
        return Node("compute buffer", 0, "exact", formula="none: nothing runs on a GPU")
    replayed = _replayed(model, plan, placed.layer_devices)
    if replayed is not None:
        few, many = replayed[0][:-1], replayed[1][:-1]
        nodes = [
            _graph_node(device_name(i), low, size, model, plan, _CAST_MASK)
            for i, (low, size) in enumerate(zip(few, many, strict=True))
        ]
        if plan.own is not None and plan.own.counts_pool and plan.backend == "cuda":
            pool = most_pool_bytes(model, min(plan.n_ubatch, plan.n_ctx))
            nodes = [
                replace(node, bytes=node.bytes + plan.attention_pool, high=node.high + max(pool, plan.attention_pool))
                for node in nodes
            ]
        return _over_devices(nodes)
    s = sizes_of(model)
    work = fewest = _Work(model, plan, placed, s)
    if plan.may_keep_fewer_logits:
        fewest = _Work(model, replace(plan, settings=plan.settings.replace(logits_all=False)), placed, s)
    alone = plan.devices == 1 or plan.pipelined
    logits = plan.outputs > plan.fewest_outputs
    exact_form = s.latent is None and alone and plan.output_on_gpu and not work.experts and (logits or s.mixer is None)
    spread = constant("llama.cpp", "compute_spread" if exact_form else "compute_spread_other", (0,))
    main = placed.output_device if plan.output_on_gpu else 0  # the first device computes what lies on the host
    used = sorted({main, 0 if work.experts else main, *(one for one in placed.layer_devices if one >= 0)})
    nodes = []
    for device in range(plan.devices):
        part, least = (
            one.on_device(device, device == main, device == used[0]) if device in used else 0 for one in (work, fewest)
        )
        nodes.append(Node(
            device_name(device), part, "calibrated", round(least * spread.low), round(part * spread.high),
            formula=work.formula, inputs=work.inputs, source=_SOURCE,
        ))  # fmt: skip
    return _over_devices(nodes)


def _over_devices(nodes: Sequence[Node]) -> Node:
    if len(nodes) == 1:
        return replace(nodes[0], name="compute buffer")
    return Node.group("compute buffer", nodes, formula="Σ over devices", source=nodes[0].source)


def _replayed(model: Model, plan: Plan, devices: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Bytes by device and, last, of the host, with the fewest logits that may be meant, before kernels kept what they
    read, and as the newest build has it; None where the graph of the model or of the settings is not described."""
    most = compute_buffers(model, plan, devices)
    if most is None or not plan.may_keep_fewer_logits:
        return None if most is None else (most, most)
    before = replace(plan, build=KEPT_FOR_KERNELS_BUILD - 1, settings=plan.settings.replace(logits_all=False))
    few = compute_buffers(model, before, devices)
    return None if few is None else (few, most)


def _graph_node(name: str, least: int, size: int, model: Model, plan: Plan, wider: int) -> Node:
    """`wider`: bytes that builds before b9390 take more for each cell of a mask, which a run without a build may be."""
    u, n = min(plan.n_ubatch, plan.n_ctx), plan.cells
    high = size
    if plan.file_type == "custom" and plan.copies_weights and wider == _CAST_MASK:  # copies have the common mix's sizes
        spread = constant("llama.cpp", "compute_spread_other", (0,))
        least, high = round(least * spread.low), round(high * spread.high)
    if plan.flash and not plan.build_is_stated:
        narrow = cache_bytes(model, plan).window_cells if reads_windows(model) else 0
        high += wider * u * (n + narrow) * plan.input_copies
    return Node(name, size, "derived", min(least, size), high, formula="the graph of the worst batch, replayed through "
                "ggml's allocator", inputs={"u": u, "o": plan.outputs, "n": n, "copies": plan.input_copies},
                source=_GRAPH_SOURCE)  # fmt: skip


class _Work:
    """What one ubatch needs on a device: the logits, or a block with its masks, whichever is more."""

    def __init__(self, model: Model, plan: Plan, placed: Placement | None, s: Sizes) -> None:
        u, n = min(plan.n_ubatch, plan.n_ctx), plan.cells if s.heads else 0
        self.plan, self.s, self.u, self.n = plan, s, u, n
        self.logits = _logits_bytes(plan, s, plan.outputs)
        copied_output = placed.output_bytes if placed and not plan.output_on_gpu else 0
        if u >= LEAST_OFFLOADED_BATCH:
            self.logits += copied_output
        mixer = 0 if plan.is_ik else mixer_bytes(plan, s, u)
        self.attention, self.feed_forward = max(attention_bytes(plan, s, u, n), mixer), feed_forward_bytes(plan, s, u)
        narrow = (cache_bytes(model, plan).window_cells or n) if reads_windows(model) else 0
        self.masks = (2 if plan.flash else 4) * u * (n * masks_of_a_cache(plan, s) + narrow) + index_bytes(plan, s, u)
        casts = plan.flash and not plan.is_ik and plan.build < HALF_MASK_BUILD
        self.cast = 6 * u * (n + narrow) + 8 * u * s.hidden if casts else 0  # the f32 mask beside its copy in f16
        # the CPU alone reads repacked rows (ik_llama.cpp: types …_R4, …_R8 have no CUDA kernels)
        stays = plan.is_ik and (plan.settings.fused_moe or plan.settings.run_time_repack)
        few = u < LEAST_OFFLOADED_BATCH and not plan.is_ik
        self.experts = placed.host_expert_bytes if placed is not None and not stays and not few else 0
        self.layer_rows = 4 * u * _layer_row_width(model)  # every layer reads its part (gemma4.cpp inp_per_layer)
        self.inputs = {"u": u, "o": plan.outputs, "V": s.vocabulary, "E": s.hidden, "H": s.heads, "n": n,
                       "copies": plan.input_copies,
                       "copied_output_bytes": copied_output,
                       "copied_expert_bytes": self.experts}  # fmt: skip
        self.formula = "max(4·o·(V + E) + copied output, block + masks + copied experts + rows for each layer)"

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
        block = self.block(self.experts if device == 0 else 0)
        return max(self.logits, block) if has_output else block

    def block(self, experts: int = 0) -> int:
        """A block with its masks, and the experts of the host that are copied for it."""
        return max(self.cast, max(self.attention, self.feed_forward + experts) + self.masks + self.layer_rows)

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


def _logits_bytes(plan: Plan, s: Sizes, outputs: int) -> int:
    """4·o·(V + E); ik_llama.cpp caps logits (Gemma 2 and 4) into a tensor of their own: no in-place operation of its
    graph allocator, ggml-alloc.c ggml_op_can_inplace."""
    capped = 2 if plan.is_ik and s.caps_logits else 1
    return 4 * outputs * (capped * s.vocabulary + _hidden_copies(plan, s) * s.hidden)


def host_node(model: Model, plan: Plan, placed: Placement) -> Node:
    """Pinned inputs beside a GPU (mask, embeddings), or the whole compute buffer of a run on the CPU."""
    replayed = _replayed(model, plan, placed.layer_devices)
    if replayed is not None:
        wider = _WHOLE_MASK if plan.devices else _CAST_MASK
        return _graph_node("host buffer", replayed[0][-1], replayed[1][-1], model, plan, wider)
    s = sizes_of(model)
    u, n = min(plan.n_ubatch, plan.n_ctx), plan.cells if s.heads else 0
    narrow = (cache_bytes(model, plan).window_cells or n) if reads_windows(model) else 0
    inputs = {"u": u, "n": n, "E": s.hidden, "window_cells": narrow}
    if not plan.devices:
        work = _Work(model, plan, None, s)
        more = 4 * u * s.hidden if plan.build >= TWO_INPUT_COPIES_BUILD and not plan.is_ik else 0
        size = max(work.logits, work.block()) + more
        least = size if not plan.may_keep_fewer_logits else work.block()
        spread = constant("llama.cpp", "cpu_spread", (0,))
        return Node(
            "host buffer", size, "calibrated", round(least * spread.low), round(size * spread.high),
            formula="as a compute buffer: max(4·o·(V + E), block + masks); since b8000 4·u·E more",
            inputs={**inputs, "o": plan.outputs, "V": s.vocabulary}, source=_SOURCE,
        )  # fmt: skip
    cells = u * (n * masks_of_a_cache(plan, s) + narrow) * plan.input_copies
    copies = _input_copies(model, plan, u) + plan.input_copies - 1
    rest = copies * 4 * u * s.hidden + (IK_INDEX_BYTES if plan.is_ik else INDEX_BYTES) * u
    rest += index_bytes(plan, s, u) * plan.input_copies * (2 if reads_windows(model) else 1)  # a cache of each kind
    rest += 4 * u * _looked_up_width(model, plan)
    half, whole = 2 * cells + rest, 4 * cells + rest
    stated = plan.build_is_stated
    newest = plan.build >= (IK_HALF_MASK_BUILD if plan.is_ik else HALF_MASK_BUILD)
    expected = half if plan.flash and newest and (stated or not plan.is_ik) else whole
    low = half if plan.flash and (newest or not stated) else expected
    high = whole if newest and not stated else expected
    return Node(
        "host buffer", expected, "calibrated", low, max(high, expected),
        formula="(2 or 4)·u·n of the mask (and of the windowed one) + copies · 4·u·E of the embeddings "
                "(once of those for each layer)",
        inputs=inputs, source=_SOURCE,
    )  # fmt: skip


def _looked_up_width(model: Model, plan: Plan) -> int:
    """The embeddings for each layer are read where their table lies, which is the host (llama-arch.cpp
    LLM_TENSOR_PER_LAYER_TOKEN_EMBD), but for a rule that sends it to a device."""
    told = told_device("per_layer_token_embd", None, told_rules(plan))
    return _layer_row_width(model) if told in (None, HOST) else 0


@of_model
def _layer_row_width(model: Model) -> int:
    """Of a token's embeddings for each layer (Gemma 3n, Gemma 4's E models)."""
    tables = (p.shape[1] for p in model.all_parameters if p.module.endswith("embed_tokens_per_layer"))
    return next(tables, 0)


def _input_copies(model: Model, plan: Plan, u: int) -> int:
    """Hidden-size inputs; ik_llama.cpp keeps every chosen expert's output where experts run on the host."""
    if plan.is_ik:
        experts = (op for block in model.layers() for op in block.operations(ExpertMlps))
        chosen = max((op.experts_per_token for op in experts), default=0)
        return chosen if chosen and plan.experts_on_host and u < OFFLOADED_EXPERTS_BATCH else 1
    return (2 if plan.build >= TWO_INPUT_COPIES_BUILD else 1) + sizes_of(model).deep_inputs


def output_node(model: Model, plan: Plan) -> Node:
    """Logits of one token a slot on the host: 4·V·slots.

    ik_llama.cpp's llama-server of before November 2025 asks for one sequence more than it has slots, its other programs
    do not (examples/server/server.cpp load_model, until 7978f0499).
    """
    one = 4 * model.logit_width
    if plan.settings.engine == "ollama" and runs_itself(plan.settings):
        one += 4 * model.hidden_size  # its runners ask for embeddings too (llama/llama.go NewContextParams)
    size = one * plan.slots
    one_more = plan.is_ik and not (plan.build_is_stated and plan.build >= IK_SLOTS_ALONE_BUILD)
    high = size + one if one_more else size
    return Node(
        "output buffer", size, "calibrated" if plan.is_ik else "derived", size, high,
        formula="4 · V · slots, of ollama's own runners 4 · (V + E) · slots",
        inputs={"V": model.logit_width, "slots": plan.slots}, source="llama.cpp src/llama-context.cpp output_reserve",
    )  # fmt: skip
