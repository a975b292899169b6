"""StableLM: layer norms, a quarter of each head turned, attention and MLP side by side in some."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.operations.simple import Named
from vramwise.records import replace


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    second, names = "post_attention_layernorm", ("q_layernorm", "k_layernorm")
    s = Design(
        norm="layer", norm_style="torch", norm_bias=True, qkv_bias=c.flag("use_qkv_bias"),
        norms=("input_layernorm", None, None if c.flag("use_parallel_residual") else second, None),
        qk_norm=HeadNorm("heads_first", "per_head", names) if c.flag("qk_layernorm") else None,
        rotary_share=0.25, joined=True, dropouts=(0.0, 0.0, c.number("hidden_dropout")),
    )  # fmt: skip
    return tuple(_naming_attention(block) if block.layer is not None else block for block in alike(c, s))


def _naming_attention(block: Block) -> Block:
    """The layer's frame names what attention took and gave until it returns (`StableLmDecoderLayer.forward`)."""
    ends = ("input_layernorm", "self_attn.o_proj")
    kept = tuple(op.outputs[0] for op in block.ops if op.module in ends)
    return replace(block, ops=(*block.ops, Named(inputs=kept)))
