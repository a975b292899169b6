"""Megatron's own layers around Transformer Engine's norms and products.

Megatron core 0.16.1, but for the rotation (TransformerEngine 2.8 pytorch/attention/rope.py FusedRoPEFunc):

    gates         one kernel keeps the joined product; its gradient is new    fusions/fused_bias_swiglu.py, _geglu.py
    activations   of several operations keep their input alone           fusions/fused_bias_gelu.py, transformer/mlp.py
    rotations     one kernel keeps the table; it makes a new tensor, and a new gradient
    latent        values are a contiguous tensor of their own, so that the up-projection's output goes, and the kernel
                  takes keys and values of different widths                      transformer/multi_latent_attention.py
    routers       their products keep the hidden states as they are, also where they compute in fp32
                                                              transformer/moe/moe_utils.py RouterGatingLinearFunction
    experts       permuted tokens are exchanged and sorted by expert before the first product, and what comes out the
                  other way round; each expert has adapters of its own; a token's weight multiplies inside the
                  activation, so that nothing keeps what the experts put out (moe/experts.py TEGroupedMLP,
                  `permuted_probs`; core before 0.13 multiplied the outputs); outputs are exchanged and added up by one
                  kernel in 16 bits (moe/token_dispatcher.py, `unpermute`)
    Mamba 2       one kernel for everything between the products keeps what the first made and its own output before the
                  gate (ssm/mamba_mixer.py `_ssm_training`, mamba-ssm 2.2 ops/triton/ssd_combined.py); a norm behind it
                  keeps its input

    DeltaNet      flash-linear-attention's kernel, which it asks for, on queries and keys of length 1 repeated for every
                  head of values; the norm behind it is Transformer Engine's, its gate compiled (ssm/gated_delta_net.py)

Not counted: row maps of the permutation, the weights inside the activation, imbalance (every rank gets as many tokens
as it sends), chunk states while a layer's backward runs. Experts of styles without grouped products, Mamba 1 and other
recurrent layers, which Megatron does not have, run as transformers runs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vramwise.kernels.flash_linear_attention import chunked
from vramwise.kernels.fused import GATES, ONE_KERNEL, ROTATIONS, rotated, with_joined_gates
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Parameter, Value
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations import experts as transformers_experts
from vramwise.models.operations.activations import ExpertGate, GatedActivation, apply_activation, gated_activation
from vramwise.models.operations.adapters import low_rank_pair
from vramwise.models.operations.attention import Attention, Rotary, attention_dropout, padded, repeat_kv, tables_of
from vramwise.models.operations.attention import attention as transformers_attention
from vramwise.models.operations.chunk_scan import ChunkScan, GroupedNorm
from vramwise.models.operations.delta_rule import (
    GatedDeltaRule,
    GatedHeadNorm,
    beta_and_decay,
    in_heads,
    repeated,
)
from vramwise.models.operations.experts import ExpertMlps, grouped_linear
from vramwise.models.operations.routers import WideRouterProduct
from vramwise.models.operations.simple import Activation, Linear
from vramwise.records import record

OWN_LAYERS = "Megatron's own layers"
_SEVERAL_OPERATIONS = frozenset({"gelu_new", "gelu_fast", "quick_gelu", "bloom_gelu", "relu2"})


@record(kw_only=True, eq=False)
class MambaScan(Operation):
    """From a Mamba 2 mixer's input projection to its output projection; `norm`: one behind the kernel."""

    norm: bool


def with_one_scan(block: Block) -> Block:
    """Everything between a Mamba 2 mixer's two products as one operation."""
    makers = {value: op for op in block.ops for value in op.outputs}
    for scan in block.operations(ChunkScan):
        behind = list(_until_product(block, scan))
        before = _back_to_product(makers, (scan, *behind))
        last = behind[-1] if behind else scan
        sources = dict.fromkeys(v for op in before for v in op.inputs if isinstance(makers.get(v), Linear))
        gone = {*before, *behind}
        joined = MambaScan(
            module=scan.module, inputs=tuple(sources), outputs=last.outputs[:1],
            parameters=tuple(p for op in block.ops if op in gone for p in op.parameters),
            norm=any(isinstance(op, GroupedNorm) for op in behind),
        )  # fmt: skip
        ops = (joined if op is scan else op for op in block.ops if op is scan or op not in gone)
        block = replace(block, ops=tuple(ops))
    return block


