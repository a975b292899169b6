"""xLSTM's norm and its memory: a matrix for every head, gated by exponentials."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.matrix_lstm import HeadsLayerNorm, MatrixLstm
from vramwise.models.operations.simple import AddBias

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def norm(b: BlockBuilder, x: Value, module: str, *, bias: bool, widened: bool = True) -> Value:
    """A root-mean-square norm, with a bias where the model has biases."""
    x = b.rms_norm(x, module, style="llama" if widened else "own-dtype")
    return b.unary(AddBias(), x, module, [b.parameter(module, "bias", (x.width,), part="norm")]) if bias else x


def cell(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(sigmoid(o) · norm(mLSTM(q, k, v, i, f))); one product for several where the weights are fused."""
    heads, bias, module = c.size("num_heads"), c.flag("use_bias"), "mlstm_layer"
    keys, values = (int(x.width * c.number(f"{name}_dim_factor")) for name in ("qk", "v"))
    if keys % heads or values % heads:
        raise c.error(f"num_heads ({heads}) does not divide the widths of keys ({keys}) and values ({values})")
    b.part = "mixer"
    if c.text("weight_mode") == "fused":
        joined = b.linear(x, f"{module}.qkv_opreact", 2 * keys + 2 * values, bias=bias)
        *pieces, out = b.split(joined, [keys, keys, values, values])
        pieces += b.split(b.softcap(b.linear(x, f"{module}.ifgate_preact", 2 * heads, bias=True)), [heads, heads])
    else:
        widths = {"q": keys, "k": keys, "v": values, "ogate_preact": values}
        *pieces, out = (b.linear(x, f"{module}.{name}", width, bias=bias) for name, width in widths.items())
        gates = (b.linear(x, f"{module}.{name}gate_preact", heads, bias=True) for name in "if")
        pieces += [b.softcap(gate) for gate in gates]
    length, dtype = c.size("chunk_size"), _DTYPES.get(c.text("inference_state_dtype"), "fp32")
    (h,) = b.op(
        MatrixLstm(
            num_heads=heads,
            chunk_size=length,
            two_chunks=2 * length,
            state_dtype=dtype,
            trains="train" in c.text("mode"),
        ),
        module,
        pieces,
        [values // heads],
    )
    leaves = ("weight", "bias")[: 1 + bias]
    parameters = [b.parameter(f"{module}.multihead_norm", leaf, (values,), part="norm") for leaf in leaves]
    widened = c.flag("norm_reduction_force_float32", True)
    h = b.unary(HeadsLayerNorm(widened=widened), h, module, parameters, width=values)
    state = keys // heads * values + keys + heads
    b.keep(LayerCache("recurrent", state_elements=state, model_dtype_state=True))
    h = b.multiply(b.activation(out, "sigmoid", module), h)
    return b.linear(h, f"{module}.out_proj", x.width, bias=bias, shard="row")
