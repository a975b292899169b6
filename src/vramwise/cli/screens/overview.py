"""`vramwise estimate MODEL` alone: what the model takes in every precision and task, and which cards hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.model_facts import ImageCost, fact_lines
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.errors import VramwiseError
from vramwise.formats.safetensors import StoredWeights
from vramwise.hardware import find_gpu
from vramwise.models import Model
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.units import GB, MB, format_bytes

CARDS = ("t4-16gb", "rtx-4090", "l40s-48gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb")
CONTEXT_TOKENS = 8192
TRAINING_TOKENS = 2048
MOST_CARDS_TRIED = (2, 4, 8)
NOTHING = "–"

Estimate = Callable[[Scenario | Mapping[str, Any]], Result]


@dataclass(frozen=True)
class Overview:
    """The numbers of the overview: bytes needed by precision and column, and cards by task."""

    table: dict[str, dict[str, int | None]]
    cards: dict[str, dict[str, int | None]]
    """Task -> card -> how many of it are needed (None: more than eight)."""
    context_tokens: int

    def to_dict(self) -> dict[str, Any]:
        return {"needed_bytes": self.table, "cards_needed": self.cards, "context_tokens": self.context_tokens}


_PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"dtype": "fp32"},
    "bf16": {"dtype": "bf16"},
    "int8": {"dtype": "bf16", "quantization": "bitsandbytes-int8"},
    "nf4": {"dtype": "bf16", "quantization": "bitsandbytes-nf4"},
}
# What is open is taken as the framework's own, so that a cell is what `--task train` alone answers.
_TRAINING: dict[str, dict[str, dict[str, Any]]] = {
    "fp32": {"full": {"precision": "fp32"}},
    "bf16": {"full": {}, "lora": {"method": "lora"}},
    "int8": {"lora": {"method": "qlora", "quantization": "int8"}},
    "nf4": {"lora": {"method": "qlora", "quantization": "nf4"}},
}


def overview(name: str | Mapping[str, Any], model: Model, estimate: Estimate) -> Overview:
    """Every cell is an estimate of its own; a cell that has no answer is None."""
    longest = model.config.size("max_position_embeddings", default=CONTEXT_TOKENS)
    context = min(CONTEXT_TOKENS, longest)
    table: dict[str, dict[str, int | None]] = {}
    for precision, settings in _PRECISIONS.items():
        generation = {**settings, "prompt_tokens": max(context - 1, 1), "new_tokens": 1}
        training = {
            column: _needed(estimate, {"model": name, "task": "train", "train": _step(values, longest)})
            for column, values in _TRAINING[precision].items()
        }
        generate = {"engine": "transformers", **generation}
        table[precision] = {
            "weights": _needed(estimate, {"model": name, "task": "load", "serve": _loading(settings)}, "weights"),
            "context": _needed(estimate, {"model": name, "task": "generate", "generate": generate}),
            "lora": training.get("lora"),
            "full": training.get("full"),
        }
    return Overview(table, _cards(name, longest, table, estimate), context)


def overview_screen(
    model: Model, numbers: Overview, asked: str, image: ImageCost | None = None, stored: StoredWeights | None = None
) -> list[Line]:
    """The lines of the overview; `asked` is the model as the user wrote it."""
    tokens = numbers.context_tokens
    short = f"{tokens // 1000}k" if tokens >= 1000 else str(tokens)
    heads = ["", "weights", f"+ {short} context", "LoRA r=8", f"full (AdamW, {_training_tokens(model):,} tokens)"]
    rows = [[precision, *(_size(row[key]) for key in ("weights", "context", "lora", "full"))]
            for precision, row in numbers.table.items()]  # fmt: skip
    names = {card: _card_title(card) for card in CARDS}
    verdicts = {
        f"serve bf16, {short}": numbers.cards["serve"],
        "LoRA bf16": numbers.cards["lora"],
        "full fine-tuning": numbers.cards["full"],
    }
    cards = [[task, *(_verdict(row.get(card)) for card in CARDS)] for task, row in verdicts.items()]
    return [
        *_headline(model),
        *fact_lines(model, image, stored),
        "",
        *columns([heads, *rows]),
        "",
        *_fitted([["runs on", *(names[card] for card in CARDS)], *cards]),
        "",
        *wrapped_text("rules of thumb  ", rules_of_thumb(model.num_parameters), screen_width()),
        f"next: vramwise estimate {asked} --task train --method lora --gpu 4090",
    ]


def _training_tokens(model: Model) -> int:
    return min(TRAINING_TOKENS, model.config.size("max_position_embeddings", default=TRAINING_TOKENS))


def _fitted(rows: list[list[str]]) -> list[str]:
    """A table, turned on its side where the screen is too narrow for it."""
    lines = columns(rows)
    return lines if max(map(len, lines)) <= screen_width() else columns(list(zip(*rows, strict=True)))


def rules_of_thumb(num_parameters: int) -> str:
    """The field's quick figures in GB, labelled as such: 2n to serve, 16n + activations to train, 20n to be safe."""
    serve, train, safe = (_gb(factor * num_parameters) for factor in (2, 16, 20))
    return f"serve 2n = {serve}, train 16n = {train} + activations, 20n = {safe} to be safe (not the answer)"


