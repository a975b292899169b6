"""Falcon H1: Mamba 2 and attention side by side in every layer, with scales everywhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import mamba2_mixer
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mamba2_mixer import Mamba2
from vramwise.models.operations.chunk_scan import GateThenGroupedNorm, GroupedNorm, GroupedNormThenGate

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 128_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "mamba_n_heads": 128,
    "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256,
    "mamba_conv_bias": True, "mamba_norm_before_gate": True,
}  # fmt: skip
"""Defaults of `FalconH1Config` (transformers 5.23); an explicit null of `mamba_d_ssm` means expand · hidden_size."""


def mixer_sizes(c: Config) -> Mamba2:
    expanded = "mamba_d_ssm" in c.values and not c.has("mamba_d_ssm")
    inner = int(c.number("mamba_expand") * c.hidden_size) if expanded else c.size("mamba_d_ssm", default=1024)
    norm: type[GroupedNorm] | None = None
    if c.flag("mamba_rms_norm"):
        norm = GroupedNormThenGate if c.flag("mamba_norm_before_gate") else GateThenGroupedNorm
    return replace(mamba2_mixer.sizes(c, inner), out_bias=c.flag("projectors_bias"), scaled=True, norm=norm)


def mixers(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Both mixers read the same norm, and their scaled results add up."""
    bias = c.flag("attention_bias")
    recurrent = b.scale(mamba2_mixer.mixer(b, x, mixer_sizes(c), "mamba"))
    attended = b.scale(grouped_attention(b, b.scale(x), c, bias=bias, output_bias=bias, scaled_keys=True))
    return b.add(recurrent, attended)


def scaled_mlp(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """A gated MLP whose gate and result are multiplied by numbers."""
    module, width, bias = "feed_forward", c.intermediate_size, c.flag("mlp_bias")
    b.part = "mlp"
    up = b.linear(x, f"{module}.up_proj", width, bias=bias)
    gate = b.scale(b.linear(x, f"{module}.gate_proj", width, bias=bias))
    h = b.multiply(up, b.activation(gate, c.text("hidden_act"), f"{module}.act_fn"))
    return b.scale(b.linear(h, f"{module}.down_proj", x.width, bias=bias, shard="row"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    given = c.values
    c = c.filled(CLASS_DEFAULTS)
    if "mamba_d_ssm" in given and given["mamba_d_ssm"] is None:
        c = Config({**c.values, "mamba_d_ssm": None}, c.model_id)
    s = Design(
        norms=("input_layernorm", None, "pre_ff_layernorm", None), final_norm="model.final_layernorm",
        scaled_embedding=True, scaled_logits=True,
    )  # fmt: skip
    return alike(c, s, LayerKind(attention=partial(mixers, c=c), mlp=partial(scaled_mlp, c=c)))
