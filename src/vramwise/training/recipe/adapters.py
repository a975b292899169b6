"""Low-rank adapters as peft 0.21 places them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from vramwise.errors import ScenarioError, clipped, nearest
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model

_EXPRESSION = frozenset("*+?()[]{}|\\^$")
"""Characters that make a target an expression; a point is in every path."""
ALL_LINEAR = "all-linear"
EXPERTS_IN_ALL_LINEAR = frozenset(
    {
        "afmoe", "beam", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe",
        "exaone_moe", "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe",
        "longcat_flash", "mellum", "minimax", "minimax_m2", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "qwen3_next",
        "solar_open",
    }
)  # fmt: skip
"""Types whose experts peft 0.20 and later find behind the names that they had as linear layers (transformers 5.23
conversion_mapping.py `_MODEL_TO_CONVERSION_PATTERN`: those of mixtral and qwen2_moe)."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """The tensors added to one module: A (rank, in), B (out, rank), and DoRA's magnitude (out)."""

    module: str
    layer: int | None
    base: Parameter
    shapes: tuple[tuple[int, ...], ...]


def module_of(parameter: Parameter) -> str:
    """The module that owns a parameter."""
    return parameter.name.rpartition(".")[0]


def target_names(model: Model, targets: str | tuple[str, ...]) -> frozenset[str]:
    """Last components of the module names that get adapters.

    `all-linear` is every linear layer but the output head (peft `_maybe_include_all_linear_layers`). A name may
    be a path's end (`mlp.up_proj`), or an expression that a whole path matches (`.*self_attn.(q|v)_proj`), as a string
    is in peft. Raises `ScenarioError` when nothing in the model has such a name.
    """
    found = {module_of(p).rpartition(".")[2] for p in targeted(model, targets)}
    if not found:
        known = sorted({module_of(p).rpartition(".")[2] for p in model.parameters if p.is_linear})
        asked = targets if isinstance(targets, str) else ", ".join(targets)
        why = of_experts(model, (targets,) if isinstance(targets, str) else targets)
        if why:
            raise ScenarioError("train.lora_targets", f"{why}; of linear layers it has {', '.join(known)}")
        close = ", ".join(nearest(asked, known) or known)
        raise ScenarioError(
            "train.lora_targets", f'no module of the model is called "{clipped(asked)}"; it has {close}'
        )
    return frozenset(found)


def of_experts(model: Model, targets: tuple[str, ...]) -> str:
    """Why targets that mean experts' own layers or a router get no adapters; empty where none does.

    In transformers 5 experts are one tensor, a router a bare parameter, and peft wraps linear layers.
    """
    for parameter in model.parameters:
        if parameter.part not in ("experts", "router") or parameter.is_linear:
            continue
        named = (parameter.name, *(_EXPERTS_LAYERS if parameter.part == "experts" else ("gate", "router")))
        for target in targets:
            if any(_named(name, (target,)) for name in named):
                what = "experts are one tensor" if parameter.part == "experts" else "the router is a bare parameter"
                way = ' ("experts": on all of it, as target_parameters does)' if _wrapped_experts(model) else ""
                return f'"{target}" gets no adapter: {what} ({parameter.name}), and peft wraps linear layers{way}'
    return ""


_EXPERTS_LAYERS = ("experts", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
"""What experts and their layers are called where they are modules."""


@lru_cache(maxsize=64)
def _wrapped_experts(model: Model) -> dict[Parameter, tuple[int, bool]]:
    """Experts' tensors to which peft's `target_parameters` adds adapters: how many linear layers each is, and whether
    its last axis is the one that comes out."""
    found: dict[Parameter, tuple[int, bool]] = {}
    for block in model.blocks:
        for op in block.ops:
            if op.kind != "experts" or "style" in op.settings or "fused_branches" not in op.settings:
                continue
            for place, parameter in enumerate(op.parameters):
                if len(parameter.shape) == 3 and not parameter.name.endswith("bias"):
                    branches = op.settings["fused_branches"] if place == 0 else 1
                    found[parameter] = branches, bool(op.settings["transposed"])
    return found


def without_adapter(model: Model, targets: str | tuple[str, ...]) -> tuple[str, ...]:
    """Targets of a list that are no linear layer's name, though others are."""
    if isinstance(targets, str):
        return ()
    modules = {module_of(parameter) for parameter in targeted(model, (ALL_LINEAR, *targets))}
    found = (any(_named(module, (target,)) for module in modules) for target in targets)
    return tuple(name for name, is_there in zip(targets, found, strict=True) if not is_there and name != ALL_LINEAR)


def check_trainable(model: Model, pieces: tuple[str, ...]) -> None:
    """Raises `ScenarioError` for a piece that is in no parameter's name, so that it would train nothing."""
    names = [parameter.name for parameter in model.all_parameters] if pieces else []
    for piece in pieces:
        if not any(piece in name for name in names):
            known = sorted({part for name in names for part in name.split(".") if not part.isdigit()})
            problem = f'"{clipped(piece)}" is in no parameter\'s name'
            raise ScenarioError("train.trainable", f"{problem}; they have {', '.join(nearest(piece, known) or known)}")


def targeted(model: Model, targets: str | tuple[str, ...]) -> Iterator[Parameter]:
    """The weights that get adapters."""
    named = (targets,) if isinstance(targets, str) else targets
    all_linear, named = ALL_LINEAR in named, tuple(name for name in named if name != ALL_LINEAR)
    experts = _wrapped_experts(model) if named else {}
    for parameter in model.all_parameters:
        is_matrix = len(parameter.shape) == 2 and (parameter.is_linear or parameter.part == "embedding")
        if not is_matrix and parameter not in experts:
            continue
        wanted = all_linear and parameter.is_linear and parameter.part != "head"
        if wanted or _named(module_of(parameter), named):
            yield parameter


def _named(module: str, targets: tuple[str, ...]) -> bool:
    return any(module == target or module.endswith(f".{target}") or _matches(module, target) for target in targets)


def _matches(module: str, target: str) -> bool:
    if not set(target) & _EXPRESSION:
        return False
    try:
        return re.fullmatch(target, module) is not None
    except re.error as problem:
        raise ScenarioError("train.lora_targets", f'"{clipped(target)}" is no expression: {problem}') from None


def adapters(model: Model, targets: str | tuple[str, ...], rank: int, *, dora: bool = False) -> tuple[Adapter, ...]:
    """Every adapter: rank · (in + out) parameters each, with DoRA one more for each output.

    Embeddings named as targets get (rank, rows) and (width, rank). Experts in one tensor get the adapters of all of
    them, each of as many ranks as it stands for linear layers (peft 0.21 tuners/lora/layer.py ParamWrapper, and
    utils/transformers_weight_conversion.py for the ranks).
    """
    result = []
    for parameter in targeted(model, targets):
        if len(parameter.shape) == 3:
            branches, transposed = _wrapped_experts(model)[parameter]
            experts, first, second = parameter.shape
            inner, outer = (first, second) if transposed else (second, first)
            all_ranks = rank * branches * experts
            result.append(
                Adapter(module_of(parameter), parameter.layer, parameter, ((all_ranks, inner), (outer, all_ranks)))
            )
            continue
        # An embedding maps rows to columns; a linear weight is (out, in).
        rows, columns = parameter.shape if parameter.part != "embedding" else parameter.shape[::-1]
        pair = ((rank, columns), (rows, rank))
        result.append(Adapter(module_of(parameter), parameter.layer, parameter, (*pair, (rows,)) if dora else pair))
    return tuple(result)
