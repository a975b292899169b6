"""PatchTST: an encoder over patches of each series, with a head for numbers to come, values, classes or masked patches.

The parameters are those of the classes that `architectures` names, else of `PatchTSTModel`, in transformers 5.23; what
training keeps is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.known_weights import inside, known_weights, norms, product, products
from vramwise.models.towers.tower_design import Weight

CLASS_DEFAULTS: dict[str, object] = {
    "num_input_channels": 1, "context_length": 32, "patch_length": 1, "patch_stride": 1, "num_hidden_layers": 3,
    "d_model": 128, "num_attention_heads": 4, "ffn_dim": 512, "share_embedding": True, "norm_type": "batchnorm",
    "bias": True, "positional_encoding_type": "sincos", "share_projection": True, "prediction_length": 24,
    "num_targets": 1, "loss": "mse", "distribution_output": "student_t",
}  # fmt: skip
"""Defaults of `PatchTSTConfig`; an absent `pooling_type` is a mean, null is none."""
_HEADS = ("ForPrediction", "ForRegression", "ForClassification", "ForPretraining")
_PARAMETERS = {"student_t": 3, "normal": 2, "negative_binomial": 2}
"""Numbers that tell a distribution apart."""
MOST_CHANNELS = 4096


def task(c: Config) -> str:
    """It predicts numbers, no tokens."""
    return "none"


def head_of(c: Config) -> str:
    """The ending of the class that the config names; empty for the bare model."""
    named = [str(name) for name in c.items("architectures") or []]
    return next((ending for name in named for ending in _HEADS if name.endswith(ending)), "")


def num_patches(c: Config) -> int:
    """Patches of the context; the rest at its beginning is left out."""
    length, patch = c.size("context_length"), c.size("patch_length")
    if length <= patch:
        raise c.error(f"context_length ({length}) is not longer than patch_length ({patch})")
    return (length - patch) // c.size("patch_stride") + 1


def layer(c: Config) -> list[Weight]:
    """Attention over patches, over series too with a norm more where that is asked for, a feed-forward part."""
    width, inner, bias = c.hidden_size, c.intermediate_size, c.flag("bias")
    c.heads_of(width)
    leaf = {"batchnorm": ".batchnorm", "layernorm": ""}.get(c.text("norm_type"))
    if leaf is None:
        raise c.error(f"norm_type: expected batchnorm or layernorm, got {c.text('norm_type'):.40}")
    kept = (1, 2, 3) if c.flag("channel_attention") else (1, 3)
    found = products([f"self_attn.{name}_proj" for name in ("k", "v", "q", "out")], width, width)
    found += norms([f"norm_sublayer{i}{leaf}" for i in kept], width)
    return [*found, *product("ff.0", inner, width, bias), *product("ff.3", width, inner, bias)]


def channels(c: Config) -> int:
    """Series that are read at once."""
    found = c.size("num_input_channels")
    if found > MOST_CHANNELS:
        raise c.error(f"num_input_channels: at most {MOST_CHANNELS:,}, got {found:,}")
    return found


def embedding(c: Config) -> list[Weight]:
    """A product of each patch, one for all series or one for each, and places."""
    width, name = c.hidden_size, "embedder.input_embedding"
    names = [name] if c.flag("share_embedding") else [f"{name}.{i}" for i in range(channels(c))]
    first: list[Weight] = [("positional_encoder.cls_token", (1, 1, 1, width))] if c.flag("use_cls_token") else []
    rows = num_patches(c) + c.flag("use_cls_token")
    return [*products(names, width, c.size("patch_length")), *first, (_PLACES, (rows, width))]


_PLACES = "positional_encoder.position_enc"


def projection(c: Config, name: str, given: int, made: int) -> list[Weight]:
    """The numbers, or those of a distribution for each."""
    if c.text("loss") == "mse":
        return product(name, made, given)
    kind = c.text("distribution_output")
    if kind not in _PARAMETERS:
        raise c.error(f"distribution_output: expected {', '.join(_PARAMETERS)}, got {kind:.40}")
    return products([f"{name}.proj.{i}" for i in range(_PARAMETERS[kind])], made, given)


def head(c: Config, kind: str) -> list[Weight]:
    """What follows the patches."""
    width = c.hidden_size
    if kind == "ForPretraining":
        return product("linear", c.size("patch_length"), width)
    if kind == "ForClassification":
        return product("linear", c.size("num_targets"), channels(c) * width)
    if kind == "ForRegression":
        return projection(c, "projection", channels(c) * width, c.size("num_targets"))
    pooled = "pooling_type" not in c.values or c.has("pooling_type") or c.flag("use_cls_token")
    given, made = width if pooled else width * num_patches(c), c.size("prediction_length")
    if c.flag("share_projection"):
        return projection(c, "projection", given, made)
    return [w for i in range(channels(c)) for w in projection(c, f"projections.{i}", given, made)]


def blocks(config: Config) -> tuple[Block, ...]:
    """Patches and places, layers, head."""
    c, kind = config.filled(CLASS_DEFAULTS), head_of(config)
    if "pooling_type" in config.values and not config.has("pooling_type"):  # which filling in defaults drops
        c = Config({**c.values, "pooling_type": None}, c.model_id)
    places = c.text("positional_encoding_type")
    if places not in ("random", "sincos"):
        raise c.error(f"positional_encoding_type: expected random or sincos, got {places:.40}")
    root = "model.encoder" if kind else "encoder"
    fixed = frozenset({_PLACES} if places == "sincos" else ())
    weights = layer(c)
    layers = (known_weights(f"{root}.layers.{i}", weights, "a layer over patches of series", part="mlp", layer=i)
              for i in range(c.num_hidden_layers))  # fmt: skip
    last = [known_weights("", inside("head", head(c, kind)), "a head of series", part="head")] if kind else []
    first = known_weights(root, embedding(c), "patches of series", part="embedding", frozen=fixed)
    return (first, *layers, *last)
