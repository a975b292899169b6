"""`megatron sft|pt|rlhf …`: ms-swift's step on Megatron Core, with ms-swift's names and its own defaults.

Read in ms-swift 3.7, 3.12 (megatron/argument/*.py) and 4.6 (megatron/arguments/*.py): Megatron's arguments have
underscores there, and switches take true or false. Adapters lie on linear_qkv and linear_fc1 as on their parts: the one
first matrix that the parts share is counted once for each of them, but for experts, which have one.
"""

from __future__ import annotations

import re

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.adapters import targets_of
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.flags import Words, flags_of
from vramwise.interop.launch.launchers import by_environment, launcher_of
from vramwise.interop.launch.megatron import (
    MEANINGS,
    READ_APART,
    count_micro_batches,
    expands,
    least_gpus,
    step_of,
)
from vramwise.interop.launch.model_facts import config_of, loaded_dtype, text_config
from vramwise.interop.launch.model_parts import described, is_multimodal, linear_targets, trained_parts
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.swift_settings import completions_and_models, options_of
from vramwise.interop.launch.values import fraction, switch, whole, whole_in
from vramwise.scenario.names import DTYPE_SPELLINGS

_DEFAULTS: dict[str, object] = {
    "micro_batch_size": 1, "global_batch_size": 16, "recompute_granularity": "selective", "attention_backend": "flash",
    "use_distributed_optimizer": True, "expert_tensor_parallel_size": 1,
    "data_parallel_sharding_strategy": "optim_grads_params", "cross_entropy_loss_fusion": True,
}  # fmt: skip
"""megatron_args.py MegatronArguments: what differs from Megatron-LM's own (the loss is not fused in 3.12)."""

_RENAMED = {"virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank"}
_TARGETS = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"), "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"), "linear_fc2": ("down_proj",),
}  # fmt: skip
"""Megatron's modules and what they are made of."""

_HEADS = {"seq_cls": "sequence-classification", "embedding": "none"}
"""What `task_type` puts in the place of the output layer (mcore-bridge 1.6.5 model/gpt_model.py)."""

_OWN_LOGPS = ("grpo", "gkd")
"""Their trainers take log-probabilities from whole logits, eagerly (4.6 megatron/trainers/vocab_parallel_utils.py)."""

_TUNERS = ("full", "lora", "lora_llm")


def read(start: Start) -> Launch:
    """The scenario of a Megatron-SWIFT command. Raises UsageError or SourceError for what cannot be read."""
    options = options_of(start, ("megatron-swift", "swift", "trainer"), "Megatron-SWIFT")
    model = _model(options)
    words = _megatrons(options, model)
    settings, notes = step_of(words, _layers(model))
    launcher = launcher_of(start) if start.is_script else by_environment(start)
    gpus = launcher.gpus or least_gpus(settings)
    if settings.get("tensor_parallel_size", 1) == 1:
        settings["sequence_parallel"] = False  # __post_init__
    count_micro_batches(words, settings, gpus)
    train = {**settings, **{key: value for key, value in options.settings().items() if key not in settings}}
    longest = options.number("seq_length", "packing_length", "max_length")
    if longest:
        train["sequence_length"] = longest
        one_row = "padding_free" not in options.values or options.is_on("padding_free")
        if one_row and not options.is_on("packing"):
            notes.append(f"samples of a micro-batch stand in one row without padding: {longest:,} tokens each at most")
    task = options.first("task_type")
    if task in _HEADS:
        train["head"] = _HEADS[task]
    elif task == "generative_reranker":
        notes.append("a reranker has two logits a token: those of the whole vocabulary are counted")
    if options.is_on("vit_gradient_checkpointing") and not _trains(options, "vit"):  # `enable_input_require_grads`
        notes.append("--vit_gradient_checkpointing: what blocks of a frozen tower keep for it is not counted")
    if expands(start):
        train["expandable_segments"] = True
    options.values.setdefault("use_vllm", True)
    options.shown.setdefault("use_vllm", "use_vllm")
    for found, said in (_method(options, model), completions_and_models(start.program, options, train)):
        train |= found
        notes += said
    sizes = launcher.table() or {"num_gpus": gpus, "gpus_per_node": min(gpus, 8)}
    scenario: dict[str, object] = {"model": model, "task": "train", **sizes, "train": train}
    return launched("ms-swift", scenario, (*notes, *options.notes(), *launcher.notes), options)


def _model(options: Options) -> str:
    """--model, else the folder of a converted checkpoint, `…-mcore`, by the name of what it was made of."""
    named = options.first("model")
    converted = options.first("mcore_model", "load")
    if not named and converted:
        named = re.sub(r"[-_.](mcore|megatron)/?$", "", converted)
    return one_model("Megatron-SWIFT", named, "--model MODEL")


def _layers(model: str) -> int:
    return whole_in(text_config(config_of(model)), "num_hidden_layers", 0)


