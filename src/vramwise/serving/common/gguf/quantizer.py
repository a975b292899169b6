"""Which type the quantizer gives to each tensor of a file type.

Source: ggml-org/llama.cpp src/llama-quant.cpp llama_tensor_get_type. One-dimensional tensors, norms and routers stay
F32.
"""

from __future__ import annotations

import re
from functools import lru_cache

from vramwise.formats import GgufType
from vramwise.models import Model
from vramwise.models.operations.attention import HeadedAttention
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.serving.common.gguf.tensors import KEPT_IN_16_BITS, LOOKED_UP, GgufTensor, gguf_tensors
from vramwise.serving.common.gguf.types import fitting, tensor_type

_DEFAULT = {
    "Q4_K_S": "Q4_K", "Q4_K_M": "Q4_K", "Q4_K_L": "Q4_K", "Q5_K_S": "Q5_K", "Q5_K_M": "Q5_K", "Q3_K_S": "Q3_K",
    "Q3_K_M": "Q3_K", "Q3_K_L": "Q3_K", "Q3_K_XL": "Q3_K", "Q2_K_S": "Q2_K", "Q2_K_L": "Q2_K", "IQ2_S": "IQ2_XS",
    "IQ2_M": "IQ2_S", "IQ3_XS": "IQ3_S", "IQ3_M": "IQ3_S", "IQ3_KL": "IQ3_K", "MXFP4_MOE": "Q8_0",
}  # fmt: skip
_PLAIN = ("F32", "F16", "BF16")
_IQ1 = ("IQ1_S", "IQ1_M")
_IQ2 = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M")
_IQ2_LARGE = ("IQ2_S", "IQ2_M")
TYPES_BY_IMATRIX = frozenset({"IQ3_XXS", "IQ4_NL", "IQ4_XS", "Q4_0", "Q5_0"})
"""Types of files some of whose tensors have another type where an importance matrix was given."""
_EIGHT_EXPERT_OUTPUT = (
    "Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS",
)  # fmt: skip
_LLAMA_70B_LAYERS = 80
_VALUES = frozenset({"attn_v", "attn_qkv"})
_BY_LAYER = ("ffn_down", "ffn_gate", "ffn_up")
"""With the values what may have another type in another layer."""


@record
class _File:
    """What the rule looks at besides the tensor."""

    file_type: str
    num_layers: int
    grouped: int
    num_experts: int
    imatrix: bool
    is_70b: bool
    is_falcon: bool
    experts_in_mxfp4: bool
    tied_tables: tuple[str, ...]
    """Tables of embeddings that get the output's type where there is no output."""

    values: tuple[int, ...]
    downs: tuple[int, ...]
    """Layers with values, and layers with an MLP, which the rule counts; where there are experts it counts layers."""


@record
class TypedTensor:
    """A tensor with its type and bytes."""

    tensor: GgufTensor
    type: GgufType
    size_in_file: int | None = None

    @property
    def bytes(self) -> int:
        return self.type.bytes_for(self.tensor.shape) if self.size_in_file is None else self.size_in_file


_IN_FILE = re.compile(r"(?:blk\.(\d+)\.)?([\w.]+?)(?:\.weight)?")


@lru_cache(maxsize=16)
def file_tensors(model: Model) -> tuple[TypedTensor, ...]:
    """The tensors of the GGUF file that the model was read from; empty for any other model."""
    rows = model.config.get("gguf_tensors")
    found = []
    for name, shape, kind, size in rows if isinstance(rows, list) else ():
        match = _IN_FILE.fullmatch(str(name))
        layer, short = match.groups() if match else (None, str(name))
        tensor = GgufTensor(short, tuple(shape), None if layer is None else int(layer), len(shape) > 1)
        found.append(TypedTensor(tensor, _type_in_file(kind), size))
    return tuple(found)


def _type_in_file(kind: str) -> GgufType:
    """The type by name; for one that has none here, one block stands for it (its bytes are known)."""
    return GgufType(kind, 32, 0) if kind.startswith("type ") else tensor_type(kind)


