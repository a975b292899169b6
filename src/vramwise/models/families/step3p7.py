"""Step 3.7: gated attention with more heads in sliding layers, clamped experts and MLPs, and a vision tower.

Without a `text_config` the class takes its text part's defaults, whatever else the config holds; so does this file.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_attention import attention
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind
from vramwise.models.layers.mixture import Mixture, sparse_layers
from vramwise.models.layers.sigmoid_routing import corrected
from vramwise.models.layers.text_defaults import TEXT_DEFAULTS
from vramwise.models.layers.windows import typed_layers
from vramwise.models.operations.simple import Clamp
from vramwise.models.towers.step_vision import DEFAULTS, whole_and_tiles
from vramwise.models.towers.vision_tower import image_tokens


def clamped_mlp(b: BlockBuilder, x: Value, *, width: int, module: str, bias: bool) -> Value:
    """down(clamp(act(gate(x))) · clamp(up(x))); without a limit the bound is infinite."""
    b.part = "mlp"
    gate = b.activation(b.linear(x, f"{module}.gate_proj", width, bias=bias), "silu", f"{module}.act_fn")
    gate = b.unary(Clamp(), gate, module)
    up = b.unary(Clamp(), b.linear(x, f"{module}.up_proj", width, bias=bias), module)
    return b.linear(b.multiply(gate, up), f"{module}.down_proj", x.width, bias=bias, shard="row")


def shared_expert(b: BlockBuilder, x: Value, m: Mixture) -> Value:
    return clamped_mlp(b, x, width=m.shared, module=m.shared_module, bias=m.bias)


def layer_kinds(c: Config, s: Design) -> list[LayerKind]:
    """Sliding layers have their own number of heads; each kind has its own rotary table."""
    types = c.layer_types() or ["full_attention"] * c.num_hidden_layers
    heads = c.size("num_sliding_attention_heads", default=c.num_attention_heads)
    rope = c.table("rope_parameters") or Config({})
    dense = partial(clamped_mlp, width=c.intermediate_size, module="mlp", bias=s.mlp_bias)
    kinds = []
    for name, kind in zip(types, typed_layers(c, types, tables=True), strict=True):
        share = (rope.table(name) or Config({})).number("partial_rotary_factor", 1.0)
        count = heads if name == "sliding_attention" else c.num_attention_heads
        own = {"rope_parameters": {"partial_rotary_factor": share}, "num_attention_heads": count}
        built = partial(attention, c=Config({**c.values, **own}, c.model_id), s=s, kind=kind)
        kinds.append(replace(kind, attention=built, mlp=dense))
    return kinds


def text_blocks(c: Config) -> tuple[Block, ...]:
    """The language model, named as one of its own."""
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")
    s = Design(
        norm_style="gemma", qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias, joined=True,
        qk_norm=HeadNorm("heads", style="gemma"), gate=("g_proj", "sigmoid_by_head"),
    )  # fmt: skip
    keys, shared = ("num_local_experts", "n_routed_experts"), c.size("share_expert_dim")
    m = corrected(c, None, keys=keys, shared=shared, in_place=True, epsilon=False, scaled=False)
    e = replace(m.experts, function="silu", gating="clamped_halves", style="loop")
    m = replace(m, experts=e, shared_mlp=shared_expert, bias=mlp_bias, scaled=True)
    return mixture.model(c, s, m, sparse_layers(c, 3), layer_kinds(c, s))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, language model."""
    c.size("num_hidden_layers", default=1)  # a flat config's own is not used, but it must be a number of layers
    v = (c.table("vision_config") or Config({}, c.model_id)).filled(DEFAULTS)
    text = (c.table("text_config") or Config({}, c.model_id)).filled(TEXT_DEFAULTS["step3p7_text"])
    text = Config({**text.values, "tie_word_embeddings": c.flag("tie_word_embeddings")}, c.model_id)
    embedding, *language = (renamed(block, inside("model.language_model")) for block in text_blocks(text))
    images = whole_and_tiles(v, text.hidden_size, bias=c.flag("projector_bias"))
    return (*images, embedding, image_tokens(text.hidden_size), *language)
