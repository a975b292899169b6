"""What llama.cpp and ollama change by themselves so that a model loads: the context, the split, what stays on the host.

Source: ggml-org/llama.cpp common/fit.cpp (08033df0; on by default since PR 16653, December 2025): 1 GiB stays free on
every device; a context that was not asked for shrinks to 4,096 at least; then layers fill the devices from the last on,
of a model with experts first without these, and the rest goes to the host. It gives up where layers, a split or
overrides are set by hand. ollama since v0.30.0 starts llama-server with a context and without layers
(llm/llama_server.go); before, it put on the GPU the layers that its own prediction had room for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Capacity
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.answer import amount
from vramwise.serving.common.constants import constant
from vramwise.serving.llama_cpp.builds import AUTO_CONTEXT_BUILD, OUTPUT_FIRST_BUILD
from vramwise.serving.llama_cpp.cache import layer_cache_bytes
from vramwise.serving.llama_cpp.fitting import (
    LEAST_CONTEXT,
    DeviceNeeds,
    fewest_host_experts,
    fitting_split,
    largest_context,
    most_layers,
    with_context,
    with_host_experts,
    with_layers,
    with_split,
    worst,
)
from vramwise.serving.llama_cpp.placement import placement
from vramwise.serving.llama_cpp.settings import Plan, runs_itself
from vramwise.units import GIB


def fitted(
    scenario: Scenario, model: Model, plan: Plan, capacity: Capacity | None, needs: DeviceNeeds, gpu: Gpu | None = None
) -> tuple[Plan, tuple[str, ...]]:
    """The plan that the engine loads, and what it changed. Of shared memory the host's part has to fit too."""
    found, notes = _fitted(scenario, model, plan, capacity, needs, gpu)
    return found, (*notes, *_fits_alone(scenario.serve, plan, capacity, needs))


def _fits_alone(given: ServeSettings, plan: Plan, capacity: Capacity | None, needs: DeviceNeeds) -> Iterator[str]:
    """Why --fit was asked for, or turned off, and changed nothing."""
    if given.fit is None or capacity is None or not plan.devices or plan.file_type == "custom":
        return
    if plan.is_ik or plan.build < AUTO_CONTEXT_BUILD:
        yield "fit changed nothing here: this build does not fit its plan to the card"
    elif max(needs(plan)) <= capacity.usable_bytes - round(constant("llama.cpp", "fit_margin", (0,)).expected):
        yield "fit changed nothing here: everything has room without it"


def _fitted(
    scenario: Scenario, model: Model, plan: Plan, capacity: Capacity | None, needs: DeviceNeeds, gpu: Gpu | None
) -> tuple[Plan, tuple[str, ...]]:
    given = scenario.serve
    if capacity is None or not plan.devices or plan.file_type == "custom" or plan.is_ik or given.fit is False:
        return plan, ()
    room = capacity.usable_bytes
    if runs_itself(given):
        return _with_the_rest_on_the_host(scenario, model, plan, room, needs, gpu)
    if plan.build < AUTO_CONTEXT_BUILD:
        return plan, ()
    room -= round(constant("llama.cpp", "fit_margin", (0,)).expected)
    if max(needs(plan)) <= room:
        return plan, ()
    notes: list[str] = []
    asked = given.engine == "ollama" or given.n_ctx is not None or given.max_model_len is not None
    if not asked and plan.n_ctx > LEAST_CONTEXT:
        found = largest_context(plan, plan.devices * room, lambda trial: sum(needs(trial)), LEAST_CONTEXT)
        plan = with_context(plan, found or LEAST_CONTEXT)
        notes.append(f"n_ctx shrinks to {plan.n_ctx:,} so that everything fits (--fit)")
    if plan.devices > 1 and not given.tensor_split and given.n_gpu_layers is None and not plan.shares_tensors:
        split = fitting_split(plan, room, needs) if max(needs(plan)) > room else ()
        if split:
            plan = with_split(plan, split)
            notes.append(f"layers are dealt out {' + '.join(map(str, split))} so that every GPU holds its part (--fit)")
    if plan.build >= OUTPUT_FIRST_BUILD:
        plan, said = _with_the_rest_on_the_host(scenario, model, plan, room, needs, gpu)
        notes.extend(said)
    return plan, tuple(notes)


def _with_the_rest_on_the_host(
    scenario: Scenario, model: Model, plan: Plan, room: int, needs: DeviceNeeds, gpu: Gpu | None
) -> tuple[Plan, tuple[str, ...]]:
    """Experts of as few layers as possible on the host, else whole layers; unchanged where it was told by hand."""
    given = scenario.serve
    by_hand = given.n_gpu_layers is not None or given.tensor_split or given.override_tensor or plan.experts_on_host
    if by_hand or plan.split_mode == "row" or max(needs(plan)) <= room:
        return plan, ()
    if gpu is not None and gpu.unified_memory and placement(model, plan).file_bytes > _whole_memory(gpu):
        return plan, ()
    needed, whole = worst(needs), plan.num_layers + 1
    most = whole - 1 if plan.pipelined else whole  # batches are pipelined only where every layer is on a GPU
    alone = replace(plan, pipelined=False)
    experts = 0 if runs_itself(given) else fewest_host_experts(model, alone, room, needed)
    if experts:
        said = f"all {whole} layers on the GPU, the experts of {experts} of them on the host"
        return _said(model, with_host_experts(alone, experts), said)
    layers = min(most_layers(alone, room, needed), most)
    chosen = with_layers(alone, layers)
    if not layers and needed(chosen) > room:
        return plan, ()
    return _said(model, chosen, f"{layers} of {whole} layers on the GPU, the rest on the host")


def _whole_memory(gpu: Gpu) -> int:
    return round((gpu.memory_nominal_gb or 0) * GIB)


def _said(model: Model, plan: Plan, what: str) -> tuple[Plan, tuple[str, ...]]:
    cache = layer_cache_bytes(model, plan)
    host = placement(model, plan).host_bytes
    host += sum(size for layer, size in enumerate(cache) if not (plan.kv_on_gpu and plan.on_gpu(layer)))
    note = f"{what}: the model runs, more slowly, and takes {amount(host)} of the host's memory for weights and cache"
    return replace(plan, spread=what), (note,)
