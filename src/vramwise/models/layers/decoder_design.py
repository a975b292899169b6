"""The switches that many Llama-like families differ by; `decoder` builds the layers from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.records import record

Piece = Callable[[BlockBuilder, Value], Value]


@record
class HeadNorm:
    """Norms of queries and keys.

    `place`: whole projections, heads as they are split, heads moved before the sequence, or heads after they are
    turned. `kind`: root mean square, torch's layer norm, Cohere's (a weight for every element of every head) or
    StableLM's (a module for every head).
    """

    place: Literal["projection", "heads", "heads_first", "turned"]
    kind: Literal["rms", "layer", "python", "per_head"] = "rms"
    names: tuple[str, str] = ("q_norm", "k_norm")
    style: str = "llama"


@record
class Design:
    """What differs between these families.

    `root` is the name of the model inside its class. `norms` names the norms before and after attention and before and
    after the MLP; without the third, the MLP reads what attention reads (parallel residual) or, with a fourth, the
    stream itself. `sub_norms` are BitNet's, before the last product of attention and MLP; `scaled_queries` multiplies
    queries by a factor for each position, in every layer or in those without rotary positions; `shared_out` weighs both
    sides of each sum with the stream by depth; `gate` names a projection of the layer's input and the function of it
    that attention's result is multiplied with; `both_ways` is an encoder's attention, which keeps no cache; `attention`
    are settings of attention's own code path. `rotary_share` of each head's columns is turned where the config names
    none, None where it never does: all of them. `head_rows`: the head's where they are not the vocabulary's.
    `buffered_scale`: the embedding is scaled by a buffer, which backward keeps.
    """

    root: str = "model"
    norm: Literal["rms", "layer"] = "rms"
    norm_style: str = "llama"
    norm_weight: bool = True
    norm_bias: bool = False
    norms: tuple[str | None, ...] = ("input_layernorm", None, "post_attention_layernorm", None)
    final_norm: str = "model.norm"
    first_norm: bool = False
    sub_norms: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    head_rows: int = 0
    fused_qkv: Literal["", "joint", "by_head"] = ""
    qk_norm: HeadNorm | None = None
    clip_qkv: bool = False
    core: Literal["", "lse_sink", "fp32_sink", "differential"] = ""
    both_ways: bool = False
    attention: Mapping[str, Any] = field(default_factory=dict)
    output: str = "o_proj"
    mlp: Literal["gated", "fused", "plain"] = "gated"
    mlp_names: tuple[str, str] = ("up_proj", "down_proj")
    rotary: str = "half"
    rotary_table: str = "default"
    rotary_share: float | None = 1.0
    joined: bool = False
    scaled_queries: Literal["", "every", "unturned"] = ""
    gate: tuple[str, str] | None = None
    scaled: bool = False
    shared_out: bool = False
    scaled_embedding: bool = False
    buffered_scale: bool = False
    scaled_logits: bool = False
    capped_logits: bool = False
    widened_logits: bool = False
    dropouts: tuple[float, float, float] = (0.0, 0.0, 0.0)
    tied: bool = False


@record
class LayerKind:
    """What differs between the layers of one model; without a `table` the design's rotary table serves all.

    `attention` and `mlp` build those halves of a layer in place of the design's own.
    """

    window: int | None = None
    turned: bool = True
    table: str = ""
    attention: Piece | None = None
    mlp: Piece | None = None


def sliding_window(c: Config) -> int | None:
    return c.size("sliding_window", default=0, least=0) or None
