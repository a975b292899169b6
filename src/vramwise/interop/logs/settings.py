"""Settings that logs print as Python values: `model='…', tensor_parallel_size=2` and `{'model': '…'}`."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping

from vramwise.scenario.names import SERVE_QUANTIZATION, SERVE_QUANTIZATION_SPELLINGS

_PAIR = re.compile(
    r"(?<![\w.])(\w{2,60})=('[^']{0,500}'|\"[^\"]{0,500}\"|-?[0-9][0-9.eE+-]{0,30}|True|False|None|[\w.]{1,60})"
)
_ITEM = re.compile(
    r"'(\w{2,60})': ('[^']{0,500}'|\"[^\"]{0,500}\"|-?[0-9][0-9.eE+-]{0,30}|True|False|None|\{[^{}]{0,500}\})"
)
_LONGEST_LITERAL = 20_000


def pairs(text: str) -> dict[str, object]:
    """`name=value` pairs of a printed call or config; the first of each name."""
    found: dict[str, object] = {}
    for name, value in _PAIR.findall(text):
        if name not in found:
            found[name] = literal(value)
    return found


def literal(text: str) -> object:
    """A Python literal, or the text itself."""
    if len(text) > _LONGEST_LITERAL:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash in a path: nobody's code to mend
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def table(text: str) -> dict[str, object]:
    """A printed dict; of one that holds objects of the engine, what can be read."""
    value = literal(text.strip())
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    found: dict[str, object] = {}
    for name, item in _ITEM.findall(text[:_LONGEST_LITERAL]):
        found.setdefault(name, literal(item))
    return found


def copy_whole(source: Mapping[str, object], target: dict[str, object], names: Mapping[str, str]) -> None:
    """Positive whole numbers of `source`, under the scenario's names."""
    for name, key in names.items():
        value = source.get(name)
        if type(value) is int and value > 0:
            target[key] = value


def copy_share(source: Mapping[str, object], target: dict[str, object], name: str) -> None:
    """A share of the card."""
    value = source.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        target[name] = float(value)


def copy_size(source: Mapping[str, object], target: dict[str, object], name: str) -> None:
    """A number above 0."""
    value = source.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        target[name] = float(value)


def copy_formats(source: Mapping[str, object], target: dict[str, object]) -> None:
    """Formats of weights and of the KV cache that scenarios know; engines name these settings as scenarios do."""
    for key, read in (("dtype", dtype_of), ("quantization", quantization_of), ("kv_cache_dtype", cache_dtype_of)):
        value = read(source.get(key))
        if value is not None:
            target[key] = value


def quantization_of(value: object) -> str | None:
    """A format of the weights that scenarios know; the model's own config tells the others."""
    if not isinstance(value, str):
        return None
    name = value.replace("_", "-").lower()
    if name == "none":
        return None
    return name if name in SERVE_QUANTIZATION or name in SERVE_QUANTIZATION_SPELLINGS else None


def dtype_of(value: object) -> str | None:
    """`torch.bfloat16` and `bfloat16`; auto is none."""
    if not isinstance(value, str):
        return None
    name = value.removeprefix("torch.")
    return name if name in ("bfloat16", "float16", "float32", "half", "fp16", "bf16", "fp32") else None


def cache_dtype_of(value: object) -> str | None:
    """A KV cache dtype that scenarios know."""
    known = {"fp8", "fp8_e4m3", "fp8_e5m2", "int8", "bfloat16", "float16", "nvfp4"}
    return value if isinstance(value, str) and value in known else None
