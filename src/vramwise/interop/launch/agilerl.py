"""`python -m agilerl.train FILE`: AgileRL's manifests for fine-tuning language models.

Read in AgileRL 549d85e4: models/algo.py LLMAlgorithmSpec (defaults), models/networks.py (adapters of rank 16), utils/
llm_utils.py (weights in bf16, fp16 under accelerate), algorithms/core/base.py (autocast in bf16, torch's AdamW; a
reference is the base with adapters off, a critic an adapter and a head of its own on the same base).
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UsageError
from vramwise.interop.beside import file_table
from vramwise.interop.launch.adapters import targets_of
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import launcher_of
from vramwise.interop.launch.nested import read_nested
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.rl import Beside
from vramwise.interop.launch.sharding import sharding_of
from vramwise.interop.launch.trainer_settings import attention_of
from vramwise.interop.launch.values import fraction, whole_in

_LENGTH, _RANK, _DROPOUT = 1024, 16, "0.05"
_QUANTIZATIONS = {"nf4": "nf4", "nf4_dq": "nf4-dq", "fp4": "fp4", "int8": "int8", "int4": "nf4"}
_SAMPLED = ("GRPO", "CISPO", "GSPO", "LLMPPO", "LLMREINFORCE")


def read(start: Start) -> Launch:
    """The scenario of an AgileRL manifest. Raises UsageError or SourceError for what cannot be read."""
    options = Options(("agilerl",), "AgileRL")
    files = [word for word in start.words if word.endswith((".yaml", ".yml", ".json"))]
    notes = read_nested(options, [word for word in start.words if word not in files], files)
    name = "network.pretrained_model_name_or_path"
    model = one_model("AgileRL", options.first(f"algorithm.{name.partition('.')[2]}", name),
                      f"{name}, as its algorithms for language models have it")  # fmt: skip
    launcher = launcher_of(start)
    sharding = sharding_of(options, launcher)
    train: dict[str, object] = {
        "framework": "transformers", "precision": "bf16-mixed", "param_dtype": "bf16",
        "sequence_length": options.number("network.max_context_length") or _LENGTH,
        "micro_batch_size": options.number("algorithm.micro_batch_size_per_gpu", "algorithm.batch_size") or 1,
        "checkpointing": "full" if options.is_on("algorithm.gradient_checkpointing", default=True) else "none",
        "optimizer": "adamw", "optimizer_impl": "foreach", **sharding.settings,
    }  # fmt: skip
    notes += sharding.notes
    if options.is_on("algorithm.reduce_memory_peak"):
        train["micro_batch_size"] = 1
    kind = (options.first("algorithm.name") or "").upper()
    for found, said in (_adapters(options, files, model), _kernels(options), _beside(options, kind)):
        train |= found
        notes += said
    if kind == "DPO":
        train["micro_batch_size"] = 2 * whole_in(train, "micro_batch_size")
        notes.append("a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it")
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return launched("agilerl", scenario, (*notes, *options.notes(), *launcher.said()), options)


def _adapters(options: Options, files: list[str], model: str) -> tuple[dict[str, object], list[str]]:
    """LoRA of the manifest, or AgileRL's own where the file leaves it out."""
    given = options.several("network.lora_config.target_modules")
    parameters = options.several("network.lora_config.target_parameters")
    targets, notes = targets_of([name.removesuffix(".linear") for name in given] or ["all-linear"], model, parameters)
    found: dict[str, object] = {
        "method": "lora", "lora_rank": options.number("network.lora_config.lora_r") or _RANK, "lora_targets": targets,
        "lora_dropout": fraction(options.first("network.lora_config.lora_dropout") or _DROPOUT), "lora_dtype": "fp32",
    }  # fmt: skip
    named = options.first("algorithm.quantization")
    table = file_table(files[0]).get("algorithm") if files else None
    nested = table.get("quantization") if isinstance(table, Mapping) else None
    if isinstance(nested, Mapping):
        named = "int8" if nested.get("load_in_8bit") else str(nested.get("bnb_4bit_quant_type") or "nf4")
        named += "_dq" if named == "nf4" and nested.get("bnb_4bit_use_double_quant") else ""
    if named:
        if named.lower() not in _QUANTIZATIONS:
            raise UsageError(f'algorithm.quantization: expected {", ".join(_QUANTIZATIONS)}, got "{named}"')
        found |= {"method": "qlora", "quantization": _QUANTIZATIONS[named.lower()]}
    return found, notes


def _kernels(options: Options) -> tuple[dict[str, object], list[str]]:
    found: dict[str, object] = {}
    if options.is_on("algorithm.use_liger_loss"):
        found["loss"] = "fused-linear"
    if options.is_on("algorithm.activation_offload"):
        found["offload_activations"] = "cpu"
    if options.is_on("algorithm.use_sequence_packing"):
        found["padding_free"] = True
    own = Options(("trainer",), "AgileRL")
    if options.first("algorithm.attn_implementation"):
        own.give("attn_implementation", options.first("algorithm.attn_implementation"))
    attention, notes = attention_of(own)
    return found | attention, notes


def _beside(options: Options, kind: str) -> tuple[dict[str, object], list[str]]:
    found = Beside()
    if kind in _SAMPLED and options.is_on("algorithm.use_vllm"):
        share = options.first("algorithm.vllm_config.gpu_memory_utilization") or "0.3"
        found.rollout("vllm", share, sleeps=options.is_on("algorithm.vllm_config.sleep_mode"))
    elif kind in _SAMPLED:
        found.notes.append("completions are made by transformers: the cache of generation is not counted")
    if kind == "LLMPPO":
        found.notes.append("the critic is an adapter and a head of its own on the same base, which are not counted")
    if options.is_on("algorithm.use_separate_reference_adapter"):
        found.notes.append("the reference's own adapter is not counted")
    population = options.number("training.pop_size") or 1
    if population > 1:
        found.notes.append(f"pop_size {population}: one agent is counted; each further one has adapters and states of "
                           "its own")  # fmt: skip
    return found.table(), found.notes
