"""Encoders of BERT's shape with rotary positions: Nomic's, GTE's and Jina's third, all for embeddings of texts.

Their post-norm layers look at every position; GTE's and Nomic's MLPs are gated. Configs that come with code on the hub
name sizes as GPT-2 does (Nomic) or call the type "new" (GTE's English models), and are described by the same layers.
Not counted: the low-rank adapters for tasks that Jina's own code keeps beside each matrix, which transformers loads as
adapters of their own.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.encoder_design import ROBERTA_HEAD, Design, Head
from vramwise.models.layers.encoder_embedding import embedding
from vramwise.models.layers.encoder_head import language_model_head, pooler
from vramwise.models.layers.tasks import Task, task_of
from vramwise.models.operations.attention import PLAIN, Attention

_SIZES: dict[str, object] = {
    "vocab_size": 250_002, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 8192, "type_vocab_size": 1, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, object]] = {
    "nomic_bert": {
        **_SIZES, "vocab_size": 30_528, "max_position_embeddings": 2048, "type_vocab_size": 2, "hidden_act": "silu",
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    },
    "gte": {**_SIZES, "vocab_size": 250_048, "attention_probs_dropout_prob": 0.0},
    "jina_embeddings_v3": {
        **_SIZES, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
        "max_position_embeddings": 8194,
    },
}  # fmt: skip
"""Defaults of the configuration classes (transformers 5.23)."""
_DESIGNS = {
    "nomic_bert": Design("nomic_bert", "made", "rotary", head=Head(norm="transform.layer_norm"), pooler=None),
    "gte": Design("gte", "made", "rotary", head=replace(ROBERTA_HEAD, own_bias=True), pooler=None),
    "jina_embeddings_v3": Design("roberta", "made", "rotary", head=ROBERTA_HEAD),
}
_OF_HUB_CODE = {
    "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers", "n_positions": "max_position_embeddings",
}  # fmt: skip
"""Names of sizes in the configs of nomic-ai's own code -> the class's."""


def completed(config: Config) -> tuple[Config, Design]:
    """The config under the class's names, with its defaults, and the switches of its type."""
    values = {_OF_HUB_CODE.get(name, name): value for name, value in config.values.items()}
    c = Config(values, config.model_id).filled(_DEFAULTS[config.model_type])
    design = _DESIGNS[c.model_type]
    return c, design if c.size("type_vocab_size", least=0) else replace(design, segments="none")


def task(c: Config) -> Task:
    """The head that the config asks for."""
    return task_of(c, "masked-lm")


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention over all positions; Nomic's has no biases."""
    heads, bias, d = c.num_attention_heads, c.model_type != "nomic_bert", c.head_dim
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"self_attn.{name}_proj", heads * d, bias=bias), heads)) for name in "qkv"
    )
    q, k = b.rotary(q, k)
    mixed = b.attention(
        Attention(
            num_heads=heads, num_key_value_heads=heads, causal=False, style=PLAIN,
            dropout=c.number("attention_probs_dropout_prob", 0.1),
        ),
        q, k, v, cache=None,
    )  # fmt: skip
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Two products with biases, or a gated MLP, GTE's with a bias at its end and dropout before it."""
    b.part, width, function = "mlp", c.intermediate_size, c.text("hidden_act")
    if c.model_type == "jina_embeddings_v3":
        h = b.activation(b.linear(x, "mlp.fc1", width, bias=True), function, "mlp.activation_fn")
        return b.linear(h, "mlp.fc2", x.width, bias=True, shard="row")
    gate = b.activation(b.linear(x, "mlp.gate_proj", width), function, "mlp.act_fn")
    h, gte = b.multiply(gate, b.linear(x, "mlp.up_proj", width)), c.model_type == "gte"
    h = b.dropout(h, c.number("hidden_dropout_prob")) if gte else h
    return b.linear(h, "mlp.down_proj", x.width, bias=gte, shard="row")


def layer(c: Config, root: str, index: int) -> Block:
    """A post-norm layer."""
    b = BlockBuilder(f"{root}layers.{index}", layer=index, part="attention")
    dropout = c.number("hidden_dropout_prob")
    x = b.input("hidden", c.hidden_size)
    x = b.layer_norm(b.add(x, b.dropout(attention(b, x, c), dropout)), "post_attention_layernorm")
    return b.build(hidden=b.layer_norm(b.add(x, b.dropout(mlp(b, x, c), dropout)), "post_mlp_layernorm"))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, then the head, or the pooler of the bare model."""
    c, d = completed(config)
    bare = task(c) == "none"
    root = "" if bare else f"{d.root}."
    last = language_model_head(c, d, root) if not bare else pooler(c, d.pooler) if d.pooler else None
    layers = (layer(c, root, i) for i in range(c.num_hidden_layers))
    return (embedding(c, d, root), *layers, *([last] if last else []))
