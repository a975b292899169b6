"""`llamafactory-cli train|chat|api|webchat|export FILE [key=value …]`: LLaMA-Factory's configuration or flags.

Read in LLaMA-Factory 0.9.5: hparams/*.py, model/adapter.py (what trains becomes fp32 but under ZeRO-3 and pure_bf16),
launcher.py (as many processes as GPUs, or NPROC_PER_NODE).
"""

from __future__ import annotations

from vramwise.errors import UsageError, clipped
from vramwise.interop.beside import file_table
from vramwise.interop.launch import llamafactory_v1
from vramwise.interop.launch.adapters import beside_adapters, targets_of
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import by_environment, launcher_of
from vramwise.interop.launch.llamafactory_inference import other_than_training, untrained_note
from vramwise.interop.launch.model_facts import known_config, last_layers
from vramwise.interop.launch.model_parts import full_but, language_targets, of_language
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.sharding import Sharding, sharding_of
from vramwise.interop.launch.trainer_settings import BATCH, half_of, set_precision, trainer_settings
from vramwise.interop.launch.values import fraction, whole_in

_RANK, _LENGTH, _FROZEN_BUT = 8, 2048, 2
_OF_V1 = ("sft", "dpo", "rm")
_METHODS = ("lora", "freeze", "full")
_OPTIMIZERS = {"use_galore": "galore_adamw", "use_apollo": "apollo_adamw", "use_muon": "muon",
               "use_adam_mini": "adam_mini"}  # fmt: skip


def read(start: Start) -> Launch:
    """The scenario of a LLaMA-Factory command. Raises UsageError or SourceError for what cannot be read."""
    if start.program in _OF_V1 or start.environment.get("USE_V1", "").lower() in ("1", "true", "y"):
        return llamafactory_v1.read(start, llamafactory_v1.tables_of(start.words))
    options = Options(("llamafactory", "trainer"), "LLaMA-Factory")
    options.read_words(start.words if start.is_script else start.words[1:])
    read_overrides(options)
    for file in [word for word in options.loose if word.endswith((".yaml", ".yml", ".json"))]:
        options.loose.remove(file)
        options.read_table(file_table(file))
    other = other_than_training(start, options)
    if other is not None:
        return other
    launcher = launcher_of(start) if start.is_script else by_environment(start)
    sharding = sharding_of(options, launcher)
    model = one_model("LLaMA-Factory", options.first("model_name_or_path"), "model_name_or_path")
    defaults = {"gradient_checkpointing": True, "optim": _optimizer(options)}
    common, notes = trainer_settings(options, sharding, defaults)
    train: dict[str, object] = {
        "framework": "llamafactory", "micro_batch_size": BATCH, "sequence_length": _LENGTH,
        **options.settings(), **sharding.settings, **common,
    }  # fmt: skip
    if options.is_on("disable_gradient_checkpointing"):
        train["checkpointing"] = "none"
    elif options.is_on("use_unsloth_gc"):
        train["offload_activations"] = "cpu"
    if options.is_on("use_unsloth"):
        train["framework"] = "unsloth"
    if options.is_on("neat_packing"):
        train |= {"packing": True, "document_mask": True}
    for found, said in (_method(options, model), _stage(options, train)):
        train |= found
        notes += said
    notes += _precision(options, train, sharding, model)
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    told = (*untrained_note(options), *notes, *sharding.notes, *options.notes(), *launcher.said())
    return launched("llamafactory", scenario, told, options)


def read_overrides(options: Options) -> None:
    """`key=value` words, which win over a file; `[a,b]` is a list (OmegaConf's)."""
    for word in [word for word in options.loose if "=" in word]:
        options.loose.remove(word)
        name, _, value = word.partition("=")
        if options.known(name) is None:
            options.unknown.append(name)
        else:
            is_list = value.startswith("[") and value.endswith("]")
            options.give(name, [one.strip(" '\"") for one in value[1:-1].split(",")] if is_list else value)


def _optimizer(options: Options) -> str:
    return next((name for option, name in _OPTIMIZERS.items() if options.is_on(option)), "adamw_torch_fused")


