"""How a Trainer shares a model's states: DeepSpeed's JSON, accelerate's settings, `--fsdp` with its configuration.

`auto` is left open, which the estimate takes as transformers fills it in (integrations/deepspeed.py
trainer_config_finalize); what a DeepSpeed configuration does not name is DeepSpeed's own default, as accelerate's
shorthand (`zero_stage: 3`) leaves it (accelerate 1.15 utils/dataclasses.py DeepSpeedPlugin). FSDP under mixed precision
keeps trained weights in fp32, whatever they were loaded in (accelerator.py prepare_model, utils/fsdp_utils.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from vramwise.errors import UsageError, clipped
from vramwise.interop.beside import file_table
from vramwise.interop.deepspeed import deepspeed_table, read_deepspeed
from vramwise.interop.deepspeed_listed import listed
from vramwise.interop.launch.launchers import Launcher
from vramwise.interop.launch.options import Options, whole_number
from vramwise.interop.launch.values import switch

_OF_THE_TRAINER = frozenset({"framework", "precision", "optimizer", "optimizer_impl"})
"""What the trainer's own reader works out from the file's words."""
_STRATEGIES = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard", "5": "hybrid_shard"}
_KINDS = {"full_shard": "full-shard", "shard_grad_op": "shard-grad-op", "hybrid_shard": "hybrid-shard",
          "hybrid_shard_zero2": "hybrid-shard", "no_shard": "none"}  # fmt: skip


@dataclass(slots=True)
class Sharding:
    """Settings of the scenario; the 16-bit dtype that DeepSpeed or accelerate ask for, DeepSpeed's optimizer."""

    settings: dict[str, object] = field(default_factory=dict)
    deepspeed: bool = False
    half: str | None = None
    says_half: bool = False
    optimizer: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def fsdp(self) -> bool:
        """Whether FSDP shares the states."""
        return bool(self.settings.get("fsdp", "none") != "none")


def sharding_of(options: Options, launcher: Launcher) -> Sharding:
    """What the script's arguments and accelerate say. Raises UsageError or SourceError."""
    found = Sharding()
    own = next(
        (value for name in ("deepspeed", "deepspeed_config") if _is_named(value := options.values.get(name))), None
    )
    accelerate = launcher.accelerate
    if accelerate is not None:
        _mixed_precision(found, accelerate)
        if (accelerate.first("dynamo_backend") or "no").lower() != "no":
            found.settings["compile"] = True
    if isinstance(own, str):
        named, notes = ({}, []) if own.lstrip().startswith("{") else deepspeed_table(own)
        table = named or json_or_file(own)
        take_deepspeed(found, table)
        found.notes += [*notes, *_named_in(table)]
    elif isinstance(own, Mapping):
        take_deepspeed(found, own)
        found.notes += _named_in(own)
    elif options.is_on("deepspeed") or options.number("zero_stage", "deepspeed_stage"):
        _of_the_script(found, options)
    elif options.values.get("fsdp") and not is_no(options.values["fsdp"]):
        _fsdp_of_arguments(found, options)
    elif accelerate is not None:
        _accelerate(found, accelerate)
    return found


def _is_named(value: object) -> bool:
    """Whether it is a table, JSON or a file: `--deepspeed` alone is a switch (deepspeed.add_config_arguments)."""
    return isinstance(value, Mapping) or (isinstance(value, str) and value.lower() not in ("none", "false", "true", ""))


def _of_the_script(found: Sharding, options: Options) -> None:
    """DeepSpeed with a configuration that the script makes itself, of a stage that it is told."""
    stage = options.number("zero_stage", "deepspeed_stage")
    zero: dict[str, object] = {"stage": stage or 0}
    if options.is_on("offload"):
        zero |= {"offload_optimizer": {"device": "cpu"}} | ({"offload_param": {"device": "cpu"}} if stage == 3 else {})
    take_deepspeed(found, {"zero_optimization": zero})
    said = "without a stage, so ZeRO is off (--zero-stage says otherwise)" if stage is None else f"of stage {stage}"
    found.notes.append(f"DeepSpeed's configuration is the script's own, {said}; all else as DeepSpeed's defaults")


def is_no(value: object) -> bool:
    """Whether a value that may be text means off."""
    return value is None or value is False or str(value).strip().lower() in ("", "none", "false", "no", "[]")


def json_or_file(text: str) -> dict[str, object]:
    """A table written out in JSON, or that of a file. Raises UsageError for neither."""
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError(f'expected a JSON object or a file, got "{clipped(text)}"') from None
        return dict(found)
    return file_table(text)


def take_deepspeed(found: Sharding, table: Mapping[str, object]) -> None:
    """DeepSpeed's own configuration; a size that is `auto` is left open, which the estimate takes as Trainer's."""
    read = read_deepspeed(table, leaves_auto=True)
    settings = {key: value for key, value in read.train.items() if key not in _OF_THE_TRAINER}
    found.deepspeed = True
    found.settings.update(settings)
    found.says_half = found.says_half or read.says_precision
    if read.says_precision:
        found.half = str(read.train["precision"]).removesuffix("-master") if "precision" in read.train else None
    found.optimizer = read.optimizer
    found.notes += [f"DeepSpeed: {note}" for note in read.notes]


def _named_in(table: Mapping[str, object]) -> list[str]:
    """What DeepSpeed's configuration sets, name by name."""
    return [f"DeepSpeed: {note}" for note in listed(table)]


def _mixed_precision(found: Sharding, accelerate: Options) -> None:
    mixed = accelerate.first("mixed_precision")
    if mixed in ("bf16", "fp16", "fp8"):
        found.half = "bf16" if mixed == "fp8" else mixed
        if mixed == "fp8":
            found.notes.append("accelerate's fp8 is not counted: bf16 mixed precision is taken")


