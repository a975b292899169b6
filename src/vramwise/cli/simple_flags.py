"""What `vramwise estimate … --style simple` was asked: a model or only its size, and the shape of the formulas."""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import Any

from vramwise.cli import flag
from vramwise.cli.scenario_flags import HYPERPARAMETERS, model_from_flags, read_flag
from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.formats import dtype
from vramwise.interop.simple_rules import Shape, parameter_count, transformer_parameters
from vramwise.models import Model
from vramwise.records import record
from vramwise.scenario.definition import KINDS, TrainSettings

DEFAULT_SEQUENCE = 2048


@record
class SimpleQuestion:
    """Numbers for the formulas; what was not given is None. `model` is described where a name or config was given."""

    num_parameters: int
    counted_by: str
    dtype: str
    bits: int
    shape: Shape | None = None
    intermediate: int | None = None
    card: str | None = None
    card_bytes: int | None = None
    model_name: str | dict[str, Any] | None = None
    model: Model | None = None
    missing: tuple[str, ...] = ()
    not_described: str | None = None


def question_of(args: argparse.Namespace) -> SimpleQuestion:
    """The question of the flags. Raises UsageError; SourceError for a model that cannot be found or read."""
    hyperparameters = {
        key: read_flag(key, kind, value)
        for key, kind in HYPERPARAMETERS.items()
        if (value := getattr(args, key)) is not None
    }
    count = _given_count(args)
    if count is not None:
        return _question(args, count, "as given", hyperparameters)
    name = model_from_flags(args)
    if name is None:
        raise UsageError("no model: give MODEL, --num-parameters N, or --hidden-size and its like")
    if isinstance(name, dict):
        return _of_hyperparameters(args, name)
    from vramwise.estimation import described_model

    _, model = described_model(name)
    return _question(args, model.num_parameters, "counted tensor by tensor", _sizes(model), name, model)


def _given_count(args: argparse.Namespace) -> int | None:
    if args.num_parameters is None:
        return parameter_count(args.model) if args.model else None
    count = parameter_count(args.num_parameters)
    if count is None:
        raise UsageError(
            f'--num-parameters: expected a size such as 7e9, 7b or 350M, got "{clipped(args.num_parameters)}"'
        )
    if args.model is not None:
        raise UsageError("--num-parameters stands for a model: leave out MODEL")
    return count


def _of_hyperparameters(args: argparse.Namespace, table: dict[str, Any]) -> SimpleQuestion:
    """A model given by sizes alone: counted by the simple formula; its true count where the sizes describe it."""
    needed = ("num_hidden_layers", "hidden_size", "vocab_size")
    absent = [key for key in needed if key not in table]
    if absent:
        raise UsageError(f"{flag(absent[0])} is missing: the formula needs layers, hidden size, vocabulary")
    positions = _sequence(args, table)
    layers, hidden, vocabulary = (table[key] for key in needed)
    count = transformer_parameters(layers, hidden, vocabulary, positions)
    from vramwise.estimation import described_model

    try:
        model, problem = described_model({**table, "max_position_embeddings": positions})[1], None
    except VramwiseError as error:
        model, problem = None, str(error)
    return _question(args, count, "12·L·h² + (V + s)·h", table, table if model else None, model, problem)


def _question(
    args: argparse.Namespace, count: int, counted_by: str, sizes: dict[str, Any],
    name: str | dict[str, Any] | None = None, model: Model | None = None, problem: str | None = None,
) -> SimpleQuestion:  # fmt: skip
    number_format = dtype(args.dtype or "fp16")
    batch, sequence = _whole(args, "micro_batch_size") or 1, _sequence(args, sizes)
    missing = tuple(key for key in ("hidden_size", "num_hidden_layers") if not sizes.get(key))
    shape = None
    if not missing:
        each = Fraction(number_format.bits, 8)
        shape = Shape(batch, sequence, sizes["hidden_size"], sizes["num_hidden_layers"], each)
    card, card_bytes = _card(args)
    return SimpleQuestion(
        count, counted_by, number_format.name, number_format.bits, shape, sizes.get("intermediate_size"), card,
        card_bytes, name, model, missing, problem,
    )  # fmt: skip


def _sizes(model: Model) -> dict[str, Any]:
    config = model.config
    intermediate = config.size("intermediate_size", default=0, least=0)
    return {
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_layers,
        "intermediate_size": intermediate or None,
        "max_position_embeddings": config.size("max_position_embeddings", default=DEFAULT_SEQUENCE),
    }


def _sequence(args: argparse.Namespace, sizes: dict[str, Any]) -> int:
    return _whole(args, "sequence_length") or min(
        sizes.get("max_position_embeddings") or DEFAULT_SEQUENCE, DEFAULT_SEQUENCE
    )


def _whole(args: argparse.Namespace, key: str) -> int | None:
    value = getattr(args, key)
    return None if value is None else int(str(read_flag(key, KINDS[TrainSettings][key], value)))


def _card(args: argparse.Namespace) -> tuple[str | None, int | None]:
    """A card by the memory it is sold with, as the worked example takes it."""
    from vramwise.hardware import find_gpu
    from vramwise.units import GB, parse_bytes

    if args.gpu_total_bytes is not None:
        return args.gpu, parse_bytes(args.gpu_total_bytes)
    if args.gpu is None:
        return None, None
    gpu = find_gpu(args.gpu).gpu
    return gpu.id, None if gpu.memory_nominal_gb is None else round(gpu.memory_nominal_gb * GB)