@lru_cache(maxsize=256)
def typed_tensors(model: Model, file_type: str, imatrix: bool) -> tuple[TypedTensor, ...]:
    """Every tensor of the file with its type: those of a given file, else what the quantizer would make."""
    given = file_tensors(model)
    if given:
        return given
    tensors = gguf_tensors(model)
    file = _file(model, tensors, file_type, imatrix)
    tied = not any(tensor.name == "output" for tensor in tensors)
    types: dict[tuple[object, ...], GgufType] = {}
    typed = []
    for tensor in tensors:
        by_layer = tensor.layer if tensor.name in _VALUES or tensor.name.startswith(_BY_LAYER) else None
        key = tensor.name, tensor.shape[-1], tensor.quantizable, by_layer
        if key not in types:
            types[key] = _typed(tensor, file, tied)
        typed.append(TypedTensor(tensor, types[key]))
    return tuple(typed)


def _file(model: Model, tensors: tuple[GgufTensor, ...], file_type: str, imatrix: bool) -> _File:
    groups = (
        op.num_heads // cache.num_key_value_heads
        for block in model.layers()
        for op in block.operations(HeadedAttention)
        for cache in block.caches
        if cache.num_key_value_heads
    )
    grouped = next(groups, 1)
    experts = max((op.num_experts for block in model.layers() for op in block.operations(ExpertMlps)), default=0)
    is_70b = model.num_layers == _LLAMA_70B_LAYERS and grouped > 1
    is_falcon = has_fact("llama.cpp", "own_mixes", model.config.model_type)
    mxfp4 = published_in_mxfp4(model)
    values = tuple(sorted(t.layer or 0 for t in tensors if t.name in _VALUES))
    downs = tuple(sorted(t.layer or 0 for t in tensors if t.name == "ffn_down")) if experts < 2 else ()
    layers_apart = has_fact("llama.cpp", "layer_tables_untied", model.config.model_type)
    tables = LOOKED_UP[:1] if layers_apart else LOOKED_UP
    return _File(
        file_type, model.num_layers, grouped, experts, imatrix, is_70b, is_falcon, mxfp4, tables, values, downs
    )  # fmt: skip


def published_in_mxfp4(model: Model) -> bool:
    """Whether the checkpoint's experts are MXFP4 already: conversion copies them into every file (gpt-oss)."""
    table = model.config.get("quantization_config")
    return isinstance(table, dict) and table.get("quant_method") == "mxfp4"


def _typed(tensor: GgufTensor, file: _File, tied: bool) -> GgufType:
    if not tensor.quantizable:
        return tensor_type("F32")
    if file.experts_in_mxfp4 and tensor.name.endswith("_exps"):
        return tensor_type("MXFP4")
    if tensor.name in KEPT_IN_16_BITS:
        return tensor_type("F32" if file.file_type == "F32" else "BF16")
    if file.file_type in _PLAIN:
        return tensor_type(file.file_type)
    return fitting(_wanted(tensor, file, tied), tensor.shape[-1])


def _wanted(tensor: GgufTensor, file: _File, tied: bool) -> str:
    """The type before columns are looked at."""
    default = _DEFAULT.get(file.file_type, file.file_type)
    name, i = tensor.name, tensor.layer or 0
    if name == "output" or (name in file.tied_tables and tied):
        return _output(file, default, tensor.shape[-1])
    if file.file_type == "MXFP4_MOE":
        return "MXFP4" if name.endswith("_exps") else default
    if name in LOOKED_UP:
        return _embedding(file, default)
    if name in _VALUES:
        return _attention_v(file, default, file.values.index(i))
    if name == "attn_k" and file.num_experts == 8:
        return "Q4_K" if file.file_type in (*_IQ1, *_IQ2) else "Q8_0"
    if name in ("attn_k", "attn_q"):
        return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(file.file_type, default)
    if name.startswith("ffn_down"):
        return _ffn_down(file, default, file.downs.index(i) if i in file.downs else i)
    if name == "attn_output":
        return _attention_output(file, default)
    if name.startswith(("ffn_gate", "ffn_up")) and file.file_type == "IQ3_XS":
        return "IQ3_XXS" if file.num_layers // 8 <= i < 7 * file.num_layers // 8 else default
    return default


def more_bits(i: int, num_layers: int) -> bool:
    """The layers that Q4_K_M and Q5_K_M spend more bits on: first and last eighth, and every third between."""
    eighth = num_layers // 8
    return i < eighth or i >= 7 * num_layers // 8 or (i - eighth) % 3 == 2


def _output(file: _File, default: str, columns: int) -> str:
    if file.is_falcon or file.file_type in ("Q8_0", "MXFP4_MOE") or columns % tensor_type(default).block_size:
        return "Q8_0"
    if file.file_type in (*_IQ1, *_IQ2, "IQ3_XXS"):
        return "Q5_K"
    return "Q6_K" if default != "Q8_0" else "Q8_0"


