"""TimesFM 1, 2 and 2.5: decoders over patches of numbers, which predict the next ones and their quantiles.

The parameters are those of `TimesFmModelForPrediction` and `TimesFm2_5ModelForPrediction` in transformers 5.23; what
training keeps is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.known_weights import inside, known_weights, norms, product, products
from vramwise.models.towers.tower_design import Weight

CLASS_DEFAULTS: dict[str, dict[str, object]] = {
    "timesfm": {
        "patch_length": 32, "horizon_length": 128, "freq_size": 3, "num_hidden_layers": 50, "hidden_size": 1280,
        "intermediate_size": 1280, "head_dim": 80, "num_attention_heads": 16, "quantiles": [0.0] * 9,
    },
    "timesfm2_5": {
        "patch_length": 32, "horizon_length": 128, "num_hidden_layers": 20, "hidden_size": 1280,
        "intermediate_size": 1280, "head_dim": 80, "num_attention_heads": 16, "num_key_value_heads": 16,
        "quantiles": [0.0] * 9, "output_quantile_len": 1024,
    },
}  # fmt: skip
"""Defaults of `TimesFmConfig` and `TimesFm2_5Config`; of the quantiles only how many there are matters."""


def task(c: Config) -> str:
    """It predicts numbers, no tokens."""
    return "none"


def predicts(c: Config) -> bool:
    """Whether the config names the class that predicts, as checkpoints do."""
    return any(str(name).endswith("ForPrediction") for name in c.items("architectures") or [])


def residual(name: str, given: int, inner: int, made: int, bias: bool) -> list[Weight]:
    """Two products, and one past them."""
    found = [*product("input_layer", inner, given, bias), *product("output_layer", made, inner, bias)]
    return inside(name, [*found, *product("residual_layer", made, given, bias)])


def attention(c: Config, bias: bool) -> list[Weight]:
    """A scale for each column of a head is learned."""
    width, d = c.hidden_size, c.head_dim
    rows, groups = c.num_attention_heads * d, c.size("num_key_value_heads", default=c.num_attention_heads) * d
    return [
        ("self_attn.scaling", (d,)), *product("self_attn.q_proj", rows, width, bias),
        *products(["self_attn.k_proj", "self_attn.v_proj"], groups, width, bias),
        *product("self_attn.o_proj", width, rows, bias),
    ]  # fmt: skip


def layer(c: Config) -> list[Weight]:
    """Version 2.5 norms queries, keys and both halves' results and has no biases by default."""
    width, inner = c.hidden_size, c.intermediate_size
    if c.model_type == "timesfm":
        found = [*attention(c, True), *product("mlp.gate_proj", inner, width), *product("mlp.down_proj", width, inner)]
        return [*found, *norms(["mlp.layer_norm"], width), ("input_layernorm.weight", (width,))]
    bias = c.flag("use_bias")
    found = [*attention(c, c.flag("attention_bias")), *product("mlp.fc1", inner, width, bias)]
    found += [*product("mlp.fc2", width, inner, bias), *((f"self_attn.{n}_norm.weight", (c.head_dim,)) for n in "qk")]
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    return [*found, *((f"{name}.weight", (width,)) for name in names)]


def heads(c: Config) -> list[Weight]:
    """A mean and quantiles for each number to come."""
    width, columns = c.hidden_size, 1 + len(c.items("quantiles") or [])
    if c.model_type == "timesfm":
        return residual("horizon_ff_layer", width, c.intermediate_size, c.size("horizon_length") * columns, True)
    # the class hands its products no bias before it looks at the config
    point = residual("output_projection_point", width, width, c.size("horizon_length") * columns, False)
    more = residual("output_projection_quantiles", width, width, c.size("output_quantile_len") * columns, False)
    return [*point, *more]


def blocks(config: Config) -> tuple[Block, ...]:
    """Patches, layers, heads."""
    c = config.filled(CLASS_DEFAULTS[config.model_type])
    root = ("decoder" if c.model_type == "timesfm" else "model") if predicts(c) else ""
    width = c.hidden_size
    inner = c.intermediate_size if c.model_type == "timesfm" else width
    first = residual("input_ff_layer", 2 * c.size("patch_length"), inner, width, True)
    first += [("freq_emb.weight", (c.size("freq_size"), width))] if c.model_type == "timesfm" else []
    below, weights = f"{root}." if root else "", layer(c)
    layers = (known_weights(f"{below}layers.{i}", weights, "a layer over patches of numbers", part="mlp", layer=i)
              for i in range(c.num_hidden_layers))  # fmt: skip
    last = [known_weights("", heads(c), "numbers to come", part="head")] if root else []
    return (known_weights(root, first, "patches of numbers", part="embedding"), *layers, *last)
