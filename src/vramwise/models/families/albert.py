"""ALBERT: BERT whose layers share their parameters in groups, on a narrower embedding."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.encoder_design import Design, Head
from vramwise.models.layers.encoder_embedding import after_embedding, embedding
from vramwise.models.layers.encoder_head import language_model_head, pooler
from vramwise.models.layers.multi_head_attention import multi_head_attention
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.operations.attention import PLAIN

CLASS_DEFAULTS = {
    "vocab_size": 30000, "embedding_size": 128, "hidden_size": 4096, "num_hidden_layers": 12, "num_hidden_groups": 1,
    "num_attention_heads": 64, "intermediate_size": 16384, "inner_group_num": 1, "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 512,
    "type_vocab_size": 2,
}  # fmt: skip
"""Defaults of `AlbertConfig`."""

DESIGN = Design(
    "albert", embedding_width="embedding_size", projection="encoder.embedding_hidden_mapping_in", always_projects=True,
    head=Head("predictions", "dense", "LayerNorm", width="embedding_size"),
)  # fmt: skip


def task(c: Config) -> Task:
    """The head that the config asks for."""
    return task_of(c, "masked-lm")


def attention(b: BlockBuilder, x: Value, c: Config, root: str) -> Value:
    """Multi-head attention with its projection, residual and norm."""
    module = f"{root}.attention"
    names = (f"{module}.query", f"{module}.key", f"{module}.value", f"{module}.dense")
    h = multi_head_attention(
        b, x, c, names, module=module, causal=False, style=PLAIN, dropout=c.number("attention_probs_dropout_prob"),
        cache=None,
    )  # fmt: skip
    return b.layer_norm(b.add(x, b.dropout(h, c.number("hidden_dropout_prob"))), f"{module}.LayerNorm")


def layer(c: Config, root: str, index: int) -> Block:
    """One pass through the group of layers that stands at this depth."""
    group = int(index / (c.num_hidden_layers / c.size("num_hidden_groups")))
    b = BlockBuilder(f"{root}encoder.albert_layer_groups.{group}", layer=index, part="attention")
    x = b.input("hidden", c.hidden_size)
    for inner in range(c.size("inner_group_num")):
        module = f"albert_layers.{inner}"
        b.part = "attention"
        x = attention(b, x, c, module)
        b.part = "mlp"
        h = b.linear(x, f"{module}.ffn", c.intermediate_size, bias=True)
        h = b.activation(h, c.text("hidden_act"), f"{module}.activation")
        h = b.linear(h, f"{module}.ffn_output", x.width, bias=True, shard="row")
        x = b.layer_norm(b.add(h, x), f"{module}.full_layer_layer_norm")
    return b.build(hidden=x)


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, the same groups of layers again and again, then the head, or the pooler of the bare model."""
    c = config.filled(CLASS_DEFAULTS)
    bare = task(c) == "none"
    root = "" if bare else "albert."
    first = (embedding(c, DESIGN, root), *after_embedding(c, DESIGN, root))
    last = pooler(c, "pooler") if bare else language_model_head(c, DESIGN, root)
    return (*first, *(layer(c, root, i) for i in range(c.num_hidden_layers)), last)
