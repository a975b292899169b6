"""Images of a training batch: what a scenario's keys mean for a model, and what tensor parallelism leaves of towers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from vramwise.errors import ScenarioError, UnsupportedModelError, clipped
from vramwise.frameworks import framework_of
from vramwise.models.blocks import Block, Operation, Parameter
from vramwise.models.execution import Images
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact
from vramwise.training.resolved import ResolvedTrain

if TYPE_CHECKING:
    from vramwise.models.images import ImageTokens

DEFAULT_SIZE = "1024x1024"


def images_of(train: ResolvedTrain, model: Model) -> Images | None:
    """The images of a batch, None without any; pixels come in fp32, as processors make them.

    Raises ScenarioError for a model that reads none and UnsupportedModelError where what its tower keeps for backward
    is not described.
    """
    if not train.images_per_sequence:
        return None
    found = _tokens(train, model)
    return Images(
        train.images_per_sequence, found.rows, found.columns, tokens=found.tokens, tiles=found.tiles, dtype="fp32",
        padded_to=found.padded_to, last_grid=found.last_grid, pixels=found.pixels,
    )  # fmt: skip


def image_tokens_of(train: ResolvedTrain, model: Model) -> int:
    """Tokens of a sequence that its images take: no sequence is shorter; 1 without any."""
    return _tokens(train, model).tokens * train.images_per_sequence if train.images_per_sequence else 1


def check_described(model: Model) -> None:
    """Raises UnsupportedModelError for a model without text of which some operation is not described.

    A batch of text leaves out what it has for images or sound; a model of these alone has no such batch.
    """
    if model.ends_in_text:
        return
    if all(op.is_described for op in model.operations(Operation)):
        return
    from vramwise.models.operations.undescribed import Undescribed, refusal

    for op in model.operations(Undescribed):
        raise refusal(op)


def check_images(train: ResolvedTrain, model: Model) -> None:
    """Raises ScenarioError where the tokens of the images are more than a sequence has."""
    if not train.images_per_sequence:
        return
    tokens, sequence = _tokens(train, model).tokens * train.images_per_sequence, train.sequence_length
    if tokens > sequence:
        images = "1 image takes" if train.images_per_sequence == 1 else f"{train.images_per_sequence} images take"
        problem = f"{images} {tokens:,} tokens of a sequence of {sequence:,}"
        raise ScenarioError(
            "train.images_per_sequence", f"{problem}; expected a sequence_length of at least {tokens:,}"
        )
    if cuts_towers(train, model):
        raise ScenarioError(
            "train.images_per_sequence", "where tensor parallelism cuts the tower, what it keeps is not described"
        )


def images_note(train: ResolvedTrain, model: Model) -> str:
    """What is counted for images; empty without any."""
    if not train.images_per_sequence:
        return ""
    found = _tokens(train, model)
    each = f"{found.patches:,} patches and {found.tokens:,} tokens of the sequence each ({found.rule})"
    return f"images of {train.image_size or DEFAULT_SIZE} pixels, {train.images_per_sequence} a sequence: {each}"


def _tokens(train: ResolvedTrain, model: Model) -> ImageTokens:
    from vramwise.models.images import image_tokens
    from vramwise.scenario.pixels import pixels_of

    width, height = pixels_of(train.image_size or DEFAULT_SIZE, "train.image_size")
    kind = clipped(model.config.model_type)
    if all(block.modality != "image" for block in model.blocks) and not model.config.has("vision_config"):
        raise ScenarioError("train.images_per_sequence", f"{kind} reads no images; expected 0")
    found = image_tokens(model.config, width, height, train.images_per_sequence)
    if found is None or not found.rows or not model.describes_images:
        problem = f"what the images of {kind} models keep for backward is not described"
        raise UnsupportedModelError(f"{problem}; with images_per_sequence = 0 a batch of text is estimated")
    return found


def cuts_towers(train: ResolvedTrain, model: Model) -> bool:
    """Whether tensor parallelism cuts what is not text, too."""
    if train.tensor_parallel_size == 1 or framework_of(train).sharding.whole_towers:
        return False
    return has_fact("transformers", "planned_towers", model.config.model_type)


def without_speech(train: ResolvedTrain, model: Model) -> Model:
    """The model without what speaks, where the framework's own does not have that."""
    if framework_of(train).makes_speech or "speech" not in model.parts:
        return model
    return _silent(model)


@lru_cache(maxsize=16)
def _silent(model: Model) -> Model:
    def speaks(block: Block) -> bool:
        return bool(block.parameters) and all(parameter.part == "speech" for parameter in block.parameters)

    return replace(model, blocks=tuple(block for block in model.blocks if not speaks(block)))


def with_whole_towers(train: ResolvedTrain, model: Model) -> Model:
    """The model with every weight that is not text's on every rank, where its implementation leaves them so."""
    if train.tensor_parallel_size == 1 or cuts_towers(train, model):
        return model
    return _replicated(model) if any(block.modality != "text" for block in model.blocks) else model


@lru_cache(maxsize=16)
def _replicated(model: Model) -> Model:
    return replace(model, blocks=tuple(b if b.modality == "text" else _whole(b) for b in model.blocks))


def _whole(block: Block) -> Block:
    def whole(p: Parameter) -> Parameter:
        return replace(p, shard="replicated")

    return replace(block, ops=tuple(replace(op, parameters=tuple(map(whole, op.parameters))) for op in block.ops))
