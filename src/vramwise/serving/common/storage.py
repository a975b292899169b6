"""How an engine stores the weights: the dtype of what stays in high precision and the quantization of the rest.

A checkpoint says it in `quantization_config`; a scenario may ask for another format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from vramwise.errors import UnsupportedModelError
from vramwise.formats import QuantFormat, dtype, quantization
from vramwise.models import Model, Parameter
from vramwise.models.checkpoint_dtype import checkpoint_dtype, stated_dtype
from vramwise.records import record

Ignored = tuple[str, ...]


@record
class Storage:
    """`dtype` of embeddings, norms and all else that `quantization` leaves alone.

    `ignored` names modules that the checkpoint keeps in high precision (`modules_to_not_convert`, `ignore`).
    `experts`: the format of routed experts where it is another one (`expert_dtype` of DeepSeek V4).
    """

    dtype: str
    quantization: QuantFormat | None = None
    ignored: Ignored = ()
    experts: QuantFormat | None = None

    def rule_for(self, parameter: Parameter) -> QuantFormat | None:
        """The format of this weight; None where it stays in `dtype`."""
        if not self.quantizes(parameter):
            return None
        return self.experts if self.experts is not None and parameter.part == "experts" else self.quantization

    @property
    def bytes_per_element(self) -> int:
        return dtype(self.dtype).bits // 8

    def quantizes(self, parameter: Parameter) -> bool:
        """Whether this weight is replaced by quantized tensors."""
        rule = self.quantization
        if rule is None or len(parameter.shape) < 2:
            return False
        if not rule.quantizes(parameter.part, parameter.shape, parameter.is_linear):
            return False
        return not (self.ignored and _is_ignored(parameter.module, self.ignored))


def dtype_notes(model: Model, wanted: str) -> tuple[str, ...]:
    """Says so when the dtype is an assumption."""
    if wanted != "auto" or stated_dtype(model.config.values) is not None:
        return ()
    return (f"the config states no dtype: {checkpoint_dtype(model.config.values)} is assumed, say dtype to change it",)


_SAME_TENSORS = {"awq-marlin": "awq-int4"}  # the kernel repacks AWQ's tensors, zero points included


@lru_cache(maxsize=1024)
def storage_of(model: Model, wanted_dtype: str, wanted: str | None, group_size: int | None) -> Storage:
    """Storage of `model` for the dtype and quantization that were asked for, else the checkpoint's own."""
    base = checkpoint_dtype(model.config.values) if wanted_dtype == "auto" else dtype(wanted_dtype).name
    table = _quantization_table(model)
    own = _format_of(table, model.id) if table is not None else None
    if wanted is None:
        return Storage(base) if own is None else Storage(base, own, _ignored(table), _expert_format(model))
    asked = quantization(_SAME_TENSORS.get(wanted, wanted), group_size)
    if own is not None and own.layout == asked.layout and own.bits == asked.bits:
        return Storage(base, own, _ignored(table), _expert_format(model))
    return Storage(base, asked)


def _expert_format(model: Model) -> QuantFormat | None:
    """4-bit experts beside 8-bit layers: as named layer by layer, else blocks of 32 (vLLM's config_utils.py)."""
    named = _named_formats(_quantization_table(model) or {})
    if named is not None:
        return named[1]
    return quantization("mxfp4") if model.config.get("expert_dtype") == "fp4" else None


_ALGORITHMS = {"FP8": "fp8", "MXFP8": "mxfp8", "NVFP4": "nvfp4"}


def _named_formats(table: Mapping[str, object]) -> tuple[QuantFormat, QuantFormat] | None:
    """modelopt's `quantized_layers` without groups: the format of layers and that of routed experts, if one each."""
    named = table.get("quantized_layers")
    if not named or table.get("config_groups"):
        return None
    if isinstance(named, Mapping):
        rows = [([name], how) for name, how in named.items()]
    else:
        listed = named if isinstance(named, list | tuple) else ()
        rows = [(row.get("modules", ()), row) for row in listed if isinstance(row, Mapping)]
    found: tuple[set[str], set[str]] = (set(), set())
    for modules, how in rows:
        for name in modules:
            found["experts" in name.split(".")].add(str(how.get("quant_algo")).upper())
    layers, experts = found
    if len(layers) != 1 or len(experts) != 1 or not layers | experts <= _ALGORITHMS.keys():
        return None
    return quantization(_ALGORITHMS[layers.pop()]), quantization(_ALGORITHMS[experts.pop()])


