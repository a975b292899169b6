"""The sizes and switches of multi-head latent attention; `latent_attention` builds it from them."""

from __future__ import annotations

from typing import Literal

from vramwise.models.config import Config
from vramwise.models.layers.indexer import Indexer
from vramwise.records import record


@record
class Latent:
    """Sizes and switches.

    `own` and `turned` are a head's columns without and with rotary positions; `rank` is that of the query's
    compression, None without one. `scaled` multiplies both compressed vectors' results by numbers. `masked`: the
    layer's mask is always there, because it names the tokens that an indexer (this layer's, where it has one) chose.
    `joint_gate`: the query's product makes gates too, from the compressed query before and after its norm. `latents`
    are Dots 3's: both compressed vectors are scaled themselves and the shared key is normed. `output_gate`: sigmoids of
    the layer's input, one for each head (in fp32 with `_fp32`) or for each element, gate the result; `sinks`: the
    softmax has one learned column more. `scaled_queries`: queries are multiplied by a factor for each position.
    """

    own: int
    turned: int
    compressed: int
    value_dim: int
    rank: int | None
    bias: bool = False
    style: str = "interleaved_cat"
    scaled: bool = False
    masked: bool = False
    indexer: Indexer | None = None
    joint_gate: bool = False
    latents: bool = False
    output_gate: Literal["", "by_head", "by_head_fp32", "by_element"] = ""
    sinks: bool = False
    window: int | None = None
    table: str = "default"
    scaled_queries: bool = False


def sizes(c: Config) -> Latent:
    """The sizes by the keys that the families share."""
    return Latent(
        own=c.size("qk_nope_head_dim"), turned=c.size("qk_rope_head_dim"), compressed=c.size("kv_lora_rank"),
        value_dim=c.size("v_head_dim"), rank=c.size("q_lora_rank") if c.has("q_lora_rank") else None,
        bias=c.flag("attention_bias"), style="interleaved_cat" if c.flag("rope_interleave", True) else "half",
        output_gate="by_element" if c.flag("mla_use_output_gate") else "",
    )  # fmt: skip
