"""Whether every device holds its part, and the smallest changes with which it would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramwise.models import Model
from vramwise.result import Capacity, Quantity, Verdict
from vramwise.serving.common.advice import said
from vramwise.serving.common.answer import amount
from vramwise.serving.llama_cpp.buffers import device_name
from vramwise.serving.llama_cpp.fitting import (
    AtContext,
    DeviceNeeds,
    fewest_host_experts,
    fitting_split,
    largest_context,
    most_layers,
    worst,
)
from vramwise.serving.llama_cpp.settings import Plan
from vramwise.verdict import Spread, verdict_of


def judge(
    model: Model, plan: Plan, each: Sequence[Quantity], fullest: int, capacity: Capacity, needs: DeviceNeeds,
    at_context: AtContext, level: int | None = None, *, shrunk: bool = False,
) -> Verdict:  # fmt: skip
    """The `fullest` device decides, whose `capacity` it is; `needs` gives the bytes of each device of another plan, of
    unequal ones `level`led to this room; `at_context`: the plan of a scenario that asks for another context. `shrunk`:
    the engine chose the context itself, by the sum of all devices."""
    room = capacity.usable_bytes
    need = each[fullest]
    on = "" if len(each) == 1 else f" on {device_name(fullest)}, the fullest of {len(each)}"
    if need.expected <= room:
        fit = f"{amount(need.expected)} fit in {amount(room)}{on}"
        return verdict_of(need, room, [Spread(plan.spread), fit] if plan.spread else [fit])
    reasons = [f"{amount(need.expected)} do not fit in {amount(room)}{on}"]
    reasons.extend(_fixes(model, plan, level or room, needs, at_context, shrunk=shrunk and len(each) > 1))
    return verdict_of(need, room, reasons)


def _fixes(
    model: Model, plan: Plan, room: int, needs: DeviceNeeds, at_context: AtContext, *, shrunk: bool
) -> Iterator[str]:
    """The smallest changes that fit, each on its own; with a `shrunk` context as it is, which the engine would choose
    anew, by the sum of devices of which one can be short."""
    needed = worst(needs)
    kept = {"n_ctx": plan.n_ctx} if shrunk else {}
    split = fitting_split(plan, room, needs) if plan.devices > 1 and not plan.shares_tensors else ()
    if split:
        yield said({**kept, "tensor_split": tuple(map(float, split))})
    cells = largest_context(plan, room, needed, at_context=at_context)
    if cells:
        yield said({"n_ctx": cells})
    experts = fewest_host_experts(model, plan, room, needed)
    if experts:
        yield said({**kept, "n_cpu_moe": experts})
    layers = most_layers(plan, room, needed)
    if layers:
        yield said({**kept, "n_gpu_layers": layers}, f" of {plan.num_layers + 1}")
    if not (split or cells or experts or layers):
        yield "take a smaller file type, a larger GPU, or more of them"
