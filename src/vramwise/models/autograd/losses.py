"""Cross entropy and its labels."""

from __future__ import annotations

from vramwise.models.autograd.attention import Attention
from vramwise.models.autograd.tensor import Tensor


class Losses(Attention):
    """Loss functions as torch composes them."""

    def cross_entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """`F.cross_entropy`: log-softmax keeps its result, the loss keeps the target and one scalar."""
        if self.autocast and self.device == "cpu":
            logits = self.to(logits, "fp32")  # the whole loss is on the CPU's list, only its last part on CUDA's
        log_probabilities = self.softmax(logits, logits.dtype, op="_log_softmax")
        log_probabilities = self.autocast_high("nll_loss_forward", log_probabilities)
        dtype = log_probabilities.dtype
        loss = self.new((), dtype, requires_grad=logits.requires_grad, op="nll_loss_forward")
        total_weight = self.new((), dtype, op="nll_loss_forward")
        saves = [(log_probabilities, "self"), (target, "target"), (total_weight, "total_weight")]
        self.record("nll_loss_forward", [log_probabilities, target], [loss, total_weight], saves)
        return loss
