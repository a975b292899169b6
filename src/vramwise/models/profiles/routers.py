"""Routers as transformers 5.23 runs them: which experts a token goes to, and with which weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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

    def router_scores(self, op: Op, x: Tensor) -> Tensor:
        """Llama 4: sigmoid of the best logits, zero for the other experts, (tokens, experts)."""
        tape = self.tape
        logits = tape.linear(tape.reshape(x, -1, x.shape[-1]), *self.adapted_parameters(op))
        best, indices = tape.topk(logits, op.settings["experts_per_token"])
        spread = tape.like(logits, requires_grad=logits.requires_grad, op="full_like")
        tape.record("scatter_", [best, indices], [spread], [(indices, "index")])
        return tape.to(tape.unary("sigmoid", tape.to(spread, "fp32")), logits.dtype)

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

    def _route_hunyuan_v1_moe(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """As qwen, on hidden states in fp32: the class makes this weight fp32 whatever the model's dtype."""
        return self._route_qwen(op, self.tape.to(x, "fp32"), replace(weight, dtype="fp32"))

    def _route_dbrx(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Softmax over all experts in the logits' dtype; the best weights divided by their norm."""
        tape = self.tape
        logits = tape.linear(x, weight)
        weights, indices = tape.topk(tape.softmax(logits, logits.dtype), op.settings["experts_per_token"])
        if not op.settings["normalized"]:
            return weights, indices
        return tape.div(weights, tape.vector_norm(weights)), indices

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

    def _route_mistral4(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Softmax in the logits' dtype; experts outside of the best groups are left out of the choice only."""
        tape = self.tape
        scores = tape.softmax(tape.linear(x, weight))
        choice = tape.masked_fill(tape.detached(scores), self._group_mask(op, tape.detached(scores)))
        indices = tape.topk(choice, op.settings["experts_per_token"])[1]
        return tape.scale(self._normalized(op, tape.gather(scores, indices), epsilon=True)), indices

    def _route_deepseek_v3(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Sigmoid scores; the choice is made on scores plus a correction buffer, outside of autograd's reach."""
        tape = self.tape
        scores = tape.unary("sigmoid", self._fp32_logits(x, weight))
        correction = tape.new((op.settings["num_experts"],), "fp32", kind="buffer", op="buffer")
        choice = tape.add(tape.detached(scores), correction)
        if op.settings["num_groups"]:
            choice = tape.masked_fill(choice, self._group_mask(op, choice))
        indices = tape.topk(choice, op.settings["experts_per_token"])[1]
        weights = self._normalized(op, tape.gather(scores, indices), epsilon=True)
        return tape.scale(weights), indices

    def _route_corrected(self, op: Op, x: Tensor, weight: Tensor, *correction: Tensor) -> tuple[Tensor, Tensor]:
        """Sigmoid scores in fp32, the choice made on scores plus a correction, weights divided by their sum."""
        tape, settings = self.tape, op.settings
        logits = self._fp32_logits(x, weight) if settings["widened"] else tape.to(tape.linear(x, weight), "fp32")
        if settings["capped"]:
            logits = tape.scale(tape.unary("tanh", tape.scale(logits)))
        scores = tape.unary("sigmoid", logits)
        indices = self._corrected_choice(op, scores, *correction)
        weights = tape.gather(scores, indices)
        if settings["in_place"]:
            weights = self._normalized(op, weights, epsilon=settings["epsilon"])
        else:
            total = tape.reduce("sum", weights)
            weights = tape.div(weights, tape.scale(total, "add_scalar") if settings["epsilon"] else total)
        weights = tape.scale(weights) if settings["scaled"] else weights
        return tape.to(weights, x.dtype) if settings["cast"] else weights, indices

    def _route_fp32_sigmoid(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Flint: sigmoid scores in fp32 outside of autocast, the best of them divided by their sum."""
        tape = self.tape
        autocast, tape.autocast = tape.autocast, None
        try:
            scores = tape.unary("sigmoid", self._fp32_logits(x, weight))
        finally:
            tape.autocast = autocast
        weights, indices = tape.topk(scores, op.settings["experts_per_token"])
        return tape.div(weights, tape.reduce("sum", weights)) if op.settings["normalized"] else weights, indices

    def _corrected_choice(self, op: Op, scores: Tensor, *correction: Tensor) -> Tensor:
        """The best experts by score plus correction, a buffer where it is no parameter."""
        tape = self.tape
        added = (
            correction[0] if correction else tape.new((op.settings["num_experts"],), "fp32", kind="buffer", op="buffer")
        )
        choice = tape.add(tape.detached(scores), tape.detached(added))
        return tape.topk(choice, op.settings["experts_per_token"])[1]

    def _route_ernie4_5_moe(self, op: Op, x: Tensor, weight: Tensor, correction: Tensor) -> tuple[Tensor, Tensor]:
        """fp32 softmax outside of autocast; the class keeps this weight in fp32 whatever the model's dtype."""
        tape = self.tape
        autocast, tape.autocast = tape.autocast, None
        try:
            scores = tape.softmax(tape.linear(tape.to(x, "fp32"), replace(weight, dtype="fp32")))
            indices = self._corrected_choice(op, scores, tape.squeeze(correction, 0))
            weights = tape.gather(scores, indices)
            weights = tape.div(weights, tape.unary("clamp", tape.reduce("sum", weights)))
        finally:
            tape.autocast = autocast
        return tape.to(weights, x.dtype), indices

    def _route_deepseek_v4(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """sqrt(softplus) scores, corrected for the choice only; layers that choose by token id keep as much."""
        tape = self.tape
        scores = tape.unary("sqrt", tape.unary("softplus", tape.linear(x, weight)))
        indices = self._corrected_choice(op, scores)
        weights = tape.gather(scores, indices)
        weights = tape.div(weights, tape.scale(tape.reduce("sum", weights), "add_scalar"))
        return tape.scale(weights), indices

    def _route_longcat_flash(self, op: Op, x: Tensor, weight: Tensor, *unused: Tensor) -> tuple[Tensor, Tensor]:
        """Softmax over all experts, corrected for the choice only; the class holds a bias that it does not add."""
        tape = self.tape
        logits = self._fp32_logits(x, weight)
        scores = tape.softmax(logits)
        indices = self._corrected_choice(op, scores)
        return tape.to(tape.scale(tape.gather(scores, indices)), logits.dtype), indices

    def _route_jamba(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """fp32 softmax over all experts, the best of them cast to the hidden states' dtype."""
        scores = self.tape.softmax(self.tape.linear(x, weight), "fp32")
        weights, indices = self.tape.topk(scores, op.settings["experts_per_token"])
        return self.tape.to(weights, x.dtype), indices

    def _route_lfm2_moe(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Sigmoid scores in the logits' dtype, the choice made on scores plus a buffer where there is one."""
        tape = self.tape
        scores = tape.unary("sigmoid", tape.linear(x, weight))
        if op.settings["corrected"]:
            indices = self._corrected_choice(op, scores)
            weights = tape.gather(scores, indices)
        else:
            weights, indices = tape.topk(scores, op.settings["experts_per_token"])
        if op.settings["normalized"]:
            weights = tape.div(weights, tape.scale(tape.reduce("sum", weights), "add_scalar"))
        return tape.scale(weights), indices

    def _route_best_first(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The best logits first, then a softmax over them, in fp32 where the class widens the logits, cast back."""
        tape, logits = self.tape, self.tape.linear(x, weight)
        best, indices = tape.topk(
            tape.to(logits, "fp32") if op.settings["widened"] else logits, op.settings["experts_per_token"]
        )
        shares = tape.softmax(best)
        return tape.to(shares, x.dtype) if op.settings["widened"] else shares, indices

    def _route_logit_first(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Kolibri: the best fp32 logits plus a buffer, a sigmoid of the chosen ones alone."""
        tape = self.tape
        logits = self._fp32_logits(x, weight)
        indices = self._corrected_choice(op, logits)
        weights = tape.unary("sigmoid", tape.gather(logits, indices))
        return tape.div(weights, tape.reduce("sum", weights)) if op.settings["normalized"] else weights, indices

    def _route_skip_expert(self, op: Op, logits: Tensor) -> tuple[Tensor, Tensor]:
        """ZAYA: softmax over the experts and one that does nothing, whose share is set to zero."""
        tape = self.tape
        shares = tape.softmax(logits)
        indices = self._corrected_choice(op, shares)
        skipped = tape.like(indices, dtype="bool", requires_grad=False, op="eq")
        return tape.masked_fill(tape.gather(shares, indices), skipped), tape.masked_fill(indices, skipped)

    def _route_cohere2_moe(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The best logits first, then an fp32 softmax or a normalized sigmoid over them."""
        tape = self.tape
        best, indices = tape.topk(tape.linear(x, weight), op.settings["experts_per_token"])
        if op.settings["function"] == "softmax":
            return tape.to(tape.softmax(best, "fp32"), x.dtype), indices
        weights = tape.unary("sigmoid", best)
        if op.settings["normalized"]:
            weights = tape.div(weights, tape.reduce("sum", weights))
        return tape.to(weights, x.dtype), indices

    def _route_sparsemixer(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Phi 3.5: two rounds of sampling among the experts near the best, the second without the first's choice."""
        tape = self.tape
        logits = tape.linear(x, weight)
        first, chosen = self._sampled_expert(logits, logits)
        rest = tape.like(logits, requires_grad=logits.requires_grad, op="scatter")
        tape.record("scatter", [logits, chosen], [rest], [(chosen, "index")])
        second, other = self._sampled_expert(logits, rest)
        return tape.cat([first, second]), tape.cat([chosen, other])

    def _sampled_expert(self, logits: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """One expert a token by its share of the softmax, whose gradient the class estimates (`PhimoeMultiplier`)."""
        tape = self.tape
        far = tape.like(scores, dtype="bool", requires_grad=False, op="gt")
        gates = tape.masked_fill(scores, far)
        chosen = tape.topk(tape.detached(gates), 1)[1]
        gates = tape.softmax(gates)
        share = tape.gather(gates, chosen)
        out = tape.like(share, requires_grad=share.requires_grad, op="PhimoeMultiplier")
        kept = [(share, "multiplier"), (chosen, "selected_experts"), (gates, "masked_gates")]
        tape.record("PhimoeMultiplier", [logits, share, gates], [out], kept)
        return out, chosen

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
        dtype = "fp32" if op.settings["fp32_logits"] else self.execution.autocast or self.execution.param_dtype
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
