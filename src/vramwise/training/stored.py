"""Training a model of which only the tensors are known: weights, gradients and optimizer states, no activations."""

from __future__ import annotations

from dataclasses import replace

from vramwise.hardware import Gpu
from vramwise.hardware.room import capacity_of
from vramwise.models.model import Model
from vramwise.result import ModelFacts, Node, Phase, Quantity, Rank, Result
from vramwise.scenario import Scenario
from vramwise.training import counters
from vramwise.training.components import Component
from vramwise.training.layout.parallel import placements
from vramwise.training.model_states.states import model_states
from vramwise.training.recipe.settings import resolved, structural
from vramwise.training.tree import state_nodes
from vramwise.units import format_bytes
from vramwise.verdict import verdict_of

AT_THE_STEP = "weights, gradients and optimizer states"


def estimate_stored_training(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, unknown: str) -> Result:
    """What training holds whatever the batch: states of every tensor on the rank that has most.

    `unknown` is the sentence that says why the rest is missing. Activations, logits, temporaries and buffers of
    communication are not counted, so there is a verdict only where the states alone do not fit.
    """
    train = resolved(scenario, model, gpu)
    states = max(
        (model_states(model, structural(train), rank) for rank in placements(scenario, train, model)),
        key=lambda held: held.weights + held.frozen_weights + held.optimizer,
    )
    nodes = {name: node for name, node in state_nodes(states, train).items() if node.bytes}
    outside = counters.outside_torch(train, gpu)
    loaded = [nodes[name] for name in (Component.WEIGHTS, Component.BUFFERS, Component.ADAPTERS) if name in nodes]
    load = Phase("load", Node.group("load", (*loaded, *outside)))
    step = Phase(AT_THE_STEP, Node.group(AT_THE_STEP, (*nodes.values(), *outside)))
    capacity = capacity_of(scenario, gpu)
    verdict = None
    if capacity is not None and step.bytes > capacity.usable_bytes:
        needed, usable = format_bytes(step.bytes), format_bytes(capacity.usable_bytes)
        reason = f"{AT_THE_STEP} alone take {needed} of {usable}"
        verdict = verdict_of(Quantity.exact(step.bytes), capacity.usable_bytes, [reason])
    return Result(
        scenario=replace(scenario, train=train).to_dict(),
        model=ModelFacts(model.id, model.num_parameters, model.num_parameters, states.num_trainable, source),
        quantities={
            "params": Quantity.exact(model.num_parameters),
            "weights": Quantity.exact(sum(node.bytes for node in loaded)),
        },
        phases=(load, step),
        peak_phase=step.name,
        ranks=(Rank("every GPU", step.bytes),),
        capacity=capacity,
        verdict=verdict,
        notes=(unknown, "linear layers, which adapters and quantizers take, are told by their names"),
    )
