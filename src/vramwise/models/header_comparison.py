"""What a checkpoint's headers say otherwise than its config: dtypes, shapes, tensors more and fewer, layers kept whole.

Loaders cast to the dtype that was asked for or stated, so another dtype in the files is said and not counted; a weight
that the config calls quantized and the files hold whole stays whole in memory, as it does where it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from vramwise.errors import clipped
from vramwise.formats.safetensors import StoredTensor
from vramwise.models.blocks import Parameter
from vramwise.models.file_names import single_experts, spellings
from vramwise.models.model import Model
from vramwise.models.tensors_only import is_buffer
from vramwise.records import record
from vramwise.units import format_bytes

FLOATS = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16"}
LEAST_SHARE = 0.5
"""Of the parameters that must be found by name before what is missing means anything."""
_SHOWN = 2
_PREDICTION = re.compile(r"(^|\.)(mtp|nextn|eagle)[._]")
_NUMBER = re.compile(r"\.\d+\.")


@record
class HeaderFindings:
    """Sentences for notes, and modules whose weights the files hold whole though the config says quantized."""

    notes: tuple[str, ...] = ()
    whole: frozenset[str] = frozenset()


def most_common_dtype(tensors: Iterable[StoredTensor]) -> str | None:
    """The dtype of most floating-point bytes; None where there are none."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.dtype in FLOATS:
            sizes[FLOATS[tensor.dtype]] = sizes.get(FLOATS[tensor.dtype], 0) + tensor.bytes
    return max(sizes, key=sizes.__getitem__) if sizes else None


def compared(
    model: Model, tensors: Iterable[StoredTensor], dtype: str, quantizes: Callable[[Parameter], bool], *,
    are_all: bool = True,
) -> HeaderFindings:  # fmt: skip
    """`dtype` is what the config states or is taken to, `quantizes` what its `quantization_config` says of a weight.

    Where not all of the files' tensors are known (`are_all`), none is missed, and a weight that is held whole in every
    layer that was read is in the others too.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    used: set[str] = set()
    found = {p.name: one for p in model.all_parameters if (one := _stored(p, by_name, used)) is not None}
    own = [p for p in model.parameters if not _has_parts(p, by_name, used)]
    sure = sum(p.numel for p in model.parameters) - sum(p.numel for p in own if p.name not in found)
    least = LEAST_SHARE * model.num_parameters if are_all else 1
    if sure < least:
        return HeaderFindings(("tensors of the files have other names than the class's: they are not compared",))
    notes: list[str] = []
    wide = [found[p.name] for p in model.parameters if p.name in found and _is_other(found[p.name], dtype)]
    for kind in sorted({one.dtype for one in wide}):
        same = [one for one in wide if one.dtype == kind]
        notes.append(f"the files hold {_named(same)} in {FLOATS[kind]}, not {dtype}: what loads them casts")
    whole = [p for p in model.parameters if p.name in found and quantizes(p) and found[p.name].dtype in FLOATS]
    if not are_all:
        unread = [p for p in own if p.name not in found]
        packed = {p.name for p in model.parameters if p.name not in found} - {p.name for p in unread}
        stored_so = {name for name, one in found.items() if one.dtype not in FLOATS}
        whole = _in_every_layer(whole, unread, packed | stored_so, quantizes)
    if whole:
        held = _named([found[p.name] for p in whole if p.name in found])
        notes.append(f"the files hold {held} unquantized though quantization_config does not leave it out: counted so")
    shapes = [found[p.name] for p in model.parameters if p.name in found and _has_other_shape(p, found[p.name])]
    if shapes:
        notes.append(f"the files hold {_named(shapes)} in another shape than the config gives: the config's is counted")
    missing = [p for p in own if p.name not in found] if are_all else []
    if missing:
        numbers = f"{sum(p.numel for p in missing):,} values"
        notes.append(
            f"the files lack {_collapsed([p.name for p in missing])} ({numbers}), which the class has: counted"
        )
    twice = [found[p.name] for p in model.all_parameters if p.tied_to is not None and p.name in found]
    if twice:
        notes.append(f"the files hold {_named(twice)} although it is tied: one copy is loaded")
    extra = [tensor for name, tensor in by_name.items() if name not in used and not is_buffer(name)]
    ahead = [one for one in extra if _PREDICTION.search(one.name) or _is_later_layer(one.name, model)]
    rest = [one for one in extra if one not in set(ahead)] if ahead else extra
    if ahead:
        notes.append(f"the files hold {_named(ahead)}, which predicts further tokens: not loaded without it")
    if rest:
        notes.append(f"the files hold {_named(rest)}, which the class does not have: not loaded")
    return HeaderFindings(tuple(notes), frozenset(p.name for p in whole))


def _stored(p: Parameter, by_name: Mapping[str, StoredTensor], used: set[str]) -> StoredTensor | None:
    """The parameter's tensor under one of its names; what belongs to it (scales, zero points) counts as met."""
    last = p.name.rpartition(".")[2]
    for module in spellings(p.module) if p.module else ("",):
        name = f"{module}.{last}" if module else last
        if name in by_name:
            used.add(name)
            used.update(f"{module}.{part}" for part in _PARTS if f"{module}.{part}" in by_name)
            return by_name[name]
    return None


