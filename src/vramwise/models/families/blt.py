"""Byte Latent Transformer: bytes gathered into patches, a transformer over patches, bytes again.

A patcher that is never trained says where patches end; how many there are depends on the text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families.nested import renamed
from vramwise.models.layers import decoder
from vramwise.models.layers.design import Design, LayerKind

# Defaults of the configuration classes of transformers 5.23.
_PARTS: dict[str, dict[str, Any]] = {
    "patcher_config": {"hidden_size": 768, "num_hidden_layers": 14, "num_attention_heads": 12,
                       "intermediate_size": 2048},
    "encoder_config": {"hidden_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 16},
    "global_config": {"hidden_size": 2048, "num_hidden_layers": 25, "num_attention_heads": 16,
                      "intermediate_size": 5632},
    "decoder_config": {"hidden_size": 1024, "num_hidden_layers": 9, "num_attention_heads": 16,
                       "intermediate_size": 2816, "cross_attn_all_layers": True},
}  # fmt: skip


def part(c: Config, name: str) -> Config:
    """One of the four transformers; a width that is absent is 8/3 of the hidden size."""
    given = c.table(name) or Config({}, c.model_id)
    own = given.filled({"vocab_size": 260, "hidden_size_global": 2048, "cross_attn_k": 2, **_PARTS[name]})
    own = own.filled({"intermediate_size": 8 * own.hidden_size // 3})
    return Config({**own.values, "head_dim": None}, c.model_id)


def layers(c: Config, name: str, window: int | None, *, cached: bool = True) -> list[Block]:
    """Llama's layers. The class masks by window and yet caches every byte; patches are worked out anew each time."""
    found = []
    for i in range(c.num_hidden_layers):
        block = decoder.layer(c, Design(), i, LayerKind(window))
        kept = replace(block.caches[0], kind="full", window=None) if cached else LayerCache("none")
        found.append(renamed(replace(block, caches=(kept,)), lambda old: old.replace("model", name, 1)))
    return found


def crossing(b: BlockBuilder, x: Value, c: Config, source: int) -> Value:
    """Patches as several vectors of the bytes' width, and attention between them and the bytes."""
    b.part, name = "attention", "gathering bytes into patches"
    (patches,) = b.op("undescribed", "cross_attn_layers", [x], [source], name=name)
    h = b.linear(patches, "patch_embedding_projection", x.width * c.size("cross_attn_k"), shard="replicated")
    for i in range(c.num_hidden_layers if c.flag("cross_attn_all_layers") else 1):
        module, groups = f"cross_attn_layers.{i}", c.num_key_value_heads * c.head_dim
        q = b.linear(b.rms_norm(x, f"{module}.q_norm"), f"{module}.q_proj", c.num_attention_heads * c.head_dim)
        read = b.rms_norm(x, f"{module}.k_norm")
        k, v = (b.linear(read, f"{module}.{n}_proj", groups) for n in "kv")
        (mixed,) = b.op("undescribed", module, [q, k, v, h], [q.width], name=name)
        x = b.add(x, b.linear(mixed, f"{module}.o_proj", x.width, shard="row"))
    return x


def patcher(c: Config) -> list[Block]:
    """A small language model of bytes; where it is surprised, a patch ends."""
    b = BlockBuilder("model.patcher")
    first = b.build(hidden=b.embedding("embed_tokens", c.vocab_size, c.hidden_size))
    b = BlockBuilder("model.patcher", part="head")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "norm")
    last = b.build(entropies=b.linear(x, "lm_head", c.vocab_size, shard="vocab"))
    blocks = [first, *layers(c, "model.patcher", None), last]
    return [replace(block, caches=(), no_grad=True) for block in blocks]


def blocks(c: Config) -> tuple[Block, ...]:
    """Patcher, local encoder, transformer over patches, local decoder, head."""
    spread, middle, back = (part(c, f"{name}_config") for name in ("encoder", "global", "decoder"))
    absent = "local_attention_window_len" in c.values and not c.has("local_attention_window_len")
    window = None if absent else c.size("local_attention_window_len", default=512)
    groups = len(c.items("encoder_hash_byte_group_size") or [3, 4, 5, 6, 7, 8])
    functions = c.size("encoder_hash_byte_group_nb_functions", default=1)
    rows = c.size("encoder_hash_byte_group_vocab", default=500_002) * groups * functions
    b = BlockBuilder("model")
    x = b.embedding("local_encoder.embed_tokens", spread.vocab_size, spread.hidden_size)
    hashed = b.embedding("encoder_hash_tok_embedding", rows, spread.hidden_size)
    body = [b.build(hidden=b.add(x, hashed)), *layers(spread, "model.local_encoder", window)]
    b = BlockBuilder("model.local_encoder")
    gathered = crossing(b, b.input("hidden", spread.hidden_size), spread, spread.hidden_size)
    width, wide = middle.hidden_size, spread.hidden_size * c.size("cross_attn_k", default=2)
    (patches,) = b.op("undescribed", "", [gathered], [wide], name="gathering bytes into patches")
    body.append(b.build(hidden=patches, bytes=gathered))
    if wide != width:
        b = BlockBuilder("model.global_transformer")
        projected = b.linear(b.input("hidden", wide), "token_embedding_projection", width, part="projector")
        body.append(b.build(hidden=projected))
    body += layers(middle, "model.global_transformer", None, cached=False)
    b = BlockBuilder("model.local_decoder")
    x = crossing(b, b.input("bytes", back.hidden_size), back, back.size("hidden_size_global"))
    body += [b.build(hidden=x), *layers(back, "model.local_decoder", window)]
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", back.hidden_size), "model.local_decoder.norm")
    tied_to = "model.local_encoder.embed_tokens.weight" if c.flag("tie_word_embeddings") else None
    vocabulary = c.size("vocab_size", default=260)
    logits = b.linear(x, "lm_head", vocabulary, shard="vocab", part="head", tied_to=tied_to)
    first = patcher(part(c, "patcher_config")) if c.flag("patch_in_forward", True) else []
    return (*first, *body, b.build(logits=logits))
