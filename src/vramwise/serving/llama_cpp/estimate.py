"""`serve` with llama.cpp, ik_llama.cpp or ollama: the buffer lines of its log, summed over devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from vramwise.errors import clipped
from vramwise.hardware import Gpu
from vramwise.hardware.room import capacity_of, rooms_of
from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.result import Capacity, Quantity, Rank, Result, Verdict
from vramwise.scenario import Scenario
from vramwise.serving.common.answer import assemble, resolved
from vramwise.serving.common.gguf.quantizer import file_tensors, published_in_mxfp4
from vramwise.serving.llama_cpp.automatic import fitted
from vramwise.serving.llama_cpp.buffers import device_name
from vramwise.serving.llama_cpp.builds import FEW_OUTPUTS_BUILD
from vramwise.serving.llama_cpp.drafted import drafts_alone
from vramwise.serving.llama_cpp.extras import extras_of
from vramwise.serving.llama_cpp.fitting import DeviceNeeds, fullest_device, levelled, with_context
from vramwise.serving.llama_cpp.own_engine import attention_pool_bytes
from vramwise.serving.llama_cpp.placement import Placement, placement, unread_rules
from vramwise.serving.llama_cpp.settings import DEFAULT_QUANT, Plan, resolve_plan, runs_itself
from vramwise.serving.llama_cpp.terms import Terms
from vramwise.serving.llama_cpp.verdict import judge


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """Weights by side, KV cache, recurrent states, compute, host and output buffers, and the process around them.

    Sizes of quantized tensors are exact for the quantizer's own mixes; `gguf_quant: custom` leaves the weights out.
    The counters are sums over devices of the model's own buffers; a draft model and a projector stand beside them in
    the moments and in `total_needed`. Not counted: prompt caches in host memory, other processes.
    """
    scenario = _with_devices(scenario)
    rooms = rooms_of(scenario)
    capacity = max(
        (room.capacity for room in rooms), key=lambda card: card.usable_bytes, default=capacity_of(scenario, gpu)
    )
    plan, at_context = resolve_plan(scenario, model, capacity), partial(_at_context, scenario, model, capacity)
    plan = replace(plan, pipelined=_pipelined(plan, gpu), backend=_backend(plan, gpu))
    if plan.own is not None and plan.own.counts_pool and plan.flash and plan.backend == "cuda":
        plan = replace(plan, attention_pool=attention_pool_bytes(model, min(plan.n_ubatch, plan.n_ctx), gpu))
    needs = levelled(_needs(scenario, model, gpu), [room.usable_bytes for room in rooms])
    asked = plan.n_ctx
    plan, changed = fitted(scenario, model, plan, capacity, needs, gpu)
    plan, changed = _without_copies(plan, changed, capacity, needs)
    from_file = bool(file_tensors(model))
    custom = plan.file_type == "custom" and not from_file
    placed = placement(model, plan) if not custom else _unknown_placement(model, plan)
    terms = Terms(model, plan, placed, custom, gpu, extras_of(scenario, model, plan, gpu))
    quantities = terms.quantities()
    verdict: Verdict | None = None
    if capacity is not None and not custom and plan.devices:
        each = terms.device_needs()
        fullest = fullest_device(each, [room.usable_bytes for room in rooms])
        capacity = rooms[fullest].capacity if len(rooms) == len(each) else capacity
        verdict = judge(
            model, plan, each, fullest, capacity, needs, at_context,
            max((room.usable_bytes for room in rooms), default=None), shrunk=plan.n_ctx < asked,
        )  # fmt: skip
        quantities["oom"] = Quantity.exact(not verdict.fits)
    notes = (*_notes(scenario, model, plan, from_file), *changed)
    table = resolved(scenario, "serve", plan.settings)
    return assemble(table, model, source, quantities, terms.moments, capacity, verdict, notes, _ranks(plan, terms))


def _with_devices(scenario: Scenario) -> Scenario:
    """As many GPUs as there are shares, where their number is not given."""
    split = scenario.serve.tensor_split
    if len(split) > 1 and "num_gpus" not in scenario.explicit:
        return scenario.replace(num_gpus=len(split))
    return scenario


def _backend(plan: Plan, gpu: Gpu | None) -> str:
    """What is told, else what ggml is usually built with for the card's vendor."""
    if plan.settings.ggml_backend is not None:
        return plan.settings.ggml_backend
    if gpu is None or gpu.runs_cuda_code:
        return "cuda"
    return "metal" if gpu.vendor == "Apple" else "other"


