"""A checkpoint's `quantization_config`: the format of its weights, module by module.

Each method's keys are those that its readers read: transformers 5.23 `utils/quantization_config.py` and
`quantizers/quantizer_NAME.py`, vLLM 0.33.0 `model_executor/layers/quantization/NAME.py`. What a reader quantizes and no
key names is said beside the method.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from vramwise.errors import SourceError, UnsupportedModelError, clipped
from vramwise.formats.module_rules import ModuleRules, Rule
from vramwise.formats.quantization import QuantFormat, quantization

Table = Mapping[str, Any]

_ALGORITHMS = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8-dynamic", "FP8_PB_WO": "fp8", "MXFP8": "mxfp8", "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4", "MXFP4": "mxfp4", "W8A8_SQ_PER_CHANNEL": "w8a8",
}  # fmt: skip
_PB_WO_BLOCK = (128, 128)  # vLLM 0.33.0 modelopt.py ModelOptFp8PbWoLinearMethod
_NEVER = frozenset({"embedding", "norm", "router"})
"""What no list of linear layers means: a router is made without a format (vLLM 0.33.0, `quant_config=None`)."""
_TOWERS = frozenset({"vision", "audio", "speech", "projector"})
_OUTSIDE = _NEVER | {"head"}
_OUTSIDE_BUT_HEAD = _NEVER | _TOWERS
_HQQ = "hqq 0.2 core/quantize.py: W_q packed, scale and zero of a group in 16 bit"
_EETQ = "transformers 5.23 integrations/eetq.py: int8 weight, one fp16 scale an output"
_HEAD = ("lm_head",)
"""What transformers 5.23 leaves whole where a config names nothing (quantizers/base.py get_modules_to_not_convert)."""
_QUANTO = "optimum-quanto 0.2.7 nn/qmodule.py: a scale an output in 8 bits, scale and shift of 128 values below"
_TORCHAO = "torchao 0.18 quantization/quantize_/workflows: values, scales of a row or group"


@lru_cache(maxsize=256)
def _remembered(content: str) -> ModuleRules:
    return _read(json.loads(content))


def module_rules(table: Table, model_id: str) -> ModuleRules:
    """What the table says. Raises UnsupportedModelError for a method that is not described."""
    try:
        return _remembered(json.dumps(table))
    except UnsupportedModelError as problem:
        raise UnsupportedModelError(f"{model_id or 'model'}: {problem}") from None


AS_NAMED = "as_named"
"""A key of ours: what checkpoints of such a name commonly have, not what a config says."""
EXPERTS_IN_FILES = "experts_in_files"
"""Of a checkpoint of bitsandbytes: its experts were linear layers when it was written, and are quantized with them."""
HEAD_IN_FILES = "head_in_files"
"""A key of ours: the checkpoint is known to hold an output layer, whatever its config says of tying."""


def method_of(table: Table) -> str:
    """What quantized the checkpoint: `fp8`, `awq`, `compressed-tensors`, …"""
    return str(table.get("quant_method") or ("modelopt" if table.get("quant_algo") else "")).lower()


def _read(table: Table) -> ModuleRules:
    method = method_of(table)
    reader = _READERS.get(method)
    found = reader(table) if reader is not None else _by_groups(table)
    if found is None:
        raise UnsupportedModelError(f'quantization_config "{method[:60]}" is not described yet')
    return found


def _names(table: Table, *keys: str) -> list[str] | None:
    """The first of the lists that is there, as text."""
    for key in keys:
        value = table.get(key)
        if isinstance(value, list | tuple):
            return [str(name) for name in value]
    return None


def _skipping(found: QuantFormat, names: Iterable[str] | None) -> ModuleRules:
    return ModuleRules(found, found, tuple(Rule(name, None) for name in names or ()))


def _with_head(found: QuantFormat, quantizes_head: bool) -> QuantFormat:
    return replace(found, skipped_parts=found.skipped_parts - {"head"}) if quantizes_head else found


def _fp8(table: Table) -> ModuleRules:
    """vLLM fp8.py reads `ignored_layers`, then `modules_to_not_convert`; the head is no linear layer to it."""
    found = quantization("fp8", None, _block(table.get("weight_block_size")))
    names = _names(table, "ignored_layers") or _names(table, "modules_to_not_convert")
    skipping = _skipping(found, names)
    named = _named_layers(table)
    return replace(skipping, rules=(*named, *skipping.rules)) if named else skipping


def _fp8_by_channel(table: Table) -> ModuleRules:
    names = _names(table, "modules_to_not_convert", "ignored_layers")
    return _skipping(quantization("fp8-dynamic"), names)


def _awq(table: Table) -> ModuleRules:
    """AutoAWQ replaces the linear layers of decoder layers, so no tower; `lm_head` where it says so."""
    found = quantization("awq", _group(table, "group_size", "q_group_size"))
    return _skipping(_with_head(found, table.get("lm_head") is True), _names(table, "modules_to_not_convert"))


def _gptq(table: Table) -> ModuleRules:
    """`dynamic`: `-:` leaves out, anything else overrides; `modules_in_block_to_quantize`: those and no others."""
    found = _with_head(_gptq_format(table, {}), table.get("lm_head") is True)
    rules = []
    dynamic = table.get("dynamic")
    for pattern, changes in dynamic.items() if isinstance(dynamic, Mapping) else ():
        if str(pattern).startswith("-:"):
            rules.append(Rule(f"re:{str(pattern)[2:]}", None))
        elif isinstance(changes, Mapping):
            own = replace(_gptq_format(table, changes), skipped_parts=found.skipped_parts)
            rules.append(Rule(f"re:{str(pattern).removeprefix('+:')}", own))
    rules += [Rule(name, None) for name in _names(table, "modules_to_not_convert") or ()]
    inside = table.get("modules_in_block_to_quantize")
    if not isinstance(inside, list) or not inside:
        return ModuleRules(found, found, tuple(rules))
    named = [name for group in inside for name in (group if isinstance(group, list) else [group])]
    return ModuleRules(found, None, (*rules, *(Rule(str(name), found) for name in named)))


def _gptq_format(table: Table, changes: Table) -> QuantFormat:
    bits = changes.get("bits", table.get("bits"))
    given = changes.get("group_size", table.get("group_size"))
    group = given if isinstance(given, int) and given else None
    found = quantization("gptq-int8" if bits == 8 else "gptq", group)
    return replace(found, bits=bits) if bits in (2, 3) else found


def _bitsandbytes(table: Table) -> ModuleRules:
    """transformers' base.py get_modules_to_not_convert: the head is left out by default, a list replaces that."""
    eight = table.get("load_in_8bit") or table.get("_load_in_8bit")
    four = "fp4" if table.get("bnb_4bit_quant_type") == "fp4" else "nf4"
    double = four == "nf4" and table.get("bnb_4bit_use_double_quant")
    found = quantization("int8" if eight else "nf4-dq" if double else four)
    found = replace(found, quantizes_fused_experts=table.get(EXPERTS_IN_FILES) is True)
    names = _names(table, "llm_int8_skip_modules", "modules_to_not_convert")
    return _skipping(_with_head(found, bool(names)), names)


