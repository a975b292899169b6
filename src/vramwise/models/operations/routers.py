"""Routers as transformers 5.23 runs them: which experts a token goes to, and with which weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, Variants, lowering
from vramwise.models.operations.adapters import adapted_parameters
from vramwise.models.operations.chosen_experts import ChosenExperts
from vramwise.records import record

ROUTES: Variants[Callable[..., tuple[Tensor, Tensor]]] = Variants("routers")
"""(run, op, rows, *parameters) -> weights and numbers of the chosen experts."""


@record(kw_only=True, eq=False)
class Router(ChosenExperts):
    style: str
    normalized: bool = False
    widened: bool = False
    in_place: bool = False
    epsilon: bool = False
    scaled: bool = False
    cast: bool = False
    capped: bool = False
    num_groups: int = 0
    num_chosen_groups: int = 0
    function: str = ""
    routing: str = ""
    corrected: bool = False


@lowering(Router)
def router(run: Lowering, op: Router, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of every expert, the best few of them and their weights; `style` names the class's way."""
    rows = run.tape.reshape(x, -1, x.shape[-1])
    route = ROUTES[op.style]
    weights, indices = route(run, op, rows, *adapted_parameters(run, op))
    return weights, indices


@record(kw_only=True, eq=False)
class RouterScores(Operation):
    num_experts: int
    experts_per_token: int


@lowering(RouterScores)
def router_scores(run: Lowering, op: RouterScores, x: Tensor) -> Tensor:
    """Llama 4: sigmoid of the best logits, zero for the other experts, (tokens, experts)."""
    tape = run.tape
    logits = tape.linear(tape.reshape(x, -1, x.shape[-1]), *adapted_parameters(run, op))
    best, indices = tape.topk(logits, op.experts_per_token)
    spread = tape.like(logits, requires_grad=logits.requires_grad, op="full_like")
    tape.record("scatter_", [best, indices], [spread], [(indices, "index")])
    return tape.to(tape.unary("sigmoid", tape.to(spread, "fp32")), logits.dtype)


def normalized_weights(run: Lowering, op: Router, weights: Tensor, *, epsilon: bool = False) -> Tensor:
    """`weights /= weights.sum()`, in place, where the config asks for it."""
    if not op.normalized:
        return weights
    total = run.tape.reduce("sum", weights)
    return run.tape.div_(weights, run.tape.scale(total, "add_scalar") if epsilon else total)


