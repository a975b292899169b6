"""DeepSpeed's configuration files, and accelerate's that name ZeRO settings, as keys of a `train` table.

Keys and defaults: DeepSpeed 0.19 runtime/config.py, runtime/zero/config.py, runtime/zero/offload_config.py,
runtime/precision_config.py; what accelerate 1.15 makes of its own keys: utils/dataclasses.py DeepSpeedPlugin. A size
that the file leaves out is DeepSpeed's default; "auto" is what Trainer fills in from the hidden size (transformers
integrations/deepspeed.py trainer_config_finalize), or is left open where the estimate itself takes it as that; other
autos are left to the scenario's own keys. A file that is not here may be one that frameworks ship (deepspeed_files.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.interop.beside import found_beside
from vramwise.interop.deepspeed_files import shipped_deepspeed_file
from vramwise.training.recipe.zero import BUCKET_NUMEL, PERSISTENT_NUMEL, PREFETCH_NUMEL

_DTYPES = {"fp32": "fp32", "float32": "fp32", "fp16": "fp16", "float16": "fp16", "half": "fp16", "bf16": "bf16",
           "bfloat16": "bf16"}  # fmt: skip
_OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "lion": "lion", "sgd": "sgd", "muon": "muon"}
_SIZES = ("sub_group_size", "stage3_max_live_parameters", "stage3_max_reuse_distance",
          "stage3_model_persistence_threshold", "zero_hpz_partition_size")  # fmt: skip
_WITH_PREFIX = frozenset({
    f"stage3_{name}" for name in ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters",
                                  "max_reuse_distance", "model_persistence_threshold")
})  # fmt: skip
"""Settings that may be written without "stage3_" too."""
_SWITCHES = ("overlap_comm", "contiguous_gradients", "reduce_scatter", "zero_quantized_weights")
NOT_COUNTED = {
    "zero_quantized_gradients": "the 8- and 4-bit copies of gradients between nodes",
    "zero_quantized_nontrainable_weights": "frozen weights in 8 bit: they are taken as 16 bit",
    "stage3_use_all_reduce_for_fetch_params": "weights are taken as gathered, not summed",
    "stage3_module_granularity_threshold": "small modules that are gathered as one",
    "leaf_module": "modules that are gathered as one",
    "zenflow": "the states of selected channels",
    "parameter_alignment": "the padding between weights",
    "mics_shard_size": "weights are shared by all ranks here",
}
"""Settings of zero_optimization that change memory and that no key of a scenario has."""
NOT_COUNTED_ABOVE = {
    "activation_checkpointing": "DeepSpeed's own checkpoint function, where a model calls it",
    "amp": "apex amp",
    "compression_training": "masks and quantized copies of weights",
    "progressive_layer_drop": "layers that steps leave out",
    "compile": "DeepCompile's own schedule of gathers",
    "torch_autocast": "weights in fp32 that are gathered in 16 bit",
    "sparse_attention": "sparse attention",
    "data_efficiency": "sequences that grow with the steps",
    "hybrid_engine": "the inference engine's own weights and caches",
    "tensor_parallel": "its size is taken as 1",
    "sequence_parallel_size": "it is taken as 1",
    "pipeline": "its stages are taken as 1",
}


@dataclass(slots=True)
class DeepSpeedSettings:
    """What a configuration says: keys of the `train` table, GPUs where it counts them, and what it does not tell."""

    train: dict[str, object] = field(default_factory=dict)
    num_gpus: int | None = None
    says_precision: bool = False
    """Whether the file itself decides between 16 and 32 bits: what it leaves open follows the trainer."""
    optimizer: str | None = None
    notes: list[str] = field(default_factory=list)


def read_deepspeed_file(path: str, hidden_size: int | None = None) -> DeepSpeedSettings:
    """The settings of a DeepSpeed JSON file or an accelerate YAML file.

    Raises SourceError for a file that cannot be read and UsageError for one that is neither.
    """
    table, note = deepspeed_table(path)
    if not is_accelerates(table):
        found = read_deepspeed(table, hidden_size)
        found.notes[:0] = note
        return found
    if str(table.get("distributed_type", "DEEPSPEED")).upper() != "DEEPSPEED":
        raise UsageError(f'{path}: distributed_type is "{clipped(str(table["distributed_type"]))}", not DEEPSPEED')
    return _read_accelerate(path, table, hidden_size)


def is_accelerates(table: Mapping[str, object]) -> bool:
    """Whether a file is accelerate's, not DeepSpeed's own."""
    return "distributed_type" in table or "deepspeed_config" in table


def _read_accelerate(path: str, table: Mapping[str, object], hidden_size: int | None) -> DeepSpeedSettings:
    """accelerate's own file: a DeepSpeed file that it names, or the few settings of its plugin."""
    plugin = _table("deepspeed_config", table.get("deepspeed_config"))
    named = plugin.get("deepspeed_config_file")
    if named:
        beside = Path(path).parent / str(named)
        place = str(beside if beside.exists() else named)
        if not Path(place).exists():
            raise SourceError(f"{place}: no such file, which {path} names")
        found = read_deepspeed_file(place, hidden_size)
    else:
        zero = {
            "stage": plugin.get("zero_stage", 2),
            "offload_optimizer": {"device": plugin.get("offload_optimizer_device", "none")},
            "offload_param": {"device": plugin.get("offload_param_device", "none")},
        }
        config = {key: plugin[key] for key in ("gradient_accumulation_steps", "gradient_clipping") if key in plugin}
        found = read_deepspeed({**config, "zero_optimization": zero}, hidden_size)
    precision = str(table.get("mixed_precision", "no"))
    if precision in ("bf16", "fp16"):
        found.train.setdefault("precision", f"{precision}-master")
    processes = table.get("num_processes")
    if isinstance(processes, int):
        found.num_gpus = processes
    return found


