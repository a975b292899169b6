"""Switch's experts: a token meets one of them, and each takes no more tokens of a sequence than its capacity."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.activations import apply_activation
from vramwise.models.operations.experts import EXPERTS, ExpertMlps
from vramwise.records import record

MOST_EXPERTS = 4096


def capped_experts(b: BlockBuilder, x: Value, c: Config, module: str) -> Value:
    """One expert of two products for each token, as far as its capacity goes."""
    count, width = c.size("num_experts"), c.size("d_ff")
    if count > MOST_EXPERTS:
        raise c.error(f"num_experts: at most {MOST_EXPERTS}, got {count}")
    router = f"{module}.router.classifier"
    gate = [b.parameter(router, "weight", (count, x.width), part="router")]
    if c.flag("router_bias"):
        gate.append(b.parameter(router, "bias", (count,), part="router"))
    noisy = c.number("router_jitter_noise", 0.01) > 0
    x, chosen = b.op(CappedRouter(jitters=noisy), router, [x], [x.width, 1], gate)
    weights = []
    for i in range(count):
        name = f"{module}.experts.expert_{i}"
        weights += [
            b.parameter(f"{name}.wi", "weight", (width, x.width), part="experts", shard="expert_column"),
            b.parameter(f"{name}.wo", "weight", (x.width, width), part="experts", shard="expert_row"),
        ]
    return b.op(
        ExpertMlps(
            num_experts=count,
            experts_per_token=1,
            style="capped",
            chunk_size=c.size("expert_capacity", default=64),
            dropout=c.number("dropout_rate"),
            function=c.text("dense_act_fn", "relu"),
        ),
        f"{module}.experts",
        [x, chosen],
        [x.width],
        weights,
    )[0]


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class CappedRouter(Operation):
    jitters: bool


@lowering(CappedRouter)
def capped_router(run: Lowering, op: CappedRouter, x: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens with noise multiplied in, and the probability of each one's expert.

    The router works in fp32 and makes its weights fp32 for good, whatever they were loaded as.
    """
    tape = run.tape
    wide = tape.to(x, "fp32")
    if op.jitters:
        wide = tape.mul_(wide, tape.like(wide, requires_grad=False, op="uniform_"))
    weights = [
        w if w.dtype == "fp32" else tape.parameter(w.shape, "fp32", requires_grad=w.requires_grad)
        for w in run.parameters_of(op)
    ]
    logits = tape.linear(wide, *weights)
    chosen = tape.to(tape.softmax(logits, "fp32"), x.dtype)
    values = tape.new(chosen.shape[:-1], chosen.dtype, requires_grad=chosen.requires_grad, op="max")
    indices = tape.new(chosen.shape[:-1], "int64", op="max")
    tape.record("max", [chosen], [values, indices], [(indices, "indices")])
    return x, tape.view(tape.unsqueeze(values, -1), -1, 1)


@EXPERTS.named("capped")
def _experts_capped(run: Lowering, op: ExpertMlps, x: Tensor, chosen: Tensor) -> Tensor:
    """One expert after another on its own tokens, times its probability, into zeros."""
    tape = run.tape
    dropout = op.dropout if run.execution.dropout else 0.0
    first, last = _weights_of_experts(run, op)
    hidden = tape.view(x, -1, x.shape[-1])
    places = tape.select(tape.new((_routed_rows(run, op, x), 2), "int64", op="nonzero"), 1)
    h = _rows_times_own(run, tape.index_rows(hidden, places), first)
    h = tape.dropout(apply_activation(tape, op.function, h), dropout)
    h = _rows_times_own(run, tape.to(h, run.execution.param_dtype), last)
    h = tape.to(tape.mul(h, tape.index_rows(chosen, places)), hidden.dtype)
    return tape.view(tape.index_add_(h, places, hidden), *x.shape)


def _routed_rows(run: Lowering, op: ExpertMlps, x: Tensor) -> Dim:
    """Rows that experts take: all tokens, or as few as when every sequence's go to one expert."""
    length, most = x.shape[1], op.chunk_size
    if not run.execution.fewest_routed:
        return x.shape[0] * length
    if length != run.sequence:
        return x.shape[0]
    return x.shape[0] * (most if most in run.windows_reached else length)


def _weights_of_experts(run: Lowering, op: ExpertMlps) -> tuple[list[Tensor], list[Tensor]]:
    weights = run.parameters_of(op)
    used = weights[:2] if run.execution.fewest_routed else weights
    return used[::2], used[1::2]


def _rows_times_own(run: Lowering, x: Tensor, weights: list[Tensor]) -> Tensor:
    """Rows times the weight of their expert: each weight is a parameter of its own, which autocast casts."""
    tape = run.tape
    x, *cast = tape.autocast_low(x, *weights)
    shape = (x.shape[0], weights[0].shape[0])
    trains = any(weight.requires_grad for weight in weights)
    out = tape.new(shape, x.dtype, requires_grad=x.requires_grad or trains, op="mm")
    saves = [(x, "self")] * trains + [(weight, "mat2") for weight in cast if x.requires_grad]
    flops = 2 * shape[0] * shape[1] * x.shape[1]
    tape.record(
        "mm", [x, *cast], [out], saves, flops=flops, backward_flops=flops * (x.requires_grad + trains)
    )  # fmt: skip
    return out
