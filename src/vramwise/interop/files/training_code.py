"""Training scripts and notebooks: the arguments of unsloth's, transformers', peft's and TRL's calls in them.

Read in unsloth 2026.8 models/loader.py and models/_utils.py (FastLanguageModel.from_pretrained loads in 4 bits unless
told otherwise, nf4 with double quantization; get_peft_model: rank 16, checkpointing "unsloth", which offloads), peft
0.21 LoraConfig, trl 1.16 trainer/*_config.py. What such a call gives becomes the option of that name of TRL or Trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.errors import UsageError, clipped
from vramwise.interop.files import embedding_code
from vramwise.interop.files.given import Given
from vramwise.interop.files.inference_code import launch_of_inference, trains_by_itself
from vramwise.interop.files.python_code import (
    Call,
    assigned,
    calls_in,
    code_of,
    first,
    known,
    left_out,
    names_the_argument,
    refuse,
    tree_of,
)
from vramwise.interop.files.tables import texts_in
from vramwise.interop.launch import Launch
from vramwise.interop.launch.adapters import adapter_settings, beside_adapters, targets_of
from vramwise.interop.launch.launchers import Launcher
from vramwise.interop.launch.model_parts import language_targets
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.sharding import Sharding, sharding_of
from vramwise.interop.launch.trainer_settings import BATCH, half_of, set_precision, trainer_settings
from vramwise.interop.launch.trl import STAGES, stage_settings
from vramwise.interop.launch.unsloth import TARGETS, checkpointing_of
from vramwise.interop.launch.values import fraction, whole_in

_FAST = ("FastLanguageModel", "FastVisionModel", "FastModel", "FastTextModel")
_ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments", "UnslothTrainingArguments", "SFTConfig", "DPOConfig",
              "GRPOConfig", "ORPOConfig", "KTOConfig", "RewardConfig", "RLOOConfig", "CPOConfig",
              *embedding_code.ARGUMENTS)  # fmt: skip
_PAIRED = ("dpo", "orpo", "cpo", "simpo")
_RANK, _LENGTH = 16, 2048
_WHOLE = ("embed_tokens", "lm_head")
"""Targets that unsloth trains whole (2026.10 models/llama.py get_peft_model)."""
_NOTHING = "trains nothing that is read here: no call of TrainingArguments, SFTConfig or their like"
_OWN_LOOP = (
    "trains by a loop or a trainer that is not read here: vramwise dry-run -- python FILE runs its first steps "
    "without a GPU"
)
_BY_ARGUMENTS = (
    "takes its settings from its command line, so give that: vramwise estimate -- accelerate launch FILE "
    "--model_name_or_path MODEL …"
)
_PARSERS = ("TrlParser", "HfArgumentParser", "ArgumentParser")
_NOT_COUNTED = ("layers_to_transform", "megatron_config")


def launch_of_code(given: Given, model: str | None) -> Launch:
    """The training that a script's calls describe. Raises UsageError where they name no model that is written out."""
    tree = tree_of(code_of(given), given.path)
    calls = calls_in(tree, assigned(tree))
    loads = [call for call in calls if call.last == "from_pretrained" and _names_a_model(call)]
    fast = next((call for call in loads if call.name.partition(".")[0] in _FAST), None)
    arguments = first(calls, *_ARGUMENTS)
    embeds = embedding_code.trainer_in(calls)
    if embeds is not None:
        source = embedding_code.loading(given, calls, embeds)
        launch = _transformers(given, calls, source, _without(arguments, embedding_code.OF_ITS_OWN), model)
        return embedding_code.as_embeddings(launch, tree, calls, embeds)
    if arguments is None and not (fast and first(calls, "get_peft_model")):
        found = launch_of_inference(given, calls, fast or (loads[0] if loads else None), model, in_four_bits=bool(fast))
        if found is not None:
            return found
        if not trains_by_itself(calls):
            raise refuse(given.path, _NOTHING)
        raise refuse(given.path, _OWN_LOOP if first(calls, *_PARSERS) is None else _BY_ARGUMENTS)
    if fast is not None:
        return _unsloth(given, calls, fast, arguments, model)
    load = loads[0] if loads else None
    quantizes = names_the_argument(tree, "quantization_config")
    return _transformers(given, calls, load, arguments or Call("TrainingArguments"), model, quantizes=quantizes)


