"""Number formats: dtypes, weight quantization formats and GGUF block types, with exact sizes in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise import come_when_asked_for
from vramwise.errors import UnknownNameError, nearest
from vramwise.records import record

if TYPE_CHECKING:
    from vramwise.formats.gguf import GGUF_TYPES, GgufType, gguf_type
    from vramwise.formats.quantization import QUANTIZATIONS, QuantFormat
else:
    __getattr__ = come_when_asked_for(
        __name__,
        {
            "GGUF_TYPES": "gguf",
            "GgufType": "gguf",
            "gguf_type": "gguf",
            "QUANTIZATIONS": "quantization",
            "QuantFormat": "quantization",
        },
    )

__all__ = [
    "DTYPES",
    "GGUF_TYPES",
    "QUANTIZATIONS",
    "Dtype",
    "GgufType",
    "QuantFormat",
    "dtype",
    "gguf_type",
]


_IEEE = "IEEE 754-2019, table 3.5"
_TF32 = "NVIDIA A100 Tensor Core GPU architecture whitepaper: tf32 = 1 + 8 + 10 bits, stored as fp32"
_BF16 = "Google bfloat16: fp32 cut to 16 bits"
_OCP8 = "OCP 8-bit floating point specification 1.0"
_OCP_MX = "OCP microscaling formats specification 1.0"
_TORCH = "torch dtype of the same name"
_BNB = "bitsandbytes 0.50.2 functional.py get_4bit_type: a 16-entry code"
_NVFP4 = "NVIDIA TensorRT documentation: NVFP4, e2m1 values with an fp8 scale for 16 of them"


@record
class Dtype:
    """One number format; `bits` are stored, `used_bits` carry information, scales are not counted."""

    name: str
    bits: int
    used_bits: int
    exponent_bits: int
    mantissa_bits: int
    kind: str
    aliases: tuple[str, ...]
    source: str

    @property
    def bytes_per_value(self) -> float:
        """Stored bytes a value: 0.5 for a 4-bit format."""
        return self.bits / 8

    def bytes_for(self, numel: int) -> int:
        """Bytes of `numel` packed values, ceil(numel · bits / 8); scales and padding are not counted."""
        return -(-numel * self.bits // 8)


def _row(
    name: str, bits: int, exponent: int, mantissa: int, kind: str, source: str, *aliases: str, used: int = 0
) -> Dtype:
    return Dtype(name, bits, used or bits, exponent, mantissa, kind, aliases, source)


DTYPES: tuple[Dtype, ...] = (
    _row("fp64", 64, 11, 52, "float", _IEEE, "float64", "double", "f64"),
    _row("fp32", 32, 8, 23, "float", _IEEE, "float32", "float", "single", "f32"),
    _row("tf32", 32, 8, 10, "float", _TF32, "tensorfloat32", "tensorfloat-32", used=19),
    _row("fp16", 16, 5, 10, "float", _IEEE, "float16", "half", "f16"),
    _row("bf16", 16, 8, 7, "float", _BF16, "bfloat16", "brain-float"),
    _row("fp8_e4m3", 8, 4, 3, "float", _OCP8, "fp8", "e4m3", "float8", "float8_e4m3fn", "fp8_e4m3fn"),
    _row("fp8_e5m2", 8, 5, 2, "float", _OCP8, "e5m2", "float8_e5m2", "f8_e5m2"),
    _row("int64", 64, 0, 63, "integer", _TORCH, "long", "i64"),
    _row("int32", 32, 0, 31, "integer", _TORCH, "int", "i32"),
    _row("int16", 16, 0, 15, "integer", _TORCH, "short", "i16"),
    _row("int8", 8, 0, 7, "integer", _TORCH, "i8", "char"),
    _row("uint8", 8, 0, 8, "integer", _TORCH, "u8", "byte"),
    _row("int4", 4, 0, 3, "integer", "two's complement, two values a byte", "i4", "uint4", "u4"),
    _row("bool", 8, 0, 1, "integer", _TORCH, "boolean"),
    _row("nf4", 4, 0, 0, "code book", _BNB, "normal-float-4", "normalfloat4"),
    _row("fp4", 4, 2, 1, "code book", _BNB, "float4", "f4", "e2m1"),
    _row("mxfp4", 4, 2, 1, "block float", _OCP_MX, "mx-fp4"),
    _row("nvfp4", 4, 2, 1, "block float", _NVFP4, "nv-fp4"),
)


def _key(name: str) -> str:
    return name.strip().lower().removeprefix("torch.").replace("-", "").replace("_", "").replace(" ", "")


_BY_NAME: dict[str, Dtype] = {_key(spelling): row for row in DTYPES for spelling in (row.name, *row.aliases)}


def dtype(name: str) -> Dtype:
    """The dtype that `name` means: `bf16`, `bfloat16`, `torch.bfloat16`, `half`, `fp8` (e4m3), …

    Raises `UnknownNameError` with the nearest names.
    """
    found = _BY_NAME.get(name) or _BY_NAME.get(_key(name))
    if found is None:
        spellings = [spelling for row in DTYPES for spelling in (row.name, *row.aliases)]
        raise UnknownNameError("dtype", name, nearest(name, spellings), "vramwise dtypes lists all")
    return found