def _pipelined(plan: Plan, gpu: Gpu | None) -> bool:
    """Whether several cards work on several batches at once (src/llama-context.cpp): all layers and the cache on cards
    whose backend runs asynchronously, no tensor told to lie elsewhere. A card that is not named is not taken for one.
    """
    told = plan.settings.override_tensor or plan.experts_on_host
    whole = plan.gpu_layers > plan.num_layers and plan.kv_on_gpu and plan.split_mode == "layer"
    known = gpu is not None and gpu.vendor in ("NVIDIA", "AMD")
    return plan.devices > 1 and whole and known and not told and not plan.is_ik


def _without_copies(
    plan: Plan, notes: tuple[str, ...], capacity: Capacity | None, needs: DeviceNeeds
) -> tuple[Plan, tuple[str, ...]]:
    """Where the copies of pipeline parallelism find no room, the engine goes on without them."""
    if not plan.pipelined or capacity is None or plan.file_type == "custom":
        return plan, notes
    if max(needs(plan)) <= capacity.usable_bytes:
        return plan, notes
    return replace(plan, pipelined=False), (*notes, "no room for pipeline parallelism: llama.cpp goes on without it")


def _unknown_placement(model: Model, plan: Plan) -> Placement:
    """What copies of weights take in a file whose types only its header tells: those of the common mix."""
    return placement(model, replace(plan, file_type=DEFAULT_QUANT))


def _ranks(plan: Plan, terms: Terms) -> tuple[Rank, ...]:
    if not plan.devices:
        return (Rank("host", max(phase.bytes for phase in terms.moments)),)
    each = terms.device_needs()
    if len(each) == 1:
        return (Rank("all devices", int(each[0].expected)),)
    return tuple(Rank(device_name(device), int(need.expected)) for device, need in enumerate(each))


def _needs(scenario: Scenario, model: Model, gpu: Gpu | None) -> DeviceNeeds:
    """Bytes of each device of a plan."""

    def needs(plan: Plan) -> list[int]:
        if plan.may_keep_fewer_logits:  # a search asks for what is expected, not for the interval
            plan = replace(plan, settings=plan.settings.replace(logits_all=True))
        terms = Terms(model, plan, placement(model, plan), False, gpu, extras_of(scenario, model, plan, gpu))
        return [int(need.expected) for need in terms.device_needs()]

    return needs


def _at_context(scenario: Scenario, model: Model, capacity: Capacity | None, plan: Plan, n_ctx: int) -> Plan:
    """The plan of a scenario that asks for this context: batches follow it (ollama.py)."""
    asked = resolve_plan(scenario.replace(serve=scenario.serve.replace(n_ctx=n_ctx)), model, capacity)
    batch, ubatch = asked.n_batch, asked.n_ubatch
    settings = plan.settings.replace(n_batch=batch, n_ubatch=ubatch)
    return with_context(replace(plan, n_batch=batch, n_ubatch=ubatch, settings=settings), n_ctx)


def _notes(scenario: Scenario, model: Model, plan: Plan, from_file: bool) -> Iterator[str]:
    given = scenario.serve
    passed_on = given.engine == "ollama" and not runs_itself(given)
    if passed_on and has_fact("ollama", "unknown", model.config.model_type):
        yield "ollama since 0.30 runs llama.cpp, which has no mllama yet: versions before it run this model"
    if from_file:
        yield "sizes of the tensors are those of the file's header"
    elif given.gguf_quant is None:
        kept = ", with the experts in MXFP4 as published" if published_in_mxfp4(model) else ""
        yield f"gguf_quant {plan.file_type} is assumed{kept}"
    if plan.file_type == "custom" and not from_file:
        yield "a custom mix of tensor types: only the file's header tells its size, weights are left out"
    for rule, why in unread_rules(plan):
        yield f'override_tensor "{clipped(rule)}" {why}: left out'
    if plan.may_keep_fewer_logits and plan.devices:
        yield (
            "compute buffer: with the logits of every token of a batch; llama-server since June 2026 keeps one a slot "
            "(--no-logits-all, or a build in --engine-version)"
        )
    if drafts_alone(given) and plan.build < FEW_OUTPUTS_BUILD:
        yield "speculative changed nothing here: drafts from n-grams have no model, and all logits have room either way"
    if plan.devices < scenario.num_gpus:
        yield f"split_mode none: {plan.devices} of {scenario.num_gpus} GPUs is used"
    if len(given.tensor_split) > scenario.num_gpus > 0:
        yield f"tensor_split: the first {scenario.num_gpus} of {len(given.tensor_split)} shares are read"
    if plan.shares_tensors:
        yield f"split_mode {plan.split_mode}: matrices are charged by share; the engine rounds to whole rows"
