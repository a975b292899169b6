"""xLSTM 7B: layers of matrix LSTM, whose state is a matrix for every head, and gated MLPs."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config

CLASS_DEFAULTS: dict[str, Any] = {
    "vocab_size": 50_304, "num_heads": 8, "qk_dim_factor": 0.5, "v_dim_factor": 1.0,
    "ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64, "weight_mode": "single",
}  # fmt: skip
"""Defaults of `xLSTMConfig` (transformers 5.23)."""


def rounded(width: float, multiple: int) -> int:
    """The next whole multiple."""
    return int((width + multiple - 1) // multiple * multiple)


def norm(b: BlockBuilder, x: Value, module: str, *, bias: bool) -> Value:
    """A root-mean-square norm, with a bias where the model has biases."""
    parameters = [b.parameter(module, "weight", (x.width,), part="norm")]
    if bias:
        parameters.append(b.parameter(module, "bias", (x.width,), part="norm"))
    return b.unary("undescribed", x, module, parameters, name="xLSTM's norm")


def cell(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(sigmoid(o) · norm(mLSTM(q, k, v, i, f))); one product for several where the weights are fused."""
    heads, bias, module = c.size("num_heads"), c.flag("use_bias"), "mlstm_layer"
    keys, values = (int(x.width * c.number(f"{name}_dim_factor")) for name in ("qk", "v"))
    if keys % heads or values % heads:
        raise c.error(f"num_heads ({heads}) does not divide the widths of keys ({keys}) and values ({values})")
    b.part = "mixer"
    if c.text("weight_mode") == "fused":
        inputs = [b.linear(x, f"{module}.qkv_opreact", 2 * keys + 2 * values, bias=bias),
                  b.linear(x, f"{module}.ifgate_preact", 2 * heads, bias=True)]  # fmt: skip
    else:
        widths = {"q": keys, "k": keys, "v": values, "ogate_preact": values}
        inputs = [b.linear(x, f"{module}.{name}", width, bias=bias) for name, width in widths.items()]
        inputs += [b.linear(x, f"{module}.{name}gate_preact", heads, bias=True) for name in "if"]
    parameters = [b.parameter(f"{module}.multihead_norm", "weight", (values,), part="norm")]
    if bias:
        parameters.append(b.parameter(f"{module}.multihead_norm", "bias", (values,), part="norm"))
    (h,) = b.op("undescribed", module, inputs, [values], parameters, name="the matrix LSTM")
    state = keys // heads * values + keys + heads
    b.keep(LayerCache("recurrent", state_elements=state, model_dtype_state=True))
    return b.linear(h, f"{module}.out_proj", x.width, bias=bias, shard="row")


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
    x, bias = b.input("hidden", c.hidden_size), c.flag("use_bias")
    x = b.add(x, cell(b, norm(b, x, "norm_mlstm", bias=bias), c))
    return b.build(hidden=b.add(x, mlp(b, norm(b, x, "norm_ffn", bias=bias), c)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; the class never ties the head's weight."""
    width, layers = c.size("hidden_size", "embedding_dim", default=4096), c.size("num_hidden_layers", "num_blocks",
                                                                                 default=32)  # fmt: skip
    c = c.filled({**CLASS_DEFAULTS, "hidden_size": width, "num_hidden_layers": layers})
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding("backbone.embeddings", c.vocab_size, c.hidden_size))
    b = BlockBuilder("")
    x = norm(b, b.input("hidden", c.hidden_size), "backbone.out_norm", bias=False)
    logits = b.softcap(b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head"))
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), b.build(logits=logits))
