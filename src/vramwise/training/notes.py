"""Sentences that belong to an answer: what was assumed, and what people often expect otherwise.

Settings that were asked for and changed nothing, each with its cause.

Only causes that are known are looked for: a kernel library that finds nothing to replace, a way to the loss where there
is no such loss, what another setting would have to switch on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from vramwise.errors import Doubt, clipped
from vramwise.frameworks import framework_of
from vramwise.frameworks.attention import version_of_classes
from vramwise.frameworks.versions import library_version, names_a_version
from vramwise.memo import Memo
from vramwise.models.autograd.size import probe
from vramwise.models.lengths import model_length, reads_tokens, rope_scaling, rows_of_positions
from vramwise.models.model import Model
from vramwise.models.step import Forward, Structure, structure_of
from vramwise.models.type_facts import has_fact
from vramwise.optimizers import has_implementations
from vramwise.scenario import TrainSettings
from vramwise.scenario.names import KERNELS
from vramwise.training.activations.checkpointing import kept_storages
from vramwise.training.activations.loss import is_compiled, is_one_kernel, logits_made, with_loss
from vramwise.training.activations.recording import recorded
from vramwise.training.exchange.offload import offloaded
from vramwise.training.model_states.states import ModelStates, quantizer
from vramwise.training.recipe.attention import RUNS_SDPA, attention_note, masks_note
from vramwise.training.recipe.fp8_weights import runs_transformer_engine
from vramwise.training.recipe.framework_defaults import kernel_names, records_of, runs_own_layers
from vramwise.training.recipe.images import images_note
from vramwise.training.recipe.lengths import has_two_lengths
from vramwise.training.recipe.settings import (
    COMPUTE_ADAPTERS,
    execution,
    has_fused_experts,
    pads,
    structural,
)  # fmt: skip
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.blocks import overload_factor
from vramwise.units import format_bytes

if TYPE_CHECKING:
    from vramwise.hardware import Gpu

_FLASH = "attention flash"


def unchanged(
    asked: TrainSettings, train: ResolvedTrain, model: Model, axes: dict[str, int], gpu: Gpu | None
) -> list[str]:
    """One sentence a setting; `asked`: as the scenario has it, `train`: as it was decided.

    Of flash attention on a card that does not run it, the verdict says so instead.
    """
    found = [*_of_settings(asked, train, model)]
    chooses_layers = "checkpointing" in asked.explicit and train.checkpointing == "selective"
    if chooses_layers or {"kernels", "loss", "attention"} & asked.explicit:
        found += _of_recorded(asked, structural(train), model, axes)
    if gpu is not None and gpu.supports("flash_attention_2") is False:
        found = [(setting, why) for setting, why in found if setting != _FLASH]
    return [f"{setting} changed nothing here: {why}" for setting, why in found]


def _of_recorded(asked: TrainSettings, train: ResolvedTrain, model: Model, axes: dict[str, int]) -> Found:
    """What a look at the recorded layers says; kept for other sizes of the same structure."""
    masked = execution(train, model).hands_out_masks
    structure = structure_of(model, axes["batch"], axes["sequence"], masked=masked)
    key = model, structural(asked), asked.explicit, train, structure

    def look() -> Found:
        forward = recorded(model, train, axes["batch"], axes["sequence"])
        return (
            *_of_kernels(asked, train, model, axes), *_of_loss(asked, train, model, forward),
            *_of_attention(asked, train, model, axes, forward), *_of_checkpointing(asked, train, forward),
        )  # fmt: skip

    return _found.get(key, look)


Found = tuple[tuple[str, str], ...]
_found: Memo[tuple[Model, TrainSettings, frozenset[str], ResolvedTrain, Structure], Found] = Memo(512)


def _of_kernels(
    asked: TrainSettings, train: ResolvedTrain, model: Model, axes: dict[str, int]
) -> Iterator[tuple[str, str]]:
    from vramwise.kernels import kernels_named

    framework = framework_of(train)
    own = (framework.own_layers,) if runs_own_layers(train, model) else framework.kernels

    def operations(*names: str) -> list[tuple[str, ...]]:
        kernels = records_of(names, train, model)
        forward = recorded(model, train, axes["batch"], axes["sequence"], kernels)
        return [tuple(node.op for node in run.nodes) for run in forward.runs]

    for name in asked.kernels:
        fuses_adapters = name in COMPUTE_ADAPTERS or kernels_named(name).for_adapters
        in_adapters = fuses_adapters and train.method in ("lora", "qlora")
        in_loss = name == "liger" and train.loss == "fused-linear" and not framework.loss.fused_linear_is_own
        in_products = name == "transformer-engine" and runs_transformer_engine(train)
        if in_adapters or in_loss or in_products:
            continue
        if operations(name) == operations():
            what = f"it replaces {kernels_named(name).replaces}"
            yield f"kernels {name}", f"{what}, of which this model has none that it finds"
        elif name not in own and operations(*own, name) == operations(*own):
            layers = "own layers run in its place" if kernels_named(own[0]).is_alone else "own kernels replace the same"
            yield f"kernels {name}", f"{train.framework}'s {layers}"


def _of_attention(
    asked: TrainSettings, train: ResolvedTrain, model: Model, axes: dict[str, int], forward: Forward
) -> Iterator[tuple[str, str]]:
    if "attention" not in asked.explicit or (asked.attention, train.attention) != ("flash", "flash"):
        return
    with_sdpa = not has_fact("transformers", "without_sdpa", model.config.model_type, version_of_classes(train))
    if not with_sdpa or framework_of(train).classes != "as they are":
        return
    usual = recorded(model, train.replace(attention="sdpa"), axes["batch"], axes["sequence"])
    if probe(usual.saved_bytes) == probe(forward.saved_bytes):
        yield _FLASH, "SDPA runs a flash kernel of its own, which keeps the same"


def _of_checkpointing(asked: TrainSettings, train: ResolvedTrain, forward: Forward) -> Iterator[tuple[str, str]]:
    from vramwise.training.layout.layers_apart import with_layers_apart

    if "checkpointing" not in asked.explicit or train.checkpointing != "selective":
        return
    forward = with_layers_apart(forward, train)
    for run in {id(run): run for run in forward.runs}.values():
        kept = kept_storages(run, train)
        if kept is not None and {storage for storage, _ in run.saved} - set(kept):
            return
    what = ", ".join(train.recompute) or "op"
    yield "checkpointing selective", f"layers keep nothing of what {what} makes"


def _of_loss(asked: TrainSettings, train: ResolvedTrain, model: Model, forward: Forward) -> Iterator[tuple[str, str]]:
    if "loss" not in asked.explicit or train.loss == "standard":
        return
    if train.loss != train.loss_at_any_size:
        yield f"loss {asked.loss}", logits_made(train)
    if with_loss(forward, train, model) is not forward:
        return
    if not forward.runs or forward.runs[-1].name != "loss":
        yield f"loss {train.loss}", "this model's head has no loss over a vocabulary"
    elif framework_of(train).own_layers:
        yield f"loss {train.loss}", f"{train.framework}'s own loss takes 128 positions at a time"
    elif train.loss == "vocab-parallel":
        yield "loss vocab-parallel", "it is the ordinary loss of another kind of labels"


def _of_settings(asked: TrainSettings, train: ResolvedTrain, model: Model) -> Iterator[tuple[str, str]]:
    given, framework = asked.explicit, framework_of(train)
    if "expandable_segments" in given and asked.expandable_segments and not train.expandable_segments:
        yield "expandable_segments", "torch's allocator has none on ROCm before 2.12"
    if asked.packing and framework.batches == "full":
        yield "packing", f"samples of {framework.title} are as long as the sequence either way"
    if "sample_lengths" in given and asked.sample_lengths and not pads(train):
        yield "sample_lengths", "rows are as long as the sequence whatever samples are"
    if framework.classes != "as they are":
        for key in ("padding", "document_mask"):
            if key in given and getattr(asked, key):
                yield key, f"no mask of {framework.title}'s own layers is described"
    if framework.own_layers and "attention" in given and asked.attention not in RUNS_SDPA:
        yield f"attention {asked.attention}", f"{framework.title}'s own layers run one kind of attention"
    if "sequence_length" in given and not reads_tokens(model):
        yield "sequence_length", "a batch is of images alone"
    if "decoder_sequence_length" in given and not has_two_lengths(model, train):
        yield "decoder_sequence_length", "the model has one stack, whose length is sequence_length"
    if "loss_upcast" in given and asked.loss_upcast is not None and is_one_kernel(train):
        yield "loss_upcast", f"loss {train.loss} is one kernel over the logits as they are, or makes none"
    if "fp8_operands" in given and runs_transformer_engine(train):
        yield "fp8_operands", "Transformer Engine keeps 8-bit inputs, and weights as fp8_transposes says"
    if "recompute" in given and asked.recompute and train.checkpointing != "selective":
        yield (
            "recompute",
            f"it says what selective checkpointing computes again; checkpointing is {train.checkpointing}",
        )
    if asked.optimizer_impl != "foreach" and "optimizer_impl" in given and not has_implementations(train.optimizer):
        yield f"optimizer_impl {train.optimizer_impl}", f"{train.optimizer} has one implementation"
    if train.method in ("lora", "qlora") and "lora_targets" in given:
        from vramwise.training.recipe.adapters import former_names, of_experts, without_adapter
        from vramwise.training.recipe.expert_modules import has_expert_modules, layers_of_experts

        renamed = (*former_names(model, train), "gate") if former_names(model, train) else ()
        if has_expert_modules(train, model):
            renamed = (*layers_of_experts(model), "gate")
        nameless = tuple(name for name in without_adapter(model, train.lora_targets) if name not in renamed)
        if nameless:
            why = of_experts(model, nameless) or "no linear layer of the model is called so"
            yield f"lora_targets {', '.join(nameless)}", why
    if train.offload_params != "none" and not offloaded(train).weights:
        yield "offload_params", f"DeepSpeed offloads weights in stage 3 alone; zero_stage is {train.zero_stage}"
    if asked.zero_init is False and train.zero_stage == 3 and not _keeps_views(train):
        yield "zero_init", "DeepSpeed replaces linear layers of models that exist already, since 0.19.4"
    if asked.quantize_experts and not has_fused_experts(train, model):
        yield "quantize_experts", "the model has no experts in one tensor"


def _keeps_views(train: ResolvedTrain) -> bool:
    from vramwise.training.recipe.zero import keeps_views

    return keeps_views(train)


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
    packages = model.packages - {"", *kernel_names(train)}
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
    stated = model.config.size("max_position_embeddings", default=sequence)
    longest = max(stated, model_length(model)) if rope_scaling(model) else stated
    if sequence > longest:
        rows = rows_of_positions(model)
        beyond = f"sequence_length {sequence:,} is beyond the model's own {longest:,} positions"
        ends = rows is not None and sequence > rows
        notes.append(Doubt(f"{beyond}, and its table of positions ends there: the run fails") if ends else beyond)
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
    from vramwise.training.recipe.expert_modules import EXPERTS_FUSED_SINCE, had_expert_modules

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
