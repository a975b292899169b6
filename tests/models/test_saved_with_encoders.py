"""What autograd keeps of images in Gemma 3n equals what it kept with timm's encoder, byte for byte."""

from __future__ import annotations

from copy import deepcopy

import pytest

pytest.importorskip("transformers")

from encoder_image_batches import CASES, rows
from test_saved_for_backward import completed
from test_saved_with_images import PARTS

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward


@pytest.mark.parametrize("row", rows(), ids=lambda row: "-".join(row.values()))
def test_saved_with_encoders(row: dict[str, str]) -> None:
    config, images, _ = CASES[row["case"]]
    sequence, batch, precision = images.tokens + 3, int(row["batch"]), row["precision"]
    execution = Execution(
        param_dtype="bf16" if precision == "bf16" else "fp32", autocast="bf16" if precision == "bf16-mixed" else None,
        attention=row["attention"], device="cpu", images=images,  # type: ignore[arg-type]
        trainable=PARTS[row["part"]] or None,
    )  # fmt: skip
    forward = record_forward(describe(completed(deepcopy(config))), execution, batch=batch, sequence=sequence)
    assert evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence)) == int(row["bytes"])
