"""The transformer that layers of Zamba and Zamba 2 share, and in Zamba 2 the adapters that tell them apart."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Parameter, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.simple import Concatenate, Hold


def adapted(
    b: BlockBuilder, x: Value, c: Config, module: str, adapter: str, width: int, slots: range, number: int
) -> Value:
    """A product plus that of this layer's own low-rank adapter; the module holds those of all its layers.

    Adapters of keys and values are as wide as the queries', whatever the number of key-value heads.
    """
    h = b.linear(x, module, width)
    if not slots:
        return h
    rank, part = c.size("adapter_rank"), x.width if ".self_attn." in module else width
    others: list[Parameter] = []
    for slot in slots:
        if slot != number:
            others.append(b.parameter(f"{adapter}.{slot}.0", "weight", (rank, x.width), is_linear=True))
            others.append(b.parameter(f"{adapter}.{slot}.1", "weight", (part, rank), shard="column", is_linear=True))
    h = b.unary(Hold(), h, adapter, others)
    down = b.linear(x, f"{adapter}.{number}.0", rank, shard="replicated")
    return b.add(h, b.linear(down, f"{adapter}.{number}.1", part))


def transformer(b: BlockBuilder, x: Value, c: Config, slots: range, number: int) -> Value:
    """Attention and MLP over the stream beside the embeddings, as wide as both; `number` counts the uses."""
    two, module = c.model_type == "zamba2", "shared_transformer" if c.model_type == "zamba2" else "shared_transf"
    (joint,) = b.op(Concatenate(), module, [x, b.input("embedded", x.width)], [2 * x.width])
    wide = c.size("attention_hidden_size", default=joint.width) if not two else joint.width
    if wide != joint.width:
        raise c.error(f"attention_hidden_size ({wide}) is not 2 · hidden_size ({joint.width})")
    h, heads, groups = b.rms_norm(joint, f"{module}.input_layernorm"), c.num_attention_heads, c.num_key_value_heads
    d = joint.width // heads if two else c.size("attention_head_dim", "head_dim", default=joint.width // heads)
    b.part = "attention"
    own = slots if two and c.flag("use_shared_attention_adapter") else range(0)
    q, k, v = (
        b.heads_first(b.heads(
            adapted(b, h, c, f"{module}.self_attn.{n}_proj", f"{module}.self_attn.linear_{n}_adapter_list", d * count,
                    own, number), count,
        ))
        for n, count in zip("qkv", (heads, groups, groups), strict=True)
    )  # fmt: skip
    if two and c.flag("use_mem_rope"):
        q, k = b.rotary(q, k)
    dropout = c.number("attention_dropout")
    mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=groups, dropout=dropout), q, k, v, module=module)
    h = b.linear(mixed, f"{module}.self_attn.o_proj", x.width, shard="row")
    h, mlp = b.rms_norm(h, f"{module}.pre_ff_layernorm"), f"{module}.feed_forward"
    b.part = "mlp"
    if not two:
        return onward(b, gated_mlp(b, h, c.intermediate_size, c.text("hidden_act"), module=mlp))
    width = c.size("intermediate_size", default=4 * x.width)
    fused = adapted(b, h, c, f"{mlp}.gate_up_proj", f"{mlp}.gate_up_proj_adapter_list", 2 * width, slots, number)
    gate, up = b.split(fused, [width, width])
    h = b.multiply(b.activation(gate, c.text("hidden_act"), mlp), up)
    return onward(b, b.linear(h, f"{mlp}.down_proj", x.width, shard="row"))


def onward(b: BlockBuilder, x: Value) -> Value:
    """What each layer makes of the transformer's result, with weights of its own."""
    return b.linear(x, "linear", x.width, shard="replicated", part="mlp")


def with_shared_weights(block: Block, source: str) -> Block:
    """The block with the weights of its transformer tied to those of the block named `source`."""

    def tied(p: Parameter) -> Parameter:
        return replace(p, tied_to=source + p.name.removeprefix(block.name)) if ".shared_transf" in p.name else p

    ops = tuple(replace(op, parameters=tuple(tied(p) for p in op.parameters)) for op in block.ops)
    return replace(block, ops=ops)
