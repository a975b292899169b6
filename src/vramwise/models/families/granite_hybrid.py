"""Granite 4: layers of Mamba 2 and of attention, each with experts or a shared MLP after it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import decoder, mamba2_mixer, mixture
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.granite_layers import fused_mlp, granite_mixture
from vramwise.models.layers.layer_kinds import layer_kinds

# Defaults of GraniteMoeHybridConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2,
    "shared_intermediate_size": 1024, **mamba2_mixer.DEFAULTS,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; without experts, the shared MLP alone."""
    c = c.filled(_DEFAULTS)
    bias, turned = c.flag("attention_bias"), "half" if c.text("position_embedding_type") == "rope" else None
    attention = partial(grouped_attention, c=c, bias=bias, turned=turned, output_bias=bias)
    key = "layer_types" if c.has("layer_types") else "layers_block_type"
    default = ["linear_attention"] * c.num_hidden_layers
    kinds = []
    for kind in layer_kinds(c, default, key=key, allowed=("linear_attention", "full_attention")):
        sizes = mamba2_mixer.sizes(c, int(c.number("mamba_expand") * c.hidden_size))
        mixer = partial(mamba2_mixer.mixer, s=sizes, module="mamba")
        kinds.append(LayerKind(attention=attention if kind == "full_attention" else mixer))
    s, shared = Design(scaled=True, scaled_logits=True), c.size("shared_intermediate_size")
    if c.size("num_local_experts", least=0):
        return mixture.model(c, s, granite_mixture(c, None, shared), [True] * len(kinds), kinds)
    mlp = partial(fused_mlp, width=shared, function=c.text("hidden_act"))
    return decoder.model(c, s, [replace(kind, mlp=mlp) for kind in kinds])