def _megatrons(options: Options, model: str) -> Words:
    """What was given as Megatron's own arguments. Raises UsageError for a switch that is neither true nor false."""
    words = Words()
    read = frozenset(MEANINGS) | READ_APART
    for name, value in {**_DEFAULTS, **options.values}.items():
        flag = "--" + _RENAMED.get(name, name).replace("_", "-")
        texts = [str(one) for one in value] if isinstance(value, list) else [str(value)]
        if flag not in read or not texts or texts[-1].lower() in ("none", "null"):
            continue
        meaning = MEANINGS.get(flag)
        if meaning is not None and meaning.read is whole and name in options.values:
            options.number(name)  # which names the option as it was written
        if flags_of("megatron").get(flag) != "0":
            words.given[flag] = texts
        elif _is_on(options.shown.get(name, name), texts[-1]):
            words.given[flag] = ["true"]
    if options.first("rlhf_type") in _OWN_LOGPS:
        words.given.pop("--cross-entropy-loss-fusion", None)
    half = _half(options, model)
    if half:
        words.given[f"--{half}"] = ["true"]
    return words


def _is_on(shown: str, text: str) -> bool:
    try:
        return bool(switch(text))
    except UsageError as problem:
        raise UsageError(f"{shown}: {problem}") from None


def _half(options: Options, model: str) -> str:
    """fp16 unless the weights are bf16 (arguments/base_args/model_args.py _init_mixed_precision)."""
    stated = [half for half in ("bf16", "fp16") if options.is_on(half)]
    if stated or options.values.get("bf16") is not None:
        return stated[0] if stated else ""
    weights = (options.first("torch_dtype") or loaded_dtype(model)).removeprefix("torch.")
    return "bf16" if DTYPE_SPELLINGS.get(weights, weights) == "bf16" else "fp16"


def _method(options: Options, model: str) -> tuple[dict[str, object], list[str]]:
    tuner = options.first("tuner_type", "train_type") or "full"
    if tuner not in _TUNERS:
        raise UsageError(f'--tuner_type: expected {", ".join(_TUNERS)}, got "{clipped(tuner)}"')
    if tuner == "full" and not options.several("adapters", "mcore_adapter", "mcore_adapters", "adapter_load"):
        return _full(options, model), []
    targets, notes = _targets(options, model)
    found: dict[str, object] = {
        "method": "lora", "lora_rank": options.number("lora_rank") or 8, "lora_targets": targets,
        "lora_dropout": fraction(options.first("lora_dropout") or "0.05"),
        # Float16Module casts all of a model, its adapters among it (core 0.16 transformer/module.py), whatever
        # lora_dtype they were made in
        "lora_dtype": _half(options, model) or options.first("lora_dtype") or "fp32",
    }  # fmt: skip
    if tuner == "lora_llm":
        notes.append("--tuner_type lora_llm: the tower, which trains whole, is taken as frozen")
    return found, notes


def _full(options: Options, model: str) -> dict[str, object]:
    """Of a model that reads images the tower and what joins it are frozen unasked (`_init_multimodal_full`)."""
    known = described(model)
    if known is None or not is_multimodal(known):
        return {"method": "full"}
    text, towers, joins = not options.is_on("freeze_llm"), _trains(options, "vit"), _trains(options, "aligner")
    if text and towers and joins:
        return {"method": "full"}
    task = "seq_cls" if options.first("rlhf_type") == "rm" else options.first("task_type") or ""
    trainable = trained_parts(known, text=text, towers=towers, joins=joins, head=_HEADS.get(task))
    if not trainable:
        raise UsageError("--freeze_llm, --freeze_vit and --freeze_aligner together leave nothing to train")
    return {"method": "freeze", "trainable": trainable}


def _trains(options: Options, part: str) -> bool:
    return f"freeze_{part}" in options.values and not options.is_on(f"freeze_{part}")


def _targets(options: Options, model: str) -> tuple[str | list[str], list[str]]:
    """Megatron's modules as transformers names them; its experts' two are parameters there.

    `all-linear` leaves a frozen tower alone (`get_multimodal_target_regex`).
    """
    given, known = options.several("target_modules") or ["all-linear"], described(model)
    if known is None:
        return targets_of([part for name in given for part in _TARGETS.get(name, (name,))], model)
    notes = ["adapters on routers are not counted"] if "all-router" in given else []
    named = [name for name in given if name != "all-router"]
    everywhere = linear_targets(known, towers_too=_trains(options, "vit"))
    if "all-linear" in named:
        targets = [*everywhere, *(name for name in named if name != "all-linear")]
        return ("all-linear" if targets == ["all-linear"] else targets), notes
    first, second = (f"experts.{part}" for part in ("gate_up_proj", "down_proj"))
    of_experts = {"linear_fc1": [first] * (first in everywhere), "linear_fc2": [second] * (second in everywhere)}
    found = [part for name in named for part in (*_TARGETS.get(name, (name,)), *of_experts.get(name, ()))]
    chosen, more = targets_of(found, model)
    return chosen, [*notes, *more]
