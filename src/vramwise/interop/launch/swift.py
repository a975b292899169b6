"""`swift sft|pt|rlhf …`: ms-swift's flags or its configuration file, with its own defaults.

Read in ms-swift 4.6: arguments/*.py, trainers/arguments.py, config/*.json (what `--deepspeed zero2` and its like mean),
pipelines/train/tuner.py (float16 weights that train become fp32).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from vramwise.errors import UsageError, clipped
from vramwise.interop.deepspeed_files import shipped_deepspeed_file
from vramwise.interop.launch.adapters import beside_adapters, targets_of
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import by_environment, launcher_of
from vramwise.interop.launch.model_facts import loaded_dtype
from vramwise.interop.launch.model_parts import full_but, language_targets
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.sharding import Sharding, read_fsdp, sharding_of, take_deepspeed
from vramwise.interop.launch.swift_settings import completions_and_models, options_of
from vramwise.interop.launch.trainer_settings import set_precision, trainer_settings
from vramwise.interop.launch.values import fraction, whole_in
from vramwise.scenario.names import DTYPE_SPELLINGS

ANSWERS = ("infer", "deploy", "rollout")
PROGRAMS = ("swift-infer", "swift", "trainer")
_BATCH = 16
"""Sequences of a step that gradient accumulation fills up to, where it is not given."""

_TUNERS = ("lora", "full", "longlora")
_OF_MEGATRON = frozenset({
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size", "micro_batch_size",
    "global_batch_size", "recompute_granularity", "recompute_method", "mcore_model", "mcore_adapters",
})  # fmt: skip
"""Settings that `megatron sft` has and `swift sft` has not (4.6 megatron/arguments)."""


def read(start: Start) -> Launch:
    """The scenario of an ms-swift command. Raises UsageError or SourceError for what cannot be read."""
    answers = start.program.rpartition(".")[2] if start.is_script else start.program
    if answers in ANSWERS:
        from vramwise.interop.launch import swift_inference

        return swift_inference.read(replace(start, program=answers), options_of(start, PROGRAMS, "ms-swift"))
    options = options_of(start, ("swift", "trainer"), "ms-swift")
    if _is_megatrons(options, start):
        from vramwise.interop.launch import megatron_swift

        return megatron_swift.read(start)
    launcher = launcher_of(start) if start.is_script else by_environment(start)
    sharding = _sharding(options)
    named = options.first("model", "model_id_or_path") or options.first("model_type")  # before 3.0 the type named it
    model = one_model("ms-swift", named, "--model MODEL")
    common, notes = trainer_settings(options, sharding, {"gradient_checkpointing": True})
    own = {"framework": "ms-swift", "micro_batch_size": 1}
    train: dict[str, object] = {**own, **options.settings(), **sharding.settings, **common}
    if "gradient_accumulation_steps" not in train:
        each = whole_in(train, "micro_batch_size") * (launcher.gpus or 1)
        train["gradient_accumulation_steps"] = max(1, ceil(_BATCH / each))
    if options.first("tuner_backend") == "unsloth":
        train["framework"] = "unsloth"
    packed = options.number("packing_length")
    if packed and options.is_on("packing"):
        train["sequence_length"] = packed
    notes += _over_ranks(train, start)
    if _keeps_answers(options, train, start):
        notes.append("logits are made from the first answer on (use_logits_to_keep): those of every position are taken")
    if options.first("task_type") == "seq_cls":
        train["head"] = "sequence-classification"
    for found, said in (_method(options, model), completions_and_models(start.program, options, train)):
        train |= found
        notes += said
    notes += _precision(options, train, sharding, model)
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    told = (*notes, *sharding.notes, *options.notes(), *launcher.said())
    return launched("ms-swift", scenario, told, options)


def _keeps_answers(options: Options, train: Mapping[str, object], start: Start) -> bool:
    """4.6 trainers/mixin.py get_use_logits_to_keep: unless ranks share sequences; samples say how many there are."""
    plain = start.program.rpartition(".")[2] == "sft" and whole_in(train, "context_parallel_size") < 2
    return plain and train.get("head") is None and options.is_on("use_logits_to_keep", default=True)


def _over_ranks(train: dict[str, object], start: Start) -> list[str]:
    """Sequences that several ranks share: filled up to equal pieces, their loss over some rows at a time where asked.

    4.6 sequence_parallel/sequence_parallel.py `pad`, trainers/utils.py `per_token_loss_func_sp`.
    """
    ranks, rows = whole_in(train, "context_parallel_size"), start.environment.get("CELOSS_PARALLEL_SIZE", "0")
    if ranks < 2:
        return []
    given = whole_in(train, "sequence_length")
    filled = ceil(given / ranks) * ranks
    notes = []
    if filled != given:
        train["sequence_length"] = filled
        notes.append(f"sequences of {given:,} tokens are filled up to {filled:,}, equal pieces of {ranks} ranks")
    if rows.isdecimal() and int(rows):
        train["loss"] = "chunked"
        notes.append(f"CELOSS_PARALLEL_SIZE {rows}: the loss of so many rows at a time, taken as 2,048")
    return notes


def _is_megatrons(options: Options, start: Start) -> bool:
    """Whether the settings, or the script, are those of `megatron sft`."""
    named = {name.lstrip("-").replace("-", "_") for name in options.unknown}
    return bool(named & _OF_MEGATRON) or "_megatron" in start.program


def _sharding(options: Options) -> Sharding:
    from vramwise.interop.launch.launchers import Launcher

    found = Sharding()
    shipped = shipped_deepspeed_file(f"ms-swift:{options.first('deepspeed')}")
    if shipped is not None:
        take_deepspeed(found, shipped[0])
        return found
    if options.first("fsdp") == "fsdp2":  # config/fsdp2.json
        read_fsdp(found, {"activation_checkpointing": True, "cpu_ram_efficient_loading": True}, version=2)
        return found
    return sharding_of(options, Launcher())


def _method(options: Options, model: str) -> tuple[dict[str, object], list[str]]:
    tuner = options.first("tuner_type", "train_type", "sft_type") or "lora"
    if tuner not in _TUNERS:
        raise UsageError(f'--tuner_type: expected lora or full, got "{clipped(tuner)}"')
    text, towers, joins = (
        not options.is_on(f"freeze_{part}", default=part != "llm") for part in ("llm", "vit", "aligner")
    )
    if tuner == "full":
        return full_but(model, towers=towers, joins=joins, text=text), []
    given = options.several("target_modules", "lora_target_modules") or ["all-linear"]
    if given == ["all-linear"] and text and not towers:
        given = language_targets(model)
    targets, notes = targets_of(given, model, options.several("target_parameters"))
    whole, said = beside_adapters(options.several("modules_to_save"), model)
    found: dict[str, object] = {
        "method": "lora", "lora_rank": options.number("lora_rank") or 8, "lora_targets": targets,
        "lora_dropout": fraction(options.first("lora_dropout") or "0.05"), **whole,
    }  # fmt: skip
    notes += said
    if options.is_on("use_dora"):
        found["dora"] = True
    wide = options.first("lora_dtype")
    if wide:
        found["lora_dtype"] = wide
    bits = options.number("quant_bits", "quantization_bit")
    if bits:
        kind = options.first("bnb_4bit_quant_type") or "nf4"
        doubled = kind == "nf4" and options.is_on("bnb_4bit_use_double_quant", default=True)
        found |= {"method": "qlora", "quantization": "int8" if bits == 8 else f"{kind}-dq" if doubled else kind}
        if (options.first("quant_method") or "bnb") != "bnb":
            notes.append(f"--quant_method {options.first('quant_method')} is taken as bitsandbytes")
    return found, notes


def _precision(options: Options, train: dict[str, object], sharding: Sharding, model: str) -> list[str]:
    """--torch_dtype, else the checkpoint's; Trainer computes in bf16 over such weights, in fp16 over all others.

    (arguments/base_args/model_args.py _init_mixed_precision.)
    """
    named = options.first("torch_dtype")
    weights = (named or loaded_dtype(model)).removeprefix("torch.")
    short = DTYPE_SPELLINGS.get(weights, weights)
    stated = [half for half in ("bf16", "fp16") if options.is_on(half)]
    half: str | None = stated[0] if stated else "bf16" if short == "bf16" else "fp16"
    if sharding.says_half:
        half = sharding.half
    wide = train["method"] == "full" and short == "fp16"
    notes = set_precision(train, sharding, half, "fp32" if wide else weights, model)
    return notes if named else [*notes, f"weights are loaded in {weights}, as the checkpoint has them"]
