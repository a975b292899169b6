"""What llama.cpp loads beside the model: a draft model with its own context, that of the model's own predicting
layers, and a multimodal projector.

Sources: ggml-org/llama.cpp common/speculative.cpp common_base_params_to_speculative (a draft takes the context, slots,
batch, devices and split of the model, also one that --fit dealt out; its cache is f16 and its layers all go to the GPU
unless told otherwise) and tools/mtmd/clip.cpp (the projector's tensors lie on the first device; its buffer is reserved
for one warm-up image).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.errors import ScenarioError
from vramwise.files import is_there
from vramwise.formats.gguf_file import read_gguf
from vramwise.hardware import Gpu
from vramwise.models import Model, describe
from vramwise.models.parallel_cut import ParallelCut
from vramwise.models.towers.tower_design import num_patches
from vramwise.result import Node
from vramwise.scenario import Scenario
from vramwise.serving.common.adapters import adapted_sizes, adapters_asked
from vramwise.serving.common.encoder import tower_bytes
from vramwise.serving.llama_cpp.buffers import device_name
from vramwise.serving.llama_cpp.devices import HOST, layer_devices
from vramwise.serving.llama_cpp.placement import placement
from vramwise.serving.llama_cpp.settings import DEFAULT_QUANT, Plan, resolve_plan
from vramwise.serving.llama_cpp.terms import Extra, Terms
from vramwise.sources import resolve

WARM_UP_TOKENS = 46 * 46  # of towers with free image sizes (clip.cpp set_warmup_n_tokens; some take 256)
_TOWER = ("vision", "audio", "speech", "projector")
_SPREAD = (0.3, 2.0)
_PREDICTION = "predicting layers"
_ADAPTERS = "llama.cpp src/llama-adapter.cpp, convert_lora_to_gguf.py (--outtype f32 unless told otherwise)"
_ADAPTERS_FORMULA = "adapters × rank × Σ (in + out) × 4"


def extras_of(scenario: Scenario, model: Model, plan: Plan, gpu: Gpu | None) -> tuple[Extra, ...]:
    """Draft model or predicting layers, projector and adapters, each where one is named."""
    found = [
        *_draft(scenario, plan, gpu),
        *_prediction(scenario, model, plan, gpu),
        *_projector(scenario, model, plan),
        *_adapters(model, plan),
    ]
    return tuple(found)


def _draft(scenario: Scenario, plan: Plan, gpu: Gpu | None) -> Iterator[Extra]:
    """Weights, cache and compute buffer of the draft model, by device."""
    told = scenario.serve.speculative or {}
    name = told.get("model")
    if not name:
        return
    found = resolve(str(name))
    draft = describe(found.config, found.id)
    if not draft.num_layers:
        raise ScenarioError("serve.speculative.model", f"{found.id} has no layers: expected a language model")
    settings = scenario.serve.replace(
        n_ctx=plan.n_ctx, n_batch=plan.n_batch, n_ubatch=plan.n_ubatch, n_parallel=plan.slots, kv_unified=plan.unified,
        tensor_split=plan.settings.tensor_split,
        gguf_quant=told.get("gguf_quant"), n_gpu_layers=told.get("n_gpu_layers"),
        cache_type_k=told.get("cache_type_k"), cache_type_v=told.get("cache_type_v"),
        n_cpu_moe=None, cpu_moe=None, override_tensor=(), speculative=None, mmproj=None, imatrix=None,
    )  # fmt: skip
    own = resolve_plan(scenario.replace(serve=settings), draft)
    terms = Terms(draft, own, placement(draft, own), False, gpu)
    host = Node.group("draft model", (terms.host_weights, *terms.cache_nodes(False)))
    if not own.devices:
        yield Extra(Node("draft model", 0, "exact"), host)
        return
    parts = (terms.gpu_weights, *terms.cache_nodes(True), terms.compute)
    formula = f"weights, KV cache and compute buffer of {draft.id}"
    if own.devices == 1:
        yield Extra(Node.group("draft model", parts, formula=formula), host)
        return
    devices = tuple(
        Node.group(device_name(i), (_renamed(part, part.children[i]) for part in parts)) for i in range(own.devices)
    )
    yield Extra(Node.group("draft model", devices, formula=formula), host)


def _prediction(scenario: Scenario, model: Model, plan: Plan, gpu: Gpu | None) -> Iterator[Extra]:
    """The second context in which the model's own last layers draft (`--spec-type draft-mtp`): no weights of its own,
    but a cache of the whole context in f16 unless told otherwise, a compute buffer, and a CUDA backend with its pool
    (common/speculative.cpp common_speculative_init_result: llama_init_from_model on the loaded model with
    LLAMA_CONTEXT_TYPE_MTP, n_rs_seq 0).

    Hybrid models have keys and values of the predicting layers alone; of others every layer has them again (issue
    28626, b10820: no filter for DeepSeek 2, GLM 4 MoE, Cohere 2 MoE), or theirs alone where that is mended.
    """
    told = scenario.serve.speculative or {}
    if "mtp" not in str(told.get("method")) or told.get("model") or plan.is_ik:
        return
    settings = scenario.serve.replace(
        cache_type_k=told.get("cache_type_k"), cache_type_v=told.get("cache_type_v"), speculative=None, mmproj=None,
        tensor_split=plan.settings.tensor_split,
    )  # fmt: skip
    own = resolve_plan(scenario.replace(serve=settings), model)
    if own.file_type == "custom":  # whose sizes only the file tells, and which nothing here hangs on
        own = replace(own, file_type=DEFAULT_QUANT)
    terms = Terms(model, own, placement(model, own), False, gpu)
    by_layer = [size for size in terms.cache.kv_by_layer if size]
    layers = model.config.size("num_nextn_predict_layers", default=1, least=0) or 1
    one = layers * by_layer[-1] if by_layer else 0
    every = one if any(terms.cache.state_by_layer) else sum(by_layer)
    source = "llama.cpp common/speculative.cpp common_base_params_to_speculative"
    kv = Node("KV cache", every, "derived", one, every, formula="predicting layers × cells × (K row + V row)",
              inputs={"cells": own.cells, "layers": layers}, source=source)  # fmt: skip
    if not own.devices:
        yield Extra(Node(_PREDICTION, 0, "exact"), Node.group(_PREDICTION, (kv,)))
        return
    last = own.devices - 1  # the predicting layers follow the model's last one
    work, pool = (node.children[last] if last else node for node in (terms.compute, terms.around[1]))
    # a block of the same widths: its buffer is at most that of the model's graph
    compute = Node("compute buffer", work.bytes, "derived", work.bytes // 2, work.high, formula="that of the model",
                   source=source)  # fmt: skip
    on_gpu, held = own.kv_on_gpu, _renamed(Node("runtime pool", 0, "exact"), pool)
    parts = (kv, compute, held) if on_gpu else (compute, held)
    host = None if on_gpu else Node.group(_PREDICTION, (kv,))
    if not last:
        yield Extra(Node.group(_PREDICTION, parts), host)
        return
    rest = [Node(device_name(i), 0, "exact") for i in range(last)]
    yield Extra(Node.group(_PREDICTION, (*rest, Node.group(device_name(last), parts))), host)


def _renamed(part: Node, child: Node) -> Node:
    return Node(part.name, child.bytes, child.kind, child.low, child.high, child.formula, child.inputs, child.source)


def _projector(scenario: Scenario, model: Model, plan: Plan) -> Iterator[Extra]:
    """Tensors of the projector's file, and the buffer of one warm-up image, on the first device."""
    told = scenario.serve.mmproj
    if told is None and scenario.serve.engine == "ollama":
        told = "auto"  # part of its file, loaded with it (ollama llm/llama_server.go appendMMProjArgs)
    if told is None:
        return
    weights = _tower_file(told) if is_there(told) else _tower_weights(model)
    if not weights.bytes:
        return
    work = tower_bytes(model, _patches(model), 4)
    compute = Node(
        "compute buffer", work, "assumed", round(work * _SPREAD[0]), round(work * _SPREAD[1]),
        formula="4 · patches · live elements of a vision block", inputs={"patches": _patches(model)},
        source="llama.cpp tools/mtmd/clip.cpp: one warm-up image, flash attention",
    )  # fmt: skip
    parts = (weights, compute) if work else (weights,)
    if not plan.devices or scenario.serve.mmproj_offload is False:
        yield Extra(Node("projector", 0, "exact"), Node.group("projector", parts))
        return
    if plan.devices == 1:
        yield Extra(Node.group("projector", parts))
        return
    rest = (Node(device_name(i), 0, "exact") for i in range(1, plan.devices))
    yield Extra(Node.group("projector", (Node.group(device_name(0), parts), *rest)))


