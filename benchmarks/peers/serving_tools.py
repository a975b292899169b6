"""What other tools say of a server's memory, asked through their own functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vramwise.estimation import described_model, estimate
from vramwise.hardware import find_gpu
from vramwise.scenario import Scenario
from vramwise.units import GIB

SYSTEMS = {
    "a30-pcie-24gb": "a30", "a100-pcie-40gb": "a100_pcie", "a100-pcie-80gb": "a100_pcie", "a100-sxm-40gb": "a100_sxm",
    "a100-sxm-80gb": "a100_sxm", "b200-sxm-180gb": "b200_sxm", "b300-sxm-288gb": "b300_sxm", "gb200-186gb": "gb200",
    "gb300-288gb": "gb300", "h100-pcie-80gb": "h100_pcie", "h100-sxm-80gb": "h100_sxm", "h200-sxm-141gb": "h200_sxm",
    "l4": "l4", "l40s": "l40s", "rtx-pro-6000-blackwell-server": "rtx_pro_6000_server",
}  # fmt: skip
"""The simulator's systems (aiconfigurator_core/systems/*.yaml) by our names of cards."""

FORMATS = {"fp8": "fp8", "fp8-dynamic": "fp8"}
FOUR_BITS = frozenset({"awq", "gptq"})
"""How products and experts hold weights where a command says it, or a checkpoint whose format it does not read."""


@dataclass(frozen=True)
class Tool:
    """A tool's answers in bytes by counter, and what it was asked about that it had measured itself."""

    name: str
    version: str
    counters: tuple[str, ...]
    ask: Callable[[Scenario], dict[str, float]]
    own: str = ""
    """How the ids of the runs begin from which its constants were taken."""


def _config(scenario: Scenario) -> dict[str, Any]:
    """The model's config.json, with its class: catalogs leave it out."""
    from transformers.models.auto import modeling_auto as names

    values = dict(described_model(scenario.model)[0].config)
    if not values.get("architectures"):
        tables = (names.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, names.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
        kind = values["model_type"]
        values["architectures"] = [table[kind] for table in reversed(tables) if kind in table][:1]
    return values


def planner_answers(scenario: Scenario) -> dict[str, float]:
    """Its two functions ask for the config and the number of GPUs alone; its weights and KV cache ask the hub."""
    from planner.capacity_planner import estimate_vllm_activation_memory, estimate_vllm_non_torch_memory
    from transformers import AutoConfig

    values = _config(scenario)
    kind = values.pop("model_type")
    config = AutoConfig.for_model(kind, **{key: value for key, value in values.items() if key != "auto_map"})
    serve = scenario.settings
    ranks, stages = serve.tensor_parallel_size, serve.pipeline_parallel_size
    return {
        "activation_peak": estimate_vllm_activation_memory(config, ranks) * GIB,
        "non_torch": estimate_vllm_non_torch_memory(ranks, stages) * GIB,
    }


def simulator_answers(scenario: Scenario) -> dict[str, float]:
    """`estimate_kv_cache` of the simulator's core, with the card's memory as vLLM sees it."""
    from aiconfigurator_core.sdk.memory import estimate_kv_cache

    serve, resolved = scenario.settings, estimate(scenario).scenario["serve"]
    if resolved.get("dtype") == "fp32":
        return {}  # it has no input for them
    ranks = serve.tensor_parallel_size
    card = find_gpu(str(scenario.gpu)).gpu
    config, held = _config(scenario), FORMATS.get(str(resolved.get("quantization")))
    stored = config.get("quantization_config") or {}
    if {stored.get("quant_method"), resolved.get("quantization")} & FOUR_BITS and stored.get("bits", 4) == 4:
        held = "int4_wo"
    if held is not None:
        config.pop("quantization_config", None)
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), "utf-8")
        said = estimate_kv_cache(
            folder, SYSTEMS[card.id], "vllm", "current",
            max_num_tokens=resolved["max_num_batched_tokens"], max_batch_size=resolved["max_num_seqs"],
            memory_fraction_kind="of_total", memory_fraction_value=resolved["gpu_memory_utilization"],
            tp_size=ranks, pp_size=serve.pipeline_parallel_size,
            moe_tp_size=1 if serve.expert_parallel else ranks, moe_ep_size=ranks if serve.expert_parallel else 1,
            gemm_quant_mode=held, moe_quant_mode=held,
            kvcache_quant_mode="fp8" if str(resolved.get("kv_cache_dtype")).startswith("fp8") else None,
            gpu_memory_capacity_bytes_override=scenario.gpu_total_bytes or card.usable_bytes,
        )  # fmt: skip
    parts = said["memory_breakdown"]
    return {
        "weights": parts["weights_bytes"],
        "activation_peak": parts["activations_bytes"],
        "non_torch": parts["runtime_overhead_bytes"] + parts["comm_overhead_bytes"],
        "kv_cache_bytes": said["total_kv_size_bytes"],
    }


TOOLS = (
    Tool("llm-d-planner", "llm-d-planner 0.3.3", ("activation_peak", "non_torch"), planner_answers, own="llmd-"),
    Tool("AISimulate", "aiconfigurator-core 0.12.0", ("weights", "activation_peak", "non_torch", "kv_cache_bytes"),
         simulator_answers),
)  # fmt: skip
