"""`vramwise estimate MODEL` alone: what the model takes in every precision and task, and which cards hold it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from vramwise.cli import flag
from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.model_facts import ImageCost, fact_lines
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.engines import PLAIN
from vramwise.errors import VramwiseError
from vramwise.formats.safetensors import StoredWeights
from vramwise.hardware import find_gpu
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.models.operations.experts import ExpertMlps
from vramwise.result import Quantity, Result
from vramwise.scenario import Scenario
from vramwise.units import GB, MB, format_bytes
from vramwise.verdict import verdict_of

CARDS = (
    "rtx-4060", "t4-16gb", "rtx-4090", "l40s-48gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb",
)  # fmt: skip
CONTEXT_TOKENS = 8192
TRAINING_TOKENS = 2048
MOST_CARDS_TRIED = (2, 4, 8)
NOTHING = "–"
TIGHT = "tight"

Estimate = Callable[[Scenario | Mapping[str, object]], Result]


@dataclass(frozen=True)
class Overview:
    """The numbers of the overview: bytes needed by precision and column, and cards by task."""

    table: dict[str, dict[str, int | None]]
    cards: dict[str, dict[str, int | None]]
    """Task -> card -> how many of it are needed (None: more than eight)."""
    tight: frozenset[tuple[str, str]]
    """Task and card where one card is enough, but with a probability below 95 %."""
    context_tokens: int
    next_command: tuple[str, ...]
    """Flags of a command that fits on its card; empty where none of those that are tried does."""

    @property
    def makes_text(self) -> bool:
        """Whether the model runs on tokens; one of images alone does not."""
        return any(row["context"] is not None for row in self.table.values())

    def to_dict(self) -> dict[str, object]:
        return {
            "needed_bytes": self.table,
            "cards_needed": self.cards,
            "tight": sorted([task, card] for task, card in self.tight),
            "context_tokens": self.context_tokens,
        }


_PRECISIONS: dict[str, dict[str, object]] = {
    "fp32": {"dtype": "fp32"},
    "bf16": {"dtype": "bf16"},
    "int8": {"dtype": "bf16", "quantization": "bitsandbytes-int8"},
    "nf4": {"dtype": "bf16", "quantization": "bitsandbytes-nf4"},
}
# What is open is taken as the framework's own, so that a cell is what `--task train` alone answers.
_TRAINING: dict[str, dict[str, dict[str, object]]] = {
    "fp32": {"full": {"precision": "fp32"}},
    "bf16": {"full": {}, "lora": {"method": "lora"}},
    "int8": {"lora": {"method": "qlora", "quantization": "int8"}},
    "nf4": {"lora": {"method": "qlora", "quantization": "nf4"}},
}
_TASKS = {  # task -> row and column of the need that decides it
    "serve": ("bf16", "context"), "qlora": ("nf4", "checkpointed"), "lora": ("bf16", "lora"), "full": ("bf16", "full"),
}  # fmt: skip
_CHECKPOINTED = {"method": "qlora", "checkpointing": "full"}
_NEXT: tuple[
    tuple[str, str, int, Mapping[str, object]], ...
] = (  # task, card, how many of it, settings: modest ones first
    ("train", "4090", 1, {"method": "lora"}),
    ("train", "4090", 1, _CHECKPOINTED),
    ("train", "a100-80gb", 1, _CHECKPOINTED),
    ("train", "h200", 1, _CHECKPOINTED),
    ("train", "h200", 8, {**_CHECKPOINTED, "fsdp": "full-shard"}),
    ("serve", "h200", 1, {"tensor_parallel_size": 8, "max_model_len": CONTEXT_TOKENS}),
)


def overview(name: str | Mapping[str, object], model: Model, estimate: Estimate) -> Overview:
    """Every cell is an estimate of its own; a cell that has no answer is None."""
    longest = model_length(model)
    context = min(CONTEXT_TOKENS, longest)
    table: dict[str, dict[str, Quantity | None]] = {}
    for precision, settings in _PRECISIONS.items():
        generate = {"engine": PLAIN, **settings, "prompt_tokens": max(context - 1, 1), "new_tokens": 1}
        row = {
            "weights": _needed(estimate, {"model": name, "task": "load", "serve": _loading(settings)}, "weights"),
            "context": _needed(estimate, {"model": name, "task": "generate", "generate": generate}),
        }
        steps = _TRAINING[precision]
        if "lora" in steps:
            steps = steps | {"checkpointed": {**steps["lora"], "checkpointing": "full"}}
        for column in ("lora", "checkpointed", "full"):
            asked: dict[str, object] = {"model": name, "task": "train", "train": _step(steps.get(column, {}), longest)}
            row[column] = _needed(estimate, asked) if column in steps else None
        table[precision] = row
    cards, tight = _cards(name, longest, table, estimate)
    plain = {
        precision: {column: None if need is None else int(need.expected) for column, need in row.items()}
        for precision, row in table.items()
    }
    return Overview(plain, cards, tight, context, _next(name, estimate))


def overview_screen(
    model: Model, numbers: Overview, asked: str, image: ImageCost | None = None, stored: StoredWeights | None = None
) -> list[Line]:
    """The lines of the overview; `asked` is the model as the user wrote it."""
    tokens = numbers.context_tokens
    short = f"{tokens // 1000}k" if tokens >= 1000 else str(tokens)
    heads = {
        "weights": "weights",
        "context": f"+ {short} context" if tokens >= 1000 else f"+ {short} tokens",
        "lora": "LoRA r=8",
        "checkpointed": "checkpointed",
        "full": "full (AdamW)",
    }
    titles = {
        "serve": f"serve bf16, {short}",
        "qlora": "QLoRA checkpointed",
        "lora": "LoRA bf16",
        "full": "full fine-tuning",
    }
    if not numbers.makes_text:
        del heads["context"], titles["serve"]
    rows = [[precision, *(_size(row[key]) for key in heads)] for precision, row in numbers.table.items()]
    cards = [[title, *(_verdict(numbers, task, card) for card in CARDS)] for task, title in titles.items()]
    step = f"1 × {min(TRAINING_TOKENS, model_length(model)):,} tokens" if numbers.makes_text else "one sample"
    notes = f"a step of {step}; int8, nf4: QLoRA; checkpointed: LoRA with --checkpointing full"
    return [
        *_headline(model),
        *fact_lines(model, image, stored),
        "",
        *columns([["", *heads.values()], *rows]),
        *wrapped_text("", notes, screen_width()),
        "",
        *fitted_table([["runs on", *(card_title(card) for card in CARDS)], *cards]),
        "",
        *wrapped_text("rules of thumb  ", rules_of_thumb(model.num_parameters), screen_width()),
        *_command(["vramwise", "estimate", shlex.quote(asked), *numbers.next_command], screen_width()),
    ]


def _command(words: Sequence[str], width: int) -> list[str]:
    """A command that can be copied, over several lines where it is long."""
    lines = ["next:"]
    for word in words:
        if len(lines[-1]) + len(word) + 3 > width:
            lines[-1] += " \\"
            lines.append("    ")
        lines[-1] += f" {word}"
    return lines


def fitted_table(rows: list[list[str]]) -> list[str]:
    """A table, turned on its side where the screen is too narrow for it."""
    lines = columns(rows)
    return lines if max(map(len, lines)) <= screen_width() else columns(list(zip(*rows, strict=True)), gap=2)


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
    length = next((key for key in ("max_position_embeddings", "max_target_positions") if model.config.has(key)), None)
    if length is not None:
        pieces.append(f"context {model.config.size(length):,}")
    lines: list[Line] = list(wrapped_text("", " · ".join(pieces), screen_width()))
    active = model.num_active_parameters
    if active == model.num_parameters:
        return lines
    lines.append(f"{active:,} of them are active for a token (routed experts)")
    if model.has(ExpertMlps):
        lines.append("bitsandbytes (int8, nf4) leaves experts that are one fused tensor in 16 bit")
    return lines


def _loading(settings: dict[str, object]) -> dict[str, object]:
    return {"engine": PLAIN, **settings}


def _step(values: dict[str, object], longest: int) -> dict[str, object]:
    return {"micro_batch_size": 1, "sequence_length": min(TRAINING_TOKENS, longest), **values}


def _needed(estimate: Estimate, scenario: dict[str, object], quantity: str = "") -> Quantity | None:
    try:
        result = estimate(scenario)
    except VramwiseError:
        return None
    return result.quantities.get(quantity) or result.needed


def _cards(
    name: str | Mapping[str, object], longest: int, table: dict[str, dict[str, Quantity | None]], estimate: Estimate
) -> tuple[dict[str, dict[str, int | None]], frozenset[tuple[str, str]]]:
    """How many of each card a task takes: one where its need is below what the card has, else sharded training."""
    counts: dict[str, dict[str, int | None]] = {}
    tight: set[tuple[str, str]] = set()
    sharded = _sharded(name, longest, estimate)
    for task, (precision, column) in _TASKS.items():
        needed = table[precision][column]
        for card in CARDS:
            usable = find_gpu(card).gpu.usable_bytes or 0
            verdict = verdict_of(needed, usable) if needed is not None else None
            enough: int | None = 1 if verdict is not None and verdict.fits else None
            if verdict is not None and verdict.word == "tight":
                tight.add((task, card))
            if enough is None and task == "full":
                enough = next((count for count in MOST_CARDS_TRIED if sharded(count) <= usable), None)
            counts.setdefault(task, {})[card] = enough
    return counts, frozenset(tight)


def _sharded(name: str | Mapping[str, object], longest: int, estimate: Estimate) -> Callable[[int], float]:
    """What each of so many cards needs for full training under FSDP; endless where that has no answer."""

    @cache
    def need(count: int) -> float:
        step = {**_step({}, longest), "fsdp": "full-shard"}
        found = _needed(estimate, {"model": name, "task": "train", "num_gpus": count, "train": step})
        return float("inf") if found is None else found.expected

    return need


def _next(name: str | Mapping[str, object], estimate: Estimate) -> tuple[str, ...]:
    """Flags of the first command that fits on its card, by the answer that the command itself gives."""
    for task, card, many, settings in _NEXT:
        count = {"num_gpus": many} if many > 1 else {}
        if _fits(estimate, {"model": name, "task": task, "gpu": card, **count, task: settings}):
            given = {"task": task, **settings, "gpu": card, **count}
            return tuple(word for key, value in given.items() for word in (flag(key), str(value)))
    return ("--task", "load")


def _fits(estimate: Estimate, scenario: dict[str, object]) -> bool:
    try:
        verdict = estimate(scenario).verdict
    except VramwiseError:
        return False
    return verdict is not None and verdict.word == "fits"


def _size(n: int | None) -> str:
    return NOTHING if n is None else format_bytes(n)


def _verdict(numbers: Overview, task: str, card: str) -> str:
    count = numbers.cards[task].get(card)
    if (task, card) in numbers.tight:
        return TIGHT
    return {None: "no", 1: "yes"}.get(count) or f"{count} ×"


def card_title(card: str) -> str:
    gpu = find_gpu(card).gpu
    size = f" {gpu.memory_nominal_gb:.0f} GB" if gpu.memory_nominal_gb else ""
    short = gpu.name.replace("GeForce ", "").replace("Tesla ", "")
    return short if size.strip() in short else short.split(" SXM")[0] + size