def _adapters(model: Model, plan: Plan) -> Iterator[Extra]:
    """A and B of every adapted layer where that layer lies, in fp32 as convert_lora_to_gguf.py writes them, or 16 bit
    where it was told to (src/llama-adapter.cpp llama_adapter_lora_init_impl: the buffer type of the weight)."""
    held, rank = adapters_asked(plan.settings)
    if not held:
        return
    whole, where = ParallelCut(), layer_devices(plan)
    devices, host = [0] * plan.devices, 0
    for index, block in enumerate(model.layers()):
        size = 4 * held * rank * sum(width for _, width in adapted_sizes(block, whole, plan.settings.lora_targets))
        device = where[min(index, len(where) - 1)] if plan.devices else HOST
        if device == HOST:
            host += size
        else:
            devices[device] += size
    on_host = _adapter_node(host, held, rank) if host else None
    if plan.devices < 2:
        yield Extra(_adapter_node(sum(devices), held, rank), on_host)
        return
    each = (Node(device_name(i), size, "derived", size // 2, size, source=_ADAPTERS) for i, size in enumerate(devices))
    yield Extra(Node.group("adapters", tuple(each), formula=_ADAPTERS_FORMULA), on_host)


def _adapter_node(size: int, held: int, rank: int) -> Node:
    return Node(
        "adapters", size, "derived", size // 2, size, formula=_ADAPTERS_FORMULA,
        inputs={"max_loras": held, "max_lora_rank": rank}, source=_ADAPTERS,
    )  # fmt: skip


def _tower_file(path: str) -> Node:
    return Node("weights", read_gguf(path).tensor_bytes, "exact", formula="Σ tensors of the projector's file")


def _tower_weights(model: Model) -> Node:
    """The model's own tower as convert_hf_to_gguf.py --mmproj writes it: matrices f16, vectors f32."""
    tower = [parameter for parameter in model.parameters if parameter.part in _TOWER and parameter.tied_to is None]
    size = sum(parameter.numel * (4 if len(parameter.shape) == 1 else 2) for parameter in tower)
    return Node("weights", size, "derived", formula="matrices f16, vectors f32",
                source="llama.cpp convert_hf_to_gguf.py --mmproj")  # fmt: skip


def _patches(model: Model) -> int:
    """Patches of the warm-up image: the tower's own size, or 46 × 46 tokens where sizes are free."""
    vision = model.config.table("vision_config")
    if vision is None:
        return 0
    if vision.has("image_size") and vision.has("patch_size"):
        return num_patches(vision)
    return int(WARM_UP_TOKENS * vision.size("spatial_merge_size", default=2) ** 2)
