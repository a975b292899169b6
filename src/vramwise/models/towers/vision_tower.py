"""Towers that read images or sound: patches or frames in, transformer layers, with the switches of `tower_design`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.image_tokens import ImageTokens
from vramwise.models.operations.sam import GridAttention, IntoWindows, OutOfWindows
from vramwise.models.operations.simple import Hold
from vramwise.models.operations.towers import LayerScale, PackedAttention
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.projector_pieces import tapped
from vramwise.models.towers.tower_design import Tower


def _norm(b: BlockBuilder, x: Value, module: str, t: Tower) -> Value:
    return b.rms_norm(x, module, part=t.part) if t.norm == "rms" else b.layer_norm(x, module, part=t.part)


def _projections(b: BlockBuilder, x: Value, t: Tower) -> Sequence[Value]:
    """q, k and v from products of their own or a fused one, normed whole where the tower does so."""
    if len(t.qkv) == 1:
        return b.split(b.linear(x, t.qkv[0], 3 * t.width, bias=t.biases[0]), [t.width] * 3)
    pieces = [b.linear(x, name, t.inner or t.width, bias=bias) for name, bias in zip(t.qkv, t.biases[:3], strict=True)]
    if t.qk_norms is not None:
        pieces[:2] = [b.rms_norm(x, name, part=t.part) for x, name in zip(pieces[:2], t.qk_norms, strict=True)]
    return pieces


def _mlp(b: BlockBuilder, x: Value, t: Tower) -> Value:
    *first, last = t.mlp
    h = b.activation(b.linear(x, first[0], t.intermediate_size, bias=t.mlp_bias), t.function, "mlp.act_fn")
    if len(first) == 2:
        h = b.multiply(h, b.linear(x, first[1], t.intermediate_size, bias=t.mlp_bias))
    return b.linear(h, last, t.width, bias=t.mlp_bias, shard="row")


def _scaled(b: BlockBuilder, x: Value, t: Tower, index: int) -> Value:
    if t.scales is None:
        return x
    return b.unary(LayerScale(), x, "", [b.parameter("", t.scales[index], (t.scale_width,))])


def _packed_attention(b: BlockBuilder, x: Value, t: Tower, index: int) -> Value:
    """Attention of every image, or window of one, to itself."""
    if t.key_value_width:
        joint = b.linear(x, t.qkv[0], t.width + 2 * t.key_value_width, bias=t.biases[0])
        return b.op(Undescribed(name="grouped queries of patches"), "attn", [joint], [t.width])[0]
    fused = len(t.qkv) == 1
    pieces = [b.linear(x, t.qkv[0], 3 * t.width, bias=t.biases[0])] if fused else list(_projections(b, x, t))
    windowed = t.whole_layers is not None and index not in t.whole_layers
    width, heads = t.inner or t.width, t.num_heads
    return b.op(PackedAttention(num_heads=heads, windowed=windowed, turned=t.packed_turn), "attn", pieces, [width])[0]


def _attention(b: BlockBuilder, x: Value, t: Tower, index: int) -> Value:
    if t.packed:
        return _packed_attention(b, x, t, index)
    q, k, v = (b.heads(piece, t.num_heads) for piece in _projections(b, x, t))
    if t.turned_by_row is not None:
        q, k = b.op(t.turned_by_row, "", [q, k], [q.width, k.width])
    q, k, v = (b.heads_first(piece) for piece in (q, k, v))
    if t.turned is not None:
        q, k = b.op(t.turned, "", [q, k], [q.width, k.width])
    heads = t.num_heads
    return b.attention(
        Attention(
            num_heads=heads, num_key_value_heads=heads, causal=False, style=t.attention_style, eager_only=t.eager_only
        ),
        q,
        k,
        v,
        cache=None,
    )


def _grid_attention(b: BlockBuilder, x: Value, t: Tower, index: int) -> Value:
    """Attention within windows, or of the whole image, with trained relative positions where there are any."""
    if t.windows[index]:
        x = b.unary(IntoWindows(window=t.windows[index]), x)
    qkv = b.linear(x, t.qkv[0], 3 * t.width, bias=t.biases[0])
    weights = [b.parameter("", leaf, shape) for leaf, shape in t.of_layer[index]] if t.of_layer else []
    grid = GridAttention(num_heads=t.num_heads, eager_only=t.eager_only)
    return b.op(grid, "attn", [qkv], [t.width], weights)[0]


UNREAD = "unread"
"""The stream of layers whose results nothing reads."""


def layer(t: Tower, name: str, index: int, reads: int | None = None, also: frozenset[int] = frozenset()) -> Block:
    """A pre-norm encoder layer with full attention; of `reads` layers and no more the results are read."""
    b = BlockBuilder(f"{name}.{t.layers}.{index}", part=t.part, modality=t.modality, tower_layer=True)
    b.no_grad = reads is not None and index >= reads
    stream = UNREAD if b.no_grad else t.modality
    x = b.input(stream, t.width)
    h = _norm(b, x, t.norms[0], t)
    h = _grid_attention(b, h, t, index) if t.windows else _attention(b, h, t, index)
    if t.of_layer and not t.windows:
        h = b.unary(
            Undescribed(name="relative positions of patches"),
            h,
            "",
            [b.parameter("", leaf, shape) for leaf, shape in t.of_layer[index]],
        )
    h = b.linear(h, t.output, t.width, bias=t.biases[3], shard="row")
    if t.windows and t.windows[index]:
        h = b.unary(OutOfWindows(window=t.windows[index], rows=t.rows), h)
    x = b.add(x, _scaled(b, h, t, 0))
    x = b.add(x, _scaled(b, _mlp(b, _norm(b, x, t.norms[1], t), t), t, 1))
    if index in t.tapped or index + 1 in also:
        b.hand_on(tapped(index), x)
    return b.build(**{stream: x, **({UNREAD: x} if index + 1 == reads else {})})


def image_tokens(width: int, *, see_each_other: Literal["", "windows", "all"] = "", listed: bool = True) -> Block:
    """The tower's tokens in their places of the prompt; those of an image may look at all of its own in some layers.

    `listed`: they come as a list of images, which are joined first.
    """
    b = BlockBuilder("", modality="image")
    x, image = b.input("hidden", width), b.input("image", width)
    return b.build(hidden=b.op(ImageTokens(see_each_other=see_each_other, listed=listed), "", [x, image], [width])[0])


def tower_blocks(
    c: Config, t: Tower, name: str, reads: int | None = None, also: frozenset[int] = frozenset()
) -> tuple[Block, ...]:  # fmt: skip
    """What comes before the layers, the layers, what comes after; they run only for batches that hold such input.

    `reads`: after how many layers the result that is taken comes, instead of that of the whole tower; `also`: after how
    many further ones come that are taken besides.
    """
    if (t.inner or t.width) % t.num_heads:
        raise c.error(f"a tower's number of heads ({t.num_heads}) does not divide its width ({t.inner or t.width})")
    b = BlockBuilder(name, part=t.part, modality=t.modality)
    weights = [b.parameter("", leaf, shape, frozen=leaf in t.frozen) for leaf, shape in t.before]
    x = b.op(t.embedding, "", [], [t.width], weights)[0]
    also -= {reads}
    if 0 in also:
        b.hand_on(tapped(-1), x)
    blocks = [b.build(**{t.modality: x, **({UNREAD: x} if reads == 0 else {})})]
    blocks += [layer(t, name, i, reads, also) for i in range(t.num_layers)]
    if t.after:
        b = BlockBuilder(name, part=t.part, modality=t.modality, no_grad=reads is not None)
        stream = UNREAD if b.no_grad else t.modality
        weights = [b.parameter("", leaf, shape) for leaf, shape in t.after]
        x = b.unary(t.closing, b.input(stream, t.width), "", weights)
        blocks.append(b.build(**{stream: x}))
    if t.pooling:
        b = BlockBuilder(name, part=t.part, modality=t.modality, no_grad=True)
        weights = [b.parameter("", leaf, shape) for leaf, shape in t.pooling]
        blocks.append(b.build(**{UNREAD: b.unary(Hold(), b.input(t.modality, t.width), "", weights)}))
    return tuple(blocks)