def _without(arguments: Call | None, names: frozenset[str]) -> Call:
    if arguments is None:
        return Call("TrainingArguments")
    return replace(arguments, named={key: value for key, value in arguments.named.items() if key not in names})


def _names_a_model(call: Call) -> bool:
    owner = call.name.split(".")[-2] if "." in call.name else ""
    return owner in _FAST or (owner.startswith("Auto") and "Model" in owner) or owner.endswith(("LM", "Generation"))


def _model_name(given: Given, load: Call | None, model: str | None, *names: str) -> str:
    if model is not None:
        return model
    candidates = [load.named.get(name) for name in names] + load.positional[:1] if load is not None else []
    found = next((one for one in candidates if isinstance(one, str)), None)
    if found is None:
        raise refuse(given.path, "the model's name is not written out: vramwise estimate MODEL FILE names it")
    return found


def _options(arguments: Call | None, title: str) -> tuple[Options, list[str]]:
    options = Options(("trl", "trainer"), title)
    values, unknown = known(arguments.named if arguments is not None else {})
    options.read_table(values)
    return options, unknown


def _stage(arguments: Call | None, calls: list[Call]) -> str:
    """TRL's trainer by its configuration's or its own name."""
    names = [arguments.last if arguments is not None else "", *(call.last for call in calls)]
    for name in names:
        stage = name.removesuffix("Config").removesuffix("Trainer").lower()
        if name.endswith(("Config", "Trainer")) and stage in (*STAGES, *_PAIRED):
            return stage
    return ""


def _notes(unknown: list[str], options: Options, peft: Mapping[str, object]) -> list[str]:
    notes = [f"{name} is not counted" for name in _NOT_COUNTED if peft.get(name)]
    return [*notes, *left_out(map(clipped, unknown)), *options.notes()]


def _unsloth(given: Given, calls: list[Call], load: Call, arguments: Call | None, model: str | None) -> Launch:
    options, unknown = _options(arguments, "TRL")
    loaded, unread = known(load.named)
    peft, unsaid = known(getattr(first(calls, "get_peft_model"), "named", {}))
    name = _model_name(given, load, model, "model_name")
    train: dict[str, object] = {
        "framework": "unsloth", "precision": "bf16-mixed", "param_dtype": "bf16", "micro_batch_size": BATCH,
        **options.settings(),
    }  # fmt: skip
    stated = loaded.get("max_seq_length")
    length = stated if isinstance(stated, int) else _LENGTH
    train["sequence_length"] = options.number("max_seq_length", "max_length") or length
    found, notes = trainer_settings(options, Sharding(), {"optim": "adamw_8bit"})
    train |= {key: value for key, value in found.items() if key != "checkpointing"}
    for said, more in (
        _unsloths_adapters(loaded, peft, name, length),
        _unsloths_stage(options, calls, arguments, loaded, train),
    ):
        train |= said
        notes += more
    if options.is_on("fp16") or loaded.get("dtype") in ("float16", "half"):
        train |= {"precision": "fp16-mixed", "param_dtype": "fp16"}
    if loaded.get("full_finetuning"):
        train |= {"method": "full"}
    scenario = {"model": name, "task": "train", "num_gpus": 1, "train": train}
    understood = [key for key in loaded if key not in ("token", "trust_remote_code")] + list(peft)
    said_all = [*notes, *_notes([*unread, *unsaid, *unknown], options, peft)]
    return Launch("unsloth", scenario, tuple(said_all), (*understood, *options.understood()), options.passed_over())