def _mxfp4(table: Table) -> ModuleRules:
    """Experts alone: both readers leave linear layers as they are."""
    return _skipping(quantization("mxfp4"), _names(table, "modules_to_not_convert"))


def _hqq(table: Table) -> ModuleRules:
    given = table.get("quant_config")
    outer = given if isinstance(given, Mapping) else {}
    skipped = [Rule(name, None) for name in _names(table, "skip_modules") or _HEAD]
    if "weight_quant_params" in outer:
        found = _hqq_format(outer)
        return ModuleRules(found, found, tuple(skipped))
    rules = [Rule(str(name), _hqq_format(how)) for name, how in outer.items() if isinstance(how, Mapping)]
    formats = [rule.format for rule in rules if rule.format is not None] or [_hqq_format({})]
    return ModuleRules(min(formats, key=lambda one: one.bits), None, (*skipped, *rules))


def _hqq_format(table: Table) -> QuantFormat:
    inner = table.get("weight_quant_params")
    values = inner if isinstance(inner, Mapping) else {}
    bits, group = values.get("nbits", 4), values.get("group_size", 64)
    bits = bits if bits in (1, 2, 3, 4, 8) else 4
    group = group if isinstance(group, int) and group > 0 else -1
    return _one_of_ours(f"hqq-int{bits}", bits, group, _HQQ, "half-zeros")


def _eetq(table: Table) -> ModuleRules:
    found = _one_of_ours("eetq-int8", 8, 0, _EETQ, "half-scales")
    return _skipping(found, _names(table, "modules_to_not_convert") or _HEAD)


