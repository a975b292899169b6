"""`load`, `serve` and `generate` of a model of which only the tensors are known: its weights, and nothing else."""

from __future__ import annotations

from vramwise.errors import UnknownNameError
from vramwise.formats import dtype
from vramwise.formats.safetensors import StoredWeights
from vramwise.hardware import Gpu
from vramwise.hardware.room import capacity_of
from vramwise.models.config import checkpoint_dtype
from vramwise.models.tensors_only import usual_cache
from vramwise.result import Node, Phase, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.serving.common.answer import amount, assemble, context_node, interval
from vramwise.serving.common.layouts import PLAIN
from vramwise.serving.common.storage import dtype_notes, storage_of
from vramwise.serving.common.weight_nodes import weights_node
from vramwise.serving.tensors import KnownTensors
from vramwise.units import format_bytes
from vramwise.verdict import verdict_of

LINEAR_BY_NAME = "which tensors are linear layers, and so quantized, is told by their names"


def estimate_stored(scenario: Scenario, known: KnownTensors, gpu: Gpu | None) -> Result:
    """Weights as the files hold them, or in the dtype and quantization that were asked for, and the cache if the config
    has a decoder's usual keys.

    Over several GPUs the weights are divided, which holds for matrices and not for what every rank has whole: between a
    share and all of them. Activations, workspaces and what an engine keeps beside the weights are not counted, so there
    is a verdict only where weights and cache alone do not fit.
    """
    weights, notes = _weights(scenario, known)
    weights = _shared_out(weights, scenario)
    context = context_node(gpu)
    cache, said = _cache(scenario, known)
    phases = [Phase("load", Node.group("load", (weights, context)))]
    quantities = {"params": _parameters(known), "weights": interval(weights)}
    if scenario.task == "load":
        quantities["total_needed"] = quantities["nvidia_smi"] = interval(phases[0].components)
    if cache is not None:
        phases.append(Phase("cache", Node.group("cache", (weights, context, cache))))
        if scenario.task == "generate":
            quantities["kv_cache_bytes"] = Quantity.exact(cache.bytes)
    moment = phases[-1]
    capacity = capacity_of(scenario, gpu)
    verdict = None
    if capacity is not None:
        headroom = capacity.usable_bytes - moment.bytes
        if headroom < 0 or scenario.task == "load":
            what = "weights" if cache is None else "weights and the cache"
            fits = "fit in" if headroom >= 0 else "do not fit in"
            reason = f"{what} of {amount(moment.bytes - context.bytes)} {fits} {amount(capacity.usable_bytes)}"
            verdict = verdict_of(interval(moment.components), capacity.usable_bytes, [reason])
    return assemble(
        scenario.to_dict(), known.model, known.source, quantities, tuple(phases), capacity, verdict,
        (known.unknown, *known.notes, *said, *notes),
    )  # fmt: skip


def _parameters(known: KnownTensors) -> Quantity:
    """Exact where every header was read; else the other files hold between the widest and the narrowest dtype seen."""
    count, files = known.model.num_parameters, known.files
    if files is None or not files.unread_files:
        return Quantity.exact(count)
    read, unread = files.tensors[: -files.unread_files], files.tensors[-files.unread_files :]
    shares = [tensor.numel / tensor.bytes for tensor in read if tensor.bytes]
    size, guessed = sum(tensor.bytes for tensor in unread), sum(tensor.numel for tensor in unread)
    rest = count - guessed
    low, high = (rest + int(share * size) for share in (min(shares), max(shares)))
    return Quantity(min(low, count), count, max(high, count))


