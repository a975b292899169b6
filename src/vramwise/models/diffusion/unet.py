"""UNet2DConditionModel of diffusers 0.42.1 (unet_2d_condition.py, unet_2d_blocks.py): Stable Diffusion 1, 2 and XL.

Every result of the way down has a name until the block on the way up that it is for has run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vramwise.models.blocks import Block, Value
from vramwise.models.config import Config
from vramwise.models.diffusion.builder import ComponentBuilder
from vramwise.models.diffusion.checked import one_for_each, whole_numbers
from vramwise.models.diffusion.resnet import resnet
from vramwise.models.operations.latents import (
    AlongSecond,
    Doubled,
    HeadedSdpa,
    MapToTokens,
    NumbersInRow,
    SplitHeads,
    TokensToMap,
    Waves,
)
from vramwise.records import record, replace

CLASS_DEFAULTS: dict[str, object] = {
    "in_channels": 4, "out_channels": 4, "block_out_channels": [320, 640, 1280, 1280], "layers_per_block": 2,
    "norm_num_groups": 32, "cross_attention_dim": 1280, "attention_head_dim": 8, "transformer_layers_per_block": 1,
    "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
}  # fmt: skip
_PLAIN = {
    "only_cross_attention": False, "mid_block_type": "UNetMidBlock2DCrossAttn", "encoder_hid_dim_type": None,
    "class_embed_type": None, "num_class_embeds": None, "dual_cross_attention": False, "time_embedding_dim": None,
    "resnet_time_scale_shift": "default", "time_cond_proj_dim": None, "center_input_sample": False,
    "time_embedding_type": "positional", "attention_type": "default", "resnet_out_scale_factor": 1.0,
    "cross_attention_norm": None, "conv_in_kernel": 3, "conv_out_kernel": 3, "act_fn": "silu",
    "time_embedding_act_fn": None, "reverse_transformer_layers_per_block": None, "mid_block_scale_factor": 1,
    "upcast_attention": False, "resnet_skip_time_act": False, "mid_block_only_cross_attention": None,
}  # fmt: skip
"""Switches that are described at this value alone."""


_MOST_IN_A_BLOCK = 64
_WALKED = 3
"""A transformer is walked in its first layer, one in the middle and its last; the rest hold what that one does."""


@record
class Level:
    """One resolution: channels, residual blocks, layers of each transformer (0 without attention), heads, its text."""

    width: int
    resnets: int
    layers: int
    heads: int
    text: int


@record
class Plan:
    """What the config says of all blocks."""

    levels: tuple[Level, ...]
    up_attention: tuple[bool, ...]
    groups: int
    linear: bool
    temb: int


def blocks(config: Config) -> tuple[Block, ...]:
    """Streams are named as the class's arguments: sample, timestep, encoder_hidden_states, text_embeds, time_ids."""
    c = config.filled(CLASS_DEFAULTS)
    return _of(c, _plan(c))


def blocks_of_call(config: Config, given: Mapping[str, tuple[int, ...]]) -> tuple[Block, ...]:
    """What the fullest moment of a call follows from, whatever is `given`: no transformer is deeper than three."""
    c = config.filled(CLASS_DEFAULTS)
    plan = _plan(c)
    shallow = tuple(replace(level, layers=min(level.layers, _WALKED)) for level in plan.levels)
    return _of(c, replace(plan, levels=shallow))


def _of(c: Config, plan: Plan) -> tuple[Block, ...]:
    skips: list[tuple[str, int]] = []
    return (_beginning(c, plan, skips), *_down(plan, skips), _mid(plan), *_up(plan, skips), _end(c, plan))


