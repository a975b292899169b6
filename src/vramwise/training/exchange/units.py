"""Units of sharded weights: what FSDP gathers, frees and reduces together, in bytes on one rank.

    a unit a layer                      transformers' and torchtitan's wrapping
    embedding, and norm with head       torchtitan, and accelerate since 1.14, two more units: the second stays whole
                                        from forward to backward;
                                        torchtune, where the head has weights of its own: neither stays
    everything else: the root unit      whole from the first forward until backward is over

accelerate 1.12 and 1.15 utils/fsdp_utils.py (fsdp2_prepare_model, auto_wrap_policy); torchtitan 0.2 models/llama3/infra
parallelize.py (apply_fsdp, as of pull request 1094 of July 2025; before it both were in the root unit, and the last
layer stayed whole).

What FSDP makes a unit of: layers, every module, nothing but the whole model, or classes by their names.

A class that transformers names `…Layer` or `…Block` is a decoder layer or what stands for one, `Embedding` the table of
tokens (with the output layer, which frameworks that name it wrap beside it), `Linear` every linear layer for itself.
torch 2.13 distributed/fsdp/wrap.py `_module_wrap_policy`; accelerate 1.12 utils/dataclasses.py
`set_auto_wrap_policy`: NO_WRAP is one unit.

FSDP's root unit: embedding, last norm and output layer, whose gradients wait for the end of backward.

A unit's gradients are reduced when the last of its weights has one. The output layer's is there first, the embedding's
last, so that the output layer's waits whole through all layers; then the gradients and the input of their
reduce-scatter are there at once (torch 2.13 distributed/fsdp/_fully_shard: _fsdp_state.py
`_root_post_backward_final_callback`, _fsdp_collectives.py `foreach_reduce`). torchtitan makes units of its own of the
embedding and of the output layer, which are reduced as soon as they are done; so do torchtune's recipes where the two
share no weights (0.6.1 recipes/configs: custom_sharded_layers), and they are whole only while they run. accelerate
reduces in the compute dtype (utils/dataclasses.py `set_mixed_precision`), torchtitan and torchtune in fp32.

FSDP 1 joins the unit's gradients into that of its flat parameter, beside them and the gathered unit (torch 2.13
distributed/fsdp/_flat_param.py `_use_unsharded_views`: the gradient of a split).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final

from vramwise.errors import ScenarioError, clipped
from vramwise.frameworks import framework_of
from vramwise.models.blocks import Block, Parameter
from vramwise.models.model import Model
from vramwise.models.step import runs_in
from vramwise.records import record
from vramwise.scenario import TrainSettings
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import quantizer, stored
from vramwise.training.model_states.trained import rounded, trained_tensors, width
from vramwise.training.recipe.fp8_weights import gathered_width
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain

LAYER, MODULE, ROOT, EMBEDDING = "layer", "module", "root", "embedding"
_ENDINGS: Final = (("layer", LAYER), ("block", LAYER), ("embedding", EMBEDDING), ("embeddings", EMBEDDING))
_WHOLE: Final = {MODULE: MODULE, ROOT: ROOT, "linear": MODULE}


def kinds_of_units(train: TrainSettings) -> frozenset[str]:
    """What the scenario says that FSDP wraps; empty where the framework decides. Raises `ScenarioError`."""
    return frozenset(_kind(name) for name in train.fsdp_units)


def _kind(name: str) -> str:
    lowered = name.lower()
    found = _WHOLE.get(lowered) or next((kind for ending, kind in _ENDINGS if lowered.endswith(ending)), None)
    if found is None:
        what = "expected layer, module, root, or classes named …Layer, …Block, Embedding or Linear"
        raise ScenarioError("train.fsdp_units", f'"{clipped(name)}" is no unit that is known; {what}')
    return found


def wraps_modules(train: TrainSettings) -> bool:
    """Whether every module with weights is a unit."""
    return MODULE in kinds_of_units(train)


def wraps_nothing(train: TrainSettings) -> bool:
    """Whether the whole model is one unit."""
    return kinds_of_units(train) == {ROOT}


def module_of(parameter: Parameter) -> str:
    """The module that has a parameter: its name up to the last dot."""
    return parameter.name.rpartition(".")[0]


def is_outside(block: Block, train: TrainSettings) -> bool:
    """Whether the root unit, or a unit of its own beside the layers, has a block's weights."""
    return block.layer is None or wraps_nothing(train)


