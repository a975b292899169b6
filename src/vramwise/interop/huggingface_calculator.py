"""Hugging Face's Model Memory Calculator and `accelerate estimate-memory`, reproduced beside the true counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vramwise.models import Block, Model

# accelerate's dtype_total_size: fp32 bytes over these (commands/estimate.py, accelerate 1.15).
_SMALLER_THAN_FP32 = {"float32": 1, "float16/bfloat16": 2, "int8": 4, "int4": 8}
_POSITION_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class CalculatorRow:
    """One dtype's row: what the tool prints, and the true size of the whole model's weights beside it.

    `training_bytes` is None where the tool prints N/A.
    """

    dtype: str
    largest_layer_bytes: float
    total_bytes: float
    training_bytes: float | None
    true_weights_bytes: float


@dataclass(frozen=True, slots=True)
class AdamStages:
    """The tool's four stages of training with Adam, in bytes."""

    model: float
    gradient_calculation: float
    backward_pass: float
    optimizer_step: float


@dataclass(frozen=True, slots=True)
class CalculatorTables:
    """Both tables of the tool and what they rest on."""

    rows: tuple[CalculatorRow, ...]
    stages: dict[str, AdamStages]
    base_parameters: int
    true_parameters: int
    buffer_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def calculator(model: Model) -> CalculatorTables:
    r"""The tool's tables for a model.

    $$ total = 4 (P - P_{head}) + B,\quad largest = \max_{blocks} (4 P_{block} + B_{block}) $$

    where: $P$ `model.num_parameters`, $P_{head}$ those of the task's head (the tool loads `AutoModel`), $B$ the
    buffers that transformers kept when the tool's published tables were made (up to 4.37: fp32 rotary tables of
    max_position_embeddings rows in every layer, position ids of BERT). Other dtypes are fp32 divided by 2, 4, 8.
    Training: fp32 holds the model, its gradients and two Adam states, 4 × total; mixed precision is taken as
    2 × the fp32 size at its peak.

    Source: accelerate 1.15 `commands/estimate.py` and `utils/modeling.py` (`calculate_maximum_sizes`).
    Not counted by the tool: activations, logits, gradients of mixed precision beside the states, the head.
    """
    blocks = [(block, _buffer_bytes(model, block)) for block in model.blocks]
    head = sum(p.numel for p in model.parameters if p.part == "head" or _is_head_name(p.name))
    base = model.num_parameters - head
    buffers = sum(size for _, size in blocks)
    total = 4.0 * base + buffers
    largest = max(max(4.0 * _numel(block) + size, _largest_table(block)) for block, size in blocks if _is_base(block))
    rows = tuple(
        CalculatorRow(
            dtype,
            largest / divisor,
            total / divisor,
            _training_peak(dtype, total),
            4.0 * model.num_parameters / divisor,
        )
        for dtype, divisor in _SMALLER_THAN_FP32.items()
    )
    stages = {
        "float32": AdamStages(total, total, 2 * total, 4 * total),
        "float16/bfloat16": AdamStages(total, 1.5 * total, 2 * total, 2 * total),
    }
    return CalculatorTables(rows, stages, base, model.num_parameters, buffers)


def _training_peak(dtype: str, total: float) -> float | None:
    return {"float32": 4 * total, "float16/bfloat16": 2 * total}.get(dtype)


def _is_head_name(name: str) -> bool:
    """BERT's masked-language head (`cls.predictions…`) is no part of `AutoModel` either."""
    return name.startswith(("cls.", "lm_head."))


def _is_base(block: Block) -> bool:
    return block.layer is not None or any(op.kind == "embedding" for op in block.ops)


def _numel(block: Block) -> int:
    """Parameters that the tool keeps together: a whole layer; of embeddings, those of one module."""
    if block.layer is not None or _is_bert_embedding(block):
        return sum(parameter.numel for parameter in block.parameters)
    return 0


def _largest_table(block: Block) -> float:
    return max((4.0 * op.parameters[0].numel for op in block.ops if op.kind == "embedding"), default=0.0)


def _is_bert_embedding(block: Block) -> bool:
    """BERT-like classes declare their embeddings as one module that is not split."""
    return block.layer is None and any("token_type_embeddings" in parameter.name for parameter in block.parameters)


def _buffer_bytes(model: Model, block: Block) -> int:
    positions = model.config.size("max_position_embeddings", default=2048)
    tables = {op.settings["rotary_dim"] for op in block.ops if op.kind == "rotary"}
    rotary = sum(2 * positions * width * 4 + width // 2 * 4 for width in tables)
    return rotary + (2 * positions * _POSITION_ID_BYTES if _is_bert_embedding(block) else 0)
