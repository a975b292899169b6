"""What autograd keeps of a batch with images equals the real modules', byte for byte."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

pytest.importorskip("transformers")

import frame_image_batches
import image_batches
import leading_image_batches
import other_image_batches
import padded_image_batches
import tiled_image_batches
from image_batches import image_inputs
from saved_by_autograd import saved_by_autograd
from test_saved_for_backward import NO_AUTOCAST, completed

from vramwise.models import describe
from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution
from vramwise.models.step import record_forward

# Everything trains; the tower is frozen; only what lies between it and the language model trains; only the tower does.
PARTS = {
    "whole": (), "language": ("language", "lm_head", "text_model"), "tower": ("vision", "visual", "img_processor"),
    "bridge": ("projector", "merger", "aligner", "connector", "embed_vision", "resampler", "img_projection"),
}  # fmt: skip
RUNS = [
    ("fp32", "eager", "whole", 2), ("bf16", "sdpa", "whole", 1), ("bf16-mixed", "sdpa", "bridge", 2),
    ("bf16-mixed", "eager", "whole", 1), ("bf16", "eager", "language", 2), ("fp32", "sdpa", "tower", 3),
]  # fmt: skip


# The class has no other attention than its own.
WRITTEN_OUT = frozenset({"git"})
# The tower has no other attention than its own; the language model has.
WRITTEN_OUT_TOWER = frozenset({"got_ocr2"})
MODULES = (
    frame_image_batches,
    image_batches,
    leading_image_batches,
    other_image_batches,
    padded_image_batches,
    tiled_image_batches,
)
CASES = {name: case for module in MODULES for name, case in module.CASES.items()}
# Two runs a case, of each kind in its turn; casts of experts that no token reaches are not made.
PAIRS = [
    (name, run)
    for i, name in enumerate(CASES)
    for j, run in enumerate(RUNS)
    if (i + j) % 3 == 0 and not (run[0] == "bf16-mixed" and CASES[name][0]["model_type"] in NO_AUTOCAST)
]


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "run"), PAIRS)
def test_saved_with_images(name: str, run: tuple[str, str, str, int]) -> None:
    precision, attention, part, batch = run
    config, images, _ = CASES[name]
    offered: Any = "eager" if config["model_type"] in WRITTEN_OUT else attention
    if config["model_type"] in WRITTEN_OUT_TOWER:
        offered = {"": "eager", "text_config": attention}
    config, sequence = completed(deepcopy(config)), images.per_sequence * (images.tokens + 1) + 2
    real = saved_by_autograd(
        config, "causal-lm", attention=offered, precision=precision, batch=batch, sequence=sequence, device="cpu",
        others=image_inputs(CASES[name], batch, sequence), trainable=PARTS[part],
    )  # fmt: skip
    execution = Execution(
        param_dtype="bf16" if precision == "bf16" else "fp32", autocast="bf16" if precision == "bf16-mixed" else None,
        attention=attention, device="cpu", images=images, trainable=PARTS[part] or None,  # type: ignore[arg-type]
    )  # fmt: skip
    forward = record_forward(describe(config), execution, batch=batch, sequence=sequence)
    assert evaluate(forward.saved_bytes, with_rounded_axes(batch=batch, sequence=sequence)) == real
