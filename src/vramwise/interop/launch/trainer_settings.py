"""What transformers' Trainer makes of its options, alone or under another framework's names."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.model_facts import loaded_dtype
from vramwise.interop.launch.options import Options, options_of
from vramwise.interop.launch.sharding import Sharding, is_no, json_or_file
from vramwise.scenario.names import DTYPE_SPELLINGS, DTYPES

BATCH = 8  # TrainingArguments.per_device_train_batch_size
_FLASH = ("flash_attention_2", "flash_attention_3", "flash_attention", "flash-attn", "flash_attn")


def trainer_settings(
    options: Options, sharding: Sharding, defaults: dict[str, object]
) -> tuple[dict[str, object], list[str]]:
    """What TrainingArguments say beside precision, adapters and sharding."""
    found: dict[str, object] = {}
    on = bool(defaults.get("gradient_checkpointing"))
    if options.is_on("gradient_checkpointing", "activation_checkpointing", default=on):
        found["checkpointing"] = "full"
    elif "checkpointing" not in sharding.settings:
        found["checkpointing"] = "none"
    optimizer, notes = optimizer_settings(
        options.first("optim") or str(defaults.get("optim", "adamw_torch_fused")), sharding
    )
    found |= optimizer
    if (options.first("max_grad_norm") or "1") in ("0", "0.0"):
        found["clip_grad_norm"] = False
    if options.is_on("use_liger_kernel", "enable_liger_kernel"):
        found |= _liger(options)
    found |= _evaluation(options)
    attention, said = attention_of(options)
    return found | attention, notes + said


def optimizer_settings(name: str, sharding: Sharding) -> tuple[dict[str, object], list[str]]:
    """The optimizer; one in DeepSpeed's configuration replaces Trainer's."""
    name = (sharding.optimizer or name).lower()
    row = options_of("optimizer").get(name)
    if row is None:
        return {"optimizer": "adamw"}, [f"optimizer {name} is not described: adamw is taken"]
    optimizer, _, implementation = row.key.partition(" ")
    found: dict[str, object] = {
        "optimizer": optimizer,
        **({"optimizer_impl": implementation} if implementation else {}),
    }
    return found, [f"optimizer {name}: {row.note}"] if row.note else []


def attention_of(options: Options) -> tuple[dict[str, object], list[str]]:
    """The attention kernel: SDPA unless told otherwise."""
    named = (options.first("attn_implementation", "flash_attn", "attn_impl") or "").lower()
    if options.is_on("use_flash_attn", "use_flash_attention_2") or any(name in named for name in (*_FLASH, "fa2")):
        return {"attention": "flash"}, []
    if named in ("eager", "sdpa"):
        return {"attention": named}, []
    if named in ("flex", "flex_attention"):
        return {"attention": "flex"}, []
    return {}, [f"attention {named} is not described: sdpa is taken"] if named not in ("", "auto", "disabled") else []


def half_of(options: Options, sharding: Sharding, *, bf16: bool) -> str | None:
    """The 16-bit dtype of the computation: DeepSpeed's own word, the arguments', accelerate's, the default."""
    if sharding.says_half:
        return sharding.half
    if options.is_on("fp16"):
        return "fp16"
    return "bf16" if options.is_on("bf16", default=bf16) else sharding.half


def set_precision(
    train: dict[str, object], sharding: Sharding, half: str | None, weights: str, model: str
) -> list[str]:
    """Precision and the dtype of the weights; a note where the checkpoint decides."""
    notes = []
    dtype = weights.removeprefix("torch.").lower()
    if dtype in ("auto", "none"):
        dtype = loaded_dtype(model)
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


def _liger(options: Options) -> dict[str, object]:
    config = options.values.get("liger_kernel_config")
    table = json_or_file(config) if isinstance(config, str) and not is_no(config) else config or {}
    if not isinstance(table, Mapping):
        raise UsageError(f'liger_kernel_config: expected a table, got "{clipped(str(table))}"')
    fused = not is_no(table.get("fused_linear_cross_entropy", True))
    return {"kernels": ["liger"], **({"loss": "fused-linear"} if fused else {})}


def _evaluation(options: Options) -> dict[str, object]:
    """Evaluation batches, where there is evaluation."""
    batch = options.number("per_device_eval_batch_size")
    happens = not is_no(options.first("eval_strategy", "evaluation_strategy"))
    return {"eval_batch_size": batch or BATCH} if happens or batch else {}
