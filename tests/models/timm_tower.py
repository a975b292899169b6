"""Stands in for timm, which is not installed: Gemma 3n's image encoder as a table of parameters, which never runs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.models.timm_wrapper.modeling_timm_wrapper import TimmWrapperModel

GOLDEN = Path(__file__).parent.parent / "golden" / "mobilenetv5_300m_enc.csv"


def tower_shapes() -> dict[str, tuple[int, ...]]:
    """Every parameter of the encoder that timm builds, by name."""
    _, *lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return {row["name"]: tuple(map(int, row["shape"].split("x"))) for row in csv.DictReader(lines)}


def _made_of_shapes(self: Any, config: Any) -> None:
    PreTrainedModel.__init__(self, config)
    self.timm_model = torch.nn.Module()
    for name, shape in tower_shapes().items():
        *path, leaf = name.split(".")
        module = self.timm_model
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            module = getattr(module, part)
        setattr(module, leaf, torch.nn.Parameter(torch.empty(shape)))


def stand_in_for_timm() -> None:
    """From now on the wrapper of timm's models makes what the table says, without timm."""
    TimmWrapperModel.__init__ = _made_of_shapes
