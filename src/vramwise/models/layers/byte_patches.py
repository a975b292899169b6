"""The Byte Latent Transformer's pieces: Llama's layers, and attention between bytes and the patches that hold them."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers import decoder
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.byte_patches import (
    PATCHES,
    PatchesOfVectors,
    PatchMaxima,
    PatchPositions,
    VectorsOfPatches,
)


def layers(c: Config, name: str, window: int | None, *, cached: bool = True) -> list[Block]:
    """Llama's layers. The class masks by window and yet caches every byte; patches are worked out anew each time."""
    found = []
    for i in range(c.num_hidden_layers):
        block = decoder.layer(c, Design(root=f"model.{name}"), i, LayerKind(window, table=name))
        kept = replace(block.caches[0], kind="full", window=None) if cached else LayerCache("none")
        found.append(replace(block, caches=(kept,)))
    return found


def crosses(c: Config, index: int, last: int) -> bool:
    """Whether layer `index` attends across: all, or only the one at `last`."""
    return c.flag("cross_attn_all_layers") or index == last


def cross_attention(b: BlockBuilder, x: Value, source: Value, c: Config, index: int, mask: str) -> Value:
    """Attention of bytes to patches, or of patches to bytes, with two residuals."""
    b.part, module = "attention", f"cross_attn_layers.{index}"
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    q = b.linear(b.rms_norm(x, f"{module}.q_norm"), f"{module}.q_proj", heads * d)
    read = b.rms_norm(source, f"{module}.k_norm")
    k, v = (b.heads_first(b.heads(b.linear(read, f"{module}.{name}_proj", groups * d), groups)) for name in "kv")
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=groups,
            causal=False,
            style=PATCHES,
            dropout=c.number("attention_dropout"),
            mask=mask,
        ),
        b.heads_first(b.heads(q, heads)),
        k,
        v,
        module=module,
        cache=None,
    )
    return b.add(x, b.add(b.linear(mixed, f"{module}.o_proj", x.width, shard="row"), x))


def vectors(b: BlockBuilder, patches: Value, c: Config, width: int) -> Value:
    """Each patch as several vectors of the bytes' width."""
    times = c.size("cross_attn_k")
    h = b.linear(patches, "patch_embedding_projection", width * times, shard="replicated", part="attention")
    return b.unary(VectorsOfPatches(), h, width=width)


def gathered(c: Config, index: int, bytes_each: int | None, *, read: bool) -> Block:
    """Patches out of the bytes of one layer; nothing keeps those that a later layer makes anew."""
    b = BlockBuilder("model.local_encoder", no_grad=not read)
    x = b.input("hidden", c.hidden_size)
    patches = b.unary(PatchMaxima(chunk_size=bytes_each), x)
    patches = cross_attention(b, vectors(b, patches, c, x.width), x, c, index, "patches that read bytes")
    return b.build(hidden=x, bytes=x, patches=patches)


def spread(c: Config, index: int) -> Block:
    """What patches know, read by their bytes."""
    b = BlockBuilder("model.local_decoder")
    x, patches = b.input("hidden", c.hidden_size), b.input("patches", c.hidden_size)
    return b.build(hidden=cross_attention(b, x, patches, c, index, "bytes that read patches"))


def patcher(c: Config) -> list[Block]:
    """A small language model of bytes; where it is surprised, a patch ends."""
    b = BlockBuilder("model.patcher")
    first = b.build(hidden=b.embedding("embed_tokens", c.vocab_size, c.hidden_size))
    b = BlockBuilder("model.patcher", part="head")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "norm")
    last = b.build(entropies=b.linear(x, "lm_head", c.vocab_size, shard="vocab"))
    return [_frozen(block) for block in (first, *layers(c, "patcher", None), last)]


def _frozen(block: Block) -> Block:
    ops = (replace(op, parameters=tuple(replace(p, frozen=True) for p in op.parameters)) for op in block.ops)
    return replace(block, ops=tuple(ops), caches=(), no_grad=True)


def middle_blocks(c: Config, local: Config, own: Config) -> list[Block]:
    """The transformer over patches."""
    b = BlockBuilder("model.global_transformer", part="projector")
    wide = local.hidden_size * c.size("cross_attn_k", default=2)
    x = b.unary(PatchesOfVectors(), b.input("patches", local.hidden_size), width=wide)
    if wide != own.hidden_size:
        x = b.linear(x, "token_embedding_projection", own.hidden_size)
    aside = b.dropout(
        b.unary(PatchPositions(table="global_transformer", head_dim=own.head_dim), x), own.number("dropout")
    )
    return [b.build(hidden=aside), *layers(own, "global_transformer", None, cached=False)]


def last_blocks(c: Config, local: Config, window: int | None) -> list[Block]:
    """Bytes again: layers that may read patches before they read bytes, and the head."""
    b = BlockBuilder("model.local_decoder")
    patches = vectors(b, b.input("hidden", local.size("hidden_size_global")), local, local.hidden_size)
    x = b.dropout(b.input("bytes", local.hidden_size), local.number("dropout"))
    found = [b.build(hidden=x, patches=patches)]
    for i, block in enumerate(layers(local, "local_decoder", window)):
        found += [spread(local, i)] if crosses(local, i, 0) else []
        found.append(block)
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", local.hidden_size), "model.local_decoder.norm")
    tied_to = "model.local_encoder.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    vocabulary = c.size("vocab_size", default=260)
    logits = b.linear(x, "lm_head", vocabulary, shard="vocab", part="head", tied_to=tied_to)
    return [*found, b.build(logits=logits)]