def _method(options: Options, model: str) -> tuple[dict[str, object], list[str]]:
    method = options.first("finetuning_type") or "lora"
    if method == "oft":
        raise UsageError("finetuning_type oft: orthogonal adapters are not described here; lora, freeze and full are")
    if options.is_on("use_kt"):
        raise UsageError("use_kt: KTransformers keeps and runs the experts on the host, which is not described here")
    if method not in _METHODS:
        raise UsageError(f'finetuning_type: expected {", ".join(_METHODS)}, got "{clipped(method)}"')
    frozen = {part: options.is_on(f"freeze_{part}", default=True) for part in ("vision_tower", "multi_modal_projector")}
    if method == "full":
        text = not options.is_on("freeze_language_model")
        towers, joins = (not is_frozen for is_frozen in frozen.values())
        return full_but(model, towers=towers, joins=joins, text=text), []
    if method == "freeze":
        return {"method": "freeze", "trainable": _layers(options, model)}, []
    bits = options.number("quantization_bit")
    given = options.several("lora_target") or ["all"]
    if given == ["all"] and frozen["vision_tower"]:
        given = language_targets(model)
    targets, notes = targets_of(given, model)
    whole, said = beside_adapters(options.several("additional_target"), model)
    found: dict[str, object] = {
        "method": "qlora" if bits else "lora", "lora_rank": options.number("lora_rank") or _RANK,
        "lora_dropout": fraction(options.first("lora_dropout") or "0"), "lora_targets": targets, **whole,
    }  # fmt: skip
    notes += said
    if options.is_on("use_dora"):
        found["dora"] = True
    if bits:
        kind = options.first("quantization_type") or "nf4"
        doubled = kind == "nf4" and options.is_on("double_quantization", default=True)
        found["quantization"] = "int8" if bits == 8 else f"{kind}-dq" if doubled else kind
        if bits not in (4, 8):
            notes.append(f"quantization_bit {bits} is not described: 4 bits are taken")
    return found, notes


def _layers(options: Options, model: str) -> list[str]:
    asked = options.first("freeze_trainable_layers") or str(_FROZEN_BUT)
    spread = options.is_on("use_llama_pro")
    layers = last_layers(asked, options.several("freeze_trainable_modules"), known_config(model), spread=spread)
    if options.is_on("freeze_vision_tower", default=True):
        layers = of_language(layers, model)
    return [*layers, *options.several("freeze_extra_modules")]


def _stage(options: Options, train: dict[str, object]) -> tuple[dict[str, object], list[str]]:
    stage = options.first("stage") or "sft"
    if stage == "pt" and "packing" not in train:
        return {"packing": True}, []
    found: dict[str, object] = {}
    notes = []
    if stage in ("dpo", "rm"):
        found["micro_batch_size"] = 2 * whole_in(train, "micro_batch_size")
        notes.append("a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it")
    named = options.first("ref_model")
    reference = [f"reference:{named}" if named else "reference"]
    if (stage == "dpo" and options.first("pref_loss") not in ("orpo", "simpo")) or stage == "kto":
        found["extra_models"] = reference
    elif stage == "ppo":
        rewards = options.first("reward_model")
        whole = rewards and options.first("reward_model_type") == "full"
        found["extra_models"] = [*reference, *([f"reward:{rewards}"] if whole else [])]
        notes.append("ppo: the cache of generation and the value head are not counted")
    if stage in ("rm", "ppo", "dpo", "kto") and train.get("loss") == "fused-linear":
        found["loss"] = "standard"  # model_utils/liger_kernel.py require_logits
    if stage == "dpo" and "extra_models" in found:
        found["loss"] = "preference"
    return found, notes


def _precision(options: Options, train: dict[str, object], sharding: Sharding, model: str) -> list[str]:
    half = half_of(options, sharding, bf16=False)
    if options.is_on("pure_bf16"):
        return _pure_bf16(train, sharding)
    weights = half if half and train["method"] != "full" else "auto" if half is None else "fp32"
    notes = set_precision(train, sharding, half, weights, model)
    if train["method"] == "full" and half is None:
        train["precision"] = "fp32"
        return []
    return notes


def _pure_bf16(train: dict[str, object], sharding: Sharding) -> list[str]:
    """Weights stay in bf16 and nothing runs under autocast; ZeRO's stages 1 and 2 have fp32 copies all the same.

    DeepSpeed is told neither bf16 nor fp16 by a file that has "auto" (transformers 5.23 integrations/deepspeed.py), and
    goes by the weights it gets (0.18.2 runtime/zero/stage_1_and_2.py: `.clone().float().detach()` of the partition).
    0.8.3 to 0.9.5 hparams/parser.py refuse stage 3.
    """
    zero = train.get("zero_stage")
    if zero == 3:
        raise UsageError("pure_bf16: LLaMA-Factory refuses it under DeepSpeed's ZeRO-3; bf16: true trains there")
    train |= {"precision": "bf16-master" if sharding.deepspeed and zero else "bf16", "framework": "transformers"}
    said = ["pure_bf16: computed as transformers' own Trainer does without autocast"]
    return [*said, f"ZeRO {zero} keeps copies in fp32 beside weights of bf16"] if zero else said
