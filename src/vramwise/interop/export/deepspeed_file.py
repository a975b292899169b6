"""DeepSpeed's configuration of a scenario, whose keys the reader (interop/deepspeed.py) has under the same names.

Keys: DeepSpeed 0.19 runtime/zero/config.py, runtime/zero/offload_config.py, runtime/precision_config.py; "auto" is what
transformers fills in from the model and its own arguments (5.23 integrations/deepspeed.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.interop.export.draft import Asked

_SIZES_OF_TRAINER = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
_SIZES = (
    "sub_group_size", "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_model_persistence_threshold",
    "zero_hpz_partition_size", "overlap_comm", "contiguous_gradients", "reduce_scatter", "zero_quantized_weights",
)  # fmt: skip
_OFFLOAD = (("offload_optimizer", "offload_optimizer"), ("offload_params", "offload_param"))
_BUFFERS = {"offload_optimizer": ("buffer_count",), "offload_params": ("buffer_count", "buffer_size", "max_in_cpu")}
_AUTO = "auto"


def deepspeed_config(asked: Asked, *, of_trainer: bool) -> dict[str, object]:
    """The table; `of_trainer`: a Trainer reads it, which fills in what is `auto` from its own arguments."""
    settings, stated = asked.settings, asked.stated()
    stage = settings.get("zero_stage")
    zero: dict[str, object] = {"stage": stage}
    for key in _SIZES_OF_TRAINER[: 3 if stage == 3 else 1]:
        if key in stated:
            zero[key] = stated[key]
        elif of_trainer:
            zero[key] = _AUTO
    zero |= {key: stated[key] for key in _SIZES if key in stated}
    zero |= _offload(settings, stated)
    found: dict[str, object] = {
        "train_micro_batch_size_per_gpu": _AUTO if of_trainer else settings.get("micro_batch_size"),
        "gradient_accumulation_steps": _AUTO if of_trainer else settings.get("gradient_accumulation_steps"),
        "gradient_clipping": _AUTO if of_trainer else float(bool(settings.get("clip_grad_norm"))),
        **_precision(settings, of_trainer=of_trainer),
        "zero_optimization": zero,
    }
    if "communication_data_type" in stated:
        found["communication_data_type"] = stated["communication_data_type"]
    if "grad_dtype" in stated:
        found["data_types"] = {"grad_accum_dtype": stated["grad_dtype"]}
    if not of_trainer and settings.get("optimizer") == "adamw" and settings.get("optimizer_impl") == "fused":
        found["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-5}}
    return found


def deepspeed_text(asked: Asked, *, of_trainer: bool) -> str:
    return json.dumps(deepspeed_config(asked, of_trainer=of_trainer), indent=2) + "\n"


def _offload(settings: Mapping[str, object], stated: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, name in _OFFLOAD:
        device = settings.get(key)
        if device in (None, "none"):
            continue
        table: dict[str, object] = {"device": device}
        if "offload_pin_memory" in stated:
            table["pin_memory"] = stated["offload_pin_memory"]
        table |= {one: stated[f"{key}_{one}"] for one in _BUFFERS[key] if f"{key}_{one}" in stated}
        if device == "nvme":
            table["nvme_path"] = "/local_nvme"
        found[name] = table
    return found


def _precision(settings: Mapping[str, object], *, of_trainer: bool) -> dict[str, object]:
    precision = str(settings.get("precision"))
    half = precision.partition("-")[0]
    if half not in ("bf16", "fp16"):
        return {} if of_trainer else {"bf16": {"enabled": False}, "fp16": {"enabled": False}}
    table: dict[str, object] = {"enabled": _AUTO if of_trainer else True}
    if settings.get("master_dtype") == half:
        table[f"{half}_master_weights_and_grads"] = True
    if half == "bf16" and settings.get("optimizer_state_dtype") == "bf16":
        table["bf16_optimizer_states"] = True
    return {half: table}
