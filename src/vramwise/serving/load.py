"""`task: load`: the weights alone."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.engines import PLAIN
from vramwise.hardware import Gpu
from vramwise.hardware.room import capacity_of
from vramwise.models import Model
from vramwise.result import Node, Phase, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.serving.common.answer import amount, assemble, context_node, interval, resolved
from vramwise.serving.common.idle_experts import without_idle_experts
from vramwise.serving.common.storage import dtype_notes
from vramwise.serving.packages import rules_of
from vramwise.verdict import verdict_of

WholeAnswer = Callable[[Scenario, Model, str, Gpu | None], Result]
"""The answer to `serve`, where only that tells the weights."""


def estimate_load(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, whole: WholeAnswer) -> Result:
    """Weights as the engine of `serve` holds them (plain transformers when none is named), and the process around.

    `weights` is what `torch.cuda.memory_allocated` shows after loading; `total_needed` and `nvidia_smi` add the
    CUDA context. Nothing of the loading itself (staging copies) is counted. With num_gpus 0 the weights lie in the
    host's memory (`host_memory`), and there is no card to hold them against. Raises ScenarioError for what a named
    engine refuses.
    """
    named = "engine" in scenario.serve.explicit
    held_by = scenario.serve if named else scenario.serve.replace(engine=PLAIN)
    rules = rules_of(held_by.engine)
    model = without_idle_experts(model) if named and held_by.engine != PLAIN else model
    if rules.weights is None:
        return whole(scenario, model, source, gpu)
    # what an engine refuses it refuses before or while it loads
    warnings = rules.check(scenario, model, gpu) if named else ()
    storage = rules.weights.storage(model, held_by, gpu)
    weights = rules.weights.weights(model, held_by, storage, gpu)
    on_host = scenario.num_gpus == 0
    moment = Phase("load", Node.group("load", (weights,) if on_host else (weights, context_node(gpu))))
    held, total = interval(weights), interval(moment.components)
    quantities = {
        "params": Quantity.exact(model.num_parameters),
        "weights": held,
        "total_needed": total,
        **({"host_memory": held} if on_host else {"nvidia_smi": total}),
    }
    capacity = capacity_of(scenario, gpu)
    verdict = None
    if capacity is not None:
        said = "fit in" if total.expected <= capacity.usable_bytes else "do not fit in"
        reason = f"weights of {amount(weights.bytes)} {said} {amount(capacity.usable_bytes)}"
        verdict = verdict_of(total, capacity.usable_bytes, [reason])
        quantities["oom"] = Quantity.exact(not verdict.fits)
    settings = held_by.replace(dtype=storage.dtype, engine=held_by.engine) if named else scenario.serve
    table = resolved(scenario, "serve" if named else "", settings)
    return assemble(
        table, model, source, quantities, (moment,), capacity, verdict,
        (*dtype_notes(model, scenario.serve.dtype), *warnings),
    )  # fmt: skip
