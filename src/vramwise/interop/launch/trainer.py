"""Scripts around Hugging Face's Trainer and TRL, as accelerate, torchrun, deepspeed, python or `trl` start them.

Whatever a script does with its own arguments is not seen: options count by the names that TrainingArguments, TRL's
configs and published scripts give them. Defaults are those of transformers 5.23 and, where TRL's own scripts run
(`trl sft`, sft.py, grpo_vlm.py …), of trl 1.16.
"""

from __future__ import annotations

import re
from typing import Any

from vramwise.interop.launch.adapters import adapter_settings
from vramwise.interop.launch.command import Launch, Start, one_model
from vramwise.interop.launch.launchers import accelerated, file_table, launcher_of
from vramwise.interop.launch.model_facts import checkpoint_dtype
from vramwise.interop.launch.options import Options, options_of
from vramwise.interop.launch.sharding import Sharding, is_no, json_or_file, sharding_of
from vramwise.interop.launch.trl import STAGES, stage_settings
from vramwise.scenario.names import DTYPE_SPELLINGS, DTYPES

_MODEL_NAMES = (
    "model_name_or_path", "model_name", "model_id", "pretrained_model_name_or_path", "base_model", "model_path",
    "model", "sft_model_path",
)  # fmt: skip
BATCH = 8  # TrainingArguments.per_device_train_batch_size
_FLASH = ("flash_attention_2", "flash_attention_3", "flash_attention", "flash-attn", "flash_attn")
_TRL = "trl 1.16"
_OF_LLAMAFACTORY = ("--finetuning_type", "--finetuning-type")


def read(start: Start) -> Launch:
    """The scenario of a training script. Raises UsageError where no option names a model."""
    if any(word.partition("=")[0] in _OF_LLAMAFACTORY for word in start.words):
        from vramwise.interop.launch.llamafactory import read as read_llamafactory

        return read_llamafactory(start)
    stage = stage_of(start.program)
    programs = ("trl", "trainer", "accelerate") if start.engine == "trl" else ("trl", "trainer")
    options = Options(programs, "TRL" if stage else "Trainer")
    options.read_words(start.words[1:] if start.engine == "trl" else start.words)
    _read_files(options)
    launcher = accelerated(_accelerates(options), start.environment) if start.engine == "trl" else launcher_of(start)
    sharding = sharding_of(options, launcher)
    hint = "--model_name_or_path MODEL"
    model = one_model("a training script", options.first(*_MODEL_NAMES), hint)
    defaults: dict[str, Any] = {"bf16": True, "gradient_checkpointing": True, "dtype": "float32"} if stage else {}
    train: dict[str, Any] = {"framework": "transformers", "micro_batch_size": BATCH}
    if stage:
        train["framework_version"] = _TRL
    notes: list[str] = []
    for found, said in (
        (options.settings(), []),
        (sharding.settings, sharding.notes),
        trainer_settings(options, sharding, defaults),
        adapter_settings(options, model, rank=16 if stage else 8, dropout=0.05 if stage else 0.0, gated=bool(stage)),
        stage_settings(stage, options) if stage else ({}, []),
    ):
        notes.extend(said)
        train.update(found)
    if stage and train["method"] == "qlora" and not train.get("dora"):
        train["lora_dtype"] = "bf16"  # trl 1.16 trainer/sft_trainer.py: adapters on a quantized base
    if train.pop("pairs", False):
        train["micro_batch_size"] *= 2
    weights = options.first("dtype", "torch_dtype") or defaults.get("dtype") or "auto"
    notes.extend(set_precision(train, sharding, half_of(options, sharding, bf16=bool(stage)), weights, model))
    if "expandable_segments:True" in start.environment.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        train["expandable_segments"] = True
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return Launch("transformers", scenario, (*notes, *options.notes(), *launcher.said()))


def stage_of(program: str) -> str | None:
    """What of TRL a script runs, by its name: `sft` of sft.py, trl.scripts.sft, sft_vlm.py."""
    name = re.split(r"[\\/]", program)[-1].removesuffix(".py").rpartition(".")[2]
    return next((stage for stage in STAGES if name == stage or name.startswith(f"{stage}_")), None)


