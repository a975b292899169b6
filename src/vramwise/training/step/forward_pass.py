"""The largest moment of a forward pass before the loss."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.records import record
from vramwise.training.activations.sizes import RunBytes


@record
class ForwardPeak:
    """Bytes at that moment: what is kept for backward so far, 16-bit copies of weights, and what the block needs."""

    activations: int = 0
    weight_casts: int = 0
    temporaries: int = 0
    operation: str = ""

    @property
    def total(self) -> int:
        return self.activations + self.weight_casts + self.temporaries


def largest_in_forward(
    runs: Sequence[RunBytes], activations_below: Sequence[int], casts_below: Sequence[int]
) -> ForwardPeak:
    """Inside of each block: what the blocks below keep, what it made until then, and the hidden states it received.

    The frame that calls the layers holds a layer's input until the layer returns; a checkpointed layer keeps it
    anyway. Autocast's copies for checkpointed layers and what the outputs cache stay until the pass is over.
    """
    most, most_bytes, passing_casts, cached = ForwardPeak(), 0, 0, 0
    for i, run in enumerate(runs):
        if run.name == "loss":
            continue
        inside = run.forward_peak
        kept, received = activations_below[i] + inside.saved, 0
        if run.checkpointed:
            kept += run.activations
        else:
            received = run.incoming if run.layer is not None else run.incoming_kept
        found = ForwardPeak(
            kept + received, casts_below[i] + passing_casts, cached + inside.temporaries, inside.operation
        )
        passing_casts += run.forward_casts
        cached += 0 if run.is_head else run.outputs_held
        total = found.total
        if total > most_bytes:
            most, most_bytes = found, total
    return most
