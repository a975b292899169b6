"""`--style simple`: rules of thumb and simple formulas, labelled as such, with the true figures beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vramwise.cli import flag
from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.cli.simple_flags import SimpleQuestion
from vramwise.errors import VramwiseError
from vramwise.interop.huggingface_calculator import base_model
from vramwise.interop.simple_rules import (
    MODEL_STATES,
    activation_bytes,
    hidden_bytes,
    inference_bytes,
    int8_training_bytes,
    kv_cache_bytes,
    lora_bytes,
    sample_bytes,
    samples_that_fit,
    thumb_bytes,
    training_bytes,
    training_states_bytes,
    weight_bytes,
)
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.units import GB, counted, format_bytes

_THUMBS = {
    "serve 2n": "serve 2n GB",
    "train 16n": "train 16n GB + activations",
    "to be safe 20n": "20n GB to be safe",
}
_LORA = (
    ("base_and_gradients", "LoRA, as an article has it: base", "2 + 2"),
    ("adapters", "LoRA, its adapters of 0.4785 %", "2 + 2 + 4"),
    ("frozen", "LoRA in truth: no frozen gradients", "2"),
)
"""What an article on LoRA counts, and beside it that a frozen weight has no gradient."""
Estimate = Callable[[Scenario | Mapping[str, Any]], Result]
PRECISIONS = {"fp32": 32, "fp16, bf16": 16, "int8, fp8": 8, "int4, nf4, fp4": 4}
_LARGE_UNITS, _SMALL_UNITS = ("GB", "GiB"), ("MB", "MiB")
_DECIMALS = {"GB": 4, "GiB": 4, "MB": 2, "MiB": 4, "KiB": 1}


def simple_answer(question: SimpleQuestion, estimate: Estimate) -> dict[str, object]:
    """Every figure in bytes; `true` holds what vramwise itself answers where a model is described."""
    count = question.num_parameters
    answer: dict[str, object] = {
        "num_parameters": count,
        "counted_by": question.counted_by,
        "weights": {name: weight_bytes(count, bits) for name, bits in PRECISIONS.items()},
        "training_states": {row.name: training_states_bytes(count, row) for row in MODEL_STATES},
        "int8_training": int8_training_bytes(count),
        "lora": lora_bytes(count),
        "rules_of_thumb": thumb_bytes(count),
    }
    if question.shape is not None:
        answer["with_shape"] = _with_shape(question)
    if question.model is not None:
        answer["true"] = _true(question, estimate)
    return answer


def _with_shape(question: SimpleQuestion) -> dict[str, int]:
    shape, count = question.shape, question.num_parameters
    assert shape is not None
    weights = weight_bytes(count, question.bits)
    found = {
        "hidden_states_of_a_layer": hidden_bytes(shape),
        "activations": activation_bytes(shape),
        "training_with_activations": training_bytes(count, shape),
        "kv_cache_of_a_layer": 2 * hidden_bytes(shape),
        "kv_cache": kv_cache_bytes(shape),
        "weights_activations_kv_cache": weights + activation_bytes(shape) + kv_cache_bytes(shape),
        "inference": inference_bytes(count, shape),
    }
    if question.intermediate:
        found["sample"] = sample_bytes(shape.hidden, question.intermediate, shape.sequence, shape.layers)
        if question.card_bytes is not None:
            found["samples"] = samples_that_fit(question.card_bytes, int8_training_bytes(count), found["sample"])
    return found


def _true(question: SimpleQuestion, estimate: Estimate) -> dict[str, object]:
    """Counts and full estimates of the described model with the same batch and tokens."""
    model, shape = question.model, question.shape
    assert model is not None
    assert shape is not None
    found: dict[str, object] = {"num_parameters": model.num_parameters}
    bare = base_model(model)
    if bare is not model:
        found["num_parameters_without_head"] = bare.num_parameters
    step = {"micro_batch_size": shape.batch, "sequence_length": shape.sequence}
    serve = {"batch_size": shape.batch, "prompt_tokens": shape.sequence, "new_tokens": 1, "dtype": "bf16"}
    asked: dict[str, dict[str, object]] = {
        "generate, bf16": {"task": "generate", "generate": serve},
        "full training, bf16-mixed": {"task": "train", "train": {**step, "precision": "bf16-mixed"}},
        "full training, fp32": {"task": "train", "train": {**step, "precision": "fp32"}},
        "LoRA r=8, bf16": {"task": "train", "train": {**step, "precision": "bf16", "method": "lora"}},
    }
    for name, scenario in asked.items():
        try:
            result = estimate({"model": question.model_name, **scenario})
        except VramwiseError:
            continue
        found[name] = int(result.needed.expected)
    return found


def simple_screen(question: SimpleQuestion, answer: dict[str, Any]) -> list[Line]:
    """The lines of the tables."""
    width = screen_width()
    title = f"{model_title(question.model.id)} · " if question.model and question.model.id else ""
    counted = f"{question.num_parameters:,} parameters ({question.counted_by})"
    lines: list[Line] = [f"{title}{counted}", "rules of thumb and simple formulas: quick, never the answer", ""]
    lines += _weights_table(answer["weights"])
    lines += ["", *_training_table(answer)]
    lines += ["", *(_shape_table(question, answer["with_shape"]) if question.shape else _absent(question, width))]
    return [*lines, "", *_true_lines(question, answer, width)]


def _weights_table(weights: dict[str, int]) -> list[str]:
    """Bytes of the weights (or the model file) in every unit that articles mix."""
    units = [*dict.fromkeys([*_units(weights["fp16, bf16"]), "MiB", "KiB"])]
    rows = [["weights = file", "bytes each", *units]]
    for name, size in weights.items():
        rows.append([name, f"{PRECISIONS[name] / 8:g}", *(_in(size, unit, _DECIMALS[unit]) for unit in units)])
    return columns(rows)


def _training_table(answer: dict[str, Any]) -> list[str]:
    states, thumbs = answer["training_states"], answer["rules_of_thumb"]
    units = _units(answer["num_parameters"] * 2)
    each = {row.name: f"{row.weights} + {row.gradients} + {row.optimizer}" for row in MODEL_STATES}
    rows = [["training, without activations", "bytes each", *units]]
    rows += [[name, each[name], *(_in(size, unit) for unit in units)] for name, size in states.items()]
    rows.append(["int8 with 1.3 GB of CUDA kernels", "4", *(_in(answer["int8_training"], unit) for unit in units)])
    for key, name, each_byte in _LORA:
        rows.append([name, each_byte, *(_in(answer["lora"][key], unit) for unit in units)])
    for key, size in thumbs.items():
        factor = key.split()[-1]
        rows.append([f"rule of thumb: {_THUMBS[key]}", factor.removesuffix("n"), *(_in(size, unit) for unit in units)])
    return columns(rows)


def _shape_table(question: SimpleQuestion, sizes: dict[str, int]) -> list[str]:
    shape = question.shape
    assert shape is not None
    each = f"{float(shape.bytes_per_value):g}"
    values = f"b = {shape.batch:,}, s = {shape.sequence:,}, h = {shape.hidden:,}, L = {shape.layers:,}"
    if question.intermediate:
        values += f", i = {question.intermediate:,}"
    rows = [
        ["with batch and tokens", "", "MB", "GB", "GiB"],
        ["hidden states of a layer", "b·s·h·bytes", *_three(sizes["hidden_states_of_a_layer"])],
        ["activations", "b·s·h·L·bytes", *_three(sizes["activations"])],
        ["16-bit training with them", "14·P + b·s·h·L·bytes", *_three(sizes["training_with_activations"])],
        ["keys and values of a layer", "2·b·s·h·bytes", *_three(sizes["kv_cache_of_a_layer"])],
        ["KV cache", "2·b·s·h·L·bytes", *_three(sizes["kv_cache"])],
        ["weights, activations, cache", "sum", *_three(sizes["weights_activations_kv_cache"])],
        ["inference", "weights + 2·b·s·h·bytes", *_three(sizes["inference"])],
    ]
    if "sample" in sizes:
        rows.append(["intermediate of a sample", "(h + i)·s·L", *_three(sizes["sample"])])
    lines = [f"{values}, bytes = {each} ({question.dtype})", *columns(rows, numbers_from=2, gap=2)]
    if "samples" in sizes and question.card_bytes is not None:
        card = format_bytes(question.card_bytes, "GB", 1)
        held, sample = (format_bytes(n, "GB") for n in (int8_training_bytes(question.num_parameters), sizes["sample"]))
        lines.append(
            f"largest batch, int8 training: ({card} − {held}) / {sample} = {counted(sizes['samples'], 'sample')}"
        )
    return lines


def _absent(question: SimpleQuestion, width: int) -> list[str]:
    flags = " and ".join(map(flag, question.missing))
    return wrapped_text("", f"activations and KV cache: give {flags} (and --sequence-length, --dtype)", width)


def _true_lines(question: SimpleQuestion, answer: dict[str, Any], width: int) -> list[Line]:
    """What vramwise answers, so that nobody takes the rules for it."""
    true = answer.get("true")
    if true is None:
        why = f"{question.not_described}; " if question.not_described else ""
        return list(
            wrapped_text("the true figures  ", f"{why}vramwise estimate MODEL --task train|generate|serve", width)
        )
    count = f"{true['num_parameters']:,} parameters"
    if "num_parameters_without_head" in true:
        count += f" ({true['num_parameters_without_head']:,} without the language-model head, with the pooler)"
    rows = [[name, format_bytes(size)] for name, size in true.items() if not name.startswith("num_parameters")]
    heading = wrapped_text("the true figures  ", count, width)
    if not rows:
        return list(heading)
    shape = question.shape
    assert shape is not None
    return [*heading, f"  batch {shape.batch:,}, {shape.sequence:,} tokens, with CUDA context:",
            *(f"  {line}" for line in columns(rows)),
            "  why: vramwise estimate MODEL --task train|generate --explain"]  # fmt: skip


def _in(n: int, unit: str, decimals: int = 2) -> str:
    """A size in a unit, without the unit's name."""
    return format_bytes(n, unit, decimals).removesuffix(f" {unit}")


def _units(n: int) -> tuple[str, str]:
    """GB and GiB, or MB and MiB for models below a GB in 16 bit."""
    return _LARGE_UNITS if n >= GB else _SMALL_UNITS


def _three(n: int) -> tuple[str, str, str]:
    return _in(n, "MB"), _in(n, "GB"), _in(n, "GiB")