def trainer_settings(
    options: Options, sharding: Sharding, defaults: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What TrainingArguments say beside precision, adapters and sharding."""
    found: dict[str, Any] = {}
    on = bool(defaults.get("gradient_checkpointing"))
    if options.is_on("gradient_checkpointing", "activation_checkpointing", default=on):
        found["checkpointing"] = "full"
    elif "checkpointing" not in sharding.settings:
        found["checkpointing"] = "none"
    optimizer, notes = optimizer_settings(
        options.first("optim") or defaults.get("optim", "adamw_torch_fused"), sharding
    )
    found |= optimizer
    if (options.first("max_grad_norm") or "1") in ("0", "0.0"):
        found["clip_grad_norm"] = False
    if options.is_on("use_liger_kernel", "enable_liger_kernel"):
        found |= _liger(options)
    found |= _evaluation(options)
    attention, said = attention_of(options)
    return found | attention, notes + said


def optimizer_settings(name: str, sharding: Sharding) -> tuple[dict[str, Any], list[str]]:
    """The optimizer; one in DeepSpeed's configuration replaces Trainer's."""
    name = (sharding.optimizer or name).lower()
    row = options_of("optimizer").get(name)
    if row is None:
        return {"optimizer": "adamw"}, [f"optimizer {name} is not described: adamw is taken"]
    optimizer, _, implementation = row.key.partition(" ")
    found = {"optimizer": optimizer, **({"optimizer_impl": implementation} if implementation else {})}
    return found, [f"optimizer {name}: {row.note}"] if row.note else []


def attention_of(options: Options) -> tuple[dict[str, Any], list[str]]:
    """The attention kernel: SDPA unless told otherwise."""
    named = (options.first("attn_implementation", "flash_attn", "attn_impl") or "").lower()
    if options.is_on("use_flash_attn", "use_flash_attention_2") or any(name in named for name in (*_FLASH, "fa2")):
        return {"attention": "flash"}, []
    if named in ("eager", "sdpa"):
        return {"attention": named}, []
    return {}, [f"attention {named} is not described: sdpa is taken"] if named not in ("", "auto", "disabled") else []


def half_of(options: Options, sharding: Sharding, *, bf16: bool) -> str | None:
    """The 16-bit dtype of the computation: DeepSpeed's own word, the arguments', accelerate's, the default."""
    if sharding.says_half:
        return sharding.half
    if options.is_on("fp16"):
        return "fp16"
    return "bf16" if options.is_on("bf16", default=bf16) else sharding.half


def set_precision(train: dict[str, Any], sharding: Sharding, half: str | None, weights: str, model: str) -> list[str]:
    """Precision and the dtype of the weights; a note where the checkpoint decides."""
    notes = []
    dtype = weights.removeprefix("torch.").lower()
    if dtype in ("auto", "none"):
        dtype = checkpoint_dtype(model)
        if not sharding.deepspeed:
            notes.append(f"weights are loaded in {dtype}, as the checkpoint has them (transformers 5; before 5: fp32)")
    dtype = DTYPE_SPELLINGS.get(dtype, dtype) or dtype
    if dtype not in DTYPES:
        dtype = "bf16"
    if sharding.deepspeed:
        train["precision"] = f"{half}-master" if half else "fp32"
        if half and train["method"] != "full":
            train["lora_dtype"] = half  # the engine casts the whole module
        return notes
    if half is None:
        train["precision"] = dtype
        return notes
    train["precision"] = f"{half}-mixed"
    train["param_dtype"] = "fp32" if sharding.fsdp and train["method"] == "full" else dtype
    return notes


def _read_files(options: Options) -> None:
    """`--config FILE` of TRL's parser, or one file alone as HfArgumentParser takes it."""
    named = options.first("config")
    if named:
        options.read_table(file_table(named))
    elif len(options.loose) == 1 and options.loose[0].endswith((".json", ".yaml", ".yml")):
        options.read_table(file_table(options.loose.pop()))


def _accelerates(options: Options) -> Options:
    """Those options of a `trl` command that are accelerate's."""
    found = Options(("accelerate",), "accelerate")
    names = [name for name in options.values if name in options_of("accelerate") and name not in options_of("trainer")]
    for name in [*names, "accelerate_config"]:
        if name in options.values:
            found.give(name, options.values[name], options.shown[name])
    for name in names:
        if name not in options_of("trl"):
            del options.values[name]
    return found


def _liger(options: Options) -> dict[str, Any]:
    config = options.values.get("liger_kernel_config")
    table = json_or_file(config) if isinstance(config, str) and not is_no(config) else config or {}
    fused = not is_no(table.get("fused_linear_cross_entropy", True))
    return {"kernels": ["liger"], **({"loss": "fused-linear"} if fused else {})}


def _evaluation(options: Options) -> dict[str, Any]:
    """Evaluation batches, where there is evaluation."""
    batch = options.number("per_device_eval_batch_size")
    happens = not is_no(options.first("eval_strategy", "evaluation_strategy"))
    return {"eval_batch_size": batch or BATCH} if happens or batch else {}
