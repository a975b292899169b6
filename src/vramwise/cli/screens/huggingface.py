"""`--style huggingface`: the Model Memory Calculator's tables with the true figures beside them."""

from __future__ import annotations

from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.overview import rules_of_thumb
from vramwise.cli.screens.paint import Line, columns
from vramwise.interop.huggingface_calculator import CalculatorTables, calculator
from vramwise.models import Model
from vramwise.units import GIB, MIB

__all__ = ["calculator", "calculator_screen"]


def calculator_screen(model: Model, tables: CalculatorTables) -> list[Line]:
    """The lines of the two tables, then where and why they are off."""
    heads = ["dtype", "largest layer or residual group", "total size", "training using Adam (peak)", "true weights"]
    rows = [
        [row.dtype, size(row.largest_layer_bytes), size(row.total_bytes),
         "N/A" if row.training_bytes is None else size(row.training_bytes), size(row.true_weights_bytes)]
        for row in tables.rows
    ]  # fmt: skip
    stages = [["dtype", "model", "gradient calculation", "backward pass", "optimizer step"]]
    for dtype, stage in tables.stages.items():
        parts = (stage.model, stage.gradient_calculation, stage.backward_pass, stage.optimizer_step)
        stages.append([dtype, *(size(part) for part in parts)])
    head = tables.true_parameters - tables.base_parameters
    return [
        f"{model_title(model.id)} · the Model Memory Calculator's tables (its MB and GB are MiB and GiB)",
        "",
        *columns([heads, *rows]),
        "",
        *columns(stages),
        "  model: fp32 weights; gradient calculation: 16-bit gradients beside them (fp32: taken as no more);",
        "  backward pass: twice the fp32 size, for the Adam states; optimizer step: 4 × in fp32, 2 × in mixed precision",
        "",
        "where it is off",
        f"  it counts {tables.base_parameters:,} parameters: the head's {head:,} are left out"
        f" (true: {tables.true_parameters:,})",
        f"  it counts buffers that transformers no longer keeps: {tables.buffer_bytes / MIB:.2f} MiB in fp32",
        "  its training column is a maximum of stages, not their sum: weights, gradients and Adam states of mixed",
        "  precision are 16 bytes a parameter; activations, logits and the batch do not enter at all",
        "  for inference it advises to add 20 %: shown here as its rule, not as an answer:"
        f" {size(1.2 * tables.rows[1].total_bytes)} in 16 bit",
        f"rules of thumb  {rules_of_thumb(tables.true_parameters)}",
        "the true answer: vramwise estimate MODEL --task train|generate|serve",
    ]


def size(n: float) -> str:
    """As the tool prints: MB below one GiB, GB above, two decimals (binary units)."""
    return f"{n / GIB:.2f} GB" if n >= GIB else f"{n / MIB:.2f} MB"
