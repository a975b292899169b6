"""Mamba, Falcon Mamba and Mamba 2: every layer is a mixer with a state that does not grow; no attention."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import mamba2_mixer, mamba_mixer
from vramwise.models.layers.mamba2_mixer import Mamba2
from vramwise.models.layers.mamba_mixer import Mamba, low_rank
from vramwise.models.operations.simple import ToFp32, ToParameterDtype

_SHARED: dict[str, object] = {
    "expand": 2, "conv_kernel": 4, "use_conv_bias": True, "hidden_act": "silu", "residual_in_fp32": True,
}  # fmt: skip
_MAMBA = {
    **_SHARED, "vocab_size": 50_280, "hidden_size": 768, "num_hidden_layers": 32, "state_size": 16,
    "tie_word_embeddings": True,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, object]] = {
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "mamba2": {
        **_SHARED, "vocab_size": 32_768, "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 128,
        "num_heads": 128, "head_dim": 64, "n_groups": 8, "chunk_size": 256,
    },
}  # fmt: skip
"""Defaults of the configuration classes (transformers 5.23)."""


def mixer(b: BlockBuilder, x: Value, c: Config) -> Value:
    """The mixer of the type; Falcon Mamba norms the time step, B and C without weights."""
    inner, state, kernel = int(c.number("expand") * c.hidden_size), c.size("state_size"), c.size("conv_kernel")
    if c.model_type != "mamba2":  # a width that is stated wins (transformers 5.23, configuration_falcon_mamba.py)
        inner = c.size("intermediate_size", default=inner)
    bias, conv_bias, function = c.flag("use_bias"), c.flag("use_conv_bias"), c.text("hidden_act")
    if c.model_type == "mamba2":
        heads, d, groups, chunk = c.size("num_heads"), c.size("head_dim"), c.size("n_groups"), c.size("chunk_size")
        s = Mamba2(heads, d, groups, state, kernel, chunk, bias, bias, conv_bias, function)
        return mamba2_mixer.mixer(b, x, mamba2_mixer.checked(c, s, inner))
    norm = "unweighted" if c.model_type == "falcon_mamba" else ""
    return mamba_mixer.mixer(b, x, Mamba(inner, state, low_rank(c), kernel, bias, conv_bias, function, norm))


def layer(c: Config, index: int) -> Block:
    """Norm and mixer with a residual in fp32 around them, unless `residual_in_fp32` says otherwise."""
    b = BlockBuilder(f"backbone.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(b.unary(ToParameterDtype(), x), "norm")
    residual = b.unary(ToFp32(), x) if c.flag("residual_in_fp32") else x
    return b.build(hidden=b.add(residual, mixer(b, h, c)))


def head(c: Config) -> Block:
    """Final norm and output projection, whose logits are made fp32."""
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "backbone.norm_f")
    tied_to = "backbone.embeddings.weight" if c.flag("tie_word_embeddings") else None
    x = b.unary(ToParameterDtype(), x)
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return b.build(logits=b.unary(ToFp32(), logits))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS[c.model_type])
    b = BlockBuilder("backbone")
    first = b.build(hidden=b.embedding("embeddings", c.vocab_size, c.hidden_size))
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
