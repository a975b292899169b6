"""`--style huggingface`: the Model Memory Calculator's tables with the true figures beside them."""

from __future__ import annotations

from vramwise.cli.screens.estimate import model_title
from vramwise.cli.screens.overview import rules_of_thumb
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.interop.huggingface_buffers import RELEASES
from vramwise.interop.huggingface_calculator import CalculatorTables, calculator, calculator_of_files
from vramwise.models import Model
from vramwise.serving.tensors import KnownTensors
from vramwise.units import GIB, MIB, format_bytes

_HEADS = ("dtype", "largest layer", "total size", "training using Adam", "true weights")
_STAGE_HEADS = ("dtype", "model", "gradient calculation", "backward pass", "optimizer step")


def calculator_json(model: Model) -> dict[str, object]:
    """The tables as JSON: the oldest release that loads the model, and today's under `today`."""
    tables, today = calculator(model), calculator(model, RELEASES[-1])
    return {"model": model.id, **tables.to_dict(), "today": today.to_dict()}


def calculator_screen(model: Model) -> list[Line]:
    """The lines of the two tables, what each stage holds, then where and why the tool is off."""
    tables, today = calculator(model), calculator(model, RELEASES[-1])
    width = screen_width()
    title = (
        f"{model_title(model.id)} · what the Model Memory Calculator and accelerate estimate-memory print"
        f" (transformers {tables.transformers}; their MB and GB are MiB and GiB)"
    )
    return [
        *wrapped_text("", title, width),
        "",
        *columns([_HEADS, *_rows(tables)], gap=2),
        "",
        *columns([_STAGE_HEADS, *_stages(tables)], gap=2),
        *_meaning(width),
        "",
        *_differences(tables, today, width),
        "the true answer: vramwise estimate MODEL --task train|generate|serve",
    ]


def files_calculator_screen(known: KnownTensors) -> list[Line]:
    """The same tables for a model of which only its files' headers are known."""
    assert known.files is not None
    tables, width = calculator_of_files(known.files, has_head=not known.library.has_types), screen_width()
    where, what = "the headers of the files", "files"
    if not known.files.num_files:
        where, what = known.source, "components"
    title = (
        f"{model_title(known.model.id)} · what accelerate estimate-memory counts, from {where}"
        " (its MB and GB are MiB and GiB)"
    )
    said = [
        f"taken as a model of {known.library.name}: {known.library.reason}",
        f"it counts {tables.base_parameters:,} parameters and {format_bytes(tables.buffer_bytes, 'auto')} of buffers; "
        f"the {what} hold {tables.true_parameters:,} parameters",
        f"for inference it advises +20 %: {size(tables.inference_bytes)} for float16/bfloat16; a rule, not an answer",
    ]
    if known.library.name == "diffusers":
        said.append("accelerate has no pipelines: these are the sums of all components, the largest layer of any")
    return [
        *wrapped_text("", title, width),
        "",
        *columns([_HEADS, *_rows(tables)], gap=2),
        "",
        *columns([_STAGE_HEADS, *_stages(tables)], gap=2),
        *_meaning(width),
        "",
        *(line for text in said for line in wrapped_text("  ", text, width)),
    ]


def files_calculator_json(known: KnownTensors) -> dict[str, object]:
    """These tables as JSON, with the library and why it was taken."""
    assert known.files is not None
    tables = calculator_of_files(known.files, has_head=not known.library.has_types)
    library = {"name": known.library.name, "reason": known.library.reason}
    return {"model": known.model.id, "library": library, **tables.to_dict()}


def size(n: float) -> str:
    """As the tool prints: MB below one GiB, GB above, two decimals (binary units)."""
    return f"{n / GIB:.2f} GB" if n >= GIB else f"{n / MIB:.2f} MB"


def _rows(tables: CalculatorTables) -> list[list[str]]:
    return [
        [row.dtype, size(row.largest_layer_bytes), size(row.total_bytes),
         "N/A" if row.training_bytes is None else size(row.training_bytes), size(row.true_weights_bytes)]
        for row in tables.rows
    ]  # fmt: skip


def _stages(tables: CalculatorTables) -> list[list[str]]:
    return [
        [dtype, *map(size, (stage.model, stage.gradient_calculation, stage.backward_pass, stage.optimizer_step))]
        for dtype, stage in tables.stages.items()
    ]


def _meaning(width: int) -> list[Line]:
    texts = (
        ("model", "the weights in fp32, in mixed precision too"),
        ("gradient calculation", "fp32: taken as no more; mixed: 16-bit gradients beside the weights, 1.5 ×"),
        ("backward pass", "the fp32 size twice, for the optimizer's states"),
        ("optimizer step", "fp32: weights, gradients and two Adam states, 4 ×; mixed: taken as no more than backward"),
    )
    return [line for name, text in texts for line in wrapped_text(f"  {name}: ", text, width)]


def _differences(tables: CalculatorTables, today: CalculatorTables, width: int) -> list[Line]:
    """Where the tool is off, in sentences."""
    missing, half = tables.true_parameters - tables.base_parameters, tables.rows[1]
    counted = (
        f"it counts {tables.base_parameters:,} parameters, those of AutoModel, which has no language-model head;"
        f" the model that runs has {tables.true_parameters:,} ({missing:+,})"
    )
    buffers = f"it counts buffers as weights: {format_bytes(tables.buffer_bytes, 'auto')}"
    if today.buffer_bytes != tables.buffer_bytes:
        buffers += (
            f"; after transformers {tables.transformers} most are gone, and with transformers {today.transformers} it"
            f" prints {size(today.rows[1].largest_layer_bytes)}, {size(today.rows[1].total_bytes)} and"
            f" {size(today.rows[1].training_bytes or 0)} for float16"
        )
    training = (
        "its training column is the largest of four stages that do not hold all there is: fp32 weights, gradients and"
        " two Adam states are 16 bytes a parameter in mixed precision too; activations, logits and the batch are left"
        " out"
    )
    advice = f"for inference it advises +20 %: {size(tables.inference_bytes)} for {half.dtype}; a rule, not an answer"
    sentences = [line for text in (counted, buffers, training, advice) for line in wrapped_text("  ", text, width)]
    rules = wrapped_text("rules of thumb  ", rules_of_thumb(tables.true_parameters), width)
    return ["where it is off", *sentences, *rules]
