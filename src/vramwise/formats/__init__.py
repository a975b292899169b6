"""Number formats: dtypes, weight quantization formats and GGUF block types, with exact sizes in bytes."""

from vramwise.formats.dtypes import DTYPES, Dtype, dtype
from vramwise.formats.gguf import GGUF_TYPES, GgufType, gguf_type
from vramwise.formats.quantization import QUANTIZATIONS, QuantFormat, quantization

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
