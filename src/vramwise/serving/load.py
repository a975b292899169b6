"""`task: load`: the weights alone."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node, Phase, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.names import LLAMA_CPP_ENGINES
from vramwise.serving import estimate_serving
from vramwise.serving.common.answer import amount, assemble, capacity_of, context_node, interval, resolved
from vramwise.serving.common.layouts import capability_of, engine_storage, engine_weights
from vramwise.serving.common.storage import dtype_notes
from vramwise.verdict import verdict_of


def estimate_load(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """Weights as the engine of `serve` holds them (plain transformers when none is named), and the process around.

    `weights` is what `torch.cuda.memory_allocated` shows after loading; `total_needed` and `nvidia_smi` add the
    CUDA context. Nothing of the loading itself (staging copies) is counted.
    """
    named = "engine" in scenario.serve.explicit
    engine = scenario.serve.engine if named else "transformers"
    if engine in LLAMA_CPP_ENGINES:
        return estimate_serving(scenario, model, source, gpu)
    warnings = _refused(scenario, model, gpu) if named else ()
    storage = engine_storage(model, scenario.serve, engine, gpu)
    weights = engine_weights(model, scenario.serve, engine, storage, capability_of(gpu))
    context = context_node(gpu)
    moment = Phase("load", Node.group("load", (weights, context)))
    held, total = interval(weights), interval(moment.components)
    quantities = {
        "params": Quantity.exact(model.num_parameters),
        "weights": held,
        "total_needed": total,
        "nvidia_smi": total,
    }
    capacity = capacity_of(scenario, gpu)
    verdict = None
    if capacity is not None:
        said = "fit in" if total.expected <= capacity.usable_bytes else "do not fit in"
        reason = f"weights of {amount(weights.bytes)} {said} {amount(capacity.usable_bytes)}"
        verdict = verdict_of(total, capacity.usable_bytes, [reason])
        quantities["oom"] = Quantity.exact(not verdict.fits)
    settings = scenario.serve.replace(dtype=storage.dtype, engine=engine) if named else scenario.serve
    table = resolved(scenario, "serve" if named else "", settings)
    return assemble(
        table, model, source, quantities, (moment,), capacity, verdict,
        (*dtype_notes(model, scenario.serve.dtype), *warnings),
    )  # fmt: skip


def _refused(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[str, ...]:
    """What the engine refuses it refuses before or while it loads; the rules are read where one is named alone."""
    from vramwise.serving.common.refusals import check_engine

    return check_engine(scenario, model, gpu)
