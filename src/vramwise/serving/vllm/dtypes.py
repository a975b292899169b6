"""The dtype that vLLM takes where none is asked for, and types of models that it does not run in fp16."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.formats.quantization import quantization
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import asked_storage, server_storage
from vramwise.serving.common.resolved import AS_THE_MODEL
from vramwise.serving.common.storage import Storage, stated_cache
from vramwise.serving.common.versions import Version, version_of

BF16_FOR_FP32 = (0, 9)  # before, checkpoints in fp32 become fp16
CACHE_OF_MODELOPT = (0, 14)  # utils/torch_utils.py resolve_kv_cache_dtype_string, not in 0.13.0
CACHE_OF_COMPRESSED_TENSORS = (0, 15)  # attention/layer.py Attention.__init__, not in 0.14.1
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


def cache_dtype(model: Model, settings: ServeSettings, storage: Storage, version: Version) -> str:
    """`kv_cache_dtype: auto` of a checkpoint that states the format of its cache: that one.

    ModelOpt's since CACHE_OF_MODELOPT for every model, compressed-tensors' since CACHE_OF_COMPRESSED_TENSORS for layers
    of class Attention, which latent attention is not. Without a checkpoint's own format (another was asked for) it is
    not known what its config says.
    """
    if settings.kv_cache_dtype != AS_THE_MODEL or storage.rules is None:
        return settings.kv_cache_dtype
    method, said = stated_cache(model)
    if method.startswith("modelopt") and version >= CACHE_OF_MODELOPT:
        return "fp8_e4m3" if _is_fp8(said) else AS_THE_MODEL
    if method == "compressed-tensors" and version >= CACHE_OF_COMPRESSED_TENSORS and said is not None:
        return AS_THE_MODEL if model.has_latent_cache else "fp8_e4m3"
    return AS_THE_MODEL


def _is_fp8(said: object) -> bool:
    """ModelOpt's name, or the table of 8-bit floats (utils/torch_utils.py get_kv_cache_quant_algo_string)."""
    if isinstance(said, Mapping):
        return said.get("dynamic") is False and said.get("num_bits") == 8 and said.get("type") == "float"
    return isinstance(said, str) and said.lower() == "fp8"


def _own_dtype(model: Model, settings: ServeSettings, gpu: Gpu | None, version: Version) -> Storage:
    storage = asked_storage(model, settings)
    no_bf16 = gpu is not None and gpu.supports("bf16") is False
    if settings.dtype == "auto" and storage.dtype in ("bf16", "fp32") and no_bf16:
        return replace(storage, dtype="fp32" if refuses_fp16(model, version) else "fp16")
    return server_storage(model, settings, gpu, "bf16" if version >= BF16_FOR_FP32 else "fp16")