def _until_product(block: Block, scan: ChunkScan) -> Iterable[Operation]:
    """What works on the scan's result, up to the output projection."""
    (made,) = scan.outputs
    for op in block.ops:
        if made in op.inputs:
            if isinstance(op, Linear):
                return
            yield op
            made = op.outputs[0]


def _back_to_product(makers: dict[Value, Operation], ops: Iterable[Operation]) -> list[Operation]:
    """These operations and all that their inputs were made by since the input projection."""
    found: dict[Operation, None] = {}
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        found[op] = None
        made_by = (makers.get(value) for value in op.inputs)
        waiting += [one for one in made_by if one is not None and one not in found and not isinstance(one, Linear)]
    return list(found)


def mamba_scan(run: Lowering, op: MambaScan, projected: Tensor) -> Tensor:
    tape, weights, inner = run.tape, run.parameters_of(op), op.outputs[0].width
    grad = any(tensor.requires_grad for tensor in (projected, *weights))
    shape, dtype = (run.batch, run.sequence, inner), projected.dtype
    out, own = (tape.new(shape, dtype, requires_grad=grad, op="mamba_scan") for _ in range(2))
    own = replace(own, requires_grad=False)
    tape.record("mamba_scan", [projected, *weights], [out, own], [(projected, "projected input"), (own, "output")])
    if not op.norm:
        return out
    normed, rstd = tape.like(out, requires_grad=grad, op="fused_rms_norm"), tape.new(shape[:-1], "fp32", op="rstd")
    tape.record("fused_rms_norm", [out], [normed, rstd], [(out, "input"), (rstd, "rstd")])
    return normed


