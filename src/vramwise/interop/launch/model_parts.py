"""What a command trains or adapts of a model by part: the language model, its towers, what joins them, its experts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from vramwise.errors import UsageError, VramwiseError
from vramwise.interop.launch.model_facts import config_of
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model

_JOINS, _SPEAKS = "projector", "speech"
_CLASSIFIER = "score."
"""How the output layer of transformers' `ForSequenceClassification` begins."""


def described(model: str) -> Model | None:
    """The model, where its config is known here and its type is described."""
    from vramwise.models import describe

    try:
        return describe(config_of(model))
    except VramwiseError:
        return None


def is_multimodal(model: Model | None) -> bool:
    """Whether the model has more than its language model."""
    return model is not None and any(block.modality != "text" for block in model.blocks)


def trained_parts(model: Model, *, text: bool, towers: bool, joins: bool, head: str | None = None) -> list[str]:
    """Pieces of names that are in those of the parts that train and in no others, for a scenario's `trainable`.

    `head`: a scenario's, where another stands in the place of the model's own; it trains whatever else does.
    """
    asked = {"text": text, "towers": towers, "joins": joins}
    parts = {p.name: part for p, part in _parts(model) if head is None or p.part != "head"}
    found = _pieces([name for name, part in parts.items() if asked.get(part)],
                    [name for name, part in parts.items() if not asked.get(part)])  # fmt: skip
    return [*found, _CLASSIFIER] if head == "sequence-classification" else found


def full_but(model: str, *, towers: bool, joins: bool, text: bool = True) -> dict[str, object]:
    """Full training of a model of which some parts stay as they are. Raises UsageError where nothing is left."""
    known = described(model)
    if known is None or not is_multimodal(known) or (towers and joins and text):
        return {"method": "full"}
    trainable = trained_parts(known, text=text, towers=towers, joins=joins)
    if not trainable:
        raise UsageError("the language model, its towers and what joins them are all frozen: nothing is left to train")
    return {"method": "full", "trainable": trainable}


def language_targets(model: str) -> list[str]:
    """Targets of adapters on every linear layer of the language model alone."""
    known = described(model)
    if known is None or not is_multimodal(known):
        return ["all-linear"]
    return linear_targets(known, towers_too=False)[:1]


def of_language(pieces: Sequence[str], model: str) -> list[str]:
    """Pieces of names as they stand in the language model alone: a tower's layers have numbers too."""
    known = described(model)
    if known is None or not is_multimodal(known):
        return list(pieces)
    names = [parameter.name for parameter, part in _parts(known) if part == "text"]
    ends = [(name, name.index(piece) + len(piece)) for piece in pieces for name in names if piece in name]
    return list(dict.fromkeys(name[:end] for name, end in ends))


def linear_targets(model: Model, *, towers_too: bool) -> list[str]:
    """Targets of adapters on every linear layer of the language model but its head, and on what its experts have.

    `towers_too`: those of the rest as well. Experts are named parameter by parameter, so that each has one first
    matrix, whatever its layers were before they were one tensor.
    """
    text = [parameter for parameter, part in _parts(model) if part == "text"]
    experts = sorted({".".join(p.name.split(".")[-2:]) for p in text if p.part == "experts" and len(p.shape) == 3})
    if towers_too or not is_multimodal(model):
        return ["all-linear", *experts]
    layers = [p for p in text if p.is_linear and p.part != "head" and len(p.shape) == 2]
    inside = _pieces([p.name for p in layers], [p.name for p, part in _parts(model) if part != "text"])
    names = sorted({p.module.rpartition(".")[2] for p in layers})
    within = "|".join(re.escape(piece) for piece in inside)
    return [rf".*({within}).*\.({'|'.join(names)})", *experts]


def _parts(model: Model) -> Iterable[tuple[Parameter, str]]:
    for block in model.blocks:
        for parameter in block.parameters:
            if parameter.part == _JOINS:
                yield parameter, "joins"
            elif block.modality == "text":
                yield parameter, "text"
            else:
                yield parameter, "speech" if parameter.part == _SPEAKS else "towers"


def _pieces(wanted: Sequence[str], others: Sequence[str]) -> list[str]:
    """The shortest beginnings of the wanted names that stand in no other name."""
    found: list[str] = []
    for name in wanted:
        if any(piece in name for piece in found):
            continue
        parts = name.split(".")
        beginnings = [".".join(parts[:end]) + "." for end in range(1, len(parts))]
        found.append(next((piece for piece in beginnings if not any(piece in other for other in others)), name))
    return found
