"""Fused kernels as rewrites of a recorded block: several primitive operations become one that keeps less.

    norm      RMS norm in one kernel: keeps its input and 1/rms      Liger 0.5 ops/rms_norm.py, TransformerEngine 2
    swiglu    act(gate) · up: keeps gate and up, gradients in place  Liger 0.5 ops/swiglu.py
    rotary    in place: keeps the tables only                        Liger 0.5 ops/rope.py

    heads     keys and values copied to every query head in front of the kernel   torchtune 0.6 modules/attention.py

`liger`, `unsloth` and `transformer-engine` replace all three; `fms` (fused ops and kernels of fms-acceleration)
norm and rotary; `apex` the norm. torchtune copies heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import groupby

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import bitsandbytes_version
from vramwise.models.autograd.size import Dim, product, total
from vramwise.models.autograd.tensor import ITEM_BYTES, Node, Storage, Tensor, contiguous_strides
from vramwise.models.step import BlockRun, Forward
from vramwise.models.type_facts import has_fact
from vramwise.training.activations.megatron_experts import with_own_experts
from vramwise.training.activations.megatron_latent import with_own_latent_attention
from vramwise.training.activations.rewriting import rewritten
from vramwise.training.activations.scans import fuse_scans
from vramwise.training.resolved import ResolvedTrain

_REPLACED: dict[str, frozenset[str]] = {
    "liger": frozenset({"norm", "swiglu", "rotary"}),
    "unsloth": frozenset({"norm", "swiglu", "rotary"}),
    "transformer-engine": frozenset({"norm", "swiglu", "rotary"}),
    "fms": frozenset({"norm", "rotary"}),
    "apex": frozenset({"norm"}),
}

INPUTS_LEFT_SINCE = (0, 43, 2)
NO_HALF_SINCE = (0, 43, 0)
QUANTIZED_INPUT = "A"

Rewrite = Callable[[tuple[Node, ...]], tuple[Node, ...]]


def fused_parts(train: ResolvedTrain) -> frozenset[str]:
    """What runs as one kernel under these settings."""
    return parts_of((*train.kernels, *framework_of(train).kernels))


def parts_of(names: tuple[str, ...]) -> frozenset[str]:
    """What kernel libraries make one kernel of."""
    if "fms" in names:  # fms-acceleration takes only the loss from Liger
        names = tuple(name for name in names if name != "liger")
    return frozenset[str]().union(*(_REPLACED.get(name, frozenset()) for name in names))


def with_kernels(forward: Forward, train: ResolvedTrain) -> Forward:
    """The forward pass with fused kernels in place of what they replace, and the framework's own rewrites."""
    return with_parts(forward, fused_parts(train), framework_of(train).rewrites)


def with_parts(forward: Forward, parts: frozenset[str], own: tuple[str, ...] = ()) -> Forward:
    """The forward pass with these parts as one kernel each; `own`: rewrites of a framework, which come first."""
    rewrites: list[Rewrite] = [_OF_FRAMEWORKS[name] for name in own]
    if not parts and not rewrites:
        return forward
    if "norm" in parts:
        rewrites.append(_fuse_norms)
    if "swiglu" in parts:
        rewrites.append(_fuse_gated)
    if "rotary" in parts:
        rewrites.append(_fuse_rotary)
    return rewritten(forward, lambda run: reduce(lambda nodes, rewrite: rewrite(nodes), rewrites, run.nodes))


def with_softmax_inputs(forward: Forward) -> Forward:
    """Softmax before torch 1.11, whose backward asks the input for its dtype and so keeps it beside the result.

    transformers 4.20 pytorch_utils.py softmax_backward_data tells both signatures apart.
    """
    return rewritten(
        forward, lambda run: tuple(_keeping_input(node) if node.op in _SOFTMAXES else node for node in run.nodes)
    )


_SOFTMAXES = frozenset({"_softmax", "_log_softmax"})


def _keeping_input(node: Node) -> Node:
    x = node.inputs[0]
    return replace(node, saved=(*node.saved, (x.storage, "self"))) if x.requires_grad else node


def with_dequantization(forward: Forward, train: ResolvedTrain, model_type: str = "") -> Forward:
    """Products with a quantized weight make a 16-bit copy of it for as long as they run.

    bitsandbytes 0.50 autograd/_functions.py MatMul4Bit: forward and backward each dequantize the whole weight. Fused
    experts are dequantized where they are read, so that autograd keeps the copy (nn/parametrize.py); unsloth's backward
    dequantizes them again (unsloth_zoo 2026.10 temporary_patches/moe_utils_bnb4bit.py), gpt-oss's in portions that fit,
    an expert at the least (gpt_oss_grouped_qlora.py `_expert_window`; before, a loop over experts). Before 0.43.2 a
    product kept its input as well (`ctx.tensors = (A, B)`), though no gradient asks for it; before 0.43 the copy was
    made in fp16 (`Params4bit.cuda` halves what it quantizes) and from there in bf16. litgpt's output layer is
    quantized too (Lightning Fabric plugins/precision/bitsandbytes.py: every nn.Linear).
    """
    is_4_bit = (train.quantization or "").startswith(("nf4", "fp4"))
    keeps_inputs = is_4_bit and bitsandbytes_version(train) < INPUTS_LEFT_SINCE
    copies = 2 if is_4_bit and bitsandbytes_version(train) < NO_HALF_SINCE and train.compute_dtype == "bf16" else 1

    framework, by_expert = framework_of(train), has_fact("unsloth", "experts_in_portions", model_type)

    def quantized(run: BlockRun) -> tuple[Node, ...]:
        if run.layer is None and not framework.quantizing.head:
            return run.nodes
        nodes = tuple(_dequantizing(node, keeps_inputs, copies) for node in run.nodes)
        if not train.quantize_experts or run.layer is None:
            return nodes
        if framework.quantizing.experts_again:
            return tuple(_dequantizing_experts(node, by_expert=by_expert) for node in nodes)
        return _with_copies_of_experts(nodes)

    return rewritten(forward, quantized)