def delta_rule(
    run: Lowering, op: GatedDeltaRule, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> Tensor:
    """`l2norm` of contiguous queries and keys, each then repeated, in front of `chunk_gated_delta_rule`."""
    beta, decay = beta_and_decay(run, op, beta, decay)
    q, k, v = (run.tape.contiguous(x) for x in in_heads(run, op, q, k, v))
    q, k = (repeated(run, of_length_1(run, x), op.value_heads // op.key_heads) for x in (q, k))
    return chunked(run, q, k, v, beta, decay, normalizes=False)


def of_length_1(run: Lowering, x: Tensor) -> Tensor:
    """fla-core 0.6.0 modules/norm/l2norm.py L2NormFunction: keeps its result and 1/|x|."""
    out = run.tape.like(x, requires_grad=x.requires_grad, op="l2_norm")
    rstd = run.tape.new(x.shape[:-1], "fp32", op="rstd")
    run.tape.record("l2_norm", [x], [out, rstd], [(out, "result"), (rstd, "rstd")])
    return out


def gated_norm(run: Lowering, op: GatedHeadNorm, x: Tensor, gate: Tensor) -> Tensor:
    """Transformer Engine's norm of every head, and `y * silu(gate.float())` compiled into one kernel."""
    tape, (weight,) = run.tape, run.parameters_of(op)
    rows, gates = (tape.contiguous(tape.reshape(t, -1, op.parameters[0].shape[0])) for t in (x, gate))
    grad = any(t.requires_grad for t in (rows, gates, weight))
    normed, rstd = (
        tape.like(rows, requires_grad=grad, op="fused_rms_norm"),
        tape.new(rows.shape[:1], "fp32", op="rstd"),
    )
    tape.record("fused_rms_norm", [rows, weight], [normed, rstd], [(rows, "input"), (rstd, "rstd")])
    out = tape.like(normed, requires_grad=grad, op="fused_pointwise")
    tape.record("fused_pointwise", [normed, gates], [out], [(normed, "input"), (gates, "input")])
    return tape.reshape(out, *x.shape[:2], -1)


def gate(run: Lowering, op: GatedActivation, gate: Tensor, up: Tensor) -> Tensor:
    """act(gate)·up over the halves of one product, of which backward makes the gradient in one new tensor."""
    if op.function not in ONE_KERNEL:
        return gated_activation(run, op, gate, up)
    out = run.tape.like(up, requires_grad=gate.requires_grad or up.requires_grad, op="fused_gate")
    run.tape.record("fused_gate", [gate, up], [out], [(gate, "gate or up"), (up, "gate or up")])
    return out


def activation(run: Lowering, op: Activation, x: Tensor) -> Tensor:
    """One of several operations, compiled into one."""
    if op.function not in _SEVERAL_OPERATIONS:
        return apply_activation(run.tape, op.function, x)
    out = run.tape.like(x, requires_grad=x.requires_grad, op="fused_activation")
    run.tape.record("fused_activation", [x], [out], [(x, "input")])
    return out


def rotation(run: Lowering, op: Rotary, *turned: Tensor) -> tuple[Tensor, ...]:
    """Queries and keys turned into new tensors, row by row where the class's own function joins them."""
    joins = op.style.endswith("joined") or op.rotary_dim != turned[0].shape[-1]
    return rotated(run, "fused_rotation", tables_of(run, op, turned[0].dtype), turned, row_major=joins)


def attention(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
    """Latent attention's kernel; attention of one width runs as it is, but for the softmax between two products."""
    if run.execution.attention == "eager" and _softmax_is_fused(run, op, q):
        return _with_fused_softmax(run, op, q, k, v)
    if not op.latent or k.shape[-1] == v.shape[-1]:
        return transformers_attention(run, op, q, k, v, *others)
    v = run.tape.clone_contiguous(v)
    if run.execution.sdpa_backend != "flash" or padded(run):
        return transformers_attention(run, op, q, k, v, *others)
    out = run.tape.flash_of_own_widths(q, k, v)
    return run.tape.reshape(out, *out.shape[:2], -1)


def _softmax_is_fused(run: Lowering, op: Attention, q: Tensor) -> bool:
    """Whether scale, causal mask and softmax are one kernel: in 16 bits, without another mask or a cap.

    Megatron core 0.16 fusions/fused_softmax.py `is_kernel_available` (`--no-masked-softmax-fusion` turns it off; of
    sequences beyond 16,384 it is torch's own, which is not told apart); legacy/model/fused_softmax.py had it by 2020.
    """
    plain = op.causal and not op.softcap and op.window is None and not op.alibi and not op.latent and op.style.ordinary
    return plain and q.dtype in ("fp16", "bf16") and not padded(run) and not run.execution.documents


def _with_fused_softmax(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """baddbmm that scales, the fused softmax, which keeps its output, dropout, bmm (core transformer/
    dot_product_attention.py)."""
    tape = run.tape
    k, v = repeat_kv(run, op, k, v)
    scores = tape.matmul(q, tape.transpose(k, 2, 3))
    weights = tape.like(scores, requires_grad=scores.requires_grad, op="fused_softmax")
    tape.record("fused_softmax", [scores], [weights], [(weights, "result")])
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    out = tape.transpose(tape.matmul(weights, v), 1, 2)
    return tape.contiguous(tape.reshape(out, *out.shape[:2], -1))


def router_product(run: Lowering, op: WideRouterProduct, x: Tensor, weight: Tensor) -> Tensor:
    """fp32 results of hidden states that are kept as they are."""
    tape = run.tape
    shape = (*x.shape[:-1], weight.shape[0])
    out = tape.new(shape, "fp32", requires_grad=x.requires_grad or weight.requires_grad, op="router_product")
    kept = [(x, "input")] if weight.requires_grad else []
    flops = 2 * x.numel * weight.shape[0]
    backward = flops * (x.requires_grad + weight.requires_grad)
    tape.record("router_product", [x, weight], [out], kept, flops=flops, backward_flops=backward)
    return out


def experts(run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, *indices: Tensor) -> Tensor:
    """Permutation, exchange, two grouped products around a weighted gate, exchange, sum."""
    if op.style or run.execution.expert_modules:
        return transformers_experts.experts(run, op, x, weights, *indices)
    tape = run.tape
    gate_up, down, *biases = op.parameters
    hidden = tape.reshape(x, -1, x.shape[-1])
    numbers, order, offsets = tape.sorted_by_expert(tape.reshape(indices[0], -1), op.num_experts)
    picked = tape.index_rows(hidden, tape.indices_from("floor_divide", order))
    received = _exchanged(run, op, picked)
    dispatched = _sorted(run, op, received)
    tape.index_rows(tape.reshape(weights, -1), order)
    up_bias, down_bias = (tape.index_rows(run.parameter(b), numbers) for b in biases) if biases else (None, None)
    h = _product(run, op, dispatched, gate_up, offsets, up_bias)
    h = transformers_experts.GATES[op.gating](run, op, h)
    back = _exchanged(run, op, _sorted(run, op, _product(run, op, h, down, offsets, down_bias)))
    total = tape.like(hidden, requires_grad=back.requires_grad, op="unpermute")
    tape.record("unpermute", [back], [total])
    tape.record("locals", [picked, received], [])  # `hidden_states`, `dispatched_input` of moe_layer.py custom_forward
    return tape.view(total, *x.shape)


def _product(
    run: Lowering, op: ExpertMlps, x: Tensor, weight: Parameter, offsets: Tensor, bias: Tensor | None
) -> Tensor:
    """A grouped product of a rank's experts, with grouped products of their adapters beside it.

    mcore-bridge 1.6.5 tuners/lora.py LoraParallelLinear: each expert has an A and a B, whose input went through
    dropout; the sum is a new tensor.
    """
    tape, lora = run.tape, run.execution.lora
    result = grouped_linear(run, op, x, run.parameter(weight), offsets, bias)
    if lora is None or not lora.wraps(weight):
        return result
    a, b = low_rank_pair(run, op, weight)
    count = weight.shape[0]
    first = tape.reshape(a, count, -1, a.shape[-1])
    second = tape.permute(tape.reshape(b, b.shape[0], count, -1), 1, 0, 2)
    low = tape.grouped_mm(tape.dropout(tape.to(x, lora.dtype), lora.dropout), tape.transpose(first, 1, 2), offsets)
    delta = tape.scale(tape.grouped_mm(low, tape.transpose(second, 1, 2), offsets))
    return tape.to(tape.add(result, delta), result.dtype)


def _exchanged(run: Lowering, op: ExpertMlps, x: Tensor) -> Tensor:
    """Rows that ranks of other experts sent (or sent back); one rank that has all experts sends none."""
    return _copied(run, x, "all_to_all") if op.parameters[0].shape[0] < op.num_experts else x


def _sorted(run: Lowering, op: ExpertMlps, x: Tensor) -> Tensor:
    """Rows by expert, not by the rank that they came from: a copy, unless a rank has one expert alone.

    (moe/token_dispatcher.py `dispatch_postprocess`, `combine_preprocess`: `sort_chunks_by_idxs`.)
    """
    return _copied(run, x, "sort_chunks") if op.parameters[0].shape[0] > 1 else x


def _copied(run: Lowering, x: Tensor, op: str) -> Tensor:
    out = run.tape.like(x, requires_grad=x.requires_grad, op=op)
    run.tape.record(op, [x], [out])
    return out


RECORD = Kernels(
    name="megatron",
    overrides=(
        Override(GatedActivation, gate, GATES, rewrite=with_joined_gates),
        Override(ExpertGate, gate, GATES),
        Override(Activation, activation, OWN_LAYERS),
        Override(Rotary, rotation, ROTATIONS),
        Override(Attention, attention, OWN_LAYERS),
        Override(WideRouterProduct, router_product, OWN_LAYERS),
        Override(ExpertMlps, experts, OWN_LAYERS),
        Override(MambaScan, mamba_scan, OWN_LAYERS, rewrite=with_one_scan),
        Override(GatedDeltaRule, delta_rule, OWN_LAYERS),
        Override(GatedHeadNorm, gated_norm, OWN_LAYERS),
    ),
    order=-1,
    source="Megatron core 0.16.1 transformer, fusions, ssm; TransformerEngine 2.8 pytorch/attention/rope.py",
)