def _unsloths_adapters(
    loaded: Mapping[str, object], peft: Mapping[str, object], model: str, length: int
) -> tuple[dict[str, object], list[str]]:
    in_8, in_16 = bool(loaded.get("load_in_8bit")), bool(loaded.get("load_in_16bit"))
    in_4 = bool(loaded.get("load_in_4bit", not (in_8 or in_16 or loaded.get("full_finetuning"))))
    kept = peft.get("use_gradient_checkpointing", loaded.get("use_gradient_checkpointing", "unsloth"))
    found = checkpointing_of(kept, length)
    given = peft.get("target_modules")
    names = texts_in(given) if isinstance(given, list) else (
        ["all-linear"] if given == "all-linear" or "finetune_language_layers" in peft else list(TARGETS))  # fmt: skip
    if names == ["all-linear"] and peft.get("finetune_vision_layers") is False:
        names = language_targets(model)
    modules = [name for name in names if name not in _WHOLE]
    targets, notes = targets_of(modules, model, texts_in(peft.get("target_parameters")))
    saved = [*texts_in(peft.get("modules_to_save")), *(name for name in names if name in _WHOLE)]
    whole, said = beside_adapters(saved, model)
    notes += said
    rank = peft.get("r", _RANK)
    found |= {"method": "qlora" if in_4 or in_8 else "lora", "lora_targets": targets,
              "lora_rank": rank if isinstance(rank, int) else _RANK,
              "lora_dropout": fraction(str(peft.get("lora_dropout", 0))), **whole}  # fmt: skip
    if in_4 or in_8:
        found["quantization"] = "int8" if in_8 else "nf4-dq"
    frozen = [name for name in ("language", "attention", "mlp") if peft.get(
        f"finetune_{name}_{'modules' if name in ('attention', 'mlp') else 'layers'}") is False]  # fmt: skip
    if frozen:
        notes.append(f"without adapters on {', '.join(frozen)}: all linear layers are taken")
    return found, notes


def _unsloths_stage(
    options: Options, calls: list[Call], arguments: Call | None, loaded: Mapping[str, object], train: dict[str, object]
) -> tuple[dict[str, object], list[str]]:
    stage = _stage(arguments, calls)
    if stage in _PAIRED:
        twice = 2 * whole_in(train, "micro_batch_size")
        return {"micro_batch_size": twice}, ["a batch holds the chosen and the rejected answer of each sample: "
                                             "micro_batch_size is twice it"]  # fmt: skip
    completion, prompt = options.number("max_completion_length"), options.number("max_prompt_length")
    found: dict[str, object] = {}
    if completion and stage == "grpo":
        found["sequence_length"] = completion + (prompt or 0)
    if not loaded.get("fast_inference"):
        made = "completions are made by transformers: the cache of generation is not counted"
        return found, [made] if stage == "grpo" else []
    share = loaded.get("gpu_memory_utilization", 0.5)
    return {**found, "extra_models": ["rollout:vllm"], "rollout_gpu_memory_utilization": fraction(str(share))}, [
        "unsloth's engine shares the weights with the policy; here they are counted in both"]  # fmt: skip


