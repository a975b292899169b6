"""Low-rank adapters as peft 0.21 places them.

What peft makes of targets that were linear layers before transformers 5 and are experts' and routers' weights now.

peft 0.19 and later renames them by model type (utils/transformers_weight_conversion.py `_convert_peft_config_moe`):
`gate_proj`, `up_proj` and `down_proj` (`w1`, `w3`, `w2`) mean the experts' two tensors, `gate` the router's weight, and
no linear layer of that name any more. From 0.20 on `all-linear` means them too, where peft itself resolves it
(`_resolve_string_target_modules`); some frameworks hand it names of the linear layers that they find.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from vramwise.errors import ScenarioError, clipped, nearest
from vramwise.frameworks import framework_of
from vramwise.frameworks.framework import Peft
from vramwise.frameworks.versions import followed
from vramwise.memo import of_model
from vramwise.models.adapters import adapter_shapes, shapes_beside_experts
from vramwise.models.blocks import Operation, Parameter
from vramwise.models.model import Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.simple import Hold
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.training.recipe.expert_modules import has_expert_modules, routers, tensors_of_layers
from vramwise.training.resolved import ResolvedTrain

EXPERTS, ROUTER = "experts", "gate.weight"
NAMES_EXPERTS, ALL_LINEAR_MEANS_EXPERTS = (0, 19), (0, 20)


def peft_targets(model: Model, train: ResolvedTrain) -> str | tuple[str, ...]:
    """The targets of `train` as peft reads them for this model: `experts` and `gate.weight` in place of former names.

    Raises `ScenarioError` where peft refuses them.
    """
    if has_expert_modules(train, model):
        return _with_expert_modules(model, train)
    peft = framework_of(train).peft
    if peft is None:
        return train.lora_targets
    found = _renamed(model, train, peft)
    if wraps_parameters(model, found):
        _check_parameters_adapter(train, peft)
    return found


def _with_expert_modules(model: Model, train: ResolvedTrain) -> str | tuple[str, ...]:
    given = train.lora_targets
    named = (given,) if isinstance(given, str) else given

    def means(path: str) -> bool:
        return ALL_LINEAR in named or _named(path, named)

    found = tensors_of_layers(model, means)
    if framework_of(train).peft is not None:
        found += routers(model, means)
    if found and train.dora:
        raise ScenarioError("train.dora", "DoRA on experts and routers is not described: name other lora_targets")
    return (*named, *found) if found else given


def _renamed(model: Model, train: ResolvedTrain, peft: Peft) -> str | tuple[str, ...]:
    given, former = train.lora_targets, former_names(model, train)
    named = (given,) if isinstance(given, str) else given
    if not former or any(map(is_expression, named)):
        return given
    parameters = {name for name in named if names_experts(model, name)}
    names = {name for name in named if name != ALL_LINEAR} - parameters
    if ALL_LINEAR in named:
        names |= {parameter.module.rpartition(".")[2] for parameter in targeted(model, ALL_LINEAR)}
        names |= set(_of_all_linear(train, peft, former))
    asked = {own for own in (*former, "gate") for name in names if name == own or name.endswith(f".{own}")}
    kept = {name for name in names if name.rpartition(".")[2] not in asked} | parameters
    experts = asked - {"gate"}
    if experts and experts != set(former):
        raise ScenarioError("train.lora_targets", _incomplete(sorted(experts), former))
    return (*sorted(kept), *([EXPERTS] if experts else []), *([ROUTER] if "gate" in asked else []))


def former_names(model: Model, train: ResolvedTrain) -> tuple[str, ...]:
    """What experts' layers were called before they were one tensor, where peft still knows them by that; else none."""
    peft = framework_of(train).peft
    if peft is None or peft_version(train, peft) < NAMES_EXPERTS:
        return ()
    if not _wraps_experts(model) or (followed(train, "transformers") or (5,)) < (5,):
        return ()
    if has_fact("peft", "experts_like_mixtral", model.config.model_type):
        return "w1", "w3", "w2"
    like_qwen2_moe = has_fact("peft", "experts_like_qwen2_moe", model.config.model_type)
    return ("gate_proj", "up_proj", "down_proj") if like_qwen2_moe else ()


def peft_version(train: ResolvedTrain, peft: Peft) -> tuple[int, ...]:
    """The peft version that the scenario names or that runs with what it names, else the framework's own."""
    return followed(train, "peft") or peft.version


