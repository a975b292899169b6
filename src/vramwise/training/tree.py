"""Moments as trees of terms that add up, each with its formula, inputs and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.models.autograd.size import Axes, Dim, evaluate
from vramwise.optimizers import state_format
from vramwise.result import Node, Phase
from vramwise.training.activations.sizes import RunBytes
from vramwise.training.components import Component
from vramwise.training.model_states.states import ModelStates, master_bytes
from vramwise.training.model_states.trained import rounded, width
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.moments import Moment

_TORCH = "rules of torch 2.13 autograd and transformers 5.23; held against traced steps at real sizes"


def phase(
    moment: Moment,
    nodes: Mapping[Component, Node],
    least: Mapping[Component, int],
    kind: str,
    axes: Axes,
    extra: tuple[Node, ...],
) -> Phase:
    """A moment's tree. `nodes` are terms that several moments share; `least`: the low ends of those of which another
    operation of the moment holds less; `extra` stands outside torch's tensors."""
    children = []
    for component, size in moment.parts.items():
        shared = nodes.get(component)
        if shared is not None and shared.bytes == size:
            children.append(shared)
        else:
            term = _term(component, size, moment, kind, axes)
            children.append(replace(term, low=min(size, least[component])) if component in least else term)
    return Phase(moment.name, Node.group(moment.name, (*children, *extra)))


def _term(component: Component, size: int, moment: Moment, kind: str, axes: Axes) -> Node:
    where = f"at {moment.operation}" if moment.operation else ""
    if moment.layer is not None:
        where += f" of layer {moment.layer}"
    return Node(component.value, size, kind, formula=where, inputs=_sizes(axes), source=_TORCH)


def _sizes(axes: Axes) -> dict[str, object]:
    return {name: axes[name] for name in ("batch", "sequence", "source") if name in axes}


def state_nodes(states: ModelStates, train: ResolvedTrain) -> dict[Component, Node]:
    """Weights, adapters, gradients, master copy and optimizer states as terms."""
    trains = f"{states.num_trainable:,} trained"
    kept_as = state_format(train.optimizer, train.optimizer_state_dtype)
    found = {
        Component.WEIGHTS: Node(
            "weights", states.weights + states.frozen_weights, "exact",
            formula=f"each weight as {train.quantization or train.param_dtype}, rounded up to 512 bytes",
            source="shapes of the described model",
        ),
        Component.BUFFERS: Node(
            "buffers", states.buffers, "exact",
            formula="tables that modules register beside their parameters",
            source="transformers 5.23, the class itself; rotary tables of every layer until 4.41 to 4.48",
        ),
        Component.ADAPTERS: Node(
            "adapters", states.adapter_weights, "exact",
            formula=f"rank · (in + out) values of {train.lora_dtype} for each adapted layer",
            inputs={"rank": train.lora_rank}, source="peft 0.21 tuners/lora/layer.py",
        ),
        Component.COPIES_IN_8_BITS: Node(
            "8-bit weights", states.copies_8_bit, "derived",
            formula=f"of layers' products, {'both directions' if train.fp8_transposes else 'one copy for both'}",
            inputs={"recipe": train.fp8_recipe}, source="transformer_engine 2.14: training/recipe/fp8_weights.py",
        ),
        Component.GRADIENTS: Node(
            "gradients", states.gradients, "exact", formula=f"{trains} values of {train.grad_dtype}",
            source="frozen weights have no gradient (torch autograd: requires_grad is false)",
        ),
        Component.MASTER_WEIGHTS: Node(
            "master weights", states.master, "exact", formula=f"{trains} values of {_master_format(train)}",
        ),
        Component.OPTIMIZER_STATES: Node(
            "optimizer states", states.optimizer, "exact",
            formula=f"{train.optimizer} on {trains} values, states in {kept_as}",
            source="optimizers.py: table of optimizers with sources",
        ),
    }  # fmt: skip
    return found


def _master_format(train: ResolvedTrain) -> str:
    """The master copy's dtype; of which only what bf16 weights lack is stored, where that is so."""
    lacking = train.master_dtype is not None and master_bytes(train) < width(train.master_dtype)
    return f"{train.master_dtype}, of which the 16 bits that the weights lack" if lacking else str(train.master_dtype)


def activations_node(runs: list[RunBytes], size: int, axes: Axes, kind: str) -> Node:
    """What forward keeps: a child for each kind of block, with a leaf for each tensor it keeps."""
    counted: dict[int, tuple[RunBytes, int]] = {}
    for run in runs:
        if run.name != "loss":
            counted[id(run)] = run, counted.get(id(run), (run, 0))[1] + 1
    children = [_block_node(run, count, axes, kind) for run, count in counted.values()]
    children = [child for child in children if child.bytes]
    rest = size - sum(child.bytes for child in children)
    if rest > 0:
        children.append(Node("micro-batches in flight and masks", rest, kind))
    if rest < 0:
        return Node("activations", size, kind, source=_TORCH)
    return Node.group("activations", children, source=_TORCH)


def _block_node(run: RunBytes, count: int, axes: Axes, kind: str) -> Node:
    name = "layer" if run.layer is not None else "outside the layers"
    first = f"{run.name} " if run.layer is not None else ""
    leaves = []
    for kept in run.kept:
        if kept.role.startswith("weight"):
            continue
        each = rounded(evaluate(kept.nbytes, axes)) * kept.count
        leaves.append(_leaf(kept.module, kept.role, kept.nbytes, each * count, count * kept.count, axes, kind))
    return Node.group(f"{first}{name} × {count}", leaves, formula="checkpointed: its input" if run.checkpointed else "")


def _leaf(module: str, role: str, nbytes: Dim, size: int, count: int, axes: Axes, kind: str) -> Node:
    formula = f"{count} × ({nbytes}) bytes"
    return Node(f"{module or 'block'} · {role}", size, kind, formula=formula, inputs=_sizes(axes), source=_TORCH)
