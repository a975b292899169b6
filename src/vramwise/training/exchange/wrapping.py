"""What FSDP makes a unit of: layers, every module, nothing but the whole model, or classes by their names.

A class that transformers names `…Layer` or `…Block` is a decoder layer or what stands for one, `Embedding` the table of
tokens (with the output layer, which frameworks that name it wrap beside it), `Linear` every linear layer for itself.
torch 2.13 distributed/fsdp/wrap.py `_module_wrap_policy`; accelerate 1.12 utils/dataclasses.py
`set_auto_wrap_policy`: NO_WRAP is one unit.
"""

from __future__ import annotations

from typing import Final

from vramwise.errors import ScenarioError, clipped
from vramwise.models.blocks import Block, Parameter
from vramwise.scenario import TrainSettings

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
    """The module that has a parameter."""
    return parameter.name.rpartition(".")[0]


def is_outside(block: Block, train: TrainSettings) -> bool:
    """Whether the root unit, or a unit of its own beside the layers, has a block's weights."""
    return block.layer is None or wraps_nothing(train)
