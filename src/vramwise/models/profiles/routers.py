"""Routers as transformers 5.23 runs them: which experts a token goes to, and with which weights."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class RouterPaths:
    """Routers: hidden states -> weights and expert numbers, both (tokens, experts per token)."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    adapted_parameters: Callable[[Op], list[Tensor]]

    def router(self, op: Op, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of every expert, the best few of them and their weights; `style` names the class's way."""
        rows = self.tape.reshape(x, -1, x.shape[-1])
        route = getattr(self, f"_route_{op.settings['style']}")
        weights, indices = route(op, rows, *self.adapted_parameters(op))
        return weights, indices

    def _normalized(self, op: Op, weights: Tensor, *, epsilon: bool = False) -> Tensor:
        """`weights /= weights.sum()`, in place, where the config asks for it."""
        if not op.settings["normalized"]:
            return weights
        total = self.tape.reduce("sum", weights)
        return self.tape.div_(weights, self.tape.scale(total, "add_scalar") if epsilon else total)

    def _route_mixtral(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """fp32 softmax over all experts, then the best; the weights stay in fp32."""
        scores = self.tape.softmax(self.tape.linear(x, weight), "fp32")
        weights, indices = self.tape.topk(scores, op.settings["experts_per_token"])
        return self._normalized(op, weights), indices

    def _route_qwen(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """As mixtral, the weights cast back to the logits' dtype."""
        logits = self.tape.linear(x, weight)
        weights, indices = self.tape.topk(self.tape.softmax(logits, "fp32"), op.settings["experts_per_token"])
        return self.tape.to(self._normalized(op, weights), logits.dtype), indices

    def _route_gpt_oss(self, op: Op, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The best logits first, then a softmax over them in their own dtype."""
        best, indices = self.tape.topk(self.tape.linear(x, weight, bias), op.settings["experts_per_token"])
        return self.tape.softmax(best, best.dtype), indices

    def _route_deepseek_v2(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """fp32 softmax; group-limited routing zeroes the experts outside of the best groups."""
        tape, groups = self.tape, op.settings["num_groups"]
        scores = tape.softmax(self._fp32_logits(x, weight), "fp32")
        if groups:
            scores = tape.masked_fill(scores, self._group_mask(op, tape.detached(scores)))
        weights, indices = tape.topk(scores, op.settings["experts_per_token"])
        return tape.scale(weights), indices

    def _route_deepseek_v3(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Sigmoid scores; the choice is made on scores plus a correction buffer, outside of autograd's reach."""
        tape = self.tape
        scores = tape.unary("sigmoid", self._fp32_logits(x, weight))
        correction = tape.new((op.settings["num_experts"],), "fp32", kind="buffer", op="buffer")
        choice = tape.add(tape.detached(scores), correction)
        choice = tape.masked_fill(choice, self._group_mask(op, choice))
        indices = tape.topk(choice, op.settings["experts_per_token"])[1]
        weights = self._normalized(op, tape.gather(scores, indices), epsilon=True)
        return tape.scale(weights), indices

    def _fp32_logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """`F.linear` of hidden states and weight that are both cast to fp32 first."""
        return self.tape.linear(self.tape.to(x, "fp32"), self.tape.to(weight, "fp32"))

    def _group_mask(self, op: Op, scores: Tensor) -> Tensor:
        """True for the experts outside of the groups with the best scores, (tokens, experts)."""
        tape, experts, groups = self.tape, op.settings["num_experts"], op.settings["num_groups"]
        grouped = tape.view(scores, -1, groups, experts // groups)
        best = tape.reduce("sum", tape.topk(grouped, min(2, experts // groups))[0], keepdim=False)
        chosen = tape.topk(best, op.settings["num_chosen_groups"])[1]
        mask = tape.like(best, requires_grad=False, op="zeros_like")
        tape.record("scatter_", [chosen], [mask])
        wide = tape.expand(tape.unsqueeze(mask, -1), -1, groups, experts // groups)
        outside = tape.like(tape.reshape(wide, -1, experts), dtype="bool", requires_grad=False, op="bitwise_not")
        tape.record("bitwise_not", [wide], [outside])
        return outside

    def load_balancing_loss(self, op: Op, x: Tensor) -> Tensor:
        """The auxiliary loss over the router logits of every layer (`load_balancing_loss_func`)."""
        tape, experts = self.tape, op.settings["num_experts"]
        tokens = self.batch * self.sequence
        dtype = self.execution.autocast or self.execution.param_dtype
        sums = tape.new((experts,), "fp32", op="zeros")
        mask = tape.new((tokens, 1), "fp32", op="_to_copy") if self.execution.padding else None
        for _ in range(op.settings["num_layers"]):
            logits = tape.new((tokens, experts), dtype, requires_grad=x.requires_grad, op="mm")
            shares = tape.softmax(logits)
            # These indices live until the loss function returns; they are counted as the recorded rows count them.
            tape.topk(shares, op.settings["experts_per_token"])
            shares = tape.to(shares, "fp32")
            if mask is not None:
                shares = tape.mul(shares, mask)
            sums = tape.add(sums, tape.reduce("sum", shares, 0, keepdim=False))
        counts = tape.new((experts,), "fp32", op="div")
        # The number of rows is a plain number, or with padding the sum of the mask.
        mean = tape.scale(sums) if mask is None else tape.div(sums, tape.new((), "fp32", op="sum"))
        return tape.reduce("sum", tape.mul(counts, tape.unsqueeze(mean, 0)))