def _quantization_table(model: Model) -> Mapping[str, object] | None:
    config = model.config
    nested = config.table("text_config")
    for table in (config, nested):
        found = table.get("quantization_config") if table is not None else None
        if isinstance(found, Mapping):
            return found
    return None


def quantization_method(model: Model) -> str:
    """What quantized the checkpoint (`fp8`, `awq`, `compressed-tensors`, …); empty where nothing did."""
    table = _quantization_table(model)
    return "" if table is None else _method_of(table)


def own_method(model: Model, storage: Storage) -> str:
    """What quantized the weights that `storage` holds as the checkpoint has them; empty where another format was asked
    for, or none."""
    table = _quantization_table(model)
    if table is None or storage.quantization != _format_of(table, model.id):
        return ""
    return _method_of(table)


def _method_of(table: Mapping[str, object]) -> str:
    return str(table.get("quant_method") or ("modelopt" if table.get("quant_algo") else "")).lower()


def _format_of(table: Mapping[str, object], model_id: str) -> QuantFormat:
    """The format that a `quantization_config` describes."""
    method = _method_of(table)
    bits = table.get("bits")
    group = table.get("group_size")
    group_size = group if isinstance(group, int) and group else None
    block = table.get("weight_block_size")
    if method == "fp8":
        return quantization("fp8", None, tuple(block) if isinstance(block, list) else None)
    if method in ("fbgemm_fp8", "ptpc_fp8"):
        return quantization("fp8-dynamic")
    if method in ("awq", "gptq", "mxfp4"):
        return quantization("gptq-int8" if method == "gptq" and bits == 8 else method, group_size)
    if method == "bitsandbytes":
        if table.get("load_in_8bit"):
            return quantization("int8")
        return quantization("nf4-dq" if table.get("bnb_4bit_use_double_quant") else "nf4")
    found = _grouped_format(table)
    if found is None:
        raise UnsupportedModelError(f'{model_id or "model"}: quantization_config "{method}" is not described yet')
    return found


def _grouped_format(table: Mapping[str, object]) -> QuantFormat | None:
    """compressed-tensors and modelopt: the group with the fewest bits stands for all quantized layers."""
    groups = table.get("config_groups")
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    algorithm = str(table.get("quant_algo") or "").upper()
    named = _named_formats(table)
    if named is not None:
        return named[0]
    if not weights:
        return quantization(_ALGORITHMS[algorithm]) if algorithm in _ALGORITHMS else None
    rule = min(weights, key=_bits_of)
    bits, kind, group = rule.get("num_bits"), rule.get("type"), rule.get("group_size")
    if kind == "float" and bits == 4:
        return quantization("mxfp4" if group == 32 else "nvfp4")
    if kind == "float" and bits == 8:
        block = rule.get("block_structure")
        if isinstance(block, list) and len(block) == 2 and all(isinstance(size, int) for size in block):
            return quantization("fp8", None, (int(block[0]), int(block[1])))
        return quantization("fp8-dynamic" if rule.get("strategy") == "channel" else "fp8")
    if kind == "int" and bits == 4:
        return quantization("w4a16", group if isinstance(group, int) else -1)
    return quantization("w8a8") if kind == "int" and bits == 8 else None


def _bits_of(weights: Mapping[str, object]) -> int:
    bits = weights.get("num_bits")
    return bits if isinstance(bits, int) and bits else 16


def _ignored(table: Mapping[str, object] | None) -> Ignored:
    if table is None:
        return ()
    for key in ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"):
        names = table.get(key)
        if isinstance(names, list):
            return tuple(str(name) for name in names)
    return ()


@lru_cache(maxsize=64)
def _matchers(ignored: Ignored) -> tuple[frozenset[str], tuple[str, ...], tuple[re.Pattern[str], ...]]:
    plain = frozenset(name for name in ignored if not name.startswith("re:") and "*" not in name)
    globs = tuple(name for name in ignored if "*" in name and not name.startswith("re:"))
    patterns = tuple(re.compile(name[3:]) for name in ignored if name.startswith("re:"))
    return plain, globs, patterns


def _is_ignored(module: str, ignored: Ignored) -> bool:
    plain, globs, patterns = _matchers(ignored)
    if plain:
        pieces = module.split(".")
        for start in range(len(pieces)):
            for stop in range(start + 1, len(pieces) + 1):
                if ".".join(pieces[start:stop]) in plain:
                    return True
    return any(fnmatchcase(module, g) or fnmatchcase(module, f"{g}.*") for g in globs) or any(
        pattern.match(module) for pattern in patterns
    )
