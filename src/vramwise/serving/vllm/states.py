"""The dtype of vLLM's recurrent states."""

from __future__ import annotations

from vramwise.formats import dtype
from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.models.type_facts import fact_value
from vramwise.serving.common.versions import Version


def state_element_bytes(model: Model, asked: str, version: Version) -> int | None:
    """Bytes of an element of the states; None where they have the model's dtype.

    As asked (`mamba_ssm_cache_dtype`), else as a key of the config says that the version reads for this type, else the
    type's own in that version (model_executor/models/config.py, layers/mamba/mamba_utils.py of 0.12.0 to 0.33.0).
    """
    if asked != "auto":
        return dtype(asked).bits // 8
    config = text_config(model)
    key = fact_value("vllm", "state_dtype_key", config.model_type, version)
    stated = config.get(key) if key is not None else None
    if not isinstance(stated, str):
        stated = fact_value("vllm", "state_dtype", config.model_type, version)
    return dtype(stated).bits // 8 if stated is not None else None