_PARTS = (
    "weight_scale", "weight_scale_inv", "weight_scale_2", "input_scale", "weight_zero_point", "weight_shape", "SCB",
    "weight_packed", "weight_global_scale", "input_global_scale", "weight_g_idx", "qweight", "qzeros", "scales",
    "g_idx",
    "weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map", "weight_format",
    "weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4", "weight_scales", "W_q", "weight",
    "k_scale", "v_scale", "bias",
)  # fmt: skip


def _has_parts(p: Parameter, by_name: Mapping[str, StoredTensor], used: set[str]) -> bool:
    """Whether the files hold a weight in packed parts, expert by expert, or as layers that the class joins."""
    names = [part for group in single_experts(p.name) for part in group]
    last = p.name.rpartition(".")[2]
    modules = [*spellings(p.module), *spellings(p.name)]
    met = [f"{m}.{part}" for m in modules for part in _PARTS if f"{m}.{part}" in by_name] if last == "weight" else []
    met += [f"{p.name}{end}" for end in ("_blocks", "_scales") if f"{p.name}{end}" in by_name]
    for first in names:
        if any(f"{first}.{part}" in by_name for part in _PARTS):
            stack, _, own = first.rpartition(".0.")
            pattern = [f"{stack}.{i}.{own}.{part}" for i in range(p.shape[0]) for part in _PARTS]
            met += [name for name in pattern if name in by_name]
    used.update(met)
    return bool(met) and p.name not in by_name


def _in_every_layer(
    whole: list[Parameter], unread: list[Parameter], held: set[str], quantizes: Callable[[Parameter], bool]
) -> list[Parameter]:
    """`whole`, and their likes among `unread` where none of the likes is `held` quantized."""
    kinds = {_kind(p.name) for p in whole} - {_kind(name) for name in held}
    return [*whole, *(p for p in unread if quantizes(p) and _kind(p.name) in kinds)]


def _kind(name: str) -> str:
    """A name with `*` for the numbers of its layers."""
    return _NUMBER.sub(".*.", name)


def _is_other(tensor: StoredTensor, dtype: str) -> bool:
    return tensor.dtype in FLOATS and FLOATS[tensor.dtype] != dtype


def _has_other_shape(p: Parameter, tensor: StoredTensor) -> bool:
    return tensor.dtype in FLOATS and tensor.numel != p.numel


def _is_later_layer(name: str, model: Model) -> bool:
    numbers = re.findall(r"(?:^|\.)layers\.(\d+)\.", name)
    return bool(numbers) and int(numbers[0][:9]) >= model.num_layers


def _named(tensors: list[StoredTensor]) -> str:
    size = format_bytes(sum(tensor.bytes for tensor in tensors), "auto")
    return f"{_collapsed([tensor.name for tensor in tensors])} ({size})"


def _collapsed(names: list[str]) -> str:
    """Names with `*` for their layers, the first few of them."""
    kinds = list(dict.fromkeys(map(_kind, names)))
    shown = ", ".join(clipped(kind, 80) for kind in kinds[:_SHOWN])
    return f"{shown} and {len(kinds) - _SHOWN:,} kinds more" if len(kinds) > _SHOWN else shown
