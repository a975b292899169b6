"""torchtitan's own mixture of experts, one class for all of its models.

torchtitan of August and December 2025 models/moe.py and models/moe/moe.py, 0.3 models/common/moe.py and
token_dispatcher.py: a token's best experts, rows sorted by expert, grouped products in 16 bits, a sum by token. Scores
multiply in fp32, what the experts put out (so that its fp32 copy stays), or for Llama 4 (`score_before_experts`) what
goes in: transformers' class of that runs every expert on every token.

Not counted: rows that come from and go to other ranks, and those that pad an expert's. Experts with biases (gpt-oss)
are as transformers runs them.
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations import experts as transformers_experts
from vramwise.models.operations.adapters import adapted_parameters
from vramwise.models.operations.experts import GATES, ExpertMlps, grouped_linear
from vramwise.models.operations.routers import RouterScores

OWN_EXPERTS = "experts"


def router(run: Lowering, op: RouterScores, x: Tensor) -> Tensor:
    """Llama 4's scores of all experts, whichever a token chooses."""
    tape = run.tape
    logits = tape.linear(tape.reshape(x, -1, x.shape[-1]), *adapted_parameters(run, op))
    return tape.unary("sigmoid", tape.to(logits, "fp32"))


def experts(run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, *indices: Tensor) -> Tensor:
    scored_before = op.style == "everywhere"
    if (op.style and not scored_before) or len(op.parameters) != 2 or run.execution.lora is not None:
        return transformers_experts.experts(run, op, x, weights, *indices)
    tape = run.tape
    gate_up, down = run.parameters_of(op)
    hidden = tape.reshape(x, -1, x.shape[-1])
    if scored_before:
        _, chosen = tape.topk(weights, op.experts_per_token)  # of scores and a bias that balances
        weights = tape.gather(weights, chosen)
    else:
        (chosen,) = indices
    _, order, offsets = tape.sorted_by_expert(tape.reshape(chosen, -1), op.num_experts)
    rows = tape.index_rows(hidden, tape.indices_from("floor_divide", order))
    own = tape.index_rows(tape.reshape(weights, -1), order)
    if scored_before:
        rows = _weighed(run, rows, own)
        h = tape.grouped_mm(rows, gate_up, offsets)
        out = tape.grouped_mm(GATES["halves"](run, op, h), down, offsets)
    else:
        h = grouped_linear(run, op, rows, gate_up, offsets, None)
        out = grouped_linear(run, op, GATES[op.gating](run, op, h), down, offsets, None)
        out = _weighed(run, out, own)
    total = tape.like(hidden, requires_grad=out.requires_grad, op="scatter_add")
    tape.record("scatter_add", [hidden, out, order], [total], [(order, "index")])
    tape.record("locals", [rows, out], [])  # `routed_input` and `routed_output`, until the function returns
    return tape.view(total, *x.shape)


def _weighed(run: Lowering, rows: Tensor, weights: Tensor) -> Tensor:
    """Rows times their weights in fp32, back in their own dtype."""
    tape = run.tape
    return tape.to(tape.mul(tape.to(rows, "fp32"), tape.unsqueeze(weights, -1)), rows.dtype)


RECORD = Kernels(
    name="torchtitan",
    overrides=(
        Override(RouterScores, router, OWN_EXPERTS, fact="experts"),
        Override(ExpertMlps, experts, OWN_EXPERTS, fact="experts"),
    ),
    order=-1,
    source="torchtitan 0.3 models/common/moe.py",
)
