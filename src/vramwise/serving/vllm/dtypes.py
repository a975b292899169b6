"""The dtype that vLLM takes where none is asked for, and types of models that it does not run in fp16."""

from __future__ import annotations

from dataclasses import replace

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import asked_storage, server_storage
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.versions import Version, version_of

_SINCE = (0, 9, 2)
_TEXT_SINCE = (0, 11)
_REFUSED = frozenset({"gemma2", "gemma3", "glm4"})
BF16_FOR_FP32 = (0, 9)  # before, checkpoints in fp32 become fp16


def refuses_fp16(model: Model, version: Version) -> bool:
    """vLLM 0.9.2, 0.10.0, 0.11.0, 0.24.0 and 0.33.0, config/model.py _FLOAT16_NOT_SUPPORTED_MODELS; 0.8.5 has none."""
    kind = model.config.model_type
    return (kind in _REFUSED and version >= _SINCE) or (kind == "gemma3_text" and version >= _TEXT_SINCE)


def vllm_storage(model: Model, settings: ServeSettings, gpu: Gpu | None) -> Storage:
    """Storage with vLLM's rule for `dtype: auto`: on cards without bf16 fp16, or fp32 for the types that it does not
    run in fp16. Source: vLLM config/model.py _get_and_verify_dtype, _resolve_auto_dtype.
    """
    version = version_of(settings.engine_version)
    storage = asked_storage(model, settings)
    no_bf16 = gpu is not None and gpu.supports("bf16") is False
    if settings.dtype == "auto" and storage.dtype in ("bf16", "fp32") and no_bf16:
        return replace(storage, dtype="fp32" if refuses_fp16(model, version) else "fp16")
    return server_storage(model, settings, gpu, "bf16" if version >= BF16_FOR_FP32 else "fp16")
