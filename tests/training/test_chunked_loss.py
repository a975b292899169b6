"""The loss of a chunk of logits at a time: real bytes of torchtune's sum of cross entropies."""

from __future__ import annotations

import pytest
from live_bytes import peak_bytes

from vramwise.models.autograd.size import evaluate
from vramwise.models.autograd.tape import Tape
from vramwise.models.liveness import walk_backward
from vramwise.models.moments import largest
from vramwise.models.step import BlockRun
from vramwise.training.activations.ways_to_loss import CHUNKS, chunked

ROWS, CLASSES = 512, 1024


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("dtype", "upcast"), [("bf16", True), ("fp32", True), ("bf16", False)])
def test_backward_holds_two_chunks_beside_all_log_probabilities(dtype: str, upcast: bool) -> None:
    torch = pytest.importorskip("torch")
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    chunks = [torch.randn(ROWS // CHUNKS, CLASSES, dtype=kind, requires_grad=True) for _ in range(CHUNKS)]
    labels = torch.zeros(ROWS // CHUNKS, dtype=torch.long)

    def step() -> None:
        """torchtune 0.6 modules/loss/ce_chunked_output_loss.py: every chunk is upcast, then summed up."""
        losses = (
            torch.nn.functional.cross_entropy(x.float() if upcast else x, labels, reduction="sum") for x in chunks
        )
        sum(losses).backward()
        for chunk in chunks:
            chunk.grad = None

    assert backward(dtype, upcast) == pytest.approx(peak_bytes(step), rel=0.001)


def backward(dtype: str, upcast: bool) -> int:
    tape = Tape()
    logits = tape.new((ROWS, CLASSES), dtype, requires_grad=True)
    chunked(tape, logits, upcast)
    run = BlockRun("loss", None, tuple(tape.nodes), tuple(tape.saved.items()), (logits,))
    peak = largest(walk_backward(run).moments, {})
    assert int(evaluate(peak.total, {})) == peak.total
    return peak.total
