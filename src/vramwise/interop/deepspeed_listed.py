"""What a DeepSpeed file sets, name by name: what is read of it, what has no effect here, what DeepSpeed does not know.

Names: DeepSpeed 0.19.8 runtime/config.py, runtime/constants.py, runtime/zero/config.py, runtime/zero/offload_config.py,
runtime/precision_config.py, and the packages of its profilers and loggers. Settings that change memory and that no key
of a scenario has are said by `deepspeed.read_deepspeed` itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vramwise.errors import LeftOut, clipped
from vramwise.interop.deepspeed import NOT_COUNTED, NOT_COUNTED_ABOVE, is_on
from vramwise.interop.launch.options import NO_EFFECT, flattened

_ZERO = "zero_optimization"
_OFFLOAD = ("device", "pin_memory", "buffer_count", "buffer_size", "max_in_cpu", "ratio", "super_offload")
_READ = frozenset({
    "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping", "fp16.enabled",
    "bf16.enabled", "bfloat16.enabled", "fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads",
    "bf16.bf16_optimizer_states", "data_types.grad_accum_dtype", "communication_data_type", "optimizer.type",
    "optimizer.params.torch_adam", _ZERO,
    *(f"{_ZERO}.{name}" for name in (
        "stage", "reduce_bucket_size", "prefetch_bucket_size", "param_persistence_threshold", "allgather_sequential",
        "sub_group_size", "max_live_parameters", "max_reuse_distance", "model_persistence_threshold",
        "zero_hpz_partition_size", "overlap_comm", "contiguous_gradients", "reduce_scatter", "zero_quantized_weights",
        "cpu_offload", "cpu_offload_param",
        *(f"offload_{part}.{name}" for part in ("optimizer", "param") for name in _OFFLOAD),
    )),
})  # fmt: skip
_WITHOUT_EFFECT = frozenset({
    "aio", "autotuning", "checkpoint", "comet", "comms_logger", "csv_monitor", "curriculum_learning", "data_types",
    "dataloader_drop_last", "disable_allgather", "disable_python_gc", "dump_state", "eigenvalue", "elasticity",
    "expert_parallel", "flops_profiler", "fp16", "bf16", "bfloat16", "gradient_allreduce_op",
    "gradient_predivide_factor", "graph_harvesting", "log_level", "managed_gradient_accumulation", "memory_breakdown",
    "monitor_config", "nebula", "optimizer", "prescale_gradients", "quantize_training", "scheduler",
    "seq_parallel_communication_data_type", "sparse_gradients", "steps_per_print", "tensorboard", "train_batch_size",
    "use_data_before_expert_parallelism", "vocabulary_size", "wall_clock_breakdown", "wandb",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
})  # fmt: skip
"""First names of what is known and changes nothing that is counted."""
_OF_ZERO = frozenset({
    "allgather_bucket_size", "allgather_partitions", "compute_grad_norm", "cpu_offload_use_pin_memory",
    "elastic_checkpoint", "enable_sanity_checks", "gather_16bit_weights_on_model_save",
    "gather_fp16_weights_on_model_save", "ignore_unused_parameters", "leaf_module", "legacy_stage1",
    "load_from_fp32_weights", "log_trace_cache_warnings", "memory_efficient_linear", "mics_hierarchical_params_gather",
    "mics_shard_size", "module_granularity_threshold", "offload_optimizer", "offload_param", "override_module_apply",
    "parameter_alignment", "pipeline_loading_checkpoint", "round_robin_gradients",
    "save_muon_momentum_buffer_in_memory", "use_all_reduce_for_fetch_params", "use_multi_rank_bucket_allreduce",
    "zenflow", "zero_quantized_gradients", "zero_quantized_nontrainable_weights", "zeropp_loco_param",
})  # fmt: skip
"""Further names of zero_optimization, without "stage3_"."""
_COMMENTS = ("_", "#", "//")


def listed(table: Mapping[str, object]) -> list[str]:
    """Notes of every name that the file sets. What is "auto" the trainer fills in."""
    read: list[str] = []
    left: list[str] = []
    passed: list[str] = []
    unknown: list[str] = []
    zero = table.get(_ZERO)
    said = {name for name in NOT_COUNTED_ABOVE if is_on(table.get(name))}
    said |= {f"{_ZERO}.{name}" for name in NOT_COUNTED if isinstance(zero, Mapping) and is_on(zero.get(name))}
    for name, value in flattened(table):
        if name.partition(".")[0] in said or ".".join(name.split(".")[:2]) in said:
            continue
        if name.rpartition(".")[2].startswith(_COMMENTS):
            continue
        if name.replace(".stage3_", ".") in _READ:
            (left if value == "auto" else read).append(name)
        elif _is_known(name):
            passed.append(name)
        else:
            unknown.append(name)
    notes = [f"read from it: {_named(read)}"] if read else []
    notes += [f'left to the trainer ("auto"): {_named(left)}'] if left else []
    notes += [f"{NO_EFFECT}{_named(passed)}"] if passed else []
    notes += [LeftOut(f"unknown to it, left out: {_named(unknown)}")] if unknown else []
    if isinstance(table.get("train_batch_size"), int) and "train_micro_batch_size_per_gpu" not in table:
        notes.append("train_batch_size over GPUs and accumulation is a GPU's share, which is not worked out: "
                     "--micro-batch-size says it")  # fmt: skip
    return notes


def _is_known(name: str) -> bool:
    """Whether DeepSpeed knows a name that is not read."""
    first, _, rest = name.partition(".")
    if first == _ZERO:
        return rest.partition(".")[0].removeprefix("stage3_") in _OF_ZERO
    return first in _WITHOUT_EFFECT or first in NOT_COUNTED_ABOVE


def _named(names: Iterable[str]) -> str:
    return ", ".join(clipped(name, 80) for name in names)