def deepspeed_table(path: str) -> tuple[dict[str, object], list[str]]:
    """A file's table, or that of the file which a framework ships under this path, and a note of the latter."""
    from vramwise.scenario import read_table_file

    path = found_beside(path)
    shipped = None if Path(path).exists() else shipped_deepspeed_file(path)
    if shipped is None:
        return read_table_file(path, any_name=True), []
    return shipped[0], [f"{clipped(path)} is not here: taken as the file that {shipped[1]} has under that name"]


def read_deepspeed(
    config: Mapping[str, object], hidden_size: int | None = None, *, leaves_auto: bool = False
) -> DeepSpeedSettings:
    """The settings of a DeepSpeed configuration; `hidden_size` is what Trainer resolves "auto" with.

    `leaves_auto`: such a size is left open, for frameworks under which the estimate takes it as Trainer's.
    Raises UsageError for a value that DeepSpeed would not read, and for an "auto" without a hidden size.
    """
    found = DeepSpeedSettings({"framework": "deepspeed"})
    zero = config.get("zero_optimization") or {}
    if isinstance(zero, bool):
        zero = {"stage": 1}
    if not isinstance(zero, Mapping):
        raise UsageError(f"zero_optimization: expected a table, got {clipped(str(zero))}")
    zero = {(f"stage3_{name}" if f"stage3_{name}" in _WITH_PREFIX else name): value for name, value in zero.items()}
    stage = _whole("zero_optimization.stage", zero.get("stage", 0))
    found.train["zero_stage"] = stage
    _read_batch(found, config)
    _read_precision(found, config)
    _read_optimizer(found, config.get("optimizer"))
    if stage:
        _read_zero(found, zero, hidden_size, leaves_auto=leaves_auto)
        _read_offload(found, zero, stage)
    above = {name for name in NOT_COUNTED_ABOVE if is_on(config.get(name))}
    found.notes += [f"not counted: {name} ({NOT_COUNTED_ABOVE[name]})" for name in sorted(above)]
    return found


def _read_batch(found: DeepSpeedSettings, config: Mapping[str, object]) -> None:
    named = {"train_micro_batch_size_per_gpu": "micro_batch_size", "gradient_accumulation_steps": None}
    for name, key in named.items():
        value = config.get(name, "auto")
        if value != "auto":
            found.train[key or name] = _whole(name, value)
    clipping = config.get("gradient_clipping", "auto")
    if clipping != "auto":
        found.train["clip_grad_norm"] = bool(clipping)


def _read_precision(found: DeepSpeedSettings, config: Mapping[str, object]) -> None:
    """16-bit weights with an fp32 copy, whose dtype and whose gradients' and states' may be narrower."""
    tables = {"fp16": config.get("fp16"), "bf16": config.get("bf16", config.get("bfloat16"))}
    enabled = [table.get("enabled", "auto") if isinstance(table, Mapping) else "auto" for table in tables.values()]
    found.says_precision = True in enabled or enabled == [False, False]
    for name, table in tables.items():
        if not isinstance(table, Mapping) or table.get("enabled") is not True:
            continue
        found.train["precision"] = f"{name}-master"
        if table.get(f"{name}_master_weights_and_grads"):
            found.train["master_dtype"] = name
        if table.get("bf16_optimizer_states"):
            found.train["optimizer_state_dtype"] = "bf16"
    types = config.get("data_types")
    accumulated = types.get("grad_accum_dtype") if isinstance(types, Mapping) else None
    if accumulated is not None:
        found.train["grad_dtype"] = _dtype("data_types.grad_accum_dtype", accumulated)
    if config.get("communication_data_type") is not None:
        found.train["communication_data_type"] = _dtype("communication_data_type", config["communication_data_type"])