def inputs_kept(forward: Forward) -> Dim:
    """Bytes of what products with quantized weights keep of their inputs."""
    alike = {id(run): run for run in forward.runs}
    sizes = {name: total(storage.nbytes for storage in _inputs_kept(run)) for name, run in alike.items()}
    return total(sizes[id(run)] for run in forward.runs)


def _inputs_kept(run: BlockRun) -> set[Storage]:
    return {storage for node in run.nodes for storage, role in node.saved if role == QUANTIZED_INPUT}


def _with_copies_of_experts(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    result: list[Node] = []
    for node in nodes:
        weight = _frozen_experts(node)
        if weight is None:
            result.append(node)
            continue
        storage = Storage(2 * weight.numel, "activation", "dequantize", node.module)
        copy = Tensor(weight.shape, contiguous_strides(weight.shape), "bf16", storage)
        result.append(Node("dequantize", node.module, (weight,), (copy,)))
        if node.op == _ADDS_ADAPTERS:  # a sum keeps nothing of it
            result.append(replace(node, inputs=tuple(copy if t is weight else t for t in node.inputs)))
            continue
        keeps = ((storage, "mat2"),) if any(t.requires_grad for t in node.inputs) else ()
        result.append(replace(node, saved=(*node.saved, *keeps)))
    return tuple(result)


_ADDS_ADAPTERS = "baddbmm"


def _frozen_experts(node: Node) -> Tensor | None:
    """The frozen weights of all experts that a product reads, or to which it adds adapters."""
    if node.primitive.product != "grouped" and node.op != _ADDS_ADAPTERS:
        return None
    return next((t for t in node.inputs if t.is_parameter and not t.requires_grad and t.ndim == 3), None)


def _dequantizing_experts(node: Node, by_expert: bool) -> Node:
    weight = _frozen_experts(node)
    if weight is None:
        return node
    values = product(weight.shape[1:]) if by_expert else weight.numel
    return replace(node, workspace_bytes=2 * values)


def _dequantizing(node: Node, keeps_inputs: bool, copies: int) -> Node:
    if node.primitive.product != "rows":
        return node
    frozen = [t for t in node.inputs if t.is_parameter and not t.requires_grad and t.ndim == 2]
    if not frozen:
        return node
    read = next(t for t in node.inputs if not t.is_parameter)
    kept = ((read.storage, QUANTIZED_INPUT),) if keeps_inputs and read.requires_grad else ()
    return replace(node, workspace_bytes=2 * copies * frozen[0].numel, saved=(*node.saved, *kept))


def _statistics(x: Tensor) -> Tensor:
    """One fp32 number a row."""
    shape = x.shape[:-1]
    size = product(shape) * 4
    return Tensor(shape, contiguous_strides(shape), "fp32", Storage(size, "activation", "rstd", x.storage.module))


def _is_norm(node: Node) -> bool:
    return "norm" in node.module.rpartition(".")[2]


def _fuse_norms(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    result: list[Node] = []
    i = 0
    while i < len(nodes):
        end = i
        while end < len(nodes) and _is_norm(nodes[end]) and nodes[end].module == nodes[i].module:
            end += 1
        group = nodes[i:end]
        if len(group) > 2 and any(node.op == "rsqrt" for node in group):
            result.append(_one_norm(group))
            i = end
        else:
            result.append(nodes[i])
            i += 1
    return tuple(result)


def _one_norm(group: tuple[Node, ...]) -> Node:
    x = group[0].inputs[0]
    out = group[-1].outputs[0]
    weights = tuple(t for node in group for t in node.inputs if t.is_parameter)
    stats = _statistics(x)
    saves = ((x.storage, "input"), (stats.storage, "rstd")) if out.requires_grad else ()
    return Node("fused_rms_norm", group[0].module, (x, *weights), (out, stats), saves)


def _fuse_gated(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """act(gate) and the product with up, where nothing else reads act(gate)."""
    result: list[Node] = []
    gates: dict[int, Tensor] = {}
    for node in nodes:
        if node.op in ("silu", "gelu") and node.outputs:
            gates[id(node.outputs[0])] = node.inputs[0]
    for node in nodes:
        if node.op in ("silu", "gelu") and _read_by_product(nodes, node.outputs[0]):
            continue
        if node.op == "mul" and any(id(t) in gates for t in node.inputs):
            operands = tuple(gates.get(id(t), t) for t in node.inputs)
            saves = tuple((t.storage, "gate or up") for t in operands) if node.outputs[0].requires_grad else ()
            result.append(Node("fused_gated_activation", node.module, operands, node.outputs, saves))
        else:
            result.append(node)
    return tuple(result)


def _fuse_activations(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """An activation of several operations becomes one that keeps its input (core 0.16 fusions/fused_bias_gelu.py)."""
    result: list[Node] = []
    for module, steps in groupby(nodes, key=lambda node: node.module):
        group = list(steps)
        made = {id(output) for node in group for output in node.outputs}
        read = list({id(t): t for node in group for t in node.inputs if id(t) not in made}.values())
        if len(group) == 1 or len(read) > 1 or module.rpartition(".")[2] not in _ACTIVATION_MODULES:
            result += group
            continue
        out = group[-1].outputs[0]
        saves = ((read[0].storage, "input"),) if out.requires_grad else ()
        result.append(Node("fused_activation", module, (read[0],), (out,), saves))
    return tuple(result)


_ACTIVATION_MODULES = frozenset({"act", "act_fn", "activation_fn", "gelu_impl"})


def _read_by_product(nodes: tuple[Node, ...], x: Tensor) -> bool:
    readers = [node for node in nodes if any(t is x for t in node.inputs)]
    return bool(readers) and all(node.op == "mul" for node in readers)


def _copy_heads(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Keys and values of fewer heads than the queries become copies with as many, which attention then keeps."""
    result: list[Node] = []
    for node in nodes:
        if node.primitive.is_attention:
            query, *others = node.inputs
            copies = {id(t): _with_heads(t, query) for t in others[:2] if t.shape[1] != query.shape[1]}
            by_storage = {t.storage: copies[id(t)].storage for t in others[:2] if id(t) in copies}
            result += [Node("repeat_heads", node.module, (t,), (copies[id(t)],)) for t in others[:2] if id(t) in copies]
            node = replace(
                node,
                inputs=(query, *(copies.get(id(t), t) for t in others)),
                saved=tuple((by_storage.get(storage, storage), role) for storage, role in node.saved),
            )
        result.append(node)
    return tuple(result)


def _with_heads(x: Tensor, query: Tensor) -> Tensor:
    shape = (x.shape[0], query.shape[1], *x.shape[2:])
    storage = Storage(product(shape) * ITEM_BYTES[x.dtype], "activation", "repeat_heads", x.storage.module)
    return replace(x, shape=shape, strides=contiguous_strides(shape), storage=storage)


_ROTARY_OPS = frozenset({"unsqueeze", "slice", "neg", "cat", "mul", "add"})


def _fuse_rotary(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Rotations of q and k: the group of operations around a product with the tables becomes one, in place."""
    result: list[Node] = []
    i = 0
    while i < len(nodes):
        end = i
        while end < len(nodes) and nodes[end].op in _ROTARY_OPS and not nodes[end].module:
            end += 1
        group = nodes[i:end]
        if sum(node.op == "neg" for node in group) >= 1 and _reads_tables(group):
            result += _in_place_rotations(group)
            i = end
        else:
            result.append(nodes[i])
            i += 1
    return tuple(result)


def _reads_tables(group: tuple[Node, ...]) -> bool:
    return any(t.storage.op in ("cos", "sin") for node in group for t in node.inputs)


def _joined(turned: Tensor, group: tuple[Node, ...]) -> Tensor:
    """A rotated part with the part of the head beside it that is left as it is (Phi, GPT-NeoX), else the same."""
    joins = (node for node in group if node.op == "cat" and any(t is turned for t in node.inputs))
    return next((node.outputs[0] for node in joins), turned)


def _in_place_rotations(group: tuple[Node, ...]) -> list[Node]:
    made = {id(output) for node in group for output in node.outputs}
    tables = {
        t.storage: t for node in group for t in node.inputs if t.storage.op in ("cos", "sin") and id(t) not in made
    }
    sources = [
        t for node in group if node.op == "slice" for t in node.inputs if id(t) not in made and t.storage not in tables
    ]
    turned = [_joined(node.outputs[0], group) for node in group if node.op == "add"]
    unique = list({id(t): t for t in sources}.values())
    if not turned or len(unique) != len(turned):
        return list(group)
    saves = tuple((storage, "tables") for storage in tables)
    rotations = [
        Node("rotary_in_place", "", (x, *tables.values()), (out,), saves if out.requires_grad else ())
        for x, out in zip(unique, turned, strict=True)
    ]
    last = max(i for i, node in enumerate(group) if any(node.outputs[0] is out for out in turned))
    return [*rotations, *group[last + 1 :]]  # Ministral 3 scales the queries by their positions


_OF_FRAMEWORKS: dict[str, Rewrite] = {
    "heads": _copy_heads,
    "scans": fuse_scans,
    "latent attention": with_own_latent_attention,
    "experts": with_own_experts,
    "activations": _fuse_activations,
}
"""What a framework's record calls rewrites of its own."""