def _of_all_linear(train: ResolvedTrain, peft: Peft, former: tuple[str, ...]) -> tuple[str, ...]:
    if peft.names_linear_layers:
        return ()
    if peft_version(train, peft) < ALL_LINEAR_MEANS_EXPERTS:
        problem = "peft 0.19 reads all-linear as letters where experts are one tensor and refuses them: name the layers"
        raise ScenarioError("train.lora_targets", problem)
    return (*former, "gate")


def _incomplete(experts: list[str], former: tuple[str, ...]) -> str:
    if len({*experts} & {*former[:2]}) == 1:
        return f"peft refuses {former[0]} and {former[1]} one without the other: they are one tensor of the experts"
    whole = f"{former[0]}, {former[1]} and {former[2]}"
    return f"adapters on experts' {' and '.join(experts)} alone are not described: name {whole}, or none of them"


def _check_parameters_adapter(train: ResolvedTrain, peft: Peft) -> None:
    """peft 0.21 tuners/lora/layer.py ParamWrapper: it adds up a whole tensor, before any input is known."""
    if train.dora:
        raise ScenarioError("train.dora", "peft refuses DoRA on experts that are one tensor: name other lora_targets")
    if train.lora_dropout and not peft.ignores_dropout:
        problem = (
            "peft refuses dropout before adapters on experts that are one tensor: set 0, or name other lora_targets"
        )
        raise ScenarioError("train.lora_dropout", problem)


_EXPRESSION = frozenset("*+?()[]{}|\\^$")
"""Characters that make a target an expression; a point is in every path."""
ALL_LINEAR = "all-linear"


@record
class Adapter:
    """The tensors added to one module: A (rank, in), B (out, rank), and DoRA's magnitude (out)."""

    module: str
    layer: int | None
    base: Parameter
    shapes: tuple[tuple[int, ...], ...]


@of_model
def target_paths(model: Model, targets: str | tuple[str, ...]) -> frozenset[str]:
    """Paths of the layers that get adapters, and of the parameters of routers and experts that do.

    `all-linear` is every linear layer but the output head (peft `_maybe_include_all_linear_layers`). A name may
    be a path's end (`mlp.up_proj`), or an expression that a whole path matches (`.*self_attn.(q|v)_proj`), as a string
    is in peft. Raises `ScenarioError` when nothing in the model has such a name.
    """
    found = {p.name if by_itself else p.module for p, by_itself in _targeted(model, targets)}
    if not found:
        known = sorted({p.module.rpartition(".")[2] for p in model.parameters if p.is_linear})
        asked = targets if isinstance(targets, str) else ", ".join(targets)
        why = of_experts(model, (targets,) if isinstance(targets, str) else targets)
        if why:
            raise ScenarioError("train.lora_targets", f"{why}; of linear layers it has {', '.join(known)}")
        if any(map(is_expression, (targets,) if isinstance(targets, str) else targets)):
            path = next((p.module for p in model.parameters if p.is_linear and p.layer is not None), "")
            said = f'"{clipped(asked)}" matches no whole path; in transformers 5 they are such as {path}'
            raise ScenarioError("train.lora_targets", said)
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
                way = ' ("experts": on all of it, as target_parameters does)' if wrapped_experts(model) else ""
                return f'"{target}" gets no adapter: {what} ({parameter.name}), and peft wraps linear layers{way}'
    return ""


