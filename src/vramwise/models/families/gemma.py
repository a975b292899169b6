"""Gemma 1 to 3, VaultGemma: scaled embeddings, (1 + weight) norms; from Gemma 2 on norms after, two kinds of layers."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind

_NORMS = {
    "gemma": ("input_layernorm", None, "post_attention_layernorm", None),
    "vaultgemma": ("input_layernorm", None, "pre_feedforward_layernorm", None),
}
_NORMS_AFTER = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)  # fmt: skip


def design(c: Config) -> Design:
    """The switches of a generation; transformers since 5.21 has no SDPA for Gemma 2, for the cap on its scores."""
    bias, second = c.flag("attention_bias"), c.model_type in ("gemma2", "vaultgemma")
    # An explicit null switches a cap off, an absent key leaves the class default of 50 and 30 on.
    scores, logits = (c.values.get(f"{name}_logit_softcapping", 1.0) is not None for name in ("attn", "final"))
    third = c.model_type == "gemma3_text"
    return Design(
        norm_style="gemma", norms=_NORMS.get(c.model_type, _NORMS_AFTER), qkv_bias=bias, output_bias=bias,
        qk_norm=HeadNorm("heads_first", style="gemma") if third else None, rotary_share=None, buffered_scale=True,
        capped_logits=c.has("final_logit_softcapping") if third else second and logits, tied=True,
        attention={
            "causal": not c.flag("use_bidirectional_attention"), "softcap": second and scores, "eager_only": second,
            "sdpa_by_version": c.model_type if second else "", "has_flash": second,  # flash-attn caps scores itself
        },
    )  # fmt: skip


def layer_kinds(c: Config) -> list[LayerKind]:
    """Every second layer of Gemma 2 is full, every sixth of Gemma 3, which turns the others by a table of their own."""
    if c.model_type == "gemma":
        return [LayerKind()] * c.num_hidden_layers
    third, window = c.model_type == "gemma3_text", c.size("sliding_window")
    if third and c.flag("use_bidirectional_attention"):
        window = window // 2 + 1
    types = c.layer_types()
    if types is None:
        period = c.size("sliding_window_pattern", default=6) if third else 2
        types = ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(c.num_hidden_layers)]
    sliding = LayerKind(window, table="sliding" if third else "")
    return [sliding if kind == "sliding_attention" else LayerKind() for kind in types]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    s, c = design(c), c.filled(class_defaults(c.model_type))
    function = c.text("hidden_act" if c.model_type == "gemma" else "hidden_activation", "gelu_pytorch_tanh")
    return model(Config({**c.values, "hidden_act": function}, c.model_id), s, layer_kinds(c))
