"""Products with quantized weights: what they copy, and what they keep."""

from __future__ import annotations

from dataclasses import replace

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import bitsandbytes_version
from vramwise.models.autograd.size import Dim, product, total
from vramwise.models.autograd.tensor import Node, Storage, Tensor, contiguous_strides
from vramwise.models.step import BlockRun, Forward
from vramwise.models.type_facts import has_fact
from vramwise.training.activations.rewriting import rewritten
from vramwise.training.resolved import ResolvedTrain

INPUTS_LEFT_SINCE = (0, 43, 2)
NO_HALF_SINCE = (0, 43, 0)
QUANTIZED_INPUT = "A"


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