def _quanto(table: Table) -> ModuleRules | None:
    """`weights`: int8 and float8 with a scale an output, int4 and int2 in groups of 128."""
    kind = str(table.get("weights") or "int8")
    bits = {"int8": 8, "float8": 8, "int4": 4, "int2": 2}.get(kind)
    if bits is None:
        return None
    group, layout = (0, "half-scales") if bits == 8 else (128, "half-zeros")
    found = _one_of_ours(f"quanto-{kind}", bits, group, _QUANTO, layout)
    return _skipping(found, _names(table, "modules_to_not_convert") or _HEAD)


def _one_of_ours(name: str, bits: int, group: int, source: str, layout: str) -> QuantFormat:
    return QuantFormat(name, bits, group, source, layout, skipped_parts=_OUTSIDE, quantizes_fused_experts=False)


def _torchao(table: Table) -> ModuleRules | None:
    """`quant_type`: one configuration, or one for each module (`FqnToConfig`, `_default` for the rest)."""
    outer = table.get("quant_type")
    default = outer.get("default") if isinstance(outer, Mapping) else outer
    skipped = [Rule(name, None) for name in _names(table, "modules_to_not_convert") or ()]
    if not isinstance(default, Mapping):
        found = _torchao_format(str(default or ""), table.get("quant_type_kwargs") or {})
        return None if found is None else ModuleRules(found, found, tuple(skipped))
    kind, data = str(default.get("_type") or ""), default.get("_data")
    values = data if isinstance(data, Mapping) else {}
    if kind not in ("ModuleFqnToConfig", "FqnToConfig"):
        found = _torchao_format(kind, values)
        return None if found is None else ModuleRules(found, found, tuple(skipped))
    by_name = values.get("fqn_to_config") or values.get("module_fqn_to_config")
    rest, rules = None, []
    for name, how in by_name.items() if isinstance(by_name, Mapping) else ():
        inner = how if isinstance(how, Mapping) else {}
        own = inner.get("_data")
        found = _torchao_format(str(inner.get("_type") or ""), own if isinstance(own, Mapping) else {})
        if how is not None and found is None:
            return None
        if name == "_default":
            rest = found
        else:
            rules.append(Rule(str(name), found))
    formats = [one for one in (rest, *(rule.format for rule in rules)) if one is not None]
    if not formats:
        return None
    return ModuleRules(min(formats, key=lambda one: one.bits), rest, (*skipped, *rules))


def _torchao_format(kind: str, values: Table) -> QuantFormat | None:
    """As version 2 of each configuration packs a weight: fp32 scales, and int8 zero points of integers."""
    said = json.dumps(values.get("granularity") or "")
    inner = values.get("granularity")
    data = inner.get("_data") if isinstance(inner, Mapping) else None
    group = _group(values, "group_size") or (_group(data, "group_size") if isinstance(data, Mapping) else None)
    name = kind.lower().replace("_", "").removesuffix("config")
    if name.startswith("int4weightonly"):
        return _one_of_ours("torchao-int4", 4, group or 128, _TORCHAO, "half-zeros")
    if name.startswith(("int8weightonly", "int8dynamicactivationint8")):
        return _one_of_ours("torchao-int8", 8, group or 0, _TORCHAO, "int8-zeros")
    if name.startswith("float8"):
        by_row = "PerRow" in said or (name.startswith("float8weightonly") and "PerTensor" not in said)
        return _one_of_ours("torchao-fp8", 8, int(by_row), _TORCHAO, "fp32-scales")
    return None


def _by_groups(table: Table) -> ModuleRules | None:
    """compressed-tensors and ModelOpt.

    A name or expression among targets goes before a class of layers (vLLM compressed_tensors/utils.py
    find_matched_target); what `ignore` has goes before both. ModelOpt's `exclude_modules` are patterns, and
    `quantized_layers` name every layer that is quantized.
    """
    names = _names(table, "ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers")
    ignored = tuple(Rule(name, None) for name in names or ())
    named = _named_layers(table)
    if named:
        every = [rule for rule in named if rule.format is not None]
        layers = [rule for rule in every if "experts" not in rule.pattern.split(".")] or every
        main = min((rule.format for rule in layers if rule.format is not None), key=lambda one: one.bits)
        return ModuleRules(main, None, (*ignored, *named))
    groups = _groups_of(table)
    if not groups:
        algorithm = _ALGORITHMS.get(str(table.get("quant_algo") or "").upper())
        if algorithm is None:
            return None
        found = _by_algorithm(table, algorithm, names)
        return ModuleRules(found, found, ignored)
    whole: QuantFormat | None = None
    rules: list[Rule] = []
    for found, targets in groups:
        own = _covering(found, names, targets)
        classes = [target for target in targets if target.isalnum() and target[0].isupper()]
        rules += [Rule(target, own) for target in targets if target not in classes]
        if not targets or any("linear" in target.lower() for target in classes):
            whole = whole or own
    main = min((found for found, _ in groups), key=lambda one: one.bits)
    main = next((rule.format for rule in rules if rule.format is not None and rule.format.bits == main.bits), main)
    return ModuleRules(whole if whole is not None and whole.bits == main.bits else main, whole, (*ignored, *rules))


