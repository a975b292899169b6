"""Floating-point operations of one training step, read off the model's blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from vramwise.models.autograd import evaluate, with_rounded_axes
from vramwise.models.execution import Execution, Lora
from vramwise.models.model import Model
from vramwise.models.step import record_forward
from vramwise.records import record

Recompute = Literal["none", "selective", "full"]
AttentionRule = Literal["full", "causal"]


@record
class StepFlops:
    """FLOPs (2 a multiply-add) of one forward and backward pass over `batch` sequences of `sequence` tokens.

    `attention_*` is the share of scores and their products with values, with every pair of tokens counted.
    `layers_*` is the share of the repeating blocks: what full recomputation repeats.
    """

    batch: int
    sequence: int
    forward: int
    backward: int
    attention_forward: int
    attention_backward: int
    layers_forward: int
    layers_attention: int

    def model(self, attention: AttentionRule = "full") -> int:
        """What the mathematics needs: forward and backward, whatever the implementation repeats."""
        return self.forward + self.backward - self._unseen(attention, self.attention_forward + self.attention_backward)

    def hardware(self, recompute: Recompute, attention: AttentionRule = "full") -> int:
        """What is computed: the model's FLOPs and a second forward pass of the layers (`full`), or of their attention
        alone (`selective`). What FlashAttention's backward pass repeats for itself is not counted."""
        again = {"none": 0, "selective": self.layers_attention, "full": self.layers_forward}[recompute]
        repeated = self.layers_attention if recompute != "none" else 0
        return self.model(attention) + again - self._unseen(attention, repeated)

    def _unseen(self, attention: AttentionRule, flops: int) -> int:
        """FLOPs of pairs that a causal mask hides: (s - 1) / 2s of all."""
        return flops * (self.sequence - 1) // (2 * self.sequence) if attention == "causal" else 0


@lru_cache(maxsize=64)
def step_flops(model: Model, batch: int, sequence: int, lora: Lora | None = None) -> StepFlops:
    """The FLOPs of a step with causal or full attention counted alike (`StepFlops` takes the hidden half off).

    Counted: matrix products, attention, convolutions; of mixtures the chosen experts alone; with `lora` no products
    for frozen weights' gradients. Not counted: pointwise operations, norms, softmax, the optimizer. Equal to torch's
    flop counter, but for the scores that FlashAttention's backward pass computes again.
    """
    execution = Execution(attention="sdpa", sdpa_backend="flash", lora=lora, dropout=False)
    axes = with_rounded_axes(batch=batch, sequence=sequence)
    totals = dict.fromkeys(("forward", "backward", "attention", "attention_backward", "layers", "layers_attention"), 0)
    for run in record_forward(model, execution, batch=batch, sequence=sequence).runs:
        for node in run.nodes:
            forward, backward = int(evaluate(node.flops, axes)), int(evaluate(node.backward_flops, axes))
            fused = node.primitive.is_attention
            if fused:
                backward = min(backward, 2 * forward)  # the rest is scores that are computed a second time
                totals["attention"] += forward
                totals["attention_backward"] += backward
            totals["forward"] += forward
            totals["backward"] += backward
            if run.layer is not None:
                totals["layers"] += forward
                totals["layers_attention"] += forward if fused else 0
    return StepFlops(
        batch=batch,
        sequence=sequence,
        forward=totals["forward"],
        backward=totals["backward"],
        attention_forward=totals["attention"],
        attention_backward=totals["attention_backward"],
        layers_forward=totals["layers"],
        layers_attention=totals["layers_attention"],
    )
