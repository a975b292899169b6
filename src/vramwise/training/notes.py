"""Sentences that belong to an answer: what was assumed, and what people often expect otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from vramwise.errors import clipped
from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version, names_a_version
from vramwise.models.lengths import rows_of_positions
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.scenario.names import KERNELS
from vramwise.training.activations.loss import is_compiled, logits_made
from vramwise.training.model_states.states import ModelStates, quantizer
from vramwise.training.recipe.attention import attention_note, masks_note
from vramwise.training.recipe.expert_modules import EXPERTS_FUSED_SINCE, had_expert_modules
from vramwise.training.recipe.images import images_note
from vramwise.training.recipe.settings import (
    has_fused_experts,
    kernel_names,
    runs_own_layers,
)
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.blocks import overload_factor
from vramwise.training.unchanged import unchanged
from vramwise.units import format_bytes

if TYPE_CHECKING:
    from vramwise.hardware import Gpu


def notes_of(
    train: ResolvedTrain, model: Model, states: ModelStates, *, engine_counted: bool = False
) -> tuple[str, ...]:
    """What a reader should know beside the numbers."""
    framework = framework_of(train)
    notes = [f"not counted: {model.not_counted}"] if model.not_counted else []
    notes += [model.counted_as] if model.counted_as else []
    about_images = images_note(train, model) or model.text_only_note
    notes += [about_images] if about_images else []
    if train.method in ("lora", "qlora"):
        share = states.num_trainable / (model.num_parameters + states.num_trainable)
        notes.append(
            f"{states.num_trainable:,} of {model.num_parameters + states.num_trainable:,} parameters train "
            f"({share:.4%}); frozen weights have no gradient and no optimizer state"
        )
    about_masks = masks_note(train)
    notes += [about_masks] if about_masks else []
    packages = {op.package for block in model.blocks for op in block.ops} - {"", *kernel_names(train)}
    if framework.exact and packages:
        how = "; counted by kernels of that name" if packages <= set(KERNELS) else ""
        notes.append(
            "recurrent layers follow transformers' PyTorch code; they keep less where its package "
            f"{' or '.join(sorted(packages))} is installed{how}"
        )
    if not framework.exact and not runs_own_layers(train, model):
        notes.append(
            f"activations follow transformers' operations; {train.framework}'s own kernels may keep less or more"
        )
    if not names_a_version(train):
        given = clipped(str(train.framework_version))
        notes.append(
            f'"{given}" has no version number: the newest rules are taken (write "transformers 4.46, torch 2.5")'
        )
    sequence = train.sequence_length
    longest = model.config.size("max_position_embeddings", default=sequence)
    if sequence > longest:
        rows = rows_of_positions(model)
        why = "" if rows is None or sequence <= rows else ", and its table of positions ends there: the run fails"
        notes.append(f"sequence_length {sequence:,} is beyond the model's own {longest:,} positions{why}")
    if train.compile:
        loss = "and the loss as one kernel" if is_compiled(train) else "the loss is not"
        fused = "pointwise operations of a layer are taken as fused"
        layers = fused if train.compiles_layers else "layers as they are"
        notes.append(f"torch.compile: {layers}; {loss}")
    notes += framework.notes(train)
    factor = overload_factor(model, train)
    if factor > 1:
        notes.append(
            "experts are spread over ranks: an even share of tokens is expected, the high end has the fullest rank get "
            f"{factor:g} (moe_overload_factor)"
        )
    notes += _about_extra_models(train, engine_counted=engine_counted)
    if states.paged_optimizer:
        notes.append("paged optimizer states live in managed memory: on the GPU between none and all of them")
    if train.optimizer in ("galore-adamw", "apollo"):
        notes.append(f"{train.optimizer}: rank 128, Trainer's default")
    if train.checkpointing == "full":
        remark = f"; {framework.checkpointing_note}" if framework.checkpointing_note else ""
        notes.append(f"full checkpointing computes the forward pass of every layer twice{remark}")
    return tuple(notes)


def notes_on_what_was_asked(
    asked: TrainSettings, train: ResolvedTrain, model: Model, axes: dict[str, int], gpu: Gpu | None
) -> tuple[str, ...]:
    """Where something else runs than what was asked for, and what of it changed nothing."""
    found = [attention_note(asked, train, model), experts_note(train, model)]
    if "loss" not in asked.explicit and train.loss != train.loss_at_any_size:
        found.append(logits_made(train))
    if train.framework_version:
        from vramwise.frameworks.named_versions import newer_than_known

        found += newer_than_known(train)
    return (*filter(None, found), *unchanged(asked, train, model, axes, gpu))


def experts_note(train: ResolvedTrain, model: Model) -> str:
    """What becomes of experts that are one tensor under adapters; empty where they are not, or do not matter."""
    if train.method not in ("lora", "qlora") or framework_of(train).classes == "own":
        return ""
    if not has_fused_experts(train, model):
        return ""
    from vramwise.training.recipe.adapters import peft_targets, targeted

    if any(parameter.part == "experts" for parameter in targeted(model, peft_targets(model, train))):
        skipped = "experts are one tensor: their adapters are added up to a layer's whole experts in every pass"
        if train.lora_targets == "all-linear":
            skipped += " (all-linear means them and routers from peft 0.20 on; names of linear layers leave them out)"
    else:
        skipped = "adapters skip experts, which are one tensor"
    rule = quantizer(model, train)
    if rule is None or rule.quantizes_fused_experts:
        return skipped
    size = sum(prod(p.shape) for p in model.parameters if p.part == "experts" and len(p.shape) == 3)
    older = library_version(train) >= EXPERTS_FUSED_SINCE and had_expert_modules(model)
    ways = ["--framework axolotl or --quantize-experts", "--framework unsloth"]
    ways += ['--framework-version "transformers 4.57", where experts are linear layers'] if older else []
    return (
        f"{skipped}; bitsandbytes leaves it in 16 bits, {format_bytes(2 * size)} in all; to quantize it: "
        + ", or ".join(ways)
    )


def _about_extra_models(train: ResolvedTrain, *, engine_counted: bool) -> list[str]:
    if not train.extra_models:
        return []
    from vramwise.training.step.other_models import ELSEWHERE, TRAINED, role_of, takes_nothing

    notes = []
    engines = [name for name in train.extra_models if role_of(name) in ELSEWHERE]
    if engines and not engine_counted:
        context = "the CUDA context that a rollout engine in the process shares"
        how = "" if train.rollout_gpu_memory_utilization else "; rollout_gpu_memory_utilization counts them"
        how = how or "; a GPU says what its share is"
        notes.append(f"not counted: {', '.join(engines)}, and {context}{how}")
    if engines and engine_counted:
        notes.append("torch's counters leave the rollout engine out; in one process with the trainer they see it too")
    adapters = [name for name in train.extra_models if name not in engines and takes_nothing(name, train)]
    if adapters:
        notes.append(f"{', '.join(adapters)}: the base with its adapters switched off, no copy")
    trained = [name for name in train.extra_models if role_of(name) in TRAINED]
    if trained:
        joined = "together with the policy's" if framework_of(train).trainer else "in a pass of its own"
        notes.append(f"{', '.join(trained)}: weights, gradients and states are counted, and its activations {joined}")
    return notes


def host_notes(parts: Mapping[str, int], ranks: int) -> tuple[str, ...]:
    """What of host memory the offloaded parts take."""
    if not parts:
        return ()
    each = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
    total = format_bytes(sum(parts.values()) * ranks)
    return (f"offloading takes {total} of host memory on a node: {each}{f', × {ranks} GPUs' if ranks > 1 else ''}",)
