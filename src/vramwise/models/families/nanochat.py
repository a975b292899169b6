"""nanochat: norms without weights, one of them of the embedding, a plain MLP, capped logits."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, HeadNorm


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias = c.flag("attention_bias")
    s = Design(
        norm_style="unweighted", first_norm=True, qkv_bias=bias, output_bias=bias, mlp="plain",
        mlp_names=("fc1", "fc2"), qk_norm=HeadNorm("turned", style="unweighted"),
        capped_logits=c.has("final_logit_softcapping"),
    )  # fmt: skip
    return alike(c, s)
