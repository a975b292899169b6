"""xLSTM 7B: layers of matrix LSTM, whose state is a matrix for every head, and gated MLPs."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.matrix_lstm import cell, norm
from vramwise.models.operations.simple import ToFp32

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 50_304, "num_heads": 8, "qk_dim_factor": 0.5, "v_dim_factor": 1.0,
    "ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64, "weight_mode": "single",
    "chunk_size": 64, "inference_state_dtype": "float32", "mode": "inference",
}  # fmt: skip
"""Defaults of `xLSTMConfig` (transformers 5.23)."""


def rounded(width: float, multiple: int) -> int:
    """The next whole multiple."""
    return int((width + multiple - 1) // multiple * multiple)


def mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """down(silu(gate(x)) · up(x))."""
    width = rounded(x.width * c.number("ffn_proj_factor"), c.size("ffn_round_up_to_multiple_of"))
    bias = c.flag("use_bias")
    b.part = "mlp"
    if c.text("weight_mode") == "fused":
        gate, up = b.split(b.linear(x, "ffn.proj_up_gate_z", 2 * width, bias=bias), [width, width])
    else:
        gate, up = (b.linear(x, f"ffn.{name}", width, bias=bias) for name in ("proj_up_gate", "proj_up"))
    h = b.multiply(b.activation(gate, "silu", "ffn.act_fn"), up)
    return b.linear(h, "ffn.proj_down", x.width, bias=bias, shard="row")


def layer(c: Config, index: int) -> Block:
    """A pre-norm layer."""
    b = BlockBuilder(f"backbone.blocks.{index}", layer=index)
    x, bias, widened = (
        b.input("hidden", c.hidden_size),
        c.flag("use_bias"),
        c.flag("norm_reduction_force_float32", True),
    )
    x = b.add(x, cell(b, norm(b, x, "norm_mlstm", bias=bias, widened=widened), c))
    return b.build(hidden=b.add(x, mlp(b, norm(b, x, "norm_ffn", bias=bias, widened=widened), c)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; the class never ties the head's weight, and makes as many layers as `num_blocks` says
    where both counts are there."""
    width, layers = c.size("hidden_size", "embedding_dim", default=4096), c.size("num_blocks", "num_hidden_layers",
                                                                                 default=32)  # fmt: skip
    c = c.filled({**CLASS_DEFAULTS, "hidden_size": width, "num_hidden_layers": layers})
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding("backbone.embeddings", c.vocab_size, c.hidden_size))
    b = BlockBuilder("")
    x = norm(b, b.input("hidden", c.hidden_size), "backbone.out_norm", bias=False)
    logits = b.unary(ToFp32(), b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head"))
    return (first, *(layer(c, i) for i in range(layers)), b.build(logits=b.softcap_in_one(logits)))
