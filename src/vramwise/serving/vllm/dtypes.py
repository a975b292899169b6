"""The dtype that vLLM takes where none is asked for, and types of models that it does not run in fp16."""

from __future__ import annotations

from dataclasses import replace

from vramwise.formats import quantization
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import asked_storage, server_storage
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.versions import Version, version_of

BF16_FOR_FP32 = (0, 9)  # before, checkpoints in fp32 become fp16
WIDE_SCALES = (0, 9, 2)  # pull request 19742: model_loader/bitsandbytes_loader.py dequantize_dq


def refuses_fp16(model: Model, version: Version) -> bool:
    """Whether this version has the model's type among those that are unstable in fp16."""
    return has_fact("vllm", "no_fp16", model.config.model_type, version)


def vllm_storage(model: Model, settings: ServeSettings, gpu: Gpu | None) -> Storage:
    """Storage with vLLM's rule for `dtype: auto`: on cards without bf16 fp16, or fp32 for the types that it does not
    run in fp16. Source: vLLM config/model.py _get_and_verify_dtype, _resolve_auto_dtype.

    4-bit weights that it makes itself by bitsandbytes have quantized scales (`quantize_4bit(compress_statistics=True)`,
    bitsandbytes_loader.py _unquantized_generator), in fp32 since 0.9.2.
    """
    version = version_of(settings.engine_version)
    storage = replace(_own_dtype(model, settings, gpu, version), widens_scales=version >= WIDE_SCALES)
    if storage.quantization is None or storage.rules is not None or storage.quantization.name != "nf4":
        return storage
    return replace(storage, quantization=quantization("nf4-dq"))


def _own_dtype(model: Model, settings: ServeSettings, gpu: Gpu | None, version: Version) -> Storage:
    storage = asked_storage(model, settings)
    no_bf16 = gpu is not None and gpu.supports("bf16") is False
    if settings.dtype == "auto" and storage.dtype in ("bf16", "fp32") and no_bf16:
        return replace(storage, dtype="fp32" if refuses_fp16(model, version) else "fp16")
    return server_storage(model, settings, gpu, "bf16" if version >= BF16_FOR_FP32 else "fp16")