def _plan(c: Config) -> Plan:
    for key, only in _PLAIN.items():
        if c.get(key, only) != only:
            raise c.error(f"{key}: {c.get(key)!r:.40} is not described (described: {only!r})")
    widths = whole_numbers(c, "block_out_channels")
    count = len(widths)
    downs, ups = (c.items(f"{way}_block_types") or [] for way in ("down", "up"))
    if len(downs) != count or len(ups) != count or c.get("num_attention_heads") is not None:
        raise c.error("down_block_types, up_block_types and block_out_channels are of different lengths")
    known = {"CrossAttnDownBlock2D": True, "DownBlock2D": False, "CrossAttnUpBlock2D": True, "UpBlock2D": False}
    if not 0 < count <= _MOST_IN_A_BLOCK:
        raise c.error(f"block_out_channels: expected 1 to {_MOST_IN_A_BLOCK} whole numbers")
    for kind in (*downs, *ups):
        if kind not in known:
            raise c.error(f"{kind!s:.40} is not described; described are {', '.join(known)}")
    keys = ("layers_per_block", "transformer_layers_per_block", "attention_head_dim", "cross_attention_dim")
    resnets, layers, heads, text = (one_for_each(c, key, count) for key in keys)
    if max(*resnets, *layers) > _MOST_IN_A_BLOCK:
        raise c.error(f"{keys[0]}, {keys[1]}: expected at most {_MOST_IN_A_BLOCK}")
    levels = tuple(
        Level(width, resnets[i], layers[i] if known[str(downs[i])] else 0, heads[i], text[i])
        for i, width in enumerate(widths)
    )
    attends = tuple(known[str(kind)] for kind in ups)
    linear = c.flag("use_linear_projection")
    last = replace_layers(levels, layers)
    return Plan(last, attends, c.size("norm_num_groups"), linear, 4 * widths[0])


def replace_layers(levels: tuple[Level, ...], layers: list[int]) -> tuple[Level, ...]:
    """The levels as they are; `layers` of the last one say how deep the middle is."""
    return (*levels, Level(levels[-1].width, 2, layers[-1], levels[-1].heads, levels[-1].text))


def _beginning(c: Config, plan: Plan, skips: list[tuple[str, int]]) -> Block:
    b, width = ComponentBuilder(""), plan.levels[0].width
    temb = b.unary(Waves(width=width), b.input("timestep", 1), "time_proj", width=width)
    temb = b.time_embedding(temb, "time_embedding", plan.temb)
    kind = c.get("addition_embed_type")
    if kind == "text_time":
        each, given = c.size("addition_time_embed_dim"), c.size("projection_class_embeddings_input_dim")
        if given <= 6 * each:
            raise c.error("projection_class_embeddings_input_dim is not above 6 · addition_time_embed_dim")
        sizes = b.unary(Waves(width=each), b.input("time_ids", 6), "add_time_proj", width=each)
        joined = b.op(NumbersInRow(), "", [b.input("text_embeds", given - 6 * each), sizes], [given])[0]
        temb = b.add(temb, b.time_embedding(joined, "add_embedding", plan.temb))
    elif kind is not None:
        raise c.error(f"addition_embed_type: {kind!r:.40} is not described (described: text_time)")
    x = b.convolution(b.input("sample", c.size("in_channels")), "conv_in", width, 3, padding=1)
    skips.append(("skip 0", width))
    b.hand_on("skip 0", x)
    return b.build(hidden=x, temb=temb)


def _down(plan: Plan, skips: list[tuple[str, int]]) -> Iterator[Block]:
    *levels, _ = plan.levels
    for i, level in enumerate(levels):
        b = ComponentBuilder(f"down_blocks.{i}")
        x, temb = b.input("hidden", levels[max(i - 1, 0)].width), b.input("temb", plan.temb)
        text = b.input("encoder_hidden_states", level.text)
        for k in range(level.resnets):
            x = resnet(b, x, f"resnets.{k}", level.width, plan.groups, temb)
            x = _transformer(b, x, text, f"attentions.{k}", level, plan) if level.layers else x
            _keep(b, x, skips)
        if i + 1 < len(levels):
            x = b.convolution(x, "downsamplers.0.conv", level.width, 3, stride=2, padding=1)
            _keep(b, x, skips)
        yield b.build(hidden=x)


def _keep(b: ComponentBuilder, x: Value, skips: list[tuple[str, int]]) -> None:
    name = f"skip {len(skips)}"
    skips.append((name, x.width))
    b.hand_on(name, x)


def _mid(plan: Plan) -> Block:
    level = plan.levels[-1]
    b = ComponentBuilder("mid_block")
    x, temb = b.input("hidden", level.width), b.input("temb", plan.temb)
    x = resnet(b, x, "resnets.0", level.width, plan.groups, temb)
    x = _transformer(b, x, b.input("encoder_hidden_states", level.text), "attentions.0", level, plan)
    return b.build(hidden=resnet(b, x, "resnets.1", level.width, plan.groups, temb))


