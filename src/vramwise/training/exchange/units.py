"""Units of sharded weights: what FSDP gathers, frees and reduces together, in bytes on one rank.

    a unit a layer                      transformers' and torchtitan's wrapping
    embedding, and norm with head       torchtitan, two more units: the second stays whole from forward to backward;
                                        torchtune, where the head has weights of its own: neither stays
    everything else: the root unit      whole from the first forward until backward is over

accelerate 1.12 utils/fsdp_utils.py (fsdp2_prepare_model, auto_wrap_policy); torchtitan 0.2 models/llama3/infra
parallelize.py (apply_fsdp, as of pull request 1094 of July 2025; before it both were in the root unit, and the last
layer stayed whole).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vramwise.frameworks import framework_of
from vramwise.models.blocks import Block
from vramwise.models.model import Model
from vramwise.models.step import runs_in
from vramwise.training.exchange.root_unit import own_units
from vramwise.training.exchange.wrapping import wraps_nothing
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import quantizer, stored, trained_tensors, width
from vramwise.training.recipe.fp8_weights import gathered_width
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain

ROOT, EMBEDDING, HEAD = "root", "embedding", "head"


@dataclass(slots=True)
class Unit:
    """One unit. `whole`: bytes of each gathered weight; `shards`: of each weight's own part as the rank keeps it;
    `loaded`: of each whole weight before the units are made; `unpacked`: the same before bitsandbytes packed it.

    `cast`: bytes of the rank's part in the dtype that is gathered, 0 where it is kept in that. `numel`, `cut_numel`:
    trained values, whole and of the rank's part. `stays`: whole from its forward until its backward is over.
    """

    name: str
    stays: bool = False
    whole: list[int] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)
    unpacked: list[int] = field(default_factory=list)
    cast: int = 0
    numel: int = 0
    cut_numel: int = 0

    @property
    def whole_bytes(self) -> int:
        return sum(self.whole)


def units_of(model: Model, train: ResolvedTrain, placement: Placement) -> list[Unit]:
    """The unit of every block that a batch runs, in order; blocks of one unit share the object."""
    compute = execution(train, model)
    size = width(compute.autocast or compute.param_dtype)
    rule = quantizer(model, train)
    stepped = {tensor.name: tensor for tensor, _ in trained_tensors(model, train)}
    found: dict[str, Unit] = {}
    of_weight: dict[str, Unit] = {}
    in_order = []
    last_stays = framework_of(train).sharding.last_unit_stays
    keeps_last = last_stays and train.fsdp_version == 2 and not own_units(train, model)
    last = max((block.layer for block in model.blocks if block.layer is not None), default=None)
    for block in model.blocks:
        name = _unit_name(block, model, train)
        stays = name == ROOT or (name == HEAD and last_stays) or not train.reshard_after_forward
        unit = found.setdefault(name, Unit(name, stays=stays or (keeps_last and block.layer == last)))
        if runs_in(block, compute):
            in_order.append(unit)
        for p in block.parameters:
            if p.name in of_weight or not placement.holds(p):
                continue
            of_weight[p.name] = unit  # a tied weight's too: adapters belong to the module that they are put on
            if p.tied_to is not None:
                continue
            local = placement.local_numel(p, p.numel)
            trained = stepped.get(p.name)
            kept = trained.param_bytes if trained is not None else 0
            gathered = gathered_width(p, train, size)
            here = stored(p, local, train, rule)[0] if rule else local * gathered
            cut = placement.weight_numel(p, local)
            unit.whole.append(here)
            unit.shards.append(
                cut * kept if trained is not None else sum(stored(p, local, train, rule, placement.weight_shards_of(p)))
            )
            unit.loaded.append(local * kept if trained is not None else sum(stored(p, local, train, rule)))
            packed = rule is not None and rule.quantizes(p.part, p.shape, p.is_linear)
            on_gpu = packed and rule is not None and rule.layout.startswith("bnb")
            unit.unpacked.append(local * size if on_gpu else 0)
            if trained is not None:
                unit.numel += local
                unit.cut_numel += placement.gradient_numel(p, local)
            if kept > gathered:
                unit.cast += cut * gathered
    for tensor, base in trained_tensors(model, train):
        if tensor.name != base.name:
            unit = of_weight[base.name]
            local = placement.local_numel(base, tensor.numel)
            unit.whole.append(local * min(size, tensor.param_bytes))
            unit.shards.append(placement.weight_numel(base, local) * tensor.param_bytes)
            unit.loaded.append(local * tensor.param_bytes)
            unit.unpacked.append(0)
            unit.numel += local
            unit.cut_numel += placement.gradient_numel(base, local)
    return in_order


def _unit_name(block: Block, model: Model, train: ResolvedTrain) -> str:
    if wraps_nothing(train):
        return ROOT
    if block.layer is not None:
        return f"layer {block.layer}"
    if own_units(train, model):
        parts = {p.part for p in block.parameters}
        return EMBEDDING if "embedding" in parts else HEAD
    return ROOT
