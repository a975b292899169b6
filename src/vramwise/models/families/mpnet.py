"""MPNet: BERT without segments, with learned biases for the distance of two tokens."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.encoder_design import ROBERTA_HEAD, Design
from vramwise.models.layers.encoder_embedding import embedding
from vramwise.models.layers.encoder_head import language_model_head, pooler
from vramwise.models.layers.multi_head_attention import multi_head_attention
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.operations.encoders import BIASED
from vramwise.models.operations.relative_bias import RelativePositionBias

CLASS_DEFAULTS = {
    "vocab_size": 30527, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "relative_attention_num_buckets": 32,
}  # fmt: skip
"""Defaults of `MPNetConfig`."""

DESIGN = Design("mpnet", "none", "counted", head=ROBERTA_HEAD)


def task(c: Config) -> Task:
    """The head that the config asks for."""
    return task_of(c, "masked-lm")


def distances(c: Config, root: str) -> Block:
    """A learned number for each head and bucket of distances, for all layers."""
    b = BlockBuilder(f"{root}encoder", part="attention")
    shape = (c.size("relative_attention_num_buckets"), c.num_attention_heads)
    table = b.parameter("relative_attention_bias", "weight", shape, shard="row")
    module = "relative_attention_bias"
    (bias,) = b.op(RelativePositionBias(stack="decoder"), module, [], [c.num_attention_heads], [table])
    return b.build(position_bias=bias)


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention, biases added to its scores in place."""
    module = "attention.attn"
    return multi_head_attention(
        b, x, c, (f"{module}.q", f"{module}.k", f"{module}.v", f"{module}.o"), module=module, causal=False,
        style=BIASED, dropout=c.number("attention_probs_dropout_prob", 0.1), cache=None, eager_only=True,
        others=[b.input("position_bias", c.num_attention_heads)],
    )  # fmt: skip


def layer(c: Config, root: str, index: int) -> Block:
    """A post-norm layer."""
    b = BlockBuilder(f"{root}encoder.layer.{index}", layer=index, part="attention")
    dropout = c.number("hidden_dropout_prob", 0.1)
    x = b.input("hidden", c.hidden_size)
    x = b.layer_norm(b.add(b.dropout(attention(b, x, c), dropout), x), "attention.LayerNorm")
    b.part = "mlp"
    h = b.linear(x, "intermediate.dense", c.intermediate_size, bias=True)
    h = b.activation(h, c.text("hidden_act", "gelu"), "intermediate.intermediate_act_fn")
    h = b.dropout(b.linear(h, "output.dense", x.width, bias=True, shard="row"), dropout)
    return b.build(hidden=b.layer_norm(b.add(h, x), "output.LayerNorm"))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, biases, layers, then the head, or the pooler of the bare model."""
    c = config.filled(CLASS_DEFAULTS)
    bare = task(c) == "none"
    root = "" if bare else "mpnet."
    last = pooler(c, "pooler.dense") if bare else language_model_head(c, DESIGN, root)
    layers = (layer(c, root, i) for i in range(c.num_hidden_layers))
    return (embedding(c, DESIGN, root), distances(c, root), *layers, last)
