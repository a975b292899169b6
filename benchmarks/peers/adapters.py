"""The question of a measured case, as each other tool asks it; the answer is what its own code returns.

Every tool gets the best reading of a case that its inputs allow; what it has no input for (adapters, quantization,
the loss, the optimizer's temporaries) it cannot know. None means that it has no answer for the case.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramwise.models import Model
from vramwise.scenario import Scenario
from vramwise.training.answer import job_of
from vramwise.units import GIB

Answer = float | None
HUGE_CARD_GB = 1_000_000  # llm-analysis checks that the run fits; its memory does not depend on the card


@dataclass(frozen=True)
class Question:
    """A measured training case with its model described and its open settings decided."""

    scenario: Scenario
    model: Model
    config: Mapping[str, Any]

    @property
    def train(self) -> Any:
        return job_of(self.scenario, self.model, None).train

    @property
    def local_sequence(self) -> int:
        """Tokens of a sequence that one GPU computes; no other tool knows context parallelism."""
        return int(self.train.sequence_length // self.train.context_parallel_size)

    @property
    def data_parallel(self) -> int:
        train = self.train
        cut = train.tensor_parallel_size * train.pipeline_parallel_size * train.context_parallel_size
        return max(1, self.scenario.num_gpus // cut)

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage that shards as the run does."""
        train = self.train
        if train.fsdp in ("full-shard", "hybrid-shard"):
            return 3
        if train.fsdp == "shard-grad-op":
            return 2
        return int(train.zero_stage) or (1 if train.distributed_optimizer else 0)


def accelerate_training(question: Question) -> Answer:
    """`accelerate estimate-memory`: the column "Training using Adam" of the run's dtype."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    dtype = "float32" if question.train.precision == "fp32" else "bfloat16"
    total, _ = calculate_maximum_sizes(_base_model(question))
    size = total / 2 if dtype == "bfloat16" else total
    answer = max(estimate_training_usage(size, dtype).values())
    return None if answer < 0 else float(answer)


def _base_model(question: Question) -> Any:
    """The model as the command builds it: AutoModel from the config, without memory."""
    import torch
    from transformers import AutoConfig, AutoModel

    values = {key: value for key, value in question.config.items() if key not in ("auto_map", "model_type")}
    config = AutoConfig.for_model(question.config["model_type"], **values)
    with torch.device("meta"):
        return AutoModel.from_config(config, dtype=torch.float32)


def deepspeed_states(question: Question) -> Answer:
    """`estimate_zero2_model_states_mem_needs`, for ZeRO-3 and full sharding `estimate_zero3_…`: bytes of one GPU."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2

    train, total = question.train, question.model.num_parameters
    total //= train.tensor_parallel_size * train.pipeline_parallel_size
    gpus = question.data_parallel
    if question.zero_stage == 3:
        largest = max(p.numel for p in question.model.parameters)
        offload = train.offload_params != "none"
        return float(zero3(total, largest, gpus, 1, train.offload_optimizer != "none", offload)[1])
    shards = gpus if question.zero_stage else 1
    return float(zero2(total, shards, 1, train.offload_optimizer != "none")[1])


def llm_analysis(question: Question) -> Answer:
    """`LLMAnalysis.training`: weights, gradients, optimizer states and activations of one GPU."""
    import logging

    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
    from llm_analysis.config import DtypeConfig, GPUConfig, ModelConfig, ParallelismConfig

    train, config = question.train, question.model.config
    logging.disable(logging.CRITICAL)
    model = ModelConfig(
        name="case", num_layers=question.model.num_layers, n_head=config.size("num_attention_heads"),
        hidden_dim=question.model.hidden_size, vocab_size=config.size("vocab_size"),
        max_seq_len=question.local_sequence, num_key_value_heads=config.size("num_key_value_heads", default=0) or None,
        ffn_embed_dim=config.size("intermediate_size", default=4 * question.model.hidden_size), expansion_ratio=1,
    )  # fmt: skip
    bits = 32 if train.precision == "fp32" else 16
    analysis = LLMAnalysis(
        model, GPUConfig("any", HUGE_CARD_GB, 1000, 300, 0, 300), DtypeConfig("case", bits, bits, bits),
        ParallelismConfig(train.tensor_parallel_size, train.pipeline_parallel_size, question.data_parallel),
        flops_efficiency=0.5,
    )  # fmt: skip
    full, none = ActivationRecomputation.FULL, ActivationRecomputation.NONE
    with contextlib.redirect_stdout(io.StringIO()):
        found = analysis.training(
            batch_size_per_gpu=train.micro_batch_size, gradient_accumulation_steps=1, seq_len=question.local_sequence,
            total_num_tokens=10**9, activation_recomputation=none if train.checkpointing == "none" else full,
            ds_zero=DSZeRO(question.zero_stage), flash_attn=train.attention != "eager",
            mlp_gated_linear_units=_is_gated(question.model),
        )  # fmt: skip
    return float(found["(weight+op_state+grad+act)_memory_per_gpu"])


