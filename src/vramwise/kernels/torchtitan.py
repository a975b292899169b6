"""torchtitan's experts where its classes are not transformers': Llama 4's see the tokens that chose them.

torchtitan of August 2025 models/moe.py, 0.3 models/common/moe.py (TokenChoiceTopKRouter, MoE.forward with
`score_before_experts`, _run_experts_grouped_mm): scores in fp32, a token's best experts, rows sorted by expert and
multiplied by their scores in fp32, grouped products in 16 bits, a sum by token.

Not counted: rows that come from and go to other ranks, and those that pad an expert's.
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations import experts as transformers_experts
from vramwise.models.operations.activations import ExpertGate
from vramwise.models.operations.adapters import adapted_parameters
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.routers import RouterScores

OWN_EXPERTS = "experts"


def router(run: Lowering, op: RouterScores, x: Tensor) -> Tensor:
    """Scores of all experts, whichever a token chooses."""
    tape = run.tape
    logits = tape.linear(tape.reshape(x, -1, x.shape[-1]), *adapted_parameters(run, op))
    return tape.unary("sigmoid", tape.to(logits, "fp32"))


def experts(run: Lowering, op: ExpertMlps, x: Tensor, scores: Tensor, *indices: Tensor) -> Tensor:
    if op.style != "everywhere":
        return transformers_experts.experts(run, op, x, scores, *indices)
    tape = run.tape
    gate_up, down = run.parameters_of(op)
    hidden = tape.reshape(x, -1, x.shape[-1])
    _, chosen = tape.topk(scores, op.experts_per_token)  # of scores and a bias that balances
    weights = tape.gather(scores, chosen)
    _, order, offsets = tape.sorted_by_expert(tape.reshape(chosen, -1), op.num_experts)
    picked = tape.index_rows(hidden, tape.indices_from("floor_divide", order))
    own = tape.index_rows(tape.reshape(weights, -1), order)
    rows = tape.to(tape.mul(tape.to(picked, "fp32"), tape.unsqueeze(own, -1)), x.dtype)
    gate, up = tape.chunk(tape.grouped_mm(rows, gate_up, offsets), 2)
    (h,) = run.lowered(ExpertGate(module=op.module, function=op.function), gate, up)
    out = tape.grouped_mm(h, down, offsets)
    total = tape.like(hidden, requires_grad=out.requires_grad, op="scatter_add")
    tape.record("scatter_add", [hidden, out, order], [total], [(order, "index")])
    return tape.view(total, *x.shape)


RECORD = Kernels(
    name="torchtitan",
    overrides=(
        Override(RouterScores, router, OWN_EXPERTS, fact="experts"),
        Override(ExpertMlps, experts, OWN_EXPERTS, fact="experts"),
    ),
    order=-1,
    source="torchtitan 0.3 models/common/moe.py",
)