def _read_optimizer(found: DeepSpeedSettings, optimizer: object) -> None:
    """DeepSpeed's own optimizers step in one kernel (runtime/engine.py `_configure_basic_optimizer`)."""
    if not isinstance(optimizer, Mapping) or "type" not in optimizer:
        return
    name = found.optimizer = str(optimizer["type"]).lower()
    if name not in _OPTIMIZERS:
        found.notes.append(f'optimizer "{clipped(str(optimizer["type"]))}" of the DeepSpeed file is taken as adamw')
    found.train["optimizer"] = _OPTIMIZERS.get(name, "adamw")
    parameters = optimizer.get("params")
    if not (isinstance(parameters, Mapping) and parameters.get("torch_adam")) and name != "sgd":
        found.train["optimizer_impl"] = "fused"


def _read_zero(
    found: DeepSpeedSettings, zero: Mapping[str, object], hidden_size: int | None, *, leaves_auto: bool
) -> None:
    def take(name: str, default: int, auto: float, power: int) -> None:
        value = zero.get(name, default)
        if value != "auto":
            found.train[name] = _whole(f"zero_optimization.{name}", value)
        elif hidden_size is not None:
            found.train[name] = int(auto * hidden_size**power)
        elif not leaves_auto:
            raise UsageError(f'zero_optimization.{name}: "auto" needs the model: give it, or a number')

    take("reduce_bucket_size", BUCKET_NUMEL, 1, 2)
    if found.train["zero_stage"] == 3:
        prefetch = "stage3_prefetch_bucket_size"
        take(prefetch, PREFETCH_NUMEL, 0.9, 2)
        take("stage3_param_persistence_threshold", PERSISTENT_NUMEL, 10, 1)
        if zero.get("stage3_allgather_sequential"):  # runtime/engine.py sets the bucket to 1
            found.train[prefetch] = 1
    for name in _SIZES:
        if name in zero and zero[name] != "auto":
            number = _whole(f"zero_optimization.{name}", zero[name])
            found.train[name] = number if name in _WITH_PREFIX else max(1, number)
    for name in _SWITCHES:
        if zero.get(name) is not None and zero[name] != "auto":
            found.train[name] = bool(zero[name])
    on = sorted(name for name in NOT_COUNTED if is_on(zero.get(name)))
    found.notes += [f"not counted: zero_optimization.{name} ({NOT_COUNTED[name]})" for name in on]


def _read_offload(found: DeepSpeedSettings, zero: Mapping[str, object], stage: int) -> None:
    old = {"offload_optimizer": zero.get("cpu_offload"), "offload_param": zero.get("cpu_offload_param")}
    for name, key in (("offload_optimizer", "offload_optimizer"), ("offload_param", "offload_params")):
        table = _table(name, zero.get(name)) or ({"device": "cpu"} if old[name] else {})
        device = str(table.get("device", "none"))
        if device not in ("cpu", "nvme") or (name == "offload_param" and stage < 3):
            continue
        found.train[key] = device
        if table.get("pin_memory") is not None:
            found.train["offload_pin_memory"] = bool(table["pin_memory"])
        for setting in ("buffer_count", "buffer_size", "max_in_cpu"):
            if setting in table and f"{key}_{setting}" != "offload_optimizer_buffer_size":
                found.train[f"{key}_{setting}"] = _whole(f"{name}.{setting}", table[setting])
        if table.get("ratio", 1) not in (1, 1.0, "1", "1.0"):
            found.notes.append(
                f"not counted: {name}.ratio {table['ratio']}: all optimizer states are taken as offloaded"
            )
        if table.get("super_offload"):
            found.notes.append(f"not counted: {name}.super_offload (its own buffers)")


def _whole(name: str, value: object) -> int:
    """A whole number, which DeepSpeed also reads from 5e8 and from its text."""
    try:
        number = float(value) if isinstance(value, int | float) else float(str(value))
        whole = int(number)
    except (TypeError, ValueError, OverflowError):
        whole, number = -1, -1.0
    if number != whole or number < 0:
        raise UsageError(f'{name}: expected a whole number, got "{clipped(str(value))}"')
    return whole


def _table(name: str, value: object) -> Mapping[str, object]:
    """A table, empty where there is none."""
    if value is None or value is False:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f'{name}: expected a table, got "{clipped(str(value))}"')
    return value


def _dtype(name: str, value: object) -> str:
    if str(value) not in _DTYPES:
        raise UsageError(f'{name}: expected fp32, fp16 or bf16, got "{clipped(str(value))}"')
    return _DTYPES[str(value)]


def is_on(value: object) -> bool:
    """Whether a setting is set: a table is, unless it says that it is not enabled or holds nothing; a size beyond 1."""
    if isinstance(value, Mapping):
        return bool(value) and value.get("enabled", True) is not False
    return value > 1 if isinstance(value, int | float) and not isinstance(value, bool) else bool(value)
