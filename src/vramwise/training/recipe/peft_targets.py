"""What peft makes of targets that were linear layers before transformers 5 and are experts' and routers' weights now.

peft 0.19 and later renames them by model type (utils/transformers_weight_conversion.py `_convert_peft_config_moe`):
`gate_proj`, `up_proj` and `down_proj` (`w1`, `w3`, `w2`) mean the experts' two tensors, `gate` the router's weight, and
no linear layer of that name any more. From 0.20 on `all-linear` means them too, where peft itself resolves it
(`_resolve_string_target_modules`); some frameworks hand it names of the linear layers that they find.
"""

from __future__ import annotations

from vramwise.errors import ScenarioError
from vramwise.frameworks import framework_of
from vramwise.frameworks.framework import Peft
from vramwise.frameworks.versions import followed
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact
from vramwise.training.recipe.adapters import (
    ALL_LINEAR,
    is_expression,
    names_experts,
    targeted,
    wrapped_experts,
    wraps_parameters,
)
from vramwise.training.resolved import ResolvedTrain

EXPERTS, ROUTER = "experts", "gate.weight"
NAMES_EXPERTS, ALL_LINEAR_MEANS_EXPERTS = (0, 19), (0, 20)


def peft_targets(model: Model, train: ResolvedTrain) -> str | tuple[str, ...]:
    """The targets of `train` as peft reads them for this model: `experts` and `gate.weight` in place of former names.

    Raises `ScenarioError` where peft refuses them.
    """
    peft = framework_of(train).peft
    if peft is None:
        return train.lora_targets
    found = _renamed(model, train, peft)
    if wraps_parameters(model, found):
        _check_parameters_adapter(train, peft)
    return found


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
    if not wrapped_experts(model) or (followed(train, "transformers") or (5,)) < (5,):
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
