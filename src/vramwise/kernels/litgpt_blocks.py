"""A block as litgpt runs it: its own operations, and the rewrites that put them where a class has others.

Source: litgpt 0.5.13 litgpt/model.py and litgpt/lora.py.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Operation, Parameter, Value
from vramwise.models.operations.attention import AnyAttention, Rotary
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.operations.simple import Activation, AddBias, Linear, Split
from vramwise.records import record

_RUN_WHERE_READ = (Activation, LayerNorm, RmsNorm)


@record(kw_only=True, eq=False)
class QueryKeyValue(Operation):
    """`LoRAQKVLinear`, its outputs seen as (batch, heads, sequence, d).

    `mlp`: weights of the block's MLP. Where one weight stands for queries, keys and values, its name does not say which
    of them have adapters: all three where the MLP has some as well, else litgpt's defaults, queries and values.
    """

    num_heads: int
    num_key_value_heads: int
    mlp: tuple[Parameter, ...] = ()

    @property
    def widths(self) -> tuple[int, int, int]:
        """Queries, keys, values."""
        d = self.outputs[0].width
        return self.num_heads * d, self.num_key_value_heads * d, self.num_key_value_heads * d


class GateAndUp(Operation):
    """Two products where the model's class has one (Phi 3)."""

    __slots__ = ()


class OutputsToFp32(Operation):
    """Lightning Fabric's `convert_output`, which makes a list's tensors (chunks of logits) fp32 one after another."""

    __slots__ = ()


def with_one_product(block: Block) -> Block:
    """Everything from the layer's normed input to queries, keys and values, heads first, as one operation."""
    makers = {value: op for op in block.ops for value in op.outputs}
    for attention in block.operations(AnyAttention):
        turned = [makers.get(value) for value in attention.inputs[:3]]
        values = tuple(
            op.inputs[op.outputs.index(value)] if isinstance(op, Rotary) else value
            for op, value in zip(turned, attention.inputs, strict=False)
        )
        ways = [_way_from_product(value, makers) for value in values]
        gone = list(dict.fromkeys(op for way in ways for op in way))
        products = [op for op in gone if isinstance(op, Linear)]
        if not all(ways):
            continue
        d, total = values[0].width, sum(op.outputs[0].width for op in products)
        joined = QueryKeyValue(
            module=f"{products[0].module.rpartition('.')[0]}.qkv", inputs=products[0].inputs, outputs=values,
            parameters=tuple(p for op in gone for p in op.parameters), num_heads=attention.num_heads,
            num_key_value_heads=(total // d - attention.num_heads) // 2,
            mlp=tuple(p for p in block.parameters if p.part == "mlp" and p.is_linear),
        )  # fmt: skip
        ops = (joined if op is products[0] else op for op in block.ops if op is products[0] or op not in gone)
        block = replace(block, ops=tuple(ops))
    return block


def _way_from_product(value: Value, makers: dict[Value, Operation]) -> tuple[Operation, ...]:
    """From the linear layer behind a value to the value; empty where something else that trains lies between."""
    way: list[Operation] = []
    while (op := makers.get(value)) is not None and len(op.inputs) == 1:
        way.insert(0, op)
        if isinstance(op, Linear):
            return tuple(way)
        if op.parameters and not isinstance(op, AddBias):
            break
        value = op.inputs[0]
    return ()


def with_gate_and_up(block: Block) -> Block:
    """A product of which one half is activated, as two."""
    makers = {value: op for op in block.ops for value in op.outputs}
    activated = {op.inputs[0] for op in block.operations(Activation)}
    halved = {
        op: makers[op.inputs[0]]
        for op in block.operations(Split)
        if len(op.outputs) == 2 and activated & {*op.outputs} and isinstance(makers.get(op.inputs[0]), Linear)
    }
    apart = {
        whole: GateAndUp(module=whole.module, inputs=whole.inputs, outputs=split.outputs, parameters=whole.parameters)
        for split, whole in halved.items()
    }
    return replace(block, ops=tuple(apart.get(op, op) for op in block.ops if op not in halved)) if apart else block


def in_the_order_of_reading(block: Block) -> Block:
    """Norms and activations right before what reads them (`F.silu(fc_1) * fc_2`, `self.norm_2(x)` behind attention)."""
    waiting: dict[Value, Operation] = {}
    ops: list[Operation] = []

    def run(value: Value) -> None:
        op = waiting.pop(value, None)
        if op is not None:
            run(op.inputs[0])
            ops.append(op)

    for op in block.ops:
        if isinstance(op, _RUN_WHERE_READ):
            waiting[op.outputs[0]] = op
            continue
        for value in op.inputs:
            run(value)
        ops.append(op)
    for value in list(waiting):
        run(value)
    return replace(block, ops=tuple(ops))


def with_fp32_logits(block: Block) -> Block:
    """What the last block hands on as logits, made fp32."""
    logits = block.outputs.get("logits")
    if logits is None:
        return block
    wide = Value(1 + max(value.id for op in block.ops for value in op.outputs), logits.width)
    op = OutputsToFp32(inputs=(logits,), outputs=(wide,))
    return replace(block, ops=(*block.ops, op), outputs={**block.outputs, "logits": wide})
