"""`axolotl train FILE`: keys of axolotl 0.19 (utils/schemas/*.py)."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.interop.export.draft import Asked, Draft, File
from vramwise.interop.export.trainer_options import (
    DATA,
    DATA_UNSAID,
    is_adapters,
    optimizer_name,
    sharding_options,
    targets,
    uses_liger,
    wrap_policy,
    yaml_text,
)
from vramwise.kernels import kernels_named

_ATTENTION = {"flash": "flash_attention", "sdpa": "sdp_attention", "eager": "eager_attention", "flex": "flex_attention"}
_LIGER = ("liger_rope", "liger_rms_norm", "liger_glu_activation")
_FSDP = {"full-shard": "FULL_SHARD", "shard-grad-op": "SHARD_GRAD_OP", "hybrid-shard": "HYBRID_SHARD"}


def write(asked: Asked) -> Draft:
    """The file and its command."""
    settings, stated = asked.settings, asked.stated()
    precision = str(settings.get("precision"))
    table: dict[str, object] = {
        "base_model": asked.model,
        "datasets": [{"path": DATA, "type": "alpaca"}],
        "output_dir": asked.output,
        "learning_rate": 0.0002,
        **_method(settings),
        "sequence_len": settings.get("sequence_length"),
        "micro_batch_size": settings.get("micro_batch_size"),
        "gradient_accumulation_steps": settings.get("gradient_accumulation_steps"),
        "optimizer": _optimizer(settings),
        "gradient_checkpointing": settings.get("checkpointing") == "full",
        "bf16": precision.startswith("bf16"),
    }
    if precision.startswith("fp16"):
        table["fp16"] = True
    named = settings.get("attention")
    if named in _ATTENTION:
        table[_ATTENTION[str(named)]] = True
    for key, name in (("packing", "sample_packing"), ("compile", "torch_compile")):
        if settings.get(key):
            table[name] = True
    if settings.get("offload_activations") == "cpu":
        table["activation_offloading"] = True
    if not settings.get("clip_grad_norm"):
        table["max_grad_norm"] = 0.0
    for key in ("eval_batch_size", "context_parallel_size", "tensor_parallel_size"):
        if stated.get(key, 1) != 1:
            table[key] = stated[key]
    if asked.hf_overrides:
        table["overrides_of_model_config"] = asked.hf_overrides
    if settings.get("quantize_experts"):
        table["quantize_moe_experts"] = True
    table |= _kernels(settings)
    table |= _sharding(asked)
    file = File(asked.path, yaml_text(table), "axolotl's configuration")
    gpus = asked.scenario.num_gpus
    launcher = ("--launcher", "accelerate", "--", "--num_processes", str(gpus)) if gpus > 1 else ()
    environment = {} if gpus > 1 else {"CUDA_VISIBLE_DEVICES": "0"}
    return Draft(("axolotl", "train", asked.path, *launcher), (file,), environment, (DATA_UNSAID,))


def _optimizer(settings: Mapping[str, object]) -> str:
    """axolotl takes the Trainer's names and some of its own (utils/schemas/enums.py CustomSupportedOptimizers)."""
    return "muon" if settings.get("optimizer") == "muon" else optimizer_name(settings) or str(settings.get("optimizer"))


def _method(settings: Mapping[str, object]) -> dict[str, object]:
    if not is_adapters(settings):
        return {}
    named = targets(settings, "all")
    found: dict[str, object] = {
        "adapter": settings.get("method"), "lora_r": settings.get("lora_rank"), "lora_alpha": 16,
        "lora_dropout": settings.get("lora_dropout"),
        **({"lora_target_linear": True} if named == "all" else {"lora_target_modules": named}),
    }  # fmt: skip
    if settings.get("dora"):
        found["peft_use_dora"] = True
    if settings.get("method") == "qlora":
        in_8 = settings.get("quantization") == "int8"
        found |= {"adapter": "lora", "load_in_8bit": True} if in_8 else {"load_in_4bit": True}
    return found


def _kernels(settings: Mapping[str, object]) -> dict[str, object]:
    """Its own kernels for adapters, Liger's plugin with its kernels, and the way to the loss.

    0.19 integrations/liger, integrations/cut_cross_entropy.
    """
    found: dict[str, object] = {}
    fused = settings.get("loss") == "fused-linear"
    if is_adapters(settings):
        kernels = settings.get("kernels")
        named = kernels if isinstance(kernels, list | tuple) else ()
        if not any(kernels_named(name).for_adapters for name in named):  # 0.18 enables them where none is named
            found |= dict.fromkeys(("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"), False)
    if uses_liger(settings):
        found["plugins"] = ["axolotl.integrations.liger.LigerPlugin"]
        found |= dict.fromkeys(_LIGER, True)
        found |= {"liger_fused_linear_cross_entropy": True} if fused else {}
        found |= {"liger_cross_entropy": True} if settings.get("loss") == "fused" else {}
    elif fused:
        found["plugins"] = ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"]
        found["cut_cross_entropy"] = True
    if settings.get("loss") == "chunked":
        found["chunked_cross_entropy"] = True
    return found


def _sharding(asked: Asked) -> dict[str, object]:
    settings = asked.settings
    kind = str(settings.get("fsdp", "none"))
    if settings.get("zero_stage") or kind not in _FSDP:
        return sharding_options(asked)
    config: dict[str, object] = {
        "auto_wrap_policy": wrap_policy(settings), "offload_params": settings.get("offload_params") == "cpu",
        "state_dict_type": "FULL_STATE_DICT",
    }  # fmt: skip
    if settings.get("fsdp_version") == 2:
        config["reshard_after_forward"] = kind != "shard-grad-op"
    else:
        config["sharding_strategy"] = _FSDP[kind]
    if settings.get("cpu_ram_efficient_loading") is not None:
        config["cpu_ram_efficient_loading"] = settings["cpu_ram_efficient_loading"]
    return {"fsdp_version": settings.get("fsdp_version"), "fsdp_config": config}
