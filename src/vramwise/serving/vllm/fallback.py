"""What vLLM 0.8 to 0.10 run on their first engine by themselves, whatever the card."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.storage import Storage
from vramwise.serving.vllm.profile import BOTH_ENGINES
from vramwise.serving.vllm.shards import HOPPER

_CACHE_BY_PLATFORM = (0, 10)  # the platform says which stored caches V1 takes; not read further
_ANY_DTYPE = (0, 9, 1)
_GGUF_TAKEN = (0, 9)


def falls_back(
    given: ServeSettings, model: Model, storage: Storage, version: tuple[int, ...], capability: float | None
) -> bool:
    """Whether V0 is taken where V1 is not asked for: engine/arg_utils.py _is_v1_supported_oracle of 0.8.3, 0.8.5,
    0.9.0, 0.9.2, 0.10.0 and 0.10.2. Models with states and drafts of other methods fall back too and are counted as
    V1's here."""
    first, after = BOTH_ENGINES
    if given.use_v1 or not first <= version < after:
        return False
    if has_fact("vllm", "first_engine_alone", model.config.model_type, version):
        return True
    flash_3 = capability is None or capability == HOPPER  # flash_attn_supports_fp8: FlashAttention 3 alone
    if version < _CACHE_BY_PLATFORM and given.kv_cache_dtype.startswith("fp8") and not flash_3:
        return True
    if version < _ANY_DTYPE and storage.dtype not in ("bf16", "fp16"):
        return True
    rule = storage.quantization
    return version < _GGUF_TAKEN and rule is not None and rule.layout.startswith("gguf")