def eleutherai(script: Path) -> Callable[[Question], Answer]:
    """`calc_transformer_mem.py`: "Per-GPU Memory Required for Training", given flags rather than a hub id."""

    def ask(question: Question) -> Answer:
        train, config = question.train, question.model.config
        heads = config.size("num_attention_heads")
        key_value = config.size("num_key_value_heads", default=heads)
        width = config.size("intermediate_size", default=4 * question.model.hidden_size)
        flags: dict[str, Any] = {
            "num-gpus": question.scenario.num_gpus, "tensor-parallel-size": train.tensor_parallel_size,
            "pipeline-parallel-size": train.pipeline_parallel_size, "zero-stage": question.zero_stage,
            "batch-size-per-gpu": train.micro_batch_size, "sequence-length": question.local_sequence,
            "vocab-size": config.size("vocab_size"), "hidden-size": question.model.hidden_size,
            "num-attention-heads": heads, "num-layers": question.model.num_layers,
            "ffn-expansion-factor": width / question.model.hidden_size, "kv-size-ratio": key_value / heads,
            "num-mlp-linears": 3 if _is_gated(question.model) else 2,
        }  # fmt: skip
        arguments = [str(script), *(text for name, value in flags.items() for text in (f"--{name}", str(value)))]
        arguments += ["--checkpoint-activations"] if train.checkpointing != "none" else []
        arguments += ["--disable-mixed-precision"] if train.precision == "fp32" else []
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), _arguments(arguments):
            runpy.run_path(str(script), run_name="__main__")
        line = re.search(r"Per-GPU Memory Required for Training: ([\d.]+) GiB", printed.getvalue())
        return float(line[1]) * GIB if line else None

    return ask


def simumax(checkout: Path) -> Callable[[Question], Answer]:
    """`PerfLLM.analysis_mem`: "peak_mem" of the largest pipeline stage, for the model, layout and batch of the run."""
    sys.path.insert(0, str(checkout))

    def ask(question: Question) -> Answer:
        from simumax.core import perf_llm
        from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig

        perf_llm.convert_final_result_to_human_format = lambda found: None  # bytes stay numbers
        asked = perf_llm.PerfLLM()
        system = SystemConfig.init_from_config_file(str(checkout / "configs/system/a100_pcie.json"))
        with contextlib.redirect_stdout(io.StringIO()):
            asked.configure(
                strategy_config=StrategyConfig.init_from_dict(_simumax_strategy(question)),
                model_config=ModelConfig.init_from_dict(_simumax_model(question)), system_config=system,
            )  # fmt: skip
            asked.run_estimate()
            found = asked.analysis_mem().data
        stages = [found] if "peak_mem" in found else [one for one in found.values() if "peak_mem" in one]
        return float(max(stage["peak_mem"] for stage in stages))

    return ask


def _simumax_model(question: Question) -> dict[str, Any]:
    config, hidden = question.model.config, question.model.hidden_size
    heads = config.size("num_attention_heads")
    asked = {
        "model_name": "case", "hidden_size": hidden, "head_num": heads,
        "kv_head_num": config.size("num_key_value_heads", default=heads),
        "head_size": config.size("head_dim", default=hidden // heads),
        "intermediate_size": config.size("intermediate_size", default=4 * hidden),
        "layer_num": question.model.num_layers, "vocab_size": config.size("vocab_size"),
        "use_swiglu": _is_gated(question.model),
    }  # fmt: skip
    given = question.config
    if "kv_lora_rank" in given:
        asked |= {"attention_type": "mla", "head_size": given["v_head_dim"], "qk_head_dim": given["qk_nope_head_dim"],
                  "qk_pos_emb_head_dim": given["qk_rope_head_dim"]}  # fmt: skip
        asked |= {name: given[name] for name in ("v_head_dim", "q_lora_rank", "kv_lora_rank")}
    if experts := given.get("n_routed_experts"):
        width = given["moe_intermediate_size"]
        asked |= {
            "model_type": "moe", "expert_num": experts, "topk": given["num_experts_per_tok"],
            "moe_ffn_hidden_size": width, "dense_layers": given.get("first_k_dense_replace", 0),
            "moe_shared_expert_intermediate_size": width * given.get("n_shared_experts", 0) or None,
        }  # fmt: skip
    return asked


def _simumax_strategy(question: Question) -> dict[str, Any]:
    """ZeRO-1 for whatever shards, which is the one that it knows; selective recomputation as that of attention."""
    train = question.train
    full = train.checkpointing == "full"
    return {
        "seq_len": train.sequence_length, "micro_batch_size": train.micro_batch_size,
        "micro_batch_num": train.num_microbatches or train.pipeline_parallel_size, "dtype": "bf16",
        "world_size": question.scenario.num_gpus, "tp_size": train.tensor_parallel_size,
        "cp_size": train.context_parallel_size,
        "pp_size": train.pipeline_parallel_size, "ep_size": train.expert_parallel_size,
        "enable_sequence_parallel": bool(train.sequence_parallel),
        "zero_state": 1 if question.zero_stage else 0, "use_flash_sdp": train.attention != "eager",
        "use_math_sdp": train.attention == "eager", "use_fp32_accum_grad": train.precision != "bf16",
        "enable_recompute": full, "recompute_granularity": "full_block" if full else None,
        "recompute_layer_num": question.model.num_layers if full else 0, "attn_recompute": False,
    }  # fmt: skip


@contextlib.contextmanager
def _arguments(values: list[str]) -> Any:
    before, sys.argv = sys.argv, values
    try:
        yield
    finally:
        sys.argv = before


def _is_gated(model: Model) -> bool:
    return any("gate_proj" in p.name or "gate_up" in p.name or ".w1." in p.name for p in model.parameters)


def bytes_a_parameter(each: float) -> Callable[[Question], Answer]:
    """A rule of thumb: so many bytes a parameter, divided as the run shards."""

    def ask(question: Question) -> Answer:
        train = question.train
        cut = train.tensor_parallel_size * train.pipeline_parallel_size
        shards = question.data_parallel if question.zero_stage == 3 else 1
        return each * question.model.num_parameters / cut / shards

    return ask
