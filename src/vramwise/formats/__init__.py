"""Number formats: dtypes, weight quantization formats and GGUF block types, with exact sizes in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise import come_when_asked_for
from vramwise.formats.dtypes import DTYPES, Dtype, dtype
from vramwise.formats.quantization import QUANTIZATIONS, QuantFormat, quantization

if TYPE_CHECKING:
    from vramwise.formats.gguf import GGUF_TYPES, GgufType, gguf_type
else:
    __getattr__ = come_when_asked_for(__name__, {"GGUF_TYPES": "gguf", "GgufType": "gguf", "gguf_type": "gguf"})

__all__ = [
    "DTYPES",
    "GGUF_TYPES",
    "QUANTIZATIONS",
    "Dtype",
    "GgufType",
    "QuantFormat",
    "dtype",
    "gguf_type",
    "quantization",
]
