"""`finetuning.py` of Meta's llama-cookbook (llama-recipes before): its configurations' flags, by name or with a point.

Read in meta-llama/llama-cookbook 0.0.5 src/llama_cookbook/finetuning.py and configs/*.py: transformers' Llama classes
in the checkpoint's dtype, torch's AdamW, FSDP 1 whose layers are checkpointed, peft's adapters on queries and values;
utils/train_utils.py: autocast for `use_fp16` alone, no clipping unless asked for.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import launcher_of
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.values import fraction

_PROGRAM = "llama-cookbook"
_MODULES = ("llama_cookbook", "llama_recipes")
_OWN = frozenset({
    "enable_fsdp", "peft_method", "batch_size_training", "batching_strategy", "context_length", "use_fast_kernels",
    "dist_checkpoint_root_folder", "dist_checkpoint_folder", "low_cpu_fsdp", "freeze_layers", "num_freeze_layers",
})  # fmt: skip
"""Flags that a script of one's own, called finetuning.py, would not have."""
_CONFIGURATIONS = ("fsdp_config", "lora_config", "quantization_config", "train_config")
_STRATEGIES = {"FULL_SHARD": "full-shard", "SHARD_GRAD_OP": "shard-grad-op", "HYBRID_SHARD": "hybrid-shard"}


def read(start: Start) -> Launch:
    """The scenario of the script. Raises UsageError for what cannot be read."""
    words = tuple(_plain(word) for word in start.words)
    named = {word.partition("=")[0].lstrip("-").replace("-", "_") for word in words if word.startswith("-")}
    if not named & _OWN and not any(module in start.program for module in _MODULES):
        from vramwise.interop.launch import trainer

        return trainer.read(replace(start, engine="trainer", is_script=True))
    options = Options((_PROGRAM,), _PROGRAM)
    options.read_words(words)
    model = one_model(_PROGRAM, options.first("model_name"), "--model_name MODEL")
    launcher = launcher_of(start)
    train: dict[str, object] = {
        "framework": "pytorch", "micro_batch_size": 4, "sequence_length": 4096, "gradient_accumulation_steps": 1,
        "clip_grad_norm": options.is_on("gradient_clipping"), **options.settings(),
    }  # fmt: skip
    if options.is_on("use_fp16"):
        train |= {"precision": "fp16-mixed", "param_dtype": "fp16"}
    else:
        train |= {"precision": "bf16", "param_dtype": "bf16"}
    train |= _sharded(options) if options.is_on("enable_fsdp") else {"checkpointing": "none"}
    train |= _method(options)
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return launched(_PROGRAM, scenario, (*options.notes(), *launcher.said()), options)


def _plain(word: str) -> str:
    """`--fsdp_config.pure_bf16` as `--pure_bf16`: both set the same field (utils/config_utils.py update_config)."""
    for name in _CONFIGURATIONS:
        word = word.replace(f"--{name}.", "--", 1)
    return word


def _sharded(options: Options) -> dict[str, object]:
    given = (options.first("sharding_strategy") or "FULL_SHARD").rpartition(".")[2].upper()
    if given not in _STRATEGIES:
        raise UsageError(f'--sharding_strategy: expected {", ".join(_STRATEGIES)}, got "{clipped(given)}"')
    found: dict[str, object] = {
        "fsdp": _STRATEGIES[given], "fsdp_version": 1,
        "checkpointing": "full" if options.is_on("fsdp_activation_checkpointing", default=True) else "none",
    }  # fmt: skip
    if options.is_on("fsdp_cpu_offload"):
        found |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    return found


def _method(options: Options) -> dict[str, object]:
    """All weights, or adapters, on a base in 4 or 8 bits where asked for."""
    if not options.is_on("use_peft"):
        return {}
    method = options.first("peft_method") or "lora"
    if method != "lora":
        raise UsageError(f'--peft_method: "{clipped(method)}" is not described: expected lora')
    found: dict[str, object] = {
        "method": "lora", "lora_rank": options.number("r") or 8,
        "lora_targets": options.several("target_modules") or ["q_proj", "v_proj"],
        "lora_dropout": fraction(options.first("lora_dropout") or "0.05"),
    }  # fmt: skip
    given = (options.first("quantization") or "").lower()
    if given in ("", "none", "false"):
        return found
    bits = {"4bit": options.first("quant_type") or "fp4", "int4": "fp4", "8bit": "int8", "true": "int8"}
    if given not in bits:
        raise UsageError(f'--quantization: expected 4bit or 8bit, got "{clipped(given)}"')
    twice = "-dq" if bits[given] == "nf4" and options.is_on("use_double_quant") else ""
    return {**found, "method": "qlora", "quantization": f"{bits[given]}{twice}"}
