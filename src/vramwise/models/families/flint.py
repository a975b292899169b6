"""Flint: sinks beside fp32 scores, only sliding layers turned, dense layers by number, experts by sigmoid."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    e = experts(
        c,
        count,
        keys=("num_experts", "num_local_experts"),
        routing="fp32_sigmoid",
        normalized=c.flag("norm_topk_prob", True),
    )
    bias, layers = c.flag("attention_bias"), range(c.num_hidden_layers)
    s = Design(
        norm_style="fp32-product", qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads", style="fp32-product"),
        core="fp32_sink",
    )  # fmt: skip
    full = ((i < 2 or i % 4 == 1 or i == layers[-1]) for i in layers)
    types = ["full_attention" if see_all else "sliding_attention" for see_all in full]
    dense, step = c.items("mlp_only_layers"), c.size("decoder_sparse_step", default=1)
    sparse = [i not in ([0, 1] if dense is None else dense) and (i + 1) % step == 0 for i in layers]
    m = Mixture(
        e, shared=c.size("shared_expert_intermediate_size", default=1024), shared_module="mlp.shared_expert",
        balanced=True,
    )  # fmt: skip
    return mixture.model(c, s, m, sparse, typed_layers(c, types, unturned="full_attention"))
