"""`serve` with llama.cpp, ik_llama.cpp or ollama: the buffer lines of its log, summed over devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Capacity, Node, Phase, Quantity, Rank, Result, Verdict
from vramwise.scenario import Scenario
from vramwise.serving.answer import amount, assemble, capacity_of, context_node, interval, resolved, verdict_of
from vramwise.serving.constants import constant
from vramwise.serving.llama_cpp.buffers import compute_node, host_node, output_node
from vramwise.serving.llama_cpp.cache import CacheBytes, cache_bytes
from vramwise.serving.llama_cpp.fitting import (
    LEAST_CONTEXT,
    Needed,
    fewest_host_experts,
    largest_context,
    most_layers,
    with_context,
)
from vramwise.serving.llama_cpp.placement import Placement, placement
from vramwise.serving.llama_cpp.quantizer import file_tensors
from vramwise.serving.llama_cpp.settings import AUTO_CONTEXT_BUILD, DEFAULT_QUANT, Plan, resolve_plan

_KV_SOURCE = "llama.cpp src/llama-kv-cache.cpp"
_FILE_SOURCE = "llama.cpp src/llama-quant.cpp llama_tensor_get_type"


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """Weights by side, KV cache, recurrent states, compute, host and output buffers, and the process around them.

    Sizes of quantized tensors are exact for the quantizer's own mixes; `gguf_quant: custom` leaves the weights out.
    Not counted: prompt caches in host memory, vision projectors, other processes.
    """
    plan = resolve_plan(scenario, model)
    capacity = capacity_of(scenario, gpu)
    plan, shrunk = _fitted(scenario, model, plan, capacity, gpu)
    from_file = bool(file_tensors(model))
    custom = plan.file_type == "custom" and not from_file
    placed = placement(model, plan) if not custom else _unknown_placement(model, plan)
    nodes = _Nodes(model, plan, placed, custom, gpu)
    quantities = nodes.quantities()
    verdict: Verdict | None = None
    if capacity is not None and not custom and plan.devices:
        verdict = _verdict(model, plan, nodes, capacity)
        quantities["oom"] = Quantity.exact(not verdict.fits)
    phases = nodes.moments
    notes = _notes(scenario, plan, shrunk, from_file)
    table = resolved(scenario, "serve", plan.settings)
    ranks = (Rank("all devices" if plan.devices else "host", max(p.bytes for p in phases)),)
    return assemble(table, model, source, quantities, phases, capacity, verdict, notes, ranks)


def _unknown_placement(model: Model, plan: Plan) -> Placement:
    """What copies of weights take in a file whose types only its header tells: those of the common mix."""
    return placement(model, replace(plan, file_type=DEFAULT_QUANT))


class _Nodes:
    """The terms of one estimate."""

    def __init__(self, model: Model, plan: Plan, placed: Placement, custom: bool, gpu: Gpu | None) -> None:
        self.model, self.plan, self.placed, self.custom, self.gpu = model, plan, placed, custom, gpu
        self.cache: CacheBytes = cache_bytes(model, plan)
        inputs = {"gguf_quant": plan.file_type, "n_gpu_layers": plan.gpu_layers}
        self.gpu_weights = Node("weights", placed.gpu_bytes, "exact", formula="Σ tensors on the GPU", inputs=inputs,
                                source=_FILE_SOURCE)  # fmt: skip
        self.host_weights = Node("weights", placed.host_bytes, "exact", formula="Σ tensors on the host", inputs=inputs,
                                 source=_FILE_SOURCE)  # fmt: skip
        self.compute = compute_node(model, plan, placed)
        self.host = host_node(model, plan)
        self.output = output_node(model, plan)
        self.around = self._process(gpu)
        self.moments = self._phases()

    def _process(self, gpu: Gpu | None) -> tuple[Node, ...]:
        """Context of every device, and the pool in which cuBLAS products unpack weights."""
        if not self.plan.devices:
            return ()
        context = context_node(gpu)
        many = self.plan.devices
        contexts = Node("CUDA context", many * context.bytes, "calibrated", many * context.low, many * context.high,
                        formula=context.formula, source=context.source)  # fmt: skip
        share = constant("llama.cpp", "pool_share_of_largest_weight", (0,))
        largest = self.placed.largest_unpacked_bytes
        pool = Node("runtime pool", round(largest * share.expected), share.kind, round(largest * share.low),
                    round(largest * share.high), formula="largest quantized matrix of a layer in f16",
                    source=share.source)  # fmt: skip
        return contexts, pool

    def cache_nodes(self, on_gpu: bool) -> list[Node]:
        """Keys and values, recurrent states, of one side."""
        cache, plan = self.cache, self.plan
        kv = cache.kv_gpu_bytes if on_gpu else cache.kv_bytes - cache.kv_gpu_bytes
        state = cache.state_gpu_bytes if on_gpu else cache.state_bytes - cache.state_gpu_bytes
        inputs = {"cells": cache.full_cells, "window_cells": cache.window_cells, "streams": plan.streams,
                  "cache_type_k": plan.type_k, "cache_type_v": plan.type_v}  # fmt: skip
        nodes = [Node("KV cache", kv, "exact", formula="Σ cells × streams × (K row + V row)", inputs=inputs,
                      source=_KV_SOURCE)]  # fmt: skip
        if state:
            source = "llama.cpp src/llama-memory-recurrent.cpp"
            formula = "Σ state elements × 4 × slots"
            nodes.append(Node("recurrent state", state, "exact", formula=formula, source=source))
        return nodes

    def _phases(self) -> tuple[Phase, ...]:
        """Load, context, prompt: on the GPUs, or on the host of a run on the CPU."""
        if not self.plan.devices:
            held = (self.host_weights, *self.cache_nodes(False))
            return (
                Phase("load", Node.group("load", (self.host_weights,))),
                Phase("running", Node.group("running", (*held, self.host, self.output))),
            )
        contexts, pool = self.around
        held = (self.gpu_weights, *self.cache_nodes(True), self.compute, contexts)
        return (
            Phase("load", Node.group("load", (self.gpu_weights, contexts))),
            Phase("context", Node.group("context", held)),
            Phase("prompt", Node.group("prompt", (*held, pool))),
        )

    def quantities(self) -> dict[str, Quantity]:
        """The buffer lines; what needs the file's tensor types is left out for a custom mix."""
        found = {
            "params": Quantity.exact(self.model.num_parameters),
            "kv_cache_bytes": Quantity.exact(self.cache.kv_bytes),
            "host_buffer": interval(self.host),
            "output_buffer": interval(self.output),
        }
        if self.plan.devices:
            found["compute_buffer"] = interval(self.compute)
        if self.cache.state_bytes:
            found["recurrent_state_bytes"] = Quantity.exact(self.cache.state_bytes)
        if self.custom:
            return found
        found["weights"] = Quantity.exact(self.placed.file_bytes)
        found["weights_gpu"] = Quantity.exact(self.placed.gpu_bytes)
        found["weights_host"] = Quantity.exact(self.placed.host_bytes)
        if self.plan.devices:
            found["nvidia_smi"] = found["total_needed"] = interval(self.moments[-1].components)
        else:
            found["total_needed"] = interval(self.moments[-1].components)
        return found