ROOT, EMBEDDING, HEAD = "root", "embedding", "head"


@record(frozen=False)
class Unit:
    """One unit. `whole`: bytes of each gathered weight; `shards`: of each weight's own part as the rank keeps it;
    `loaded`: of each whole weight before the units are made; `unpacked`: the same before bitsandbytes packed it;
    `uncut`: of what of it no unit has, scales of 4-bit values.

    `cast`: bytes of the rank's part in the dtype that is gathered, 0 where it is kept in that. `numel`, `cut_numel`:
    trained values, whole and of the rank's part. `stays`: whole from its forward until its backward is over.
    """

    name: str
    stays: bool = False
    whole: list[int] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)
    unpacked: list[int] = field(default_factory=list)
    uncut: list[int] = field(default_factory=list)
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
    last_stays = framework_of(train).sharding.last_unit_stays(train)
    keeps_last = last_stays and train.fsdp_version == 2 and not own_units(train, model)
    last = max((block.layer for block in model.blocks if block.layer is not None), default=None)
    for block in model.blocks:
        name = _unit_name(block, model, train)
        stays = name == ROOT or (name == HEAD and last_stays) or not train.reshard_after_forward
        unit = _ran_before(block, of_weight) or found.setdefault(
            name, Unit(name, stays=stays or (keeps_last and block.layer == last))
        )
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
            unit.uncut.append(0 if trained is not None else stored(p, local, train, rule)[1])
            if trained is not None and trained.grad_bytes:
                unit.numel += local
                unit.cut_numel += placement.gradient_numel(p, local)
            if kept > gathered:
                unit.cast += cut * gathered
    for tensor, base in trained_tensors(model, train):
        if tensor.name != base.name and placement.holds(base):
            unit = of_weight[base.name]
            local = placement.local_numel(base, tensor.numel)
            unit.whole.append(local * min(size, tensor.param_bytes))
            unit.shards.append(placement.weight_numel(base, local) * tensor.param_bytes)
            unit.loaded.append(local * tensor.param_bytes)
            unit.unpacked.append(0)
            unit.uncut.append(0)
            if tensor.grad_bytes:
                unit.numel += local
                unit.cut_numel += placement.gradient_numel(base, local)
    return in_order


def _ran_before(block: Block, of_weight: Mapping[str, Unit]) -> Unit | None:
    """The unit of a module that runs again with the weights that it had, as ALBERT's layer and HRM's stacks do."""
    units = {id(unit): unit for p in block.parameters if (unit := of_weight.get(p.name)) is not None}
    runs_again = block.layer is not None and all(p.name in of_weight for p in block.parameters)
    return next(iter(units.values())) if runs_again and len(units) == 1 else None


def loads_whole(train: ResolvedTrain) -> bool:
    """Whether every GPU has the whole quantized model before FSDP cuts it.

    transformers quantizes on the GPU and leaves the model there, unless accelerate's `cpu_ram_efficient_loading` is set
    (transformers 5.23 distributed/fsdp.py is_fsdp_enabled; off in training_args.py); so does axolotl (0.18
    loaders/model.py _set_device_map_config).
    """
    return (
        train.quantization is not None
        and framework_of(train).quantizing.loads_whole(train)
        and train.offload_params == "none"
        and not train.cpu_ram_efficient_loading
    )