def _up(plan: Plan, skips: list[tuple[str, int]]) -> Iterator[Block]:
    *levels, mid = plan.levels
    width = mid.width
    for i, (level, attends) in enumerate(zip(reversed(levels), plan.up_attention, strict=True)):
        b = ComponentBuilder(f"up_blocks.{i}")
        x, temb = b.input("hidden", width), b.input("temb", plan.temb)
        text = b.input("encoder_hidden_states", level.text)
        taken = [skips.pop() for _ in range(level.resnets + 1)]
        given = [b.input(name, wide) for name, wide in taken]
        depth = level.layers or mid.layers
        for k, skip in enumerate(given):
            joined = b.op(AlongSecond(), "", [x, skip], [x.width + skip.width])[0]
            x = resnet(b, joined, f"resnets.{k}", level.width, plan.groups, temb)
            if attends:
                x = _transformer(b, x, text, f"attentions.{k}", level, plan, depth)
        if i + 1 < len(levels):
            x = b.convolution(b.unary(Doubled(), x, "upsamplers.0"), "upsamplers.0.conv", level.width, 3, padding=1)
        b.still_named(*given)
        width = level.width
        yield b.build(hidden=x)


def _end(c: Config, plan: Plan) -> Block:
    b = ComponentBuilder("")
    x = b.group_norm(b.input("hidden", plan.levels[0].width), "conv_norm_out", plan.groups)
    x = b.convolution(b.activation(x, "silu", "conv_act"), "conv_out", c.size("out_channels"), 3, padding=1)
    return b.build(sample=x)


def _transformer(
    b: ComponentBuilder, x: Value, text: Value, module: str, level: Level, plan: Plan, layers: int = 0
) -> Value:  # fmt: skip
    """`Transformer2DModel`: a map as tokens through layers of attention to itself and to the text, and its residual."""
    h = b.group_norm(x, f"{module}.norm", plan.groups)
    if plan.linear:
        tokens = b.op(MapToTokens(copies=True), module, [h], [level.width])[0]
        tokens = b.linear(tokens, f"{module}.proj_in", level.width, bias=True)
    else:
        h = b.convolution(h, f"{module}.proj_in", level.width, 1)
        tokens = b.op(MapToTokens(copies=True), module, [h], [level.width])[0]
    for k in range(layers or level.layers):
        tokens = _layer(b, tokens, text, f"{module}.transformer_blocks.{k}", level)
    if plan.linear:
        tokens = b.linear(tokens, f"{module}.proj_out", level.width, bias=True)
        out = b.op(TokensToMap(), module, [tokens, x], [level.width])[0]
    else:
        placed = b.op(TokensToMap(), module, [tokens, x], [level.width])[0]
        out = b.convolution(placed, f"{module}.proj_out", level.width, 1)
    return b.inside_add(out, x, module)


def _layer(b: ComponentBuilder, x: Value, text: Value, module: str, level: Level) -> Value:
    """`BasicTransformerBlock`: three norms, two attentions, a gated feed-forward."""
    normed = b.layer_norm(x, f"{module}.norm1")
    out = _attention(b, normed, normed, f"{module}.attn1", level)
    x = b.inside_add(out, x, module)
    second = b.layer_norm(x, f"{module}.norm2")
    b.still_named_in(module, normed)
    mixed = _attention(b, second, text, f"{module}.attn2", level)
    b.still_named_in(module, out)
    x = b.inside_add(mixed, x, module)
    third = b.layer_norm(x, f"{module}.norm3")
    b.still_named_in(module, second)
    fed = b.feed_forward(third, f"{module}.ff", "geglu")
    x = b.inside_add(fed, x, module)
    b.still_named_in(module, third, mixed, fed)
    return x


def _attention(b: ComponentBuilder, x: Value, source: Value, module: str, level: Level) -> Value:
    """`Attention` with `AttnProcessor2_0`: queries, keys and values keep their names to its end."""
    b.part = "attention"
    q, k, v = (
        b.unary(SplitHeads(num_heads=level.heads), b.linear(one, f"{module}.{name}", x.width), module,
                width=x.width // level.heads)
        for name, one in (("to_q", x), ("to_k", source), ("to_v", source))
    )  # fmt: skip
    mixed = b.op(HeadedSdpa(), module, [q, k, v], [x.width])[0]
    out = b.linear(mixed, f"{module}.to_out.0", x.width, bias=True)
    scaled = b.inside_scale(out, module)
    b.still_named_in(module, q, k, v)
    b.part = "mlp"
    return scaled
