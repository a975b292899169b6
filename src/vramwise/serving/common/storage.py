"""How an engine stores the weights: the dtype of what stays in high precision and the quantization of the rest.

A checkpoint says it in `quantization_config`; a scenario may ask for another format.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from vramwise.errors import UnsupportedModelError
from vramwise.formats import dtype
from vramwise.formats.quantization import QuantFormat, quantization
from vramwise.models import Model, Parameter
from vramwise.models.config import checkpoint_dtype, stated_dtype
from vramwise.models.type_facts import ANY, fact_value, has_fact
from vramwise.records import record

if TYPE_CHECKING:
    from vramwise.formats.module_rules import ModuleRules


@record
class Storage:
    """`dtype` of embeddings, norms and all else that `quantization` leaves alone.

    `rules`: what the checkpoint's own `quantization_config` says module by module, of which `quantization` is the
    format that stands for all. `layers`: modules to which MLX gives a format of their own, or none.
    """

    dtype: str
    quantization: QuantFormat | None = None
    rules: ModuleRules | None = None
    whole: frozenset[str] = frozenset()
    """Weights that the files hold unquantized although `rules` do not leave them out."""
    layers: tuple[tuple[str, QuantFormat | None], ...] = ()
    widens_scales: bool = False
    """Scales that are quantized themselves become fp32 while weights are loaded."""

    def rule_for(self, parameter: Parameter) -> QuantFormat | None:
        """The format of this weight; None where it stays in `dtype`."""
        found = self._stored_as(parameter)
        return quantization("nf4") if self.widens_scales and found is not None and found.name == "nf4-dq" else found

    def _stored_as(self, parameter: Parameter) -> QuantFormat | None:
        if self.quantization is None or len(parameter.shape) < 2 or parameter.tied_to is not None:
            return None
        named = _by_layer(self.layers) if self.layers else {}
        if parameter.module in named:
            own = named[parameter.module]
            return own if own is not None and _takes(own, parameter) else None
        if self.rules is None:
            return self.quantization if _takes(self.quantization, parameter) else None
        return None if parameter.name in self.whole else _own_format(self.rules, parameter)

    @property
    def goes_by_names(self) -> bool:
        """Whether weights of one part and shape may be stored differently."""
        return self.rules is not None or bool(self.layers)

    @property
    def bytes_per_element(self) -> int:
        return dtype(self.dtype).bits // 8

    def quantizes(self, parameter: Parameter) -> bool:
        """Whether this weight is replaced by quantized tensors."""
        return self.rule_for(parameter) is not None


@lru_cache(maxsize=64)
def _by_layer(layers: tuple[tuple[str, QuantFormat | None], ...]) -> dict[str, QuantFormat | None]:
    return dict(layers)


def _takes(found: QuantFormat, parameter: Parameter) -> bool:
    return found.quantizes(parameter.part, parameter.shape, parameter.is_linear)


@lru_cache(maxsize=65_536)
def _own_format(rules: ModuleRules, parameter: Parameter) -> QuantFormat | None:
    """What the checkpoint says of a weight, under any of the names that files give to it."""
    if not (parameter.is_linear or len(parameter.shape) == 3):
        return None
    from vramwise.models.file_names import single_experts, spellings

    experts = [name for group in single_experts(parameter.name) for name in group]
    rule = rules.rule_of(parameter.module, (*spellings(parameter.module)[1:], *experts))
    found = rule.format if rule is not None else rules.default
    return found if found is not None and _takes(found, parameter) else None


def dtype_notes(model: Model, wanted: str) -> tuple[str, ...]:
    """Says so when the dtype is an assumption: a config, or what the catalog has of it, leaves it out."""
    if wanted != "auto" or stated_dtype(model.config.values) is not None:
        return ()
    assumed = checkpoint_dtype(model.config.values)
    return (f"nothing here states the dtype of its files: {assumed} is assumed, say dtype to change it",)


_SAME_TENSORS = {"awq-marlin": "awq-int4"}  # the kernel repacks AWQ's tensors, zero points included


@lru_cache(maxsize=1024)
def storage_of(model: Model, wanted_dtype: str, wanted: str | None, group_size: int | None) -> Storage:
    """Storage of `model` for the dtype and quantization that were asked for, else the checkpoint's own."""
    base = checkpoint_dtype(model.config.values) if wanted_dtype == "auto" else dtype(wanted_dtype).name
    written_by_mlx = mlx_storage(model, base)
    if written_by_mlx is not None and wanted is None:
        return written_by_mlx
    table = None if written_by_mlx is not None else _quantization_table(model)
    own = _rules(table, model.id) if table is not None else None
    if wanted is not None:
        asked = quantization(_SAME_TENSORS.get(wanted, wanted), group_size)
        if own is None or (own.main.layout, own.main.bits) != (asked.layout, asked.bits):
            return Storage(base, asked)
    return Storage(base) if own is None else Storage(base, own.main, own, model.whole | _left_whole(model))


def _left_whole(model: Model) -> frozenset[str]:
    """Weights that stay in high precision without the config of the published files saying so, by their names' ends."""
    ends = tuple(f".{end}" for end in (fact_value(ANY, "weights_left_whole", model.config.model_type) or "").split())
    return frozenset(p.name for p in model.parameters if f".{p.module}".endswith(ends)) if ends else frozenset()


