"""Byte Latent Transformer: bytes gathered into patches, a transformer over patches, bytes again.

A patcher that is never trained says where patches end; how many there are depends on the text.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.byte_patches import crosses, gathered, last_blocks, layers, middle_blocks, patcher
from vramwise.models.operations.byte_patches import HashedEmbedding

# Defaults of the configuration classes of transformers 5.23.
_PARTS: dict[str, dict[str, object]] = {
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
    own = own.filled({"intermediate_size": 8 * own.hidden_size // 3, "attention_dropout": own.number("dropout")})
    return Config({**own.values, "head_dim": None}, c.model_id)


def bytes_each(c: Config) -> int | None:
    """Bytes of a patch that the config expects; None where every byte is a patch, with no text deciding."""
    if c.text("patching_mode", "entropy") != "entropy" or not c.flag("patch_in_forward", True):
        return None
    absent = "patch_size" in c.values and not c.has("patch_size")
    expected = 1 if absent else c.size("patch_size", default=4)
    return min(expected, c.size("max_patch_length", default=expected))


def counted_as(c: Config) -> str:
    """What depends on the text."""
    each = bytes_each(c)
    if each is None:
        return ""
    return (
        f"the text says where patches end: counted as {each} bytes each (patch_size); there may be any number from 2 "
        "to one a byte and one more, and what they keep for backward grows with it"
    )


def first_blocks(c: Config, local: Config, window: int | None) -> list[Block]:
    """Bytes, with the hashes of their groups, through the local encoder into patches."""
    groups = len(c.items("encoder_hash_byte_group_size") or [3, 4, 5, 6, 7, 8])
    lookups = groups * c.size("encoder_hash_byte_group_nb_functions", default=1)
    b = BlockBuilder("model", part="embedding")
    x = b.embedding("local_encoder.embed_tokens", local.vocab_size, local.hidden_size)
    shape = (c.size("encoder_hash_byte_group_vocab", default=500_002) * lookups, local.hidden_size)
    table = b.parameter("encoder_hash_tok_embedding", "weight", shape, shard="vocab")
    x = b.unary(HashedEmbedding(lookups=lookups), x, "encoder_hash_tok_embedding", [table])
    found, dropout, last = [], local.number("dropout"), local.num_hidden_layers - 1
    found.append(b.build(hidden=b.dropout(b.dropout(x, dropout), dropout)))
    for i, block in enumerate(layers(local, "local_encoder", window)):
        found.append(block)
        if crosses(local, i, last):
            index = i if local.flag("cross_attn_all_layers") else 0
            found.append(gathered(local, index, bytes_each(c), read=i == last))
    return found


def blocks(c: Config) -> tuple[Block, ...]:
    """Patcher, local encoder, transformer over patches, local decoder, head."""
    absent = "local_attention_window_len" in c.values and not c.has("local_attention_window_len")
    window = None if absent else c.size("local_attention_window_len", default=512)
    near, far, back = (part(c, f"{name}_config") for name in ("encoder", "global", "decoder"))
    first = patcher(part(c, "patcher_config")) if c.flag("patch_in_forward", True) else []
    return (*first, *first_blocks(c, near, window), *middle_blocks(c, near, far), *last_blocks(c, back, window))