def _cache(scenario: Scenario, known: KnownTensors) -> tuple[Node | None, tuple[str, ...]]:
    """What keys and values take: of the whole batch in `generate`, of one request of `max_model_len` in `serve`."""
    if scenario.task == "load" or not known.library.has_types:
        return None, ()
    config = known.model.config.values
    found, missing = usual_cache(config)
    if found is None:
        return None, (f"the KV cache is not known: {missing}",)
    settings = scenario.generate if scenario.task == "generate" else scenario.serve
    held = checkpoint_dtype(config) if settings.dtype == "auto" else dtype(settings.dtype).name
    kept = held if settings.kv_cache_dtype in (None, "auto") else settings.kv_cache_dtype
    try:
        bits = dtype(str(kept)).bits
    except UnknownNameError:
        return None, (f"the KV cache is not known: no rule for kv_cache_dtype {kept} of an undescribed type",)
    per_token = 2 * found.layers * found.heads * found.head_dim * bits // 8
    formula = "2 × layers × key-value heads × head_dim × bytes × tokens"
    note = (
        f"the cache is told by the config's own keys, as a plain decoder's: {format_bytes(per_token, 'KiB')} a token "
        f"(2 × {found.layers} layers × {found.heads} heads × {found.head_dim}, {kept})"
    )
    if scenario.task == "generate":
        given = scenario.generate
        if given.prompt_tokens is None or given.new_tokens is None:
            return None, (f"{note}; say prompt_tokens and new_tokens to count them",)
        tokens = given.batch_size * max(given.num_beams, 1) * (given.prompt_tokens + given.new_tokens - 1)
    elif scenario.serve.max_model_len is not None:
        tokens = scenario.serve.max_model_len
        note += f"; a request of {tokens:,} tokens is counted, the engine's pool is not known"
    else:
        return None, (f"{note}; say max_model_len to count a request",)
    if scenario.task == "serve":
        per_token = -(-per_token // min(scenario.serve.tensor_parallel_size, found.heads))
    node = Node(
        "KV cache", per_token * tokens, "derived", formula=formula,
        inputs={"layers": found.layers, "heads": found.heads, "head_dim": found.head_dim, "tokens": tokens},
        source="the config's usual keys",
    )  # fmt: skip
    return node, (note,)


def _weights(scenario: Scenario, known: KnownTensors) -> tuple[Node, tuple[str, ...]]:
    files, model = known.files, known.model
    settings = scenario.generate if scenario.task == "generate" else scenario.serve
    if files is not None and settings.dtype == "auto" and settings.quantization is None:
        return stored_node(files), ()
    storage = storage_of(model, settings.dtype, settings.quantization, settings.quantization_group_size)
    notes = () if files is not None else dtype_notes(model, settings.dtype)
    if storage.quantization is not None:
        notes = (*notes, LINEAR_BY_NAME)
    return weights_node(model, storage, PLAIN, 0, rounded=False), notes


def stored_node(files: StoredWeights) -> Node:
    """Bytes of the tensors as the files hold them, by component of a pipeline and by dtype."""
    source = f"headers of {files.path}"
    parts: dict[str, dict[str, list[int]]] = {}
    read = files.tensors[: len(files.tensors) - files.unread_files]
    for tensor in read:
        component = tensor.name.partition("/")[0] if "/" in tensor.name else ""
        parts.setdefault(component, {}).setdefault(tensor.dtype, []).append(tensor.bytes)
    nodes = {
        component: [
            Node(f"{kind} tensors", sum(sizes), "exact", formula="Σ elements × bytes of the dtype",
                 inputs={"tensors": len(sizes)}, source=source)
            for kind, sizes in kinds.items()
        ]
        for component, kinds in parts.items()
    }  # fmt: skip
    if files.unread_files:
        unread = sum(tensor.bytes for tensor in files.tensors[len(read) :])
        leaf = Node("files not read", unread, "derived", formula="sizes of the files",
                    inputs={"files": files.unread_files}, source="the repository's list of files")  # fmt: skip
        nodes.setdefault("", []).append(leaf)
    if "" in nodes:
        return Node.group("weights", [leaf for leaves in nodes.values() for leaf in leaves])
    return Node.group("weights", [Node.group(component, leaves) for component, leaves in nodes.items()])


def _shared_out(weights: Node, scenario: Scenario) -> Node:
    if scenario.task == "generate":
        return weights
    ranks = scenario.serve.tensor_parallel_size * scenario.serve.pipeline_parallel_size
    if ranks == 1:
        return weights
    share = -(-weights.bytes // ranks)
    return Node(
        "weights", share, "assumed", share, weights.bytes, formula="all weights / GPUs", inputs={"GPUs": ranks},
        source="cut as if every tensor were",
    )  # fmt: skip
