"""What llama.cpp runs for routed experts (src/llama-graph.cpp build_moe_ffn)."""

from __future__ import annotations

from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.routers import Router, RouterScores
from vramwise.models.operations.simple import AddInPlace
from vramwise.serving.llama_cpp.ggml.build import Build, ggml_lowering
from vramwise.serving.llama_cpp.ggml.tensors import (
    F32,
    I32,
    Tensor,
    get_rows,
    like,
    matmul,
    matmul_by_expert,
    reshape,
    set_rows,
    shape,
    view,
)


@ggml_lowering(Router)
def router(b: Build, op: Router, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scores, the chosen experts, their weights, which enter the graph at once."""
    experts, chosen, tokens = op.num_experts, op.experts_per_token, x.ne[1]
    biases = op.parameters[1:]
    if op.style == "gemma4":  # has a norm of its own; what scales each expert is applied to its output
        x, biases = like("MUL", like("SCALE", like("RMS_NORM", x)), b.weight(x.ne[0], of=biases[0])), ()
    logits = matmul(b.weight(x.ne[0], experts, of=op.parameters[0]), x)
    sigmoid = op.style in _SIGMOID
    corrected = op.corrected or op.style in _CORRECTED
    late = op.style in _SOFTMAX_OF_THE_CHOSEN
    if biases and not corrected:
        logits = like("ADD", logits, b.weight(experts, of=biases[0]))
    probabilities = logits if late else like("UNARY" if sigmoid else "SOFT_MAX", logits)
    ranked = (
        like("ADD", probabilities, b.weight(experts, of=biases[0] if biases else None)) if corrected else probabilities
    )
    if op.num_groups > 1:
        ranked = _within_groups(op, ranked, tokens)
    picked = top(ranked, chosen)
    weights = get_rows(reshape(probabilities, 1, experts, tokens), picked)
    if late:
        weights = reshape(like("SOFT_MAX", reshape(weights, chosen, tokens)), 1, chosen, tokens)
    if not late and (op.normalized or op.style in _ALWAYS_NORMALIZED or b.graph_of.normalizes_experts):
        flat = reshape(weights, chosen, tokens)
        total = like("CLAMP", Tensor("SUM_ROWS", shape(1, tokens), sources=(flat,)))
        weights = reshape(like("DIV", flat, total), 1, chosen, tokens)
    if op.scaled or b.graph_of.scales_experts:
        weights = like("SCALE", weights)
    b.graph.expand(weights)
    return weights, picked


_SIGMOID = frozenset({"corrected", "deepseek_v3", "glm4_moe", "minimax_m2"})
_CORRECTED = _SIGMOID | {"ernie4_5_moe"}
_SOFTMAX_OF_THE_CHOSEN = frozenset({"gpt_oss", "granite"})
_ALWAYS_NORMALIZED = frozenset({"mixtral"})


def top(scores: Tensor, many: int) -> Tensor:
    """ggml_argsort_top_k: the first of all places in order."""
    order = Tensor("ARGSORT", scores.ne, I32, (scores,))
    return view(order, (many, *scores.ne[1:]), order.nb)


def _within_groups(op: Router, ranked: Tensor, tokens: int) -> Tensor:
    """Scores of the best groups alone, the others at minus infinity."""
    groups, kept = op.num_groups, op.num_chosen_groups
    each = op.num_experts // groups
    grouped = reshape(ranked, each, groups, tokens)
    best = get_rows(reshape(grouped, 1, each, groups, tokens), top(grouped, 2))
    sums = Tensor("SUM_ROWS", shape(1, groups, tokens), sources=(reshape(best, 2, groups, tokens),))
    chosen = top(reshape(sums, groups, tokens), kept)
    rows = get_rows(grouped, chosen)
    return reshape(set_rows(like("FILL", grouped), rows, chosen), op.num_experts, tokens)


@ggml_lowering(RouterScores)
def router_scores(b: Build, op: RouterScores, x: Tensor) -> Tensor:
    """Llama 4: sigmoids of the best logits."""
    logits = matmul(b.weight(x.ne[0], op.num_experts, of=op.parameters[0]), x)
    scores = reshape(like("UNARY", logits), 1, op.num_experts, x.ne[1])
    weights = get_rows(scores, top(logits, op.experts_per_token))
    b.graph.expand(weights)
    return weights


@ggml_lowering(AddInPlace)
def add_routed(b: Build, op: AddInPlace, shared: Tensor, routed: Tensor) -> Tensor:
    """Llama 4's class adds what was routed to the shared expert's output, llama.cpp the other way round."""
    return like("ADD", routed, shared)


@ggml_lowering(ExpertMlps)
def experts(b: Build, op: ExpertMlps, x: Tensor, weights: Tensor, *chosen: Tensor) -> Tensor:
    """Up and gate of the chosen experts, down, each output by its weight, then their sum, one by one."""
    picked = chosen[0] if chosen else weights.sources[1]  # Llama 4 weighs what goes in
    width, tokens, many, inner = x.ne[0], x.ne[1], picked.ne[0], op.inner_width
    joint, down, *_ = (parameter for parameter in op.parameters if len(parameter.shape) == 3)
    biases = [parameter for parameter in op.parameters if len(parameter.shape) == 2]
    apart = reshape(x, width, 1, tokens)
    if not chosen:
        apart = like("MUL", Tensor("REPEAT", shape(width, many, tokens), sources=(apart,)), weights)

    def product(which: str, columns: int, rows: int, source: Tensor) -> Tensor:
        last = which == "ffn_down_exps"
        weight = b.weight(columns, rows, op.num_experts, of=down if last else joint, name=which)
        made = matmul_by_expert(weight, source, picked)
        if not biases:
            return made
        bias = b.weight(rows, op.num_experts, of=biases[last])
        return Tensor("ADD_ID", made.ne, F32, (made, bias, picked))

    if b.graph_of.joint_experts:
        both = product("ffn_gate_exps", width, 2 * inner, apart)
        both.sources[0].bytes *= 2  # gate and up are one tensor of the file
        gate, up = (view(both, (inner, *both.ne[1:]), both.nb) for _ in range(2))
    elif b.batch.joint_experts:
        both = product("ffn_gate_exps", width, 2 * inner, apart)
        halves = [view(both, (inner, *both.ne[1:]), (2 * both.item, *both.nb[1:])) for _ in range(2)]
        gate, up = (Tensor("CONT", half.ne, sources=(half,)) for half in halves)
    else:
        up = product("ffn_up_exps", width, inner, apart)
        gate = product("ffn_gate_exps", width, inner, apart)
    joined = like("GLU", gate, up)
    found = product("ffn_down_exps", inner, width, joined)
    scale = b.parameter("router.per_expert_scale")
    if scale is not None:
        each = reshape(b.weight(op.num_experts, of=scale), 1, op.num_experts)
        repeated = Tensor("REPEAT", shape(1, op.num_experts, tokens), sources=(each,))
        found = like("MUL", found, get_rows(repeated, picked))
    if chosen:
        found = like("MUL", found, weights)
    b.graph.expand(found)
    parts = [
        view(found, shape(width, tokens), (4, found.nb[2], found.nb[2] * tokens, found.nb[2] * tokens))
        for _ in range(many)
    ]
    for part in parts:
        b.graph.expand(part)
    total = parts[0]
    for part in parts[1:]:
        total = Tensor("ADD", shape(width, tokens), sources=(total, part))
        b.graph.expand(total)
    return total if many > 1 else Tensor("CONT", shape(width, tokens), sources=(total,))
