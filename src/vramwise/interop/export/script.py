"""`accelerate launch train.py` with accelerate's configuration, `deepspeed train.py` with DeepSpeed's: what a script of
one's own is started with, and the arguments that it is given by the names of TrainingArguments and published scripts.

Keys: accelerate 1.15 commands/config/config_args.py, utils/dataclasses.py FullyShardedDataParallelPlugin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from vramwise.errors import UsageError
from vramwise.frameworks import framework_of
from vramwise.interop.export.deepspeed_file import deepspeed_text
from vramwise.interop.export.draft import Asked, Draft, File
from vramwise.interop.export.trainer_options import trainer_options, wrap_policy, yaml_text
from vramwise.interop.export.trl import adapter_options, attention_option, weights_dtype

_SCRIPT = "train.py"
_OWN_ARGUMENTS = (
    f"script: {_SCRIPT} stands for your own; it is given TrainingArguments, and model, length, dtype, attention and "
    "adapters by the names that published scripts use"
)
_FSDP = {"full-shard": "FULL_SHARD", "shard-grad-op": "SHARD_GRAD_OP", "hybrid-shard": "HYBRID_SHARD"}


def write_accelerate(asked: Asked) -> Draft:
    """accelerate's configuration, with a DeepSpeed file of its own where ZeRO shares the states."""
    settings, scenario = asked.settings, asked.scenario
    precision = str(settings.get("precision")).partition("-")
    nodes = max(1, scenario.num_gpus // scenario.gpus_per_node)
    kind = "MULTI_GPU" if scenario.num_gpus > 1 else "NO"
    table: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE", "distributed_type": kind, "num_machines": nodes,
        "num_processes": scenario.num_gpus, "machine_rank": 0,
    }  # fmt: skip
    files: list[File] = []
    if settings.get("zero_stage"):
        path = f"{asked.path.rpartition('.')[0] or asked.path}.deepspeed.json"
        files.append(File(path, deepspeed_text(asked, of_trainer=True), "DeepSpeed's configuration, which it names"))
        config: dict[str, object] = {"deepspeed_config_file": path}
        if settings.get("zero_stage") == 3:
            config["zero3_init_flag"] = True
        table |= {"distributed_type": "DEEPSPEED", "deepspeed_config": config}
    else:
        table["mixed_precision"] = precision[0] if precision[2] == "mixed" else "no"
        if settings.get("fsdp") in _FSDP:
            table |= {"distributed_type": "FSDP", "fsdp_config": _fsdp(settings)}
    if settings.get("compile"):
        table["dynamo_config"] = {"dynamo_backend": "INDUCTOR"}
    files.insert(0, File(asked.path, yaml_text(table), "accelerate's configuration"))
    words = ("accelerate", "launch", "--config_file", asked.path, _SCRIPT, *_arguments(asked))
    return Draft(words, tuple(files), unsaid=(_OWN_ARGUMENTS,))


def write_deepspeed(asked: Asked) -> Draft:
    """DeepSpeed's configuration: for a Trainer's script, or for an engine that a script makes itself.

    Raises UsageError where nothing is shared by ZeRO.
    """
    scenario, runs = asked.scenario, framework_of(asked.scenario.train)
    of_trainer = runs.trainer or not runs.sharding.takes_zero
    if asked.settings.get("fsdp", "none") != "none":
        raise UsageError("--export deepspeed: the scenario shares its states by FSDP: expected accelerate, axolotl, "
                         "llamafactory or trl")  # fmt: skip
    if of_trainer and not asked.settings.get("zero_stage"):
        raise UsageError("--export deepspeed: the scenario shares nothing by ZeRO: add --zero-stage 1, 2 or 3")
    file = File(asked.path, deepspeed_text(asked, of_trainer=of_trainer), "DeepSpeed's configuration")
    each = min(scenario.num_gpus, scenario.gpus_per_node)
    nodes = max(1, scenario.num_gpus // scenario.gpus_per_node)
    launcher = ("deepspeed", "--num_gpus", str(each), *(("--num_nodes", str(nodes)) if nodes > 1 else ()))
    words = (*launcher, _SCRIPT, "--deepspeed", asked.path, *_arguments(asked))
    return Draft(words, (file,), unsaid=(_OWN_ARGUMENTS,))


def _fsdp(settings: Mapping[str, object]) -> dict[str, object]:
    kind, version = str(settings.get("fsdp")), settings.get("fsdp_version")
    found: dict[str, object] = {
        "fsdp_version": version, "fsdp_auto_wrap_policy": wrap_policy(settings),
        "fsdp_offload_params": settings.get("offload_params") == "cpu",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }  # fmt: skip
    if settings.get("cpu_ram_efficient_loading") is not None:
        found["fsdp_cpu_ram_efficient_loading"] = settings["cpu_ram_efficient_loading"]
    if version == 2:
        return {**found, "fsdp_reshard_after_forward": kind != "shard-grad-op"}
    return {**found, "fsdp_sharding_strategy": _FSDP[kind]}


def _arguments(asked: Asked) -> Iterator[str]:
    settings = asked.settings
    table = {
        "model_name_or_path": asked.model, "max_length": settings.get("sequence_length"),
        "dtype": weights_dtype(settings), **attention_option(settings),
        **trainer_options(asked, sharding=False), **adapter_options(settings), "output_dir": "output",
    }  # fmt: skip
    if settings.get("packing"):
        table["packing"] = True
    for key, value in table.items():
        yield f"--{key}"
        if isinstance(value, Mapping):
            yield json.dumps(value)
        elif isinstance(value, list | tuple):
            yield from map(str, value)
        else:
            yield str(value)
