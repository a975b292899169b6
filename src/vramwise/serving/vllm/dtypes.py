"""Model types that vLLM does not run in fp16."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.serving.common.versions import Version

_SINCE = (0, 9, 2)
_TEXT_SINCE = (0, 11)
_REFUSED = frozenset({"gemma2", "gemma3", "glm4"})


def refuses_fp16(model: Model, version: Version) -> bool:
    """vLLM 0.9.2, 0.10.0, 0.11.0, 0.24.0 and 0.33.0, config/model.py _FLOAT16_NOT_SUPPORTED_MODELS; 0.8.5 has none."""
    kind = model.config.model_type
    return (kind in _REFUSED and version >= _SINCE) or (kind == "gemma3_text" and version >= _TEXT_SINCE)