def _fitted(
    scenario: Scenario, model: Model, plan: Plan, capacity: Capacity | None, gpu: Gpu | None
) -> tuple[Plan, bool]:
    """--fit: a context that was not asked for shrinks until everything fits, to 4,096 at least."""
    given = scenario.serve
    automatic = given.n_ctx is None and given.max_model_len is None and plan.build >= AUTO_CONTEXT_BUILD
    if not automatic or capacity is None or not plan.devices or plan.file_type == "custom":
        return plan, False
    if given.engine == "ollama" or plan.is_ik:
        return plan, False
    room = capacity.usable_bytes * plan.devices - round(constant("llama.cpp", "fit_margin", (0,)).expected)
    if plan.n_ctx <= LEAST_CONTEXT or _needed(model, plan, gpu) <= room:
        return plan, False
    found = largest_context(plan, room, lambda trial: _needed(model, trial, gpu), LEAST_CONTEXT)
    return with_context(plan, found or LEAST_CONTEXT), True


def _needed(model: Model, plan: Plan, gpu: Gpu | None) -> int:
    nodes = _Nodes(model, plan, placement(model, plan), False, gpu)
    return nodes.moments[-1].bytes


def _verdict(model: Model, plan: Plan, nodes: _Nodes, capacity: Capacity) -> Verdict:
    total = capacity.usable_bytes * plan.devices
    need = nodes.moments[-1].components
    room = Quantity(total - need.high, total - need.bytes, total - need.low)
    where = amount(total) if plan.devices == 1 else f"{amount(total)} of {plan.devices} GPUs"
    if need.bytes <= total:
        return verdict_of(room, [f"{amount(need.bytes)} fit in {where}"])
    reasons = [f"{amount(need.bytes)} do not fit in {where}"]
    reasons.extend(_fixes(model, plan, total, lambda trial: _needed(model, trial, nodes.gpu)))
    return verdict_of(room, reasons)


def _fixes(model: Model, plan: Plan, total: int, needed: Needed) -> Iterator[str]:
    """The smallest changes that fit, each on its own."""
    cells = largest_context(plan, total, needed)
    if cells:
        yield f"set n_ctx to {cells:,}"
    experts = fewest_host_experts(model, plan, total, needed)
    if experts:
        yield f"set n_cpu_moe to {experts}"
    layers = most_layers(plan, total, needed)
    if layers:
        yield f"set n_gpu_layers to {layers} of {plan.num_layers + 1}"
    if not (cells or experts or layers):
        yield "take a smaller file type, a larger GPU, or more of them"


def _notes(scenario: Scenario, plan: Plan, shrunk: bool, from_file: bool) -> tuple[str, ...]:
    notes = []
    if from_file:
        notes.append("sizes of the tensors are those of the file's header")
    elif scenario.serve.gguf_quant is None:
        notes.append(f"gguf_quant {plan.file_type} is assumed")
    if plan.file_type == "custom" and not from_file:
        notes.append("a custom mix of tensor types: only the file's header tells its size, weights are left out")
    if shrunk:
        notes.append(f"n_ctx shrinks to {plan.n_ctx:,} so that everything fits (--fit)")
    return tuple(notes)
