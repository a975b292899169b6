"""`load`, `serve` and `generate` of a model of which only the tensors are known: its weights, and nothing else."""

from __future__ import annotations

from vramwise.formats.safetensors import StoredWeights
from vramwise.hardware import Gpu
from vramwise.hardware.room import capacity_of
from vramwise.models import Model
from vramwise.result import Node, Phase, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.serving.common.answer import amount, assemble, context_node, interval
from vramwise.serving.common.layouts import PLAIN
from vramwise.serving.common.storage import dtype_notes, storage_of
from vramwise.serving.common.weight_nodes import weights_node
from vramwise.verdict import verdict_of

LINEAR_BY_NAME = "which tensors are linear layers, and so quantized, is told by their names"


def estimate_stored(
    scenario: Scenario, model: Model, source: str, gpu: Gpu | None, files: StoredWeights | None, unknown: str
) -> Result:  # fmt: skip
    """Weights alone: as the files hold them, or in the dtype and quantization that were asked for.

    `unknown` is the sentence that says why the rest is missing. Over several GPUs the weights are divided, which holds
    for matrices and not for what every rank has whole: between a share and all of them. Activations, caches, workspaces
    and what an engine keeps beside the weights are not counted, so there is a verdict only where weights do not fit.
    """
    weights, notes = _weights(scenario, model, files)
    weights = _shared_out(weights, scenario)
    context = context_node(gpu)
    moment = Phase("load", Node.group("load", (weights, context)))
    quantities = {"params": Quantity.exact(model.num_parameters), "weights": interval(weights)}
    if scenario.task == "load":
        quantities["total_needed"] = quantities["nvidia_smi"] = interval(moment.components)
    capacity = capacity_of(scenario, gpu)
    verdict = None
    if capacity is not None:
        headroom = capacity.usable_bytes - moment.bytes
        if headroom < 0 or scenario.task == "load":
            said = "fit in" if headroom >= 0 else "do not fit in"
            reason = f"weights of {amount(weights.bytes)} {said} {amount(capacity.usable_bytes)}"
            verdict = verdict_of(interval(moment.components), capacity.usable_bytes, [reason])
    return assemble(
        scenario.to_dict(), model, source, quantities, (moment,), capacity, verdict, (unknown, *notes)
    )  # fmt: skip


def _weights(scenario: Scenario, model: Model, files: StoredWeights | None) -> tuple[Node, tuple[str, ...]]:
    settings = scenario.generate if scenario.task == "generate" else scenario.serve
    if files is not None and settings.dtype == "auto" and settings.quantization is None:
        return stored_node(files), ()
    storage = storage_of(model, settings.dtype, settings.quantization, settings.quantization_group_size)
    notes = () if files is not None else dtype_notes(model, settings.dtype)
    if storage.quantization is not None:
        notes = (*notes, LINEAR_BY_NAME)
    return weights_node(model, storage, PLAIN, 0, rounded=False), notes


def stored_node(files: StoredWeights) -> Node:
    """Bytes of the tensors as the files hold them, by dtype."""
    sizes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for tensor in files.tensors:
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.bytes
        counts[tensor.dtype] = counts.get(tensor.dtype, 0) + 1
    source = f"headers of {files.path}"
    leaves = [
        Node(f"{kind} tensors", size, "exact", formula="Σ elements × bytes of the dtype",
             inputs={"tensors": counts[kind]}, source=source)
        for kind, size in sizes.items()
    ]  # fmt: skip
    return Node.group("weights", leaves)


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
