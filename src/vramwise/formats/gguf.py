"""Block types of GGUF tensors: so many weights share one block of so many bytes.

Source of the sizes: GGML_QUANT_SIZES of the Python package gguf 0.19.0 (ggml-org/llama.cpp, gguf-py), held
against that package by a test. A tensor is stored row by row without padding, so its columns must be a
multiple of the block; llama.cpp falls back to another type where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from vramwise.errors import UnknownNameError, UsageError, nearest
from vramwise.records import record


@record
class GgufType:
    """One tensor type: `block_size` weights take `block_bytes` bytes, scales included."""

    name: str
    block_size: int
    block_bytes: int

    @property
    def bits_per_weight(self) -> float:
        """8 · block_bytes / block_size."""
        return 8 * self.block_bytes / self.block_size

    def bytes_for(self, shape: Sequence[int]) -> int:
        """Bytes of a tensor of `shape` (columns last): elements / block_size · block_bytes.

        Raises `UsageError` when the columns are not a multiple of the block. Alignment of tensors in the
        file (32 bytes) is not counted.
        """
        columns = shape[-1] if shape else 1
        if columns % self.block_size:
            raise UsageError(
                f"{self.name} stores rows in blocks of {self.block_size} weights, {columns} columns do not "
                "divide: llama.cpp takes a fallback type for such a tensor"
            )
        return prod(shape) // self.block_size * self.block_bytes


# name, weights a block, bytes a block
_ROWS = """
F64 1 8      F32 1 4      F16 1 2      BF16 1 2
I64 1 8      I32 1 4      I16 1 2      I8 1 1
Q8_0 32 34   Q8_1 32 40   Q8_K 256 292
Q6_K 256 210 Q5_K 256 176 Q4_K 256 144 Q3_K 256 110 Q2_K 256 84
Q5_0 32 22   Q5_1 32 24   Q4_0 32 18   Q4_1 32 20   Q1_0 128 18
IQ4_NL 32 18 IQ4_XS 256 136 IQ3_S 256 110 IQ3_XXS 256 98
IQ2_S 256 82 IQ2_XS 256 74  IQ2_XXS 256 66 IQ1_M 256 56 IQ1_S 256 50
TQ2_0 256 66 TQ1_0 256 54   MXFP4 32 17    NVFP4 64 36
"""


def _rows() -> tuple[GgufType, ...]:
    cells = _ROWS.split()
    return tuple(GgufType(cells[i], int(cells[i + 1]), int(cells[i + 2])) for i in range(0, len(cells), 3))


GGUF_TYPES: tuple[GgufType, ...] = _rows()
_BY_NAME = {row.name: row for row in GGUF_TYPES}


def gguf_type(name: str) -> GgufType:
    """The GGUF tensor type called `name` in any letter case: `Q4_K`, `iq4_xs`, `f16`.

    A file type such as Q4_K_M is a mix of tensor types and is refused here. Raises `UnknownNameError`.
    """
    found = _BY_NAME.get(name.strip().upper().replace("-", "_"))
    if found is None:
        raise UnknownNameError("GGUF tensor type", name, nearest(name, _BY_NAME), "vramwise dtypes lists all")
    return found
