"""`llamafactory-cli train FILE`: keys of LLaMA-Factory 0.9.5 (hparams/*.py)."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.frameworks import framework_of
from vramwise.interop.export.draft import Asked, Draft, File
from vramwise.interop.export.trainer_options import (
    DATA,
    DATA_UNSAID,
    is_adapters,
    targets,
    trainer_options,
    uses_liger,
    yaml_text,
)

_ATTENTION = {"flash": "fa2", "sdpa": "sdpa", "eager": "disabled"}
_SWITCHED = {"galore-adamw": "use_galore", "apollo": "use_apollo", "muon": "use_muon", "adam-mini": "use_adam_mini"}
_PLACEHOLDERS = {"stage": "sft", "do_train": True, "dataset": DATA, "template": "default"}


def write(asked: Asked) -> Draft:
    """The file and its command."""
    settings, scenario = asked.settings, asked.scenario
    common = trainer_options(asked)
    checkpoints = common.pop("gradient_checkpointing")
    liger = common.pop("use_liger_kernel", None), common.pop("liger_kernel_config", None)
    table: dict[str, object] = {
        "model_name_or_path": asked.model, **_PLACEHOLDERS, "output_dir": asked.output, **_method(settings),
        "cutoff_len": settings.get("sequence_length"), **common,
    }  # fmt: skip
    if not checkpoints:
        table["disable_gradient_checkpointing"] = True
    if liger[0]:
        table["enable_liger_kernel"] = uses_liger(settings)
    if settings.get("precision") in ("bf16",) and not settings.get("zero_stage"):
        table |= {"pure_bf16": True}
        del table["bf16"]
    named = settings.get("attention")
    if named in _ATTENTION:
        table["flash_attn"] = _ATTENTION[str(named)]
    if settings.get("packing"):
        table["neat_packing" if settings.get("document_mask") else "packing"] = True
    if settings.get("offload_activations") == "cpu":
        table["use_unsloth_gc"] = True
    if "unsloth" in framework_of(scenario.train).kernels:
        table["use_unsloth"] = True
    if settings.get("optimizer") in _SWITCHED:
        table[_SWITCHED[str(settings["optimizer"])]] = True
        table = {key: value for key, value in table.items() if not key.startswith("optim")}
    file = File(asked.path, yaml_text(table), "LLaMA-Factory's configuration")
    return Draft(("llamafactory-cli", "train", asked.path), (file,), launch_environment(asked), (DATA_UNSAID,))


def launch_environment(asked: Asked) -> dict[str, str]:
    """Processes of a node and nodes, as its launcher.py takes them."""
    gpus, each = asked.scenario.num_gpus, asked.scenario.gpus_per_node
    if gpus <= 1:
        return {"CUDA_VISIBLE_DEVICES": "0"}
    nodes = max(1, gpus // each)
    found = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": str(min(gpus, each))}
    return {**found, "NNODES": str(nodes)} if nodes > 1 else found


def _method(settings: Mapping[str, object]) -> dict[str, object]:
    method = settings.get("method")
    if not is_adapters(settings):
        return {"finetuning_type": method}
    found: dict[str, object] = {
        "finetuning_type": "lora", "lora_rank": settings.get("lora_rank"),
        "lora_dropout": settings.get("lora_dropout"), "lora_target": targets(settings, "all"),
    }  # fmt: skip
    named = found["lora_target"]
    if isinstance(named, list):
        found["lora_target"] = ",".join(map(str, named))
    if settings.get("dora"):
        found["use_dora"] = True
    return {**found, **_quantized(str(settings.get("quantization")))} if method == "qlora" else found


def _quantized(kind: str) -> dict[str, object]:
    if kind == "int8":
        return {"quantization_bit": 8, "quantization_method": "bnb"}
    name, _, doubled = kind.partition("-")
    return {
        "quantization_bit": 4, "quantization_method": "bnb", "quantization_type": name,
        "double_quantization": doubled == "dq",
    }  # fmt: skip