def _transformers(
    given: Given, calls: list[Call], load: Call | None, arguments: Call, model: str | None, *, quantizes: bool = False
) -> Launch:
    """A script around Trainer or TRL, as its options on a command line would have it.

    `quantizes`: a configuration of bitsandbytes is handed to something; one that is only made quantizes nothing.
    """
    options, unknown = _options(arguments, "Trainer")
    loaded, unread = known(load.named if load is not None else {})
    lora, unsaid = known(getattr(first(calls, "LoraConfig"), "named", {}))
    bits, _ = known(getattr(first(calls, "BitsAndBytesConfig") if quantizes else None, "named", {}))
    trainers = [call for call in calls if call.last.endswith("Trainer")]
    named = next((call.named.get("model") for call in trainers if isinstance(call.named.get("model"), str)), None)
    name = _model_name(given, load if named is None else Call("", [named]), model, "pretrained_model_name_or_path")
    unread = [one for one in unread if one != "quantization_config" or not bits]
    stage = _stage(arguments, calls)
    stage = stage if stage in STAGES else ""
    _give(options, {"lora_r": lora.get("r"), "lora_target_modules": lora.get("target_modules"),
                    "lora_dropout": lora.get("lora_dropout"), "use_dora": lora.get("use_dora"),
                    "load_in_4bit": bits.get("load_in_4bit", loaded.get("load_in_4bit")),
                    "load_in_8bit": bits.get("load_in_8bit", loaded.get("load_in_8bit")),
                    "bnb_4bit_quant_type": bits.get("bnb_4bit_quant_type", "fp4" if bits else None),
                    "use_bnb_nested_quant": bits.get("bnb_4bit_use_double_quant"),
                    "attn_implementation": loaded.get("attn_implementation")})  # fmt: skip
    _give(options, {name: value for name, value in bits.items() if name not in options.values
                    and name != "bnb_4bit_use_double_quant"})  # fmt: skip
    _give(options, {f"lora_{name}": value for name, value in lora.items() if name not in _LORA_READ}, "lora_")
    if first(calls, "LoraConfig") is not None:
        options.give("use_peft", True)
    launcher = Launcher()
    sharding = sharding_of(options, launcher)
    defaults: dict[str, object] = {"bf16": True, "gradient_checkpointing": True} if stage else {}
    train: dict[str, object] = {"framework": "transformers", "micro_batch_size": BATCH}
    notes: list[str] = []
    for found, said in (
        (options.settings(), []),
        (sharding.settings, sharding.notes),
        trainer_settings(options, sharding, defaults),
        adapter_settings(options, name, rank=8, dropout=0.0, gated=True),
        stage_settings(stage, options) if stage else ({}, []),
    ):
        notes.extend(said)
        train.update(found)
    if train.pop("pairs", False):
        train["micro_batch_size"] = 2 * whole_in(train, "micro_batch_size")
    weights = str(loaded.get("dtype", loaded.get("torch_dtype", "auto")))
    notes += set_precision(train, sharding, half_of(options, sharding, bf16=bool(stage)), weights, name)
    scenario = {"model": name, "task": "train", **launcher.table(), "train": train}
    if not quantizes and first(calls, "BitsAndBytesConfig") is not None:
        notes.append("a BitsAndBytesConfig is made and given to nothing (quantization_config): weights keep their bits")
    said_all = (*notes, *_notes([*unread, *unsaid, *unknown], options, {}), *launcher.said())
    own = (name for name in lora if name in _LORA_READ)
    return Launch("transformers", scenario, said_all, (*loaded, *own, *options.understood()), options.passed_over())


_LORA_READ = frozenset({"r", "target_modules", "lora_dropout", "use_dora", "lora_alpha", "peft_type"})


def _give(options: Options, values: Mapping[str, object], prefix: str = "") -> None:
    """Set options that nothing else has set, shown without the `prefix` that the table of options has for them."""
    for name, value in values.items():
        if value is None or name in options.values:
            continue
        if options.known(name) is None:
            options.unknown.append(name.removeprefix(prefix))
        else:
            options.give(name, value, name.removeprefix(prefix))


def code_launch(given: Given, model: str | None, title: str) -> Launch:
    """The launch with its first notes: whose file it is and what was read in it.

    Raises UsageError where nothing in it names a model.
    """
    launch = launch_of_code(given, model)
    if not launch.scenario.get("model"):
        raise UsageError(title)
    understood = ", ".join(dict.fromkeys(map(clipped, launch.understood)))
    return replace(launch, notes=(f"{title}: its calls were looked at, not run", f"read from it: {understood}",
                                  *launch.notes))  # fmt: skip
