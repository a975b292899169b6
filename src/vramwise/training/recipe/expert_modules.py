"""Experts that are lists of linear layers, as in most of transformers' classes before 5.0, and adapters beside them.

There peft wraps `experts.0.gate_proj` and its like as any linear layer: `all-linear` and bare names mean every expert's
(peft 0.18 tuners/tuners_utils.py `check_target_module_exists`, transformers 4.57 models/qwen3_moe, models/mixtral). A
router that is a linear layer there has one too; of what autograd keeps for it the input in fp32 is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vramwise.errors import ScenarioError
from vramwise.frameworks.versions import library_version
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact
from vramwise.scenario import TrainSettings

EXPERTS_FUSED_SINCE = (5, 0)  # transformers: experts as one 3-D parameter instead of a list of linear layers

Names = Callable[[str], bool]
"""Whether targets mean the module of a path."""


def has_expert_modules(train: TrainSettings, model: Model) -> bool:
    """Whether experts are lists of linear layers, as in most classes before transformers 5."""
    return library_version(train) < EXPERTS_FUSED_SINCE and had_expert_modules(model)


def had_expert_modules(model: Model) -> bool:
    """Whether experts were lists of linear layers in the model's class before they were fused."""
    return not has_fact("transformers", "always_fused_experts", model.config.model_type)


def layers_of_experts(model: Model) -> tuple[str, str, str]:
    """What the three layers of an expert are called: gate, up and down projection."""
    if has_fact("transformers", "experts_in_w1_w2_w3", model.config.model_type):
        return "w1", "w3", "w2"
    return "gate_proj", "up_proj", "down_proj"


def tensors_of_layers(model: Model, means: Names) -> tuple[str, ...]:
    """The experts' tensors whose layers there are targets: ends of their paths, or whole paths where only some are.

    Raises `ScenarioError` where one of two layers that are one tensor here is a target, and the other is not.
    """
    pairs = tuple(_tensors(model))
    found = [p for tensors in pairs for p, names in tensors if _asked(p.module, names, means)]
    ends = {p.name.removeprefix(p.module.rpartition(".")[0] + ".") for p in found}
    everywhere = [p for tensors in pairs for p, _ in tensors if any(p.name.endswith(f".{end}") for end in ends)]
    return tuple(sorted(ends)) if len(everywhere) == len(found) else tuple(p.name for p in found)


def routers(model: Model, means: Names) -> tuple[str, ...]:
    """Ends of the paths of routers that were linear layers and are targets, by the name that they had there."""
    if not has_fact("transformers", "routers_were_linear", model.config.model_type):
        return ()
    found = (p for p in model.parameters if p.part == "router" and len(p.shape) == 2)
    own = {p.module for p in found if means(p.module) or means(p.module.rpartition(".")[0] + ".gate")}
    return tuple(sorted({f"{module.rpartition('.')[2]}.weight" for module in own}))


def _tensors(model: Model) -> Iterator[tuple[tuple[Parameter, tuple[str, ...]], ...]]:
    """Each layer's two tensors of experts, and the layers of an expert that each stands for."""
    from vramwise.models.operations.experts import ExpertMlps

    gate, up, down = layers_of_experts(model)
    for op in (op for block in model.blocks for op in block.ops):
        if isinstance(op, ExpertMlps) and op.branches:
            first, second = op.parameters
            yield (first, (gate, up)[-op.branches :]), (second, (down,))


def _asked(module: str, names: tuple[str, ...], means: Names) -> bool:
    wanted = [name for name in names if means(f"{module}.0.{name}")]
    if wanted and len(wanted) < len(names):
        problem = f"adapters on experts' {wanted[0]} alone are not described: name {' and '.join(names)}, or neither"
        raise ScenarioError("train.lora_targets", problem)
    return bool(wanted)
