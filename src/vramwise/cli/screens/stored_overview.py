"""`vramwise estimate MODEL` for what only its files tell: models of timm and Diffusers, types nobody described."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.huggingface import size
from vramwise.cli.screens.overview import CARDS, card_title, fitted_table
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.hardware import find_gpu
from vramwise.interop.huggingface_calculator import calculator_of_files
from vramwise.models.tensors_only import usual_cache
from vramwise.serving.common.answer import context_node
from vramwise.serving.stored import stored_node
from vramwise.serving.tensors import KnownTensors
from vramwise.units import format_bytes

_AS_ACCELERATE = "as accelerate estimate-memory counts (MB and GB are MiB and GiB): no activations, no batch"
_HEADS = ("dtype", "largest layer", "total size", "training using Adam")


def stored_overview_json(known: KnownTensors) -> dict[str, object]:
    """What the screen says, as numbers."""
    assert known.files is not None
    weights = stored_node(known.files)
    return {
        "model": known.model.id,
        "library": {"name": known.library.name, "reason": known.library.reason, "called": known.library.called},
        "num_parameters": known.model.num_parameters,
        "weights": {"bytes": weights.bytes, **{node.name: node.bytes for node in weights.children}},
        "runs": what_it_does(known),
        "tables": calculator_of_files(known.files, has_head=not known.library.has_types).to_dict(),
        "notes": [known.unknown, *known.notes],
    }


def stored_overview_screen(known: KnownTensors, asked: str) -> list[Line]:
    """Headline, weights by component and dtype, the dtypes' table, cards that hold it, and what to ask next."""
    assert known.files is not None
    width = screen_width()
    weights = stored_node(known.files)
    files = "file" if known.files.num_files == 1 else "files"
    title = f"{model_title(known.model.id)} · {known.library.called} · {known.model.num_parameters:,} parameters"
    tables = calculator_of_files(known.files, has_head=not known.library.has_types)
    rows = [
        [row.dtype, size(row.largest_layer_bytes), size(row.total_bytes), _or_none(row.training_bytes)]
        for row in tables.rows
    ]
    held = [[node.name, format_bytes(node.bytes, "auto")] for node in weights.children]
    said = (f"taken as a model of {known.library.name}: {known.library.reason}", what_it_does(known), *known.notes[1:])
    ask = shlex.quote(asked)
    return [
        *wrapped_text("", title, width),
        *(line for text in said if text for line in wrapped_text("", text, width)),
        "",
        f"weights  {format_bytes(weights.bytes, 'auto')} in {known.files.num_files} {files}",
        *columns([["  " + name, amount] for name, amount in held]),
        "",
        *columns([_HEADS, *rows], gap=2),
        *wrapped_text("", _AS_ACCELERATE, width),
        "",
        *fitted_table([["holds the weights", *map(card_title, CARDS)], ["as stored", *_cards(weights.bytes)]]),
        "",
        f"next: vramwise estimate {ask} --task load --gpu 4090",
        f"      vramwise estimate {ask} --style huggingface",
    ]


def what_it_does(known: KnownTensors) -> str:
    """A sentence about what runs, as far as the config says: a classifier, a pipeline, a decoder of text."""
    config = known.model.config.values
    if known.library.name == "timm":
        return _classifier(config)
    if known.library.name == "diffusers":
        return "a pipeline of Diffusers: --task load says what all components take, batch and image size what runs"
    cache, _ = usual_cache(config)
    if cache is not None:
        return "its config has a decoder's usual keys: --task generate and serve count the KV cache too"
    names = config.get("architectures")
    called = [str(name)[:60] for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return f"no generation of text is known of it ({called[0]})" if called else ""


def _classifier(config: Mapping[str, object]) -> str:
    inner = config.get("pretrained_cfg")
    cfg = inner if isinstance(inner, Mapping) else {}
    classes, shape = config.get("num_classes", cfg.get("num_classes")), cfg.get("input_size")
    images = "images"
    if isinstance(shape, list | tuple) and len(shape) == 3 and all(isinstance(side, int) for side in shape):
        images = f"images of {shape[2]} × {shape[1]} pixels"
    what = f"reads {images}"
    if isinstance(classes, int):
        what = f"puts {images} into {classes:,} classes" if classes else f"makes features of {images}"
    return f"{what}; it makes no text, so there is no context and no KV cache"


def _cards(weights: int) -> list[str]:
    gpus = [find_gpu(card).gpu for card in CARDS]
    return ["yes" if weights + context_node(gpu).bytes <= (gpu.usable_bytes or 0) else "no" for gpu in gpus]


def _or_none(n: float | None) -> str:
    return "N/A" if n is None else size(n)
