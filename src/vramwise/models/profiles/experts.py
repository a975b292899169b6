"""Experts as transformers 5.23 runs them (grouped products), and PEFT's adapters on fused parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op, Parameter
from vramwise.models.execution import Execution
from vramwise.models.profiles.activations import apply_activation
from vramwise.models.profiles.routers import RouterPaths

MOST_TURNS = 16


class ExpertPaths(RouterPaths):
    """Mixture-of-experts operations."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    parameter: Callable[[Parameter], Tensor]
    parameters_of: Callable[[Op], list[Tensor]]
    widened_gate: Callable[[Op, Tensor, Tensor], Tensor]
    _adapter: Callable[[str, tuple[int, ...], str], Tensor]

    def experts(self, op: Op, x: Tensor, weights: Tensor, *indices: Tensor) -> Tensor:
        """`grouped_mm_experts_forward`: rows sorted by expert, two grouped products, weighted and summed.

        Classes that do not use it name the `style` of their own code.
        """
        tape, settings = self.tape, op.settings
        if "style" in settings:
            return getattr(self, f"_experts_{settings['style']}")(op, x, weights, *indices)  # type: ignore[no-any-return]
        if self.execution.expert_modules and self._runs_in_turn(op):
            return self._experts_in_turn(op, x, weights)
        gate_up, down, *biases = self.adapted_parameters(op)
        hidden = tape.reshape(x, -1, x.shape[-1])
        k = settings["experts_per_token"]
        numbers, order, offsets = tape.sorted_by_expert(tape.reshape(indices[0], -1), settings["num_experts"])
        source_rows = tape.indices_from("floor_divide", order)
        picked = tape.index_rows(hidden, source_rows)
        sample_weights = tape.index_rows(tape.reshape(weights, -1), order)
        up_bias, down_bias = (tape.index_rows(bias, numbers) for bias in biases) if biases else (None, None)
        h = self._grouped_linear(op, picked, gate_up, offsets, up_bias)
        h = getattr(self, f"_gate_{settings['gating']}")(op, h)
        h = self._grouped_linear(op, h, down, offsets, down_bias)
        weighted = tape.mul(h, tape.unsqueeze(sample_weights, -1))
        back = tape.index_rows(weighted, tape.indices_from("empty_like", order))
        total = tape.reduce("sum", tape.view(back, hidden.shape[0], k, x.shape[-1]), 1, keepdim=False)
        result = tape.to(total, x.dtype)
        tape.record("locals", [picked, h, back], [])  # names of the function, until it returns
        return tape.view(result, *x.shape)

    def _runs_in_turn(self, op: Op) -> bool:
        """Experts of two halves that nothing trains."""
        trained = any(parameter.requires_grad for parameter in self.parameters_of(op))
        lora = self.execution.lora
        adapted = lora is not None and op.module.rsplit(".", 1)[-1] in lora.targets
        return len(op.parameters) == 2 and op.settings["gating"] == "halves" and not trained and not adapted

    def _experts_in_turn(self, op: Op, x: Tensor, weights: Tensor) -> Tensor:
        """A loop over experts (transformers 4.48 models/mixtral), rows spread evenly over them.

        A turn's tensors have 1 / turns of all rows; sizes being polynomials with whole coefficients, they are written
        as all rows with 1 / turns of the width. More than `MOST_TURNS` experts count as so many that are larger.
        """
        tape, settings, width = self.tape, op.settings, x.shape[-1]
        gate_up, down = self.parameters_of(op)
        inner = down.shape[1 if settings["transposed"] else 2]
        assert isinstance(width, int)
        assert isinstance(inner, int)
        turns = max(n for n in range(1, MOST_TURNS + 1) if not settings["num_experts"] % n + width % n + inner % n)
        hidden = tape.reshape(x, -1, width)
        rows = hidden.shape[0] * settings["experts_per_token"]
        one_matrix = 2 * width * inner if self.execution.quantized_compute is not None else 0
        summed = tape.new(hidden.shape, hidden.dtype, op="zeros")
        own = tape.to(tape.reshape(weights, -1, 1), hidden.dtype)
        for _ in range(turns):
            picked = tape.new((rows, width // turns), hidden.dtype, requires_grad=hidden.requires_grad, op="index")
            tape.record("index", [hidden], [picked])
            gate, up = (tape.frozen_product(picked, gate_up, inner // turns, one_matrix) for _ in range(2))
            h = tape.mul(apply_activation(tape, settings["function"], gate), up)
            out = tape.mul(tape.frozen_product(h, down, width // turns, one_matrix), own)
            joined = replace(summed, requires_grad=out.requires_grad)
            tape.record("add_", [summed, out], [joined], [(out, "source")])
            summed = joined
        return tape.view(summed, *x.shape)

    def _experts_flat(self, op: Op, x: Tensor, weights: Tensor, *_: Tensor) -> Tensor:
        """DBRX: one expert after another on its own rows, seen as slices of flat matrices."""
        tape, count = self.tape, op.settings["num_experts"]
        w1, v1, w2 = (tape.view(w, count, w.shape[0] // count, w.shape[1]) for w in self.parameters_of(op))
        hidden = tape.reshape(x, -1, x.shape[-1])
        picked, places = self._rows_of_experts(op, hidden)
        gate = tape.expert_mm(picked, tape.transpose(w1, 1, 2))
        up = tape.expert_mm(picked, tape.transpose(v1, 1, 2))
        h = tape.mul(apply_activation(tape, op.settings["function"], gate), up)
        return tape.view(self._weighted_rows(tape.expert_mm(h, w2), weights, places, hidden), *x.shape)

    def _experts_loop(self, op: Op, x: Tensor, weights: Tensor, *_: Tensor) -> Tensor:
        """Step 3.7: one expert after another on its own rows, gate and up in one product."""
        tape = self.tape
        gate_up, down = (tape.transpose(weight, 1, 2) for weight in self.parameters_of(op))
        hidden = tape.reshape(x, -1, x.shape[-1])
        picked, places = self._rows_of_experts(op, hidden)
        h = getattr(self, f"_gate_{op.settings['gating']}")(op, tape.expert_mm(picked, gate_up))
        return tape.view(self._weighted_rows(tape.expert_mm(h, down), weights, places, hidden), *x.shape)

    def _experts_everywhere(self, op: Op, x: Tensor, scores: Tensor, *_: Tensor) -> Tensor:
        """Llama 4: every expert on all tokens, each token times its score for that expert."""
        tape, count = self.tape, op.settings["num_experts"]
        gate_up, down = self.parameters_of(op)
        hidden = tape.reshape(x, -1, x.shape[-1])
        rows = tape.new((hidden.shape[0] * count, x.shape[-1]), x.dtype, requires_grad=x.requires_grad, op="repeat")
        tape.record("repeat", [hidden], [rows])
        rows = tape.mul(rows, tape.reshape(tape.transpose(scores, 0, 1), -1, 1))
        h = tape.matmul(tape.view(rows, count, hidden.shape[0], x.shape[-1]), gate_up)
        gate, up = tape.chunk(h, 2)
        out = tape.matmul(tape.mul(up, apply_activation(tape, op.settings["function"], gate)), down)
        return tape.view(tape.reduce("sum", out, 0, keepdim=False), *x.shape)

    def _experts_sorted(self, op: Op, x: Tensor, weights: Tensor, order: Tensor, tokens: Tensor) -> Tensor:
        """JetMoE's MLP: rows sorted by expert, gate and up in one product."""
        tape = self.tape
        first, last = (tape.transpose(weight, 1, 2) for weight in self.parameters_of(op))
        rows = tape.index_rows(tape.reshape(x, -1, x.shape[-1]), tokens)
        gate, up = tape.chunk(tape.expert_mm(rows, first), 2)
        h = tape.expert_mm(tape.mul(apply_activation(tape, op.settings["function"], gate), up), last)
        return self._summed_by_token(op, h, weights, tokens)

    def _experts_queries(self, op: Op, x: Tensor, weights: Tensor, order: Tensor, tokens: Tensor) -> Tensor:
        """JetMoE's queries: a token's experts side by side."""
        tape = self.tape
        (weight,) = self.parameters_of(op)
        rows = tape.index_rows(tape.reshape(x, -1, x.shape[-1]), tokens)
        rows = tape.expert_mm(rows, tape.transpose(weight, 1, 2))
        return tape.view(tape.index_add_(rows, order, rows), *x.shape[:2], -1)

    def _experts_outputs(self, op: Op, x: Tensor, weights: Tensor, order: Tensor, tokens: Tensor) -> Tensor:
        """JetMoE's attention output: each expert's own queries' results, weighted and summed."""
        tape = self.tape
        (weight,) = self.parameters_of(op)
        rows = tape.index_rows(tape.reshape(x, -1, weight.shape[-1]), order)
        return self._summed_by_token(op, tape.expert_mm(rows, tape.transpose(weight, 1, 2)), weights, tokens)

    def _summed_by_token(self, op: Op, h: Tensor, weights: Tensor, tokens: Tensor) -> Tensor:
        tape = self.tape
        h = tape.mul(h, tape.unsqueeze(weights, -1))
        total = tape.new((self.batch * self.sequence, h.shape[-1]), h.dtype, op="zeros")
        return tape.view(tape.index_add_(h, tokens, total), self.batch, self.sequence, h.shape[-1])

    def sorted_router(self, op: Op, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """JetMoE: the best logits in fp32, a softmax over them, all choices sorted by expert."""
        tape, settings = self.tape, op.settings
        logits = tape.to(tape.linear(tape.reshape(x, -1, x.shape[-1]), *self.parameters_of(op)), "fp32")
        best, indices = tape.topk(logits, settings["experts_per_token"])
        weights = tape.to(tape.softmax(best), x.dtype)
        order = tape.sorted_by_expert(tape.reshape(indices, -1), settings["num_experts"])[1]
        return tape.index_rows(tape.reshape(weights, -1), order), order, tape.indices_from("div", order)

    def repeat_heads(self, op: Op, x: Tensor) -> Tensor:
        """`x.repeat(1, times, 1, 1)`, a copy."""
        tape, times = self.tape, op.settings["times"]
        out = tape.new(
            (x.shape[0], x.shape[1] * times, *x.shape[2:]), x.dtype, requires_grad=x.requires_grad, op="repeat"
        )
        tape.record("repeat", [x], [out])
        return out

    def _rows_of_experts(self, op: Op, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Every token once for each of its experts, and the places in (experts per token, tokens) of `torch.where`."""
        tape = self.tape
        rows = hidden.shape[0] * op.settings["experts_per_token"]
        places = tape.select(tape.new((rows, 2), "int64", op="nonzero"), 1)
        return tape.index_rows(hidden, places), places

    def _weighted_rows(self, h: Tensor, weights: Tensor, places: Tensor, hidden: Tensor) -> Tensor:
        """Rows times their weights, summed by token."""
        tape = self.tape
        own = tape.index_rows(tape.reshape(weights, -1), places)
        return tape.index_add_(tape.to(tape.mul(h, tape.unsqueeze(own, -1)), hidden.dtype), places, hidden)

    def _grouped_linear(self, op: Op, x: Tensor, weight: Tensor, offsets: Tensor, bias: Tensor | None) -> Tensor:
        matrices = weight if op.settings["transposed"] else self.tape.transpose(weight, 1, 2)
        out = self.tape.grouped_mm(x, matrices, offsets)
        return out if bias is None else self.tape.add_(out, bias)

    def _gate_none(self, op: Op, h: Tensor) -> Tensor:
        """Experts of two products (Nemotron H)."""
        return apply_activation(self.tape, op.settings["function"], h)

    def _gate_halves(self, op: Op, h: Tensor) -> Tensor:
        """act(gate)·up over the two halves of one projection."""
        gate, up = self.tape.chunk(h, 2)
        return self.tape.mul(apply_activation(self.tape, op.settings["function"], gate), up)

    def _gate_widened_halves(self, op: Op, h: Tensor) -> Tensor:
        return self.widened_gate(op, *self.tape.chunk(h, 2))

    def _gate_clamped_halves_glu(self, op: Op, h: Tensor) -> Tensor:
        return self.clamped_glu(op, h)

    def clamped_glu(self, op: Op, h: Tensor) -> Tensor:
        """(up + 1)·gate·sigmoid(gate·alpha) over two halves, both clamped (MiniMax M3)."""
        tape = self.tape
        gate, up = (tape.unary("clamp", half) for half in tape.chunk(h, 2))
        glu = tape.mul(gate, tape.unary("sigmoid", tape.scale(gate)))
        return tape.mul(tape.scale(up, "add_scalar"), glu)

    def _gate_limited(self, op: Op, h: Tensor) -> Tensor:
        """act(gate)·up, both clamped first."""
        gate, up = (self.tape.unary("clamp", half) for half in self.tape.chunk(h, 2))
        return self.tape.mul(apply_activation(self.tape, op.settings["function"], gate), up)

    def _gate_clamped_halves(self, op: Op, h: Tensor) -> Tensor:
        """As halves, both factors clamped (Step 3.7)."""
        gate, up = self.tape.chunk(h, 2)
        gate = self.tape.unary("clamp", apply_activation(self.tape, op.settings["function"], gate))
        return self.tape.mul(gate, self.tape.unary("clamp", up))

    def _gate_clamped(self, op: Op, h: Tensor) -> Tensor:
        """gpt-oss: (up + 1)·gate·sigmoid(gate·alpha), gate and up interleaved and clamped."""
        tape = self.tape
        gate = tape.unary("clamp", tape.step(h, -1, 2))
        up = tape.unary("clamp", tape.step(h, -1, 2))
        glu = tape.mul(gate, tape.unary("sigmoid", tape.scale(gate)))
        return tape.mul(tape.scale(up, "add_scalar"), glu)

    def jitter(self, op: Op, x: Tensor) -> Tensor:
        """Mixtral in training: hidden states times uniform noise, in place."""
        if not self.execution.dropout:
            return x
        return self.tape.mul_(x, self.tape.like(x, requires_grad=False, op="uniform_"))

    def clip(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.clamp_(x)

    # -- adapters on parameters ----------------------------------------------------------------------------

    def adapted_parameters(self, op: Op) -> list[Tensor]:
        """The parameters of a router or of experts, with the update of their adapters added where there are any."""
        lora = self.execution.lora
        if lora is None or op.module.rsplit(".", 1)[-1] not in lora.targets:
            return self.parameters_of(op)
        # Innermost wrapper last: PEFT activates the adapter of the outermost one, the last weight, first.
        adapted = [
            self._adapted(op, p, self.parameter(p)) if len(p.shape) > 1 and not p.name.endswith("bias")
            else self.parameter(p)
            for p in reversed(op.parameters)
        ]  # fmt: skip
        return adapted[::-1]

    def _adapted(self, op: Op, parameter: Parameter, weight: Tensor) -> Tensor:
        """PEFT's `ParamWrapper` (0.21): the merged weight, in the weight's dtype, at full size."""
        lora, tape, name = self.execution.lora, self.tape, parameter.name
        assert lora is not None
        if len(parameter.shape) == 2:
            rows, columns = parameter.shape
            a = self._adapter(f"{name}.lora_A", (lora.rank, columns), lora.dtype)
            b = self._adapter(f"{name}.lora_B", (rows, lora.rank), lora.dtype)
            delta = tape.scale(tape.mm("mm", *tape.autocast_low(b, a)))
            return tape.add(weight, tape.to(delta, weight.dtype))
        # A fused gate and up projection stands for two linear layers of older checkpoints, each with `rank`.
        rank = lora.rank * op.settings["fused_branches"] if parameter is op.parameters[0] else lora.rank
        experts, first, second = parameter.shape
        inner, outer = (first, second) if op.settings["transposed"] else (second, first)
        a = tape.reshape(self._adapter(f"{name}.lora_A", (rank * experts, inner), lora.dtype), experts, rank, inner)
        b = tape.reshape(self._adapter(f"{name}.lora_B", (outer, rank * experts), lora.dtype), outer, rank, experts)
        left, right = tape.permute(b, 2, 0, 1), a
        if op.settings["transposed"]:
            left, right = tape.transpose(a, 1, 2), tape.transpose(left, 1, 2)
        return tape.mm("baddbmm", tape.to(left, weight.dtype), tape.to(right, weight.dtype), weight)
