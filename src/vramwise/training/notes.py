"""Sentences that belong to an answer: what was assumed, and what people often expect otherwise."""

from __future__ import annotations

from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.training.states import ModelStates

_DESCRIBED = ("transformers", "pytorch")


def notes_of(train: TrainSettings, model: Model, states: ModelStates) -> tuple[str, ...]:
    """What a reader should know beside the numbers."""
    notes = [f"not counted: {model.not_counted}"] if model.not_counted else []
    if train.method in ("lora", "qlora"):
        share = states.num_trainable / (model.num_parameters + states.num_trainable)
        notes.append(
            f"{states.num_trainable:,} of {model.num_parameters + states.num_trainable:,} parameters train "
            f"({share:.4%}); frozen weights have no gradient and no optimizer state"
        )
    if train.framework not in _DESCRIBED:
        notes.append(
            f"activations follow transformers' operations; {train.framework}'s own kernels may keep less or more"
        )
    if train.compile:
        notes.append("torch.compile: pointwise operations of a layer are taken as fused; the loss is not")
    if train.extra_models:
        shared = any(name.startswith("rollout") for name in train.extra_models)
        context = ", and the CUDA context that a rollout engine in the process shares" if shared else ""
        notes.append(f"not counted: {', '.join(train.extra_models)}{context}")
    if states.paged_optimizer:
        notes.append("paged optimizer states live in managed memory: on the GPU between none and all of them")
    if train.optimizer in ("galore-adamw", "apollo"):
        notes.append(f"{train.optimizer}: rank 128, Trainer's default")
    if train.checkpointing == "full":
        default = "; it is on in torchtune's recipes" if train.framework == "torchtune" else ""
        notes.append(f"full checkpointing computes the forward pass of every layer twice{default}")
    return tuple(notes)