_EXPERTS_LAYERS = ("experts", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
"""What experts and their layers are called where they are modules."""


@lru_cache(maxsize=64)
def _operations(model: Model) -> dict[Parameter, Operation]:
    """The operation that uses each parameter, not the one that only owns it."""
    ops = sorted((op for block in model.blocks for op in block.ops), key=lambda op: not isinstance(op, Hold))
    return {parameter: op for op in ops for parameter in op.parameters}


@of_model
def _wraps_experts(model: Model) -> bool:
    return bool(wrapped_experts(model))


@lru_cache(maxsize=64)
def wrapped_experts(model: Model) -> frozenset[Parameter]:
    """Experts' tensors to which peft's `target_parameters` adds adapters."""
    found = (
        parameter
        for parameter, op in _operations(model).items()
        if isinstance(op, ExpertMlps) and not op.style and op.fused_branches
    )
    return frozenset(p for p in found if len(p.shape) == 3 and not p.name.endswith("bias"))


def without_adapter(model: Model, targets: str | tuple[str, ...]) -> tuple[str, ...]:
    """Targets of a list that are no linear layer's name, though others are."""
    if isinstance(targets, str):
        return ()
    found = tuple(targeted(model, (ALL_LINEAR, *targets)))

    def is_there(target: str) -> bool:
        by_itself = _names_parameters(target)
        return any(_named(p.module, (target,)) or (by_itself and _named(p.name, (target,))) for p in found)

    return tuple(name for name in targets if name != ALL_LINEAR and not is_there(name))


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
    return (parameter for parameter, _ in _targeted(model, targets))


@lru_cache(maxsize=64)
def _targeted(model: Model, targets: str | tuple[str, ...]) -> tuple[tuple[Parameter, bool], ...]:
    """The weights that get adapters, and whether each is named by itself, as in peft's `target_parameters`."""
    return tuple(_found(model, targets))


def _found(model: Model, targets: str | tuple[str, ...]) -> Iterator[tuple[Parameter, bool]]:
    named = (targets,) if isinstance(targets, str) else targets
    all_linear, named = ALL_LINEAR in named, tuple(name for name in named if name != ALL_LINEAR)
    experts = wrapped_experts(model) if named else frozenset()
    paths = tuple(name for name in named if _names_parameters(name))
    for parameter in model.all_parameters:
        is_matrix = len(parameter.shape) == 2
        is_layer = is_matrix and (parameter.is_linear or parameter.part == "embedding")
        is_wanted = all_linear and is_layer and parameter.is_linear and not _is_left_out(model, parameter)
        if is_wanted or ((is_layer or parameter in experts) and _named(parameter.module, named)):
            yield parameter, False
        elif (is_matrix or parameter in experts) and _named(parameter.name, paths):
            yield parameter, True


def _is_left_out(model: Model, parameter: Parameter) -> bool:
    """Whether `all-linear` passes over a head's layer: the output embeddings (peft tuners/tuners_utils.py
    `_maybe_include_all_linear_layers`), of heads for masked tokens not what stands before them."""
    return parameter.part == "head" and (model.head != "masked-lm" or parameter.shape[0] == model.logit_width)


@of_model
def wraps_parameters(model: Model, targets: str | tuple[str, ...]) -> bool:
    """Whether some adapters are added to a parameter, not beside a layer (peft's `ParamWrapper`)."""
    return any(by_itself or len(parameter.shape) == 3 for parameter, by_itself in _targeted(model, targets))


def names_experts(model: Model, target: str) -> bool:
    """Whether a target is the path, or the end of it, of a tensor of experts."""
    return _names_parameters(target) and any(_named(p.name, (target,)) for p in wrapped_experts(model))


def _names_parameters(target: str) -> bool:
    """Whether a target may be a parameter's: `experts.gate_up_proj` of experts in one tensor, a router's `gate.weight`.

    Without a point it is a layer's name.
    """
    return "." in target and not is_expression(target)


def _named(module: str, targets: tuple[str, ...]) -> bool:
    return any(module == target or module.endswith(f".{target}") or _matches(module, target) for target in targets)


def is_expression(target: str) -> bool:
    """Whether a target is an expression that whole paths match, not a name."""
    return bool(set(target) & _EXPRESSION)


def _matches(module: str, target: str) -> bool:
    if not is_expression(target):
        return False
    try:
        return re.fullmatch(target, module) is not None
    except re.error as problem:
        raise ScenarioError("train.lora_targets", f'"{clipped(target)}" is no expression: {problem}') from None


def adapters(
    model: Model, targets: str | tuple[str, ...], rank: int, *, dora: bool = False, expert_modules: bool = False
) -> tuple[Adapter, ...]:
    """Every adapter: rank · (in + out) parameters each, with DoRA one more for each output."""
    ops = _operations(model)

    def shapes(p: Parameter, by_itself: bool) -> tuple[tuple[int, ...], ...]:
        op = ops[p]
        if expert_modules and isinstance(op, ExpertMlps) and op.branches:
            return shapes_beside_experts(op, p, rank, op.branches if p == op.parameters[0] else 1)
        return adapter_shapes(op, p, rank, dora=dora, by_itself=by_itself)

    return tuple(Adapter(p.module, p.layer, p, shapes(p, by_itself)) for p, by_itself in _targeted(model, targets))


def adapters_of(model: Model, train: ResolvedTrain) -> tuple[Adapter, ...]:
    """Every adapter under these settings."""
    apart = has_expert_modules(train, model)
    return adapters(model, peft_targets(model, train), train.lora_rank, dora=train.dora, expert_modules=apart)