@ROUTES.named("mixtral")
def _route_mixtral(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 softmax over all experts, then the best; the weights stay in fp32."""
    scores = run.tape.softmax(run.tape.linear(x, weight), "fp32")
    weights, indices = run.tape.topk(scores, op.experts_per_token)
    return normalized_weights(run, op, weights), indices


@ROUTES.named("qwen")
def _route_qwen(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """As mixtral, the weights cast back to the logits' dtype."""
    logits = run.tape.linear(x, weight)
    weights, indices = run.tape.topk(run.tape.softmax(logits, "fp32"), op.experts_per_token)
    return run.tape.to(normalized_weights(run, op, weights), logits.dtype), indices


@ROUTES.named("fp32_softmax")
def _route_fp32_softmax(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Lara: softmax over fp32 logits, the best of them divided by their sum and cast to the hidden states' dtype."""
    tape = run.tape
    weights, indices = tape.topk(tape.softmax(_fp32_logits(run, x, weight)), op.experts_per_token)
    weights = tape.div(weights, tape.reduce("sum", weights)) if op.normalized else weights
    return tape.to(weights, x.dtype), indices


@ROUTES.named("hunyuan_v1_moe")
def _route_hunyuan_v1_moe(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """As qwen, on hidden states in fp32: the class makes this weight fp32 whatever the model's dtype."""
    return _route_qwen(run, op, run.tape.to(x, "fp32"), replace(weight, dtype="fp32"))


@ROUTES.named("dbrx")
def _route_dbrx(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over all experts in the logits' dtype; the best weights divided by their norm."""
    tape = run.tape
    logits = tape.linear(x, weight)
    weights, indices = tape.topk(tape.softmax(logits, logits.dtype), op.experts_per_token)
    if not op.normalized:
        return weights, indices
    return tape.div(weights, tape.vector_norm(weights)), indices


@ROUTES.named("gpt_oss")
def _route_gpt_oss(run: Lowering, op: Router, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The best logits first, then a softmax over them in their own dtype."""
    best, indices = run.tape.topk(run.tape.linear(x, weight, bias), op.experts_per_token)
    return run.tape.softmax(best, best.dtype), indices


@ROUTES.named("deepseek_v2")
def _route_deepseek_v2(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 softmax; group-limited routing zeroes the experts outside of the best groups."""
    tape, groups = run.tape, op.num_groups
    scores = tape.softmax(_fp32_logits(run, x, weight), "fp32")
    if groups:
        scores = tape.masked_fill(scores, _group_mask(run, op, tape.detached(scores)))
    weights, indices = tape.topk(scores, op.experts_per_token)
    return tape.scale(weights), indices


@ROUTES.named("mistral4")
def _route_mistral4(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax in the logits' dtype; experts outside of the best groups are left out of the choice only."""
    return _within_groups(run, op, run.tape.softmax(run.tape.linear(x, weight)))


@ROUTES.named("mistral_large4")
def _route_mistral_large4(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """As Mistral 4, from logits in fp32."""
    return _within_groups(run, op, run.tape.softmax(_fp32_logits(run, x, weight)))


def _within_groups(run: Lowering, op: Router, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The best experts of the best groups, their weights divided by their sum and scaled."""
    tape = run.tape
    choice = tape.masked_fill(tape.detached(scores), _group_mask(run, op, tape.detached(scores)))
    indices = tape.topk(choice, op.experts_per_token)[1]
    return tape.scale(normalized_weights(run, op, tape.gather(scores, indices), epsilon=True)), indices


@ROUTES.named("deepseek_v3")
def _route_deepseek_v3(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Sigmoid scores; the choice is made on scores plus a correction buffer, outside of autograd's reach."""
    tape = run.tape
    scores = tape.unary("sigmoid", _fp32_logits(run, x, weight))
    correction = tape.new((op.num_experts,), "fp32", kind="buffer", op="buffer")
    choice = tape.add(tape.detached(scores), correction)
    if op.num_groups:
        choice = tape.masked_fill(choice, _group_mask(run, op, choice))
    indices = tape.topk(choice, op.experts_per_token)[1]
    weights = normalized_weights(run, op, tape.gather(scores, indices), epsilon=True)
    return tape.scale(weights), indices


@ROUTES.named("corrected")
def route_corrected(run: Lowering, op: Router, x: Tensor, weight: Tensor, *correction: Tensor) -> tuple[Tensor, Tensor]:
    """Sigmoid scores in fp32, the choice made on scores plus a correction, weights divided by their sum."""
    tape = run.tape
    logits = _fp32_logits(run, x, weight) if op.widened else tape.to(tape.linear(x, weight), "fp32")
    if op.capped:
        logits = tape.scale(tape.unary("tanh", tape.scale(logits)))
    scores = tape.unary("sigmoid", logits)
    indices = corrected_choice(run, op, scores, *correction)
    weights = tape.gather(scores, indices)
    if op.in_place:
        weights = normalized_weights(run, op, weights, epsilon=op.epsilon)
    else:
        total = tape.reduce("sum", weights)
        weights = tape.div(weights, tape.scale(total, "add_scalar") if op.epsilon else total)
    weights = tape.scale(weights) if op.scaled else weights
    return tape.to(weights, x.dtype) if op.cast else weights, indices


@ROUTES.named("fp32_sigmoid")
def _route_fp32_sigmoid(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Flint: sigmoid scores in fp32 outside of autocast, the best of them divided by their sum."""
    tape = run.tape
    autocast, tape.autocast = tape.autocast, None
    try:
        scores = tape.unary("sigmoid", _fp32_logits(run, x, weight))
    finally:
        tape.autocast = autocast
    weights, indices = tape.topk(scores, op.experts_per_token)
    return tape.div(weights, tape.reduce("sum", weights)) if op.normalized else weights, indices


def corrected_choice(run: Lowering, op: ChosenExperts, scores: Tensor, *correction: Tensor) -> Tensor:
    """The best experts by score plus correction, a buffer where it is no parameter."""
    tape = run.tape
    added = correction[0] if correction else tape.new((op.num_experts,), "fp32", kind="buffer", op="buffer")
    choice = tape.add(tape.detached(scores), tape.detached(added))
    return tape.topk(choice, op.experts_per_token)[1]


@ROUTES.named("ernie4_5_moe")
def _route_ernie4_5_moe(
    run: Lowering, op: Router, x: Tensor, weight: Tensor, correction: Tensor
) -> tuple[Tensor, Tensor]:
    """fp32 softmax outside of autocast; the class keeps this weight in fp32 whatever the model's dtype."""
    tape = run.tape
    autocast, tape.autocast = tape.autocast, None
    try:
        scores = tape.softmax(tape.linear(tape.to(x, "fp32"), replace(weight, dtype="fp32")))
        indices = corrected_choice(run, op, scores, tape.squeeze(correction, 0))
        weights = tape.gather(scores, indices)
        weights = tape.div(weights, tape.unary("clamp", tape.reduce("sum", weights)))
    finally:
        tape.autocast = autocast
    return tape.to(weights, x.dtype), indices


@ROUTES.named("deepseek_v4")
def _route_deepseek_v4(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(softplus) scores, corrected for the choice only; layers that choose by token id keep as much."""
    tape = run.tape
    scores = tape.unary("sqrt", tape.unary("softplus", tape.linear(x, weight)))
    indices = corrected_choice(run, op, scores)
    weights = tape.gather(scores, indices)
    weights = tape.div(weights, tape.scale(tape.reduce("sum", weights), "add_scalar"))
    return tape.scale(weights), indices


@ROUTES.named("longcat_flash")
def _route_longcat_flash(
    run: Lowering, op: Router, x: Tensor, weight: Tensor, *unused: Tensor
) -> tuple[Tensor, Tensor]:
    """Softmax over all experts, corrected for the choice only; the class holds a bias that it does not add."""
    tape = run.tape
    logits = _fp32_logits(run, x, weight)
    scores = tape.softmax(logits)
    indices = corrected_choice(run, op, scores)
    return tape.to(tape.scale(tape.gather(scores, indices)), logits.dtype), indices


@ROUTES.named("jamba")
def _route_jamba(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 softmax over all experts, the best of them cast to the hidden states' dtype."""
    scores = run.tape.softmax(run.tape.linear(x, weight), "fp32")
    weights, indices = run.tape.topk(scores, op.experts_per_token)
    return run.tape.to(weights, x.dtype), indices


@ROUTES.named("lfm2_moe")
def _route_lfm2_moe(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Sigmoid scores in the logits' dtype, the choice made on scores plus a buffer where there is one."""
    tape = run.tape
    scores = tape.unary("sigmoid", tape.linear(x, weight))
    if op.corrected:
        indices = corrected_choice(run, op, scores)
        weights = tape.gather(scores, indices)
    else:
        weights, indices = tape.topk(scores, op.experts_per_token)
    if op.normalized:
        weights = tape.div(weights, tape.scale(tape.reduce("sum", weights), "add_scalar"))
    return tape.scale(weights), indices


@ROUTES.named("best_first")
def _route_best_first(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The best logits first, then a softmax over them, in fp32 where the class widens the logits, cast back."""
    tape, logits = run.tape, run.tape.linear(x, weight)
    best, indices = tape.topk(tape.to(logits, "fp32") if op.widened else logits, op.experts_per_token)
    shares = tape.softmax(best)
    return tape.to(shares, x.dtype) if op.widened else shares, indices


@ROUTES.named("logit_first")
def _route_logit_first(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Kolibri: the best fp32 logits plus a buffer, a sigmoid of the chosen ones alone."""
    tape = run.tape
    logits = _fp32_logits(run, x, weight)
    indices = corrected_choice(run, op, logits)
    weights = tape.unary("sigmoid", tape.gather(logits, indices))
    return tape.div(weights, tape.reduce("sum", weights)) if op.normalized else weights, indices


@ROUTES.named("skip_expert")
def _route_skip_expert(run: Lowering, op: Router, logits: Tensor) -> tuple[Tensor, Tensor]:
    """ZAYA: softmax over the experts and one that does nothing, whose share is set to zero."""
    tape = run.tape
    shares = tape.softmax(logits)
    indices = corrected_choice(run, op, shares)
    skipped = tape.like(indices, dtype="bool", requires_grad=False, op="eq")
    return tape.masked_fill(tape.gather(shares, indices), skipped), tape.masked_fill(indices, skipped)


@ROUTES.named("cohere2_moe")
def _route_cohere2_moe(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The best logits first, then an fp32 softmax or a normalized sigmoid over them."""
    tape = run.tape
    best, indices = tape.topk(tape.linear(x, weight), op.experts_per_token)
    if op.function == "softmax":
        return tape.to(tape.softmax(best, "fp32"), x.dtype), indices
    weights = tape.unary("sigmoid", best)
    if op.normalized:
        weights = tape.div(weights, tape.reduce("sum", weights))
    return tape.to(weights, x.dtype), indices


@ROUTES.named("sparsemixer")
def _route_sparsemixer(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Phi 3.5: two rounds of sampling among the experts near the best, the second without the first's choice."""
    tape = run.tape
    logits = tape.linear(x, weight)
    first, chosen = _sampled_expert(run, logits, logits)
    rest = tape.like(logits, requires_grad=logits.requires_grad, op="scatter")
    tape.record("scatter", [logits, chosen], [rest], [(chosen, "index")])
    second, other = _sampled_expert(run, logits, rest)
    return tape.cat([first, second]), tape.cat([chosen, other])


def _sampled_expert(run: Lowering, logits: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """One expert a token by its share of the softmax, whose gradient the class estimates (`PhimoeMultiplier`)."""
    tape = run.tape
    far = tape.like(scores, dtype="bool", requires_grad=False, op="gt")
    gates = tape.masked_fill(scores, far)
    chosen = tape.topk(tape.detached(gates), 1)[1]
    gates = tape.softmax(gates)
    share = tape.gather(gates, chosen)
    out = tape.like(share, requires_grad=share.requires_grad, op="PhimoeMultiplier")
    kept = [(share, "multiplier"), (chosen, "selected_experts"), (gates, "masked_gates")]
    tape.record("PhimoeMultiplier", [logits, share, gates], [out], kept)
    return out, chosen


class WideRouterProduct(Operation):
    """A router's logits in fp32; inside a router's lowering, as kernel libraries replace it."""

    __slots__ = ()


@lowering(WideRouterProduct)
def wide_router_product(run: Lowering, op: WideRouterProduct, x: Tensor, weight: Tensor) -> Tensor:
    """`F.linear` of hidden states and weight that are both cast to fp32 first."""
    return run.tape.linear(run.tape.to(x, "fp32"), run.tape.to(weight, "fp32"))


def _fp32_logits(run: Lowering, x: Tensor, weight: Tensor) -> Tensor:
    (logits,) = run.lowered(WideRouterProduct(), x, weight)
    return logits


def _group_mask(run: Lowering, op: Router, scores: Tensor) -> Tensor:
    """True for the experts outside of the groups with the best scores, (tokens, experts)."""
    tape, experts, groups = run.tape, op.num_experts, op.num_groups
    grouped = tape.view(scores, -1, groups, experts // groups)
    best = tape.reduce("sum", tape.topk(grouped, min(2, experts // groups))[0], keepdim=False)
    chosen = tape.topk(best, op.num_chosen_groups)[1]
    mask = tape.like(best, requires_grad=False, op="zeros_like")
    tape.record("scatter_", [chosen], [mask])
    wide = tape.expand(tape.unsqueeze(mask, -1), -1, groups, experts // groups)
    outside = tape.like(tape.reshape(wide, -1, experts), dtype="bool", requires_grad=False, op="bitwise_not")
    tape.record("bitwise_not", [wide], [outside])
    return outside


@record(kw_only=True, eq=False)
class LoadBalancingLoss(Operation):
    num_layers: int
    num_experts: int
    experts_per_token: int
    fp32_logits: bool = False


@lowering(LoadBalancingLoss)
def load_balancing_loss(run: Lowering, op: LoadBalancingLoss, x: Tensor) -> Tensor:
    """The auxiliary loss over the router logits of every layer (`load_balancing_loss_func`)."""
    tape, experts = run.tape, op.num_experts
    tokens = run.batch * run.sequence
    dtype = "fp32" if op.fp32_logits else run.execution.autocast or run.execution.param_dtype
    sums = tape.new((experts,), "fp32", op="zeros")
    mask = tape.new((tokens, 1), "fp32", op="_to_copy") if run.execution.padding else None
    for _ in range(op.num_layers):
        logits = tape.new((tokens, experts), dtype, requires_grad=x.requires_grad, op="mm")
        shares = tape.softmax(logits)
        # These indices live until the loss function returns; they are counted as the recorded rows count them.
        tape.topk(shares, op.experts_per_token)
        shares = tape.to(shares, "fp32")
        if mask is not None:
            shares = tape.mul(shares, mask)
        sums = tape.add(sums, tape.reduce("sum", shares, 0, keepdim=False))
    counts = tape.new((experts,), "fp32", op="div")
    # The number of rows is a plain number, or with padding the sum of the mask.
    mean = tape.scale(sums) if mask is None else tape.div(sums, tape.new((), "fp32", op="sum"))
    return tape.reduce("sum", tape.mul(counts, tape.unsqueeze(mean, 0)))
