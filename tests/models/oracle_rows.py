"""Rows of the saved-for-backward table as executions of described models."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution, Lora
from vramwise.models.step import record_forward

TABLE = Path(__file__).parent.parent / "oracles" / "saved_for_backward.jsonl.gz"

Row = dict[str, Any]


def rows(model_type: str | None = None) -> Iterator[Row]:
    """The table's rows, of one model type or all."""
    with gzip.open(TABLE, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if model_type in (None, row["model_type"]):
                yield row


@cache
def _class_config(model_type: str, overrides: str) -> str:
    import transformers

    config_class = transformers.CONFIG_MAPPING[model_type]
    return json.dumps({**config_class(**json.loads(overrides)).to_dict(), "model_type": model_type}, default=str)


@cache
def _dropout_keys(model_type: str) -> tuple[str, ...]:
    defaults = json.loads(_class_config(model_type, "{}"))
    return tuple(key for key, value in defaults.items() if "drop" in key and isinstance(value, float))


def full_config(row: Row) -> dict[str, Any]:
    """The row's whole config, as its configuration class completes it."""
    overrides = dict.fromkeys(_dropout_keys(row["model_type"]), row["dropout"]) | row["config"]
    config: dict[str, Any] = json.loads(_class_config(row["model_type"], json.dumps(overrides, sort_keys=True)))
    return config


def execution(row: Row) -> Execution:
    """How the row was run."""
    lora = row.get("lora")
    return Execution(
        param_dtype="bf16" if row["precision"] == "bf16" else "fp32",
        autocast={"bf16-mixed": "bf16", "fp16-mixed": "fp16"}.get(row["precision"]),
        attention=row["attention"] or "eager",
        device=row["device_rules"],
        padding=row["attention_mask"] == "padding",
        trainable=tuple(row["trainable"]) if "trainable" in row else None,
        lora=Lora(lora["rank"], frozenset(lora["modules"]), lora["dropout"], lora["dtype"]) if lora else None,
        sdpa_backend=row.get("sdpa_backend", "auto"),
        use_cache=row["use_cache"],
    )


def saved_bytes(row: Row) -> int:
    """What the description says that autograd keeps."""
    batch, sequence = row["batch"], row["sequence"]
    forward = record_forward(describe(full_config(row)), execution(row), batch=batch, sequence=sequence)
    total: int = evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence))
    return total