def most_while_cut(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """The most bytes of weights while FSDP cuts a quantized model that is whole on every GPU; 0: none is.

    FSDP 2: whole weights and each rank's own of all of them, since a `state_dict` names the whole ones until the last
    is cut (accelerate 1.6 to 1.15 utils/fsdp_utils.py fsdp2_prepare_model; axolotl 0.12 to 0.18
    monkeypatch/accelerate/fsdp2.py). FSDP 1: whole weights, and one unit's in one piece.
    """
    if train.fsdp == "none" or placement.weight_shards == 1 or not loads_whole(train):
        return 0
    units = in_order_of_cutting(units_of(model, train, placement))
    whole = sum(sum(unit.loaded) for unit in units)
    if train.fsdp_version == 2:
        return whole + sum(sum(unit.shards) - sum(unit.uncut) for unit in units)
    most = cut = 0
    for unit in units:
        flat = sum(unit.loaded)
        most = max(most, whole + cut + flat)
        whole, cut = whole - flat, cut + sum(unit.shards)
    return most


def in_order_of_cutting(units: Sequence[Unit]) -> list[Unit]:
    """Each unit once, the root unit last."""
    return sorted({unit.name: unit for unit in units}.values(), key=lambda unit: unit.name == ROOT)


def _unit_name(block: Block, model: Model, train: ResolvedTrain) -> str:
    if wraps_nothing(train):
        return ROOT
    if block.layer is not None:
        return f"layer {block.layer}"
    if own_units(train, model):
        parts = {p.part for p in block.parameters}
        return EMBEDDING if "embedding" in parts else HEAD
    return ROOT


@record
class RootUnit:
    """Bytes of the last reduction of a step.

    `unsharded`: the gradients of the unit that it reduces, `scattered`: the collective's input, `gathered`: the unit's
    weights where they are still whole, `share`: the rank's own
    part of the result, not there yet; `waiting`: what the output layer's gradients take while layers run,
    beyond their share, `above`: all of them. `recast`: the result of a unit of its own before it is widened.
    """

    unsharded: int = 0
    scattered: int = 0
    share: int = 0
    waiting: int = 0
    above: int = 0
    gathered: int = 0
    recast: int = 0


def own_units(train: ResolvedTrain, model: Model) -> bool:
    """Whether embedding and output layer are units, so that what is outside the layers is not whole while those run."""
    said = kinds_of_units(train)
    makes_them = not said.isdisjoint((EMBEDDING, MODULE)) if said else framework_of(train).sharding.outer_units(train)
    return makes_them and (train.fsdp_version == 2 or bool(said)) and not model.shares_weights


def loss_is_apart(train: ResolvedTrain, model: Model) -> bool:
    """Whether the loss comes after the root unit's forward, which makes no logits of its own."""
    return framework_of(train).sharding.loss_after_root and own_units(train, model)


def reduced_in(train: ResolvedTrain, model: Model) -> int:
    """Bytes of a value while FSDP 2 reduces it."""
    compute = execution(train, model)
    narrow = width(compute.autocast or compute.param_dtype)
    return narrow if framework_of(train).gradients.reduced_in_compute_dtype else width(train.grad_dtype)


@lru_cache(maxsize=4096)
def root_unit(model: Model, train: ResolvedTrain, placement: Placement) -> RootUnit:
    """The root unit of one rank; nothing where FSDP does not cut the weights or trains none of the unit's."""
    if train.fsdp == "none" or placement.weight_shards == 1 or placement.stages > 1:
        return RootUnit()
    compute = execution(train, model)
    narrow = width(compute.autocast or compute.param_dtype)
    alone = wraps_nothing(train)
    outside = [(t, base) for t, base in trained_tensors(model, train) if (base.layer is None or alone) and t.grad_bytes]
    embeds = {base.name for _, base in outside if base.part == "embedding"}
    are_apart = own_units(train, model)
    if are_apart:
        outside = [(t, base) for t, base in outside if base.name in embeds]
    numel = sum(placement.local_numel(base, t.numel) for t, base in outside)
    share = sum(
        rounded(placement.gradient_numel(base, placement.local_numel(base, t.numel)) * t.grad_bytes)
        for t, base in outside
    )
    above = sum(placement.local_numel(base, t.numel) for t, base in outside if base.name not in embeds)
    grad = width(train.grad_dtype)
    waiting = above * narrow - -(-above // placement.gradient_shards) * grad
    if alone:  # all wait whole, and are counted as they come
        above = waiting = 0
    recast = 0
    if are_apart:  # autograd holds the gradient until its hook returns: the result is beside it
        share, reduced = 0, reduced_in(train, model)
        kept_apart = sum(placement.gradient_numel(base, placement.local_numel(base, t.numel)) for t, base in outside)
        recast = kept_apart * reduced if reduced != grad else 0
    return RootUnit(
        unsharded=numel * narrow,
        scattered=numel * (narrow if train.fsdp_version == 1 else reduced_in(train, model)),
        gathered=numel * narrow if train.fsdp_version == 1 else 0,
        share=share,
        above=above * narrow,
        waiting=max(0, waiting),
        recast=recast,
    )