def _gb(n: int) -> str:
    return format_bytes(n, "GB", 0 if n >= 10 * GB else 2)


def _headline(model: Model) -> list[Line]:
    unit, scale = ("B", GB) if model.num_parameters >= GB else ("M", MB)
    parts = ", ".join(f"{part} {count / scale:.2f} {unit}" for part, count in model.parts.items() if part != "norm")
    pieces = [model_title(model.id), f"{model.num_parameters:,} parameters ({parts})"]
    if model.config.has("max_position_embeddings"):
        pieces.append(f"context {model.config.size('max_position_embeddings'):,}")
    lines: list[Line] = list(wrapped_text("", " · ".join(pieces), screen_width()))
    active = model.num_active_parameters
    if active == model.num_parameters:
        return lines
    lines.append(f"{active:,} of them are active for a token (routed experts)")
    if any(op.kind == "experts" for block in model.blocks for op in block.ops):
        lines.append("bitsandbytes (int8, nf4) leaves experts that are one fused tensor in 16 bit")
    return lines


def _loading(settings: dict[str, Any]) -> dict[str, Any]:
    return {"engine": "transformers", **settings}


def _step(values: dict[str, Any], longest: int) -> dict[str, Any]:
    return {"micro_batch_size": 1, "sequence_length": min(TRAINING_TOKENS, longest), **values}


def _needed(estimate: Estimate, scenario: dict[str, Any], quantity: str = "") -> int | None:
    try:
        result = estimate(scenario)
    except VramwiseError:
        return None
    if quantity and quantity in result.quantities:
        return int(result.quantities[quantity].expected)
    return int(result.needed.expected)


def _cards(
    name: str | Mapping[str, Any], longest: int, table: dict[str, dict[str, int | None]], estimate: Estimate
) -> dict[str, dict[str, int | None]]:
    """How many of each card a task takes: one where its need is below what the card has, else sharded training."""
    need = {"serve": table["bf16"]["context"], "lora": table["bf16"]["lora"], "full": table["bf16"]["full"]}
    counts: dict[str, dict[str, int | None]] = {}
    for task, needed in need.items():
        for card in CARDS:
            usable = find_gpu(card).gpu.usable_bytes or 0
            enough: int | None = 1 if needed is not None and needed <= usable else None
            if enough is None and task == "full":
                enough = _sharded(name, longest, usable, estimate)
            counts.setdefault(task, {})[card] = enough
    return counts


def _sharded(name: str | Mapping[str, Any], longest: int, usable: int, estimate: Estimate) -> int | None:
    for count in MOST_CARDS_TRIED:
        step = {**_step({}, longest), "fsdp": "full-shard"}
        needed = _needed(estimate, {"model": name, "task": "train", "num_gpus": count, "train": step})
        if needed is not None and needed <= usable:
            return count
    return None


def _size(n: int | None) -> str:
    return NOTHING if n is None else format_bytes(n)


def _verdict(count: int | None) -> str:
    return {None: "no", 1: "yes"}.get(count) or f"{count} ×"


def _card_title(card: str) -> str:
    gpu = find_gpu(card).gpu
    size = f" {gpu.memory_nominal_gb:.0f} GB" if gpu.memory_nominal_gb else ""
    short = gpu.name.replace("GeForce ", "").replace("Tesla ", "")
    return short if size.strip() in short else short.split(" SXM")[0] + size
