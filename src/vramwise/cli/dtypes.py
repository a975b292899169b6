"""`vramwise dtypes`: bits and bytes of number formats, quantization formats and GGUF types."""

from __future__ import annotations

import argparse
import json
from typing import Any

from vramwise.cli.listing import figure, print_table
from vramwise.formats import DTYPES, GGUF_TYPES, QUANTIZATIONS
from vramwise.formats.quantization import ALIASES

HELP = "list number formats, weight quantization formats and GGUF types with their sizes"

_SHAPE = (4096, 4096)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON only")


def run(args: argparse.Namespace) -> int:
    """Print the three lists."""
    if args.json:
        print(json.dumps(_tables(), indent=2, ensure_ascii=False))
        return 0
    print_table(
        ("dtype", "bits", "used", "bytes a value", "exponent", "mantissa", "other names"),
        [
            (
                row.name,
                str(row.bits),
                str(row.used_bits),
                figure(row.bytes_per_value),
                str(row.exponent_bits) if row.exponent_bits else "",
                str(row.mantissa_bits) if row.mantissa_bits else "",
                ", ".join(row.aliases),
            )
            for row in DTYPES
        ],
        numbers=(1, 2, 3, 4, 5),
        title="Number formats. tf32 uses 19 bits and is stored in 32; 4-bit values are packed two a byte.\n",
        as_is=True,
    )
    print_table(
        ("quantization", "bits", "group", "bits a weight", "other names", "as stored by"),
        [
            (
                row["name"],
                figure(row["bits"]),
                figure(row["group_size"] or None),
                figure(row["bits_per_weight"], 3),
                ", ".join(row["aliases"]),
                row["source"],
            )
            for row in _quantizations()
        ],
        numbers=(1, 2, 3),
        title="\nWeight quantization: bits a weight of a 4096 × 4096 linear layer costs with scales and zero points.\n",
        as_is=True,
    )
    print_table(
        ("GGUF type", "weights a block", "bytes a block", "bits a weight"),
        [(row.name, str(row.block_size), str(row.block_bytes), figure(row.bits_per_weight)) for row in GGUF_TYPES],
        numbers=(1, 2, 3),
        title="\nGGUF tensor types.\n",
    )
    return 0


def _quantizations() -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "aliases": [alias for alias, name in ALIASES.items() if name == row.name],
            "bits": row.bits,
            "group_size": row.group_size,
            "bits_per_weight": row.bits_per_weight(_SHAPE),
            "source": row.source,
        }
        for row in QUANTIZATIONS
        if row.bits
    ]


def _tables() -> dict[str, Any]:
    return {
        "dtypes": [
            {
                "name": row.name,
                "aliases": list(row.aliases),
                "bits": row.bits,
                "used_bits": row.used_bits,
                "bytes_per_value": row.bytes_per_value,
                "exponent_bits": row.exponent_bits,
                "mantissa_bits": row.mantissa_bits,
                "kind": row.kind,
                "source": row.source,
            }
            for row in DTYPES
        ],
        "quantizations": _quantizations(),
        "gguf": [
            {
                "name": row.name,
                "block_size": row.block_size,
                "block_bytes": row.block_bytes,
                "bits_per_weight": row.bits_per_weight,
            }
            for row in GGUF_TYPES
        ],
    }