def _by_algorithm(table: Table, algorithm: str, names: list[str] | None) -> QuantFormat:
    block = _PB_WO_BLOCK if str(table.get("quant_algo")).upper() == "FP8_PB_WO" else None
    found = quantization(algorithm, _group(table, "group_size"), block)
    return found if names is None else replace(found, skipped_parts=found.skipped_parts - {"head"})


def _covering(found: QuantFormat, names: list[str] | None, targets: list[str]) -> QuantFormat:
    """A target `Linear` means the head too, but for what the list of ignored modules has.

    Towers of images and sound stay as they are: lists mostly leave them out by name, and where one does not, vLLM does
    (0.33.0 modelopt.py get_quant_method, kimi_k25.py _maybe_ignore_quant_config).
    """
    if names is None or not targets:
        return found
    return replace(found, skipped_parts=_OUTSIDE_BUT_HEAD, only_parts=frozenset())


def _groups_of(table: Table) -> list[tuple[QuantFormat, list[str]]]:
    groups = table.get("config_groups")
    found = []
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            continue  # activations or a cache alone
        own = _weights_format(weights, str(group.get("format") or table.get("format") or ""))
        if own is None:
            return []
        found.append((own, _names(group, "targets") or []))
    return found


def _weights_format(weights: Table, packing: str) -> QuantFormat | None:
    bits, kind, group = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    group = group if isinstance(group, int) else None
    if kind == "float" and bits == 4:
        return quantization("mxfp4" if group == 32 else "nvfp4")
    if kind == "float" and bits == 8:
        if group == 32:
            return quantization("mxfp8")
        shape = weights.get("block_structure")
        block = _block(shape) if isinstance(shape, list) else None
        if block is not None:
            return quantization("fp8", None, block)
        return quantization("fp8-dynamic" if weights.get("strategy") == "channel" else "fp8")
    if kind != "int" or bits not in (2, 3, 4, 8):
        return None
    if bits == 8 and packing != "pack-quantized":
        return quantization("w8a8")
    found = quantization("w4a16", group if group is not None else -1)
    layout = "packed-zeros" if weights.get("symmetric") is False else "packed"
    return found if bits == 4 and layout == found.layout else replace(found, bits=bits, layout=layout)


def _named_layers(table: Table) -> tuple[Rule, ...]:
    """ModelOpt's `quantized_layers`: each module that is quantized, with its algorithm; listed or as a table."""
    named = table.get("quantized_layers")
    rows: list[tuple[Iterable[Any], Any]] = []
    if isinstance(named, Mapping):
        rows = [([name], how) for name, how in named.items()]
    elif isinstance(named, list | tuple):
        rows = [(_names(row, "modules") or (), row) for row in named if isinstance(row, Mapping)]
    rules = []
    for modules, how in rows:
        algorithm = _ALGORITHMS.get(str(how.get("quant_algo")).upper()) if isinstance(how, Mapping) else None
        if algorithm is None:
            continue
        found = quantization(algorithm, _group(how, "group_size"))
        own = replace(found, skipped_parts=_NEVER, only_parts=frozenset())
        rules += [Rule(str(name), own) for name in modules]
    return tuple(rules)


def _block(value: object) -> tuple[int, int] | None:
    """Rows and columns that share a scale. Raises SourceError for anything else that is there."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2 or any(type(size) is not int for size in value):
        raise SourceError(f"weight_block_size: expected two whole numbers, got {clipped(repr(value))}")
    return value[0], value[1]


def _group(table: Table, *keys: str) -> int | None:
    for key in keys:
        value = table.get(key)
        if isinstance(value, int) and value:
            return value
    return None


_READERS: dict[str, Callable[[Table], ModuleRules | None]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8_by_channel,
    "ptpc_fp8": _fp8_by_channel,
    "awq": _awq,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "hqq": _hqq,
    "eetq": _eetq,
    "quanto": _quanto,
    "torchao": _torchao,
}