def _accelerate(found: Sharding, accelerate: Options) -> None:
    kind = (accelerate.first("distributed_type") or "").upper()
    if kind == "DEEPSPEED" or accelerate.is_on("use_deepspeed"):
        named = accelerate.first("deepspeed_config_file")
        table, notes = deepspeed_table(named) if named else (_shorthand(accelerate), [])
        take_deepspeed(found, table)
        found.notes += [*notes, *(_named_in(table) if named else ())]
    elif kind == "FSDP" or accelerate.is_on("use_fsdp"):
        table = {name: value for name, value in accelerate.values.items() if name.startswith("fsdp_")}
        read_fsdp(found, {name.removeprefix("fsdp_"): value for name, value in table.items()}, version=1)
    if (accelerate.number("parallelism_config_dp_replicate_size") or 1) > 1 and found.settings.get(
        "fsdp"
    ) == "full-shard":
        found.settings["fsdp"] = "hybrid-shard"
        shard = accelerate.number("parallelism_config_dp_shard_size")
        if shard:
            found.notes.append(f"dp_shard_size {shard}: states are shared by the GPUs of a node (--gpus-per-node)")
    for size, key in (("tp_size", "tensor_parallel_size"), ("cp_size", "context_parallel_size")):
        count = accelerate.number(f"parallelism_config_{size}")
        if count and count > 1:
            found.settings[key] = count
    heads = accelerate.number("parallelism_config_sp_size")
    if heads and heads > 1:  # accelerate 1.12 parallelism_config.py: DeepSpeed's Ulysses
        found.settings |= {"context_parallel_size": heads, "context_parallel_kind": "ulysses"}


def _shorthand(accelerate: Options) -> dict[str, object]:
    """The configuration that accelerate makes of its own settings; stage 2 unless told otherwise."""
    zero: dict[str, object] = {"stage": accelerate.number("zero_stage") if accelerate.first("zero_stage") else 2}
    for name in ("optimizer", "param"):
        device = accelerate.first(f"offload_{name}_device")
        if device:
            zero[f"offload_{name}"] = {"device": device}
    table: dict[str, object] = {"zero_optimization": zero}
    if accelerate.first("gradient_clipping"):
        table["gradient_clipping"] = accelerate.values["gradient_clipping"]
    return table


def _fsdp_of_arguments(found: Sharding, options: Options) -> None:
    """transformers 5: `--fsdp` switches it on, all else is in `fsdp_config`; before, words such as "full_shard"."""
    config = options.values.get("fsdp_config")
    table = json_or_file(config) if isinstance(config, str) else config or {}
    if not isinstance(table, Mapping):
        raise UsageError(f'fsdp_config: expected a table, got "{clipped(str(table))}"')
    table = {str(key).removeprefix("fsdp_"): value for key, value in table.items()}
    given = options.values["fsdp"]
    for word in given if isinstance(given, list) else str(given).replace(",", " ").split():
        name = str(word).strip("[]'\"").lower()
        if name in _KINDS:
            table.setdefault("sharding_strategy", name)
        elif name == "offload":
            table["cpu_offload"] = True
    read_fsdp(found, table, version=2)


def read_fsdp(found: Sharding, table: Mapping[str, object], version: int) -> None:
    """FSDP's settings by names without `fsdp_`; `version` is the default. Raises UsageError for an unknown strategy."""
    version = whole_number(table.get("version") or version, "fsdp_version")
    reshard = table.get("reshard_after_forward")
    strategy = str(table.get("sharding_strategy") or ("" if _is_switch(reshard) else reshard) or "full_shard").lower()
    strategy = _STRATEGIES.get(strategy, strategy)
    if strategy not in _KINDS:
        raise UsageError(f'fsdp: expected {", ".join(_KINDS)}, got "{clipped(strategy)}"')
    kind = _KINDS[strategy]
    if _is_switch(reshard) and not switch(str(reshard)) and kind == "full-shard":
        kind = "shard-grad-op"
    found.settings |= {"fsdp": kind, "fsdp_version": version}
    if _is_on(table.get("offload_params")) or _is_on(table.get("cpu_offload")):
        found.settings |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    if _is_on(table.get("activation_checkpointing")):
        found.settings["checkpointing"] = "full"
        if _is_on(table.get("activation_checkpointing_offload")):  # accelerate 1.15: inputs of checkpointed layers
            found.settings["offload_activations"] = "cpu"
    _units(found, table)
    if _is_switch(table.get("cpu_ram_efficient_loading")):
        found.settings["cpu_ram_efficient_loading"] = _is_on(table["cpu_ram_efficient_loading"])


def _units(found: Sharding, table: Mapping[str, object]) -> None:
    """What is wrapped, where it is not a unit a layer (accelerate 1.12 utils/dataclasses.py set_auto_wrap_policy)."""
    policy, classes = str(table.get("auto_wrap_policy") or "").upper(), table.get("transformer_layer_cls_to_wrap")
    names = [str(name) for name in classes] if isinstance(classes, list) else str(classes or "").split(",")
    if policy == "NO_WRAP":
        found.settings["fsdp_units"] = ["root"]
    elif policy == "SIZE_BASED_WRAP":
        found.notes.append("SIZE_BASED_WRAP: a unit a layer is taken; --fsdp-units says otherwise")
    elif any(name.strip().endswith("Embedding") for name in names):
        found.settings["fsdp_units"] = ["layer", "Embedding"]


def _is_switch(value: object) -> bool:
    return isinstance(value, bool) or str(value).lower() in ("true", "false")


def _is_on(value: object) -> bool:
    return str(value).lower() in ("true", "1", "yes")
