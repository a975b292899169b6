"""What transformers' Trainer is told, under the names that TRL and LLaMA-Factory have too.

Read in transformers 5.23 training_args.py; names of optimizers are those of the table that the readers have.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.interop.export.deepspeed_file import deepspeed_config
from vramwise.interop.export.draft import Asked
from vramwise.interop.launch.options import options_of

_OPTIMIZERS = (
    "adamw_torch", "adamw_torch_fused", "adafactor", "adamw_torch_4bit", "adamw_torch_8bit", "sgd", "adamw_bnb_8bit",
    "lion_8bit", "lion_32bit", "paged_adamw_32bit", "paged_adamw_8bit", "galore_adamw", "lomo", "apollo_adamw",
)  # fmt: skip
"""Rows of the readers' table that are exactly an optimizer of ours; the others are taken as one of them."""
_FSDP_WORDS = {"full-shard": "full_shard", "shard-grad-op": "shard_grad_op", "hybrid-shard": "hybrid_shard"}
DATA = "YOUR_DATASET"
DATA_UNSAID = f"data: {DATA} stands for your own"


def trainer_options(asked: Asked, *, sharding: bool = True) -> dict[str, object]:
    """Keys of TrainingArguments; `sharding`: DeepSpeed's and FSDP's too."""
    settings = asked.settings
    found: dict[str, object] = {
        "per_device_train_batch_size": settings.get("micro_batch_size"),
        "gradient_accumulation_steps": settings.get("gradient_accumulation_steps"),
        "gradient_checkpointing": settings.get("checkpointing") == "full",
        **precision_options(settings),
    }
    optimizer = optimizer_name(settings)
    if optimizer is not None:
        found["optim"] = optimizer
    if settings.get("optimizer") in ("galore-adamw", "apollo"):
        found["optim_target_modules"] = ["attn", "mlp"]
    if not settings.get("clip_grad_norm"):
        found["max_grad_norm"] = 0.0
    if settings.get("compile"):
        found["torch_compile"] = True
    if uses_liger(settings):
        found["use_liger_kernel"] = True
        if settings.get("loss") != "fused-linear":
            found["liger_kernel_config"] = {"fused_linear_cross_entropy": False}
    if "eval_batch_size" in asked.stated():
        found |= {"per_device_eval_batch_size": settings["eval_batch_size"], "eval_strategy": "steps"}
    return {**found, **(sharding_options(asked) if sharding else {})}


def precision_options(settings: Mapping[str, object]) -> dict[str, object]:
    """The dtype of autocast, or of DeepSpeed's engine."""
    name, _, kind = str(settings.get("precision")).partition("-")
    runs = bool(kind) or bool(settings.get("zero_stage"))
    return {"bf16": runs and name == "bf16", **({"fp16": True} if runs and name == "fp16" else {})}


def optimizer_name(settings: Mapping[str, object]) -> str | None:
    """The Trainer's name of the optimizer; with another implementation where it has not that one."""
    optimizer, way = settings.get("optimizer"), settings.get("optimizer_impl")
    rows = {options_of("optimizer")[name].key: name for name in reversed(_OPTIMIZERS)}
    exact = rows.get(f"{optimizer} {way}") or rows.get(str(optimizer))
    return exact or next((name for key, name in rows.items() if key.partition(" ")[0] == optimizer), None)


def uses_liger(settings: Mapping[str, object]) -> bool:
    kernels = settings.get("kernels")
    return isinstance(kernels, list | tuple) and "liger" in kernels


def sharding_options(asked: Asked) -> dict[str, object]:
    """DeepSpeed's table in place, or FSDP's."""
    settings = asked.settings
    if settings.get("zero_stage"):
        return {"deepspeed": deepspeed_config(asked, of_trainer=True)}
    kind = str(settings.get("fsdp", "none"))
    if kind not in _FSDP_WORDS:
        return {}
    config: dict[str, object] = {"version": settings.get("fsdp_version")}
    if settings.get("fsdp_version") == 2:
        config["reshard_after_forward"] = kind != "shard-grad-op"
    if settings.get("cpu_ram_efficient_loading") is not None:
        config["cpu_ram_efficient_loading"] = settings["cpu_ram_efficient_loading"]
    words = _FSDP_WORDS[kind] + (" offload" if settings.get("offload_params") == "cpu" else "")
    return {"fsdp": words, "fsdp_config": config}


def is_adapters(settings: Mapping[str, object]) -> bool:
    return settings.get("method") in ("lora", "qlora")


def targets(settings: Mapping[str, object], whole: str) -> object:
    """Modules with adapters; `whole` is the tool's word for all linear ones."""
    named = settings.get("lora_targets")
    return (
        whole if named == "all-linear" or named is None else list(named) if isinstance(named, list | tuple) else named
    )


def yaml_text(table: Mapping[str, object]) -> str:
    """A file of YAML in the order of its keys."""
    import yaml

    return str(yaml.safe_dump(dict(table), sort_keys=False, default_flow_style=False, width=120))


def wrap_policy(settings: Mapping[str, object]) -> str:
    """accelerate's name for what FSDP wraps; of classes it finds the layers' own."""
    return "NO_WRAP" if settings.get("fsdp_units") in (["root"], ("root",)) else "TRANSFORMER_BASED_WRAP"