def mlx_storage(model: Model, base: str) -> Storage | None:
    """What mlx-lm's `quantization` says, layer by layer; None of a checkpoint that it did not write.

    `{group_size, bits, mode}` for all, and by the path of a module the same, or false where it stays (mlx-lm 0.32.2
    utils.py load_model). Experts of one tensor here are three of `switch_mlp` there.
    """
    table = model.config.get("quantization") or model.config.get("quantization_config")
    others = {"quant_method", "quant_algo", "config_groups", "quantized_layers"}
    if not isinstance(table, Mapping) or not {"bits", "group_size"} <= table.keys() or others & table.keys():
        return None
    layers: dict[str, QuantFormat | None] = {}
    for path, how in table.items():
        if isinstance(how, Mapping | bool):
            name = path.removeprefix("language_model.").replace(".switch_mlp.gate_proj", ".experts")
            layers[name.replace(".switch_mlp.up_proj", ".experts")] = _mlx_format(how, model.id, table)
    biased = {p.module for p in model.parameters if p.name.endswith("e_score_correction_bias")}
    raw = {p.module for p in model.parameters if p.part == "router" and p.module in biased}  # a tensor, no layer
    layers.update(dict.fromkeys(raw))
    return Storage(base, _mlx_format(table, model.id, table), layers=tuple(layers.items()))


_MLX_MODES = ("mxfp4", "mxfp8", "nvfp4")


def _mlx_format(how: object, model_id: str, default: Mapping[str, object]) -> QuantFormat | None:
    """The format of one entry of mlx-lm's table; None where it stays in high precision."""
    if how is False:
        return None
    row = how if isinstance(how, Mapping) else default
    mode, bits, group = row.get("mode", "affine"), row.get("bits"), row.get("group_size")
    if mode in _MLX_MODES:
        return quantization(f"mlx-{mode}")
    if mode != "affine" or bits not in (2, 3, 4, 5, 6, 8) or group not in (32, 64, 128):
        said = f"bits {bits}, group_size {group}, mode {mode}"
        raise UnsupportedModelError(f"{model_id or 'model'}: quantization of {said} is none of MLX's")
    return quantization(f"mlx-{bits}bit", int(str(group)))


def _rules(table: Mapping[str, object], model_id: str) -> ModuleRules:
    from vramwise.formats.quantization_config import module_rules

    return module_rules(table, model_id)


def _quantization_table(model: Model) -> Mapping[str, object] | None:
    config = model.config
    nested = config.table("text_config")
    for table in (config, nested):
        found = table.get("quantization_config") if table is not None else None
        if isinstance(found, Mapping):
            by_layer = found.get("quantized_layers") or found.get("config_groups")
            if _had_linear_experts(model, found):
                from vramwise.formats.quantization_config import EXPERTS_IN_FILES

                found = {**found, EXPERTS_IN_FILES: True}
            four_bit = config.get("expert_dtype") == "fp4" and not by_layer
            return {**found, "quantized_layers": _FOUR_BIT_EXPERTS} if four_bit else found
    return None


def _had_linear_experts(model: Model, table: Mapping[str, object]) -> bool:
    """Whether bitsandbytes met experts as linear layers: checkpoints of types from before transformers 5 are written so
    (unsloth/Qwen3-30B-A3B-bnb-4bit is about 17 GB), where the same quantization of today's class passes them over."""
    if str(table.get("quant_method")).lower() != "bitsandbytes" or not model.has_experts:
        return False
    return not has_fact("transformers", "always_fused_experts", model.config.model_type)


# DeepSeek V4's `expert_dtype`: blocks of 32 values beside 8-bit layers (vLLM 0.33.0 config_utils.py).
_FOUR_BIT_EXPERTS = {"experts": {"quant_algo": "MXFP4"}}


def quantization_method(model: Model) -> str:
    """What quantized the checkpoint (`fp8`, `awq`, `compressed-tensors`, …); empty where nothing did."""
    table = _quantization_table(model)
    if table is None:
        return ""
    from vramwise.formats.quantization_config import method_of

    return method_of(table)


def stated_cache(model: Model) -> tuple[str, object]:
    """Who quantized the checkpoint, and what its `quantization_config` says of the KV cache: a name, a table, None.

    ModelOpt's `kv_cache_scheme` and `kv_cache_quant_algo`, by themselves or under `quantization`; compressed-tensors'
    `kv_cache_scheme`.
    """
    table = _quantization_table(model)
    if table is None:
        return "", None
    inner = table.get("quantization")
    places = (inner, table) if isinstance(inner, Mapping) else (table,)
    keys = ("kv_cache_scheme", "kv_cache_quant_algo")
    said = (place.get(key) for key in keys for place in places)
    return quantization_method(model), next((found for found in said if found), None)


def own_method(model: Model, storage: Storage) -> str:
    """What quantized the weights that `storage` holds as the checkpoint has them; empty where another format was asked
    for, or none."""
    return quantization_method(model) if storage.rules is not None else ""