def _embedding(file: _File, default: str) -> str:
    kind = file.file_type
    if kind in (*_IQ1, "IQ2_XXS", "IQ2_XS"):
        return "Q2_K"
    if kind in (*_IQ2_LARGE, "IQ3_XXS"):
        return "IQ3_S"
    return "Q4_K" if kind in ("TQ1_0", "TQ2_0") else default


def _attention_v(file: _File, default: str, i: int) -> str:
    chosen = _attention_v_by_type(file, default, i)
    if file.is_70b and chosen in ("Q3_K", "Q4_K"):
        chosen = "Q5_K"
    if file.num_experts == 8:
        chosen = "Q8_0"
    return chosen


def _attention_v_by_type(file: _File, default: str, i: int) -> str:
    kind, grouped = file.file_type, file.grouped >= 4
    if kind in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if more_bits(i, len(file.values)) else default
    if kind == "Q4_K_S":
        return "Q5_K" if i < 4 else default
    if kind == "Q3_K_M":
        return "Q5_K" if i < 2 else "Q4_K"
    if kind == "Q3_K_L":
        return "Q5_K"
    if kind == "Q2_K":
        return "Q4_K" if grouped else "Q3_K"
    if kind == "IQ3_M":
        return "Q4_K"
    if kind in (*_IQ1, *_IQ2):
        if grouped or file.num_experts >= 4:
            return "Q4_K"
        return "IQ3_S" if kind in _IQ2_LARGE else "Q2_K"
    if kind == "IQ3_XXS" and not grouped:
        return default if file.imatrix else "IQ3_S"
    if grouped and kind in ("Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"):
        return "Q4_K"
    return "Q5_K" if grouped and kind in ("IQ4_NL", "IQ4_XS") else default


def _ffn_down(file: _File, default: str, i: int) -> str:
    kind, layers = file.file_type, file.num_layers
    if file.is_falcon and kind in ("Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M"):
        return _falcon_down(kind, default, i, layers)
    early = i < layers // 8
    if kind in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if more_bits(i, layers) else default
    if kind == "Q3_K_M":
        return "Q5_K" if i < layers // 16 else "Q4_K"
    if kind == "IQ3_M":
        return "Q4_K" if early or (file.num_experts == 8 and more_bits(i, layers)) else default
    if kind in (*_IQ1, *_IQ2):
        return ("IQ3_S" if kind in _IQ2_LARGE else "Q2_K") if early else default
    if kind == "IQ3_XXS" and not file.imatrix:
        return "Q4_K" if early else "Q3_K"
    by_type = {"Q3_K_L": ("Q5_K", "Q5_K"), "Q2_K": ("Q3_K", "Q3_K"), "Q4_K_S": ("Q5_K", default),
               "Q2_K_S": ("Q4_K", default)}  # fmt: skip
    if not file.imatrix:
        by_type |= {"IQ4_NL": ("Q5_K", default), "IQ4_XS": ("Q5_K", default)}
    else:
        by_type |= {"Q4_0": ("Q4_1", default), "Q5_0": ("Q5_1", default)}
    first, rest = by_type.get(kind, (default, default))
    return first if early else rest


def _falcon_down(kind: str, default: str, i: int, layers: int) -> str:
    """Falcon's down projections get fewer bits than others'."""
    first, more, rest = {
        "Q3_K_M": ("Q5_K", "Q4_K", "Q3_K"), "Q3_K_L": ("Q4_K", "Q4_K", "Q4_K"), "Q4_K_S": (default, default, default),
        "Q4_K_M": ("Q6_K", "Q5_K", "Q4_K"),
    }[kind]  # fmt: skip
    return first if i < layers // 16 else more if more_bits(i, layers) else rest


def _attention_output(file: _File, default: str) -> str:
    kind = file.file_type
    if file.is_falcon:
        return "Q4_K" if kind == "Q3_K_L" else default
    if file.num_experts == 8:
        return "Q5_K" if kind in (*_EIGHT_EXPERT_OUTPUT, *_IQ1, *_IQ2) else default
    if kind in _IQ1:
        return "IQ2_XXS"
    if kind in _IQ2_LARGE:
        return "IQ3_S"
    return {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "IQ3_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(kind, default)
