"""The Q-Former of BLIP-2, InstructBLIP and Granite Speech: BERT's layers over queries, some of which read a tower.

Its weights are those of transformers 5.23; what training keeps of it is not described.
"""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.towers.known_weights import norms, product, products
from vramwise.models.towers.tower_design import Weight, layer_norm

DEFAULTS: dict[str, object] = {
    "vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "cross_attention_frequency": 2,
    "encoder_hidden_size": 1408,
}  # fmt: skip
"""Defaults of `Blip2QFormerConfig`, and of InstructBLIP's two."""


def _attention(name: str, width: int, read: int) -> list[Weight]:
    """Queries, what is read as keys and values, the product behind them, and a norm."""
    return [
        *product(f"{name}.attention.query", width, width),
        *products((f"{name}.attention.key", f"{name}.attention.value"), width, read),
        *product(f"{name}.output.dense", width, width), *layer_norm(f"{name}.output.LayerNorm", width),
    ]  # fmt: skip


def _feed_forward(c: Config, suffix: str) -> list[Weight]:
    width, inner = c.hidden_size, c.intermediate_size
    return [
        *product(f"intermediate{suffix}.dense", inner, width), *product(f"output{suffix}.dense", width, inner),
        *layer_norm(f"output{suffix}.LayerNorm", width),
    ]  # fmt: skip


def query_former(c: Config, *, text: bool, embedded: bool = False, read: int | None = None) -> list[Weight]:
    """All weights; `text`: prompts go in beside the queries, and have feed-forward halves of their own.

    `embedded`: it embeds the prompts itself. `read` is the width of what queries read, by default as the config says.
    """
    width, often = c.hidden_size, c.size("cross_attention_frequency")
    c.heads_of(width)
    found: list[Weight] = list(layer_norm("layernorm", width))
    if embedded:
        found = [
            ("embeddings.word_embeddings.weight", (c.vocab_size, width)),
            ("embeddings.position_embeddings.weight", (c.size("max_position_embeddings"), width)),
            *norms(("embeddings.layernorm",), width),
        ]
    for index in range(c.num_hidden_layers):
        layer = _attention("attention", width, width)
        if index % often == 0:
            layer += _attention("crossattention", width, read or c.size("encoder_hidden_size"))
        layer += _feed_forward(c, "") if text else []
        layer += _feed_forward(c, "_query")
        found += [(f"encoder.layer.{index}.{leaf}", shape) for leaf, shape in layer]
    return found
