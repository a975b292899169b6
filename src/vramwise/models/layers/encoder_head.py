"""What follows the layers of BERT and its relatives: a last norm, the pooler, the language-modelling head."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.encoder_design import Design
from vramwise.models.operations.encoders import PoolAside
from vramwise.models.operations.simple import FirstToken, Hold, Linear


def closing(c: Config, d: Design, root: str) -> tuple[Block, ...]:
    """The norm after the layers of a pre-norm model, and the pooler of a class that keeps it beside a head."""
    b = BlockBuilder(root.rstrip("."))
    x = b.input("hidden", c.hidden_size)
    if d.final_norm:
        x = b.layer_norm(x, d.final_norm)
    if d.keeps_pooler and root:
        shapes = (("weight", (x.width, x.width)), ("bias", (x.width,)))
        b.op(
            PoolAside(), "pooler", [x], [], [b.parameter("pooler", leaf, shape, part="head") for leaf, shape in shapes]
        )
    return (b.build(hidden=x),) if b.ops else ()


def pooler(c: Config, module: str) -> Block:
    """The bare model's last block: tanh of a projection of the first token."""
    name, _, leaf = module.partition(".")
    b = BlockBuilder(name, part="head")
    first = b.unary(FirstToken(), b.input("hidden", c.hidden_size))
    h = b.linear(first, leaf, c.hidden_size, bias=True)
    return b.build(pooled=b.activation(h, "tanh", "activation"))


_POOLED_FIRST = frozenset({"bert"})
_DENSE_FIRST = frozenset({"camembert", "esm", "roberta", "xlm-roberta"})


def classifies(c: Config) -> bool:
    """Whether the config names a class that scores sequences, of a type whose classifier is described."""
    named = str((c.items("architectures") or [""])[0])
    return named.endswith("ForSequenceClassification") and c.model_type in _POOLED_FIRST | _DENSE_FIRST


def classifier(c: Config, root: str) -> Block:
    """BERT's pooler and a product, or RoBERTa's two products: scores of the first token, one for each label."""
    pooled = c.model_type in _POOLED_FIRST
    labels, chance = c.num_labels, c.get("classifier_dropout")
    dropout = c.number("classifier_dropout" if chance is not None else "hidden_dropout_prob", 0.1)
    b = BlockBuilder("", part="head")
    x = b.unary(FirstToken(), b.input("hidden", c.hidden_size))
    x = x if pooled else b.dropout(x, dropout)
    x = b.linear(x, f"{root}pooler.dense" if pooled else "classifier.dense", x.width, bias=True)
    x = b.dropout(b.activation(x, "tanh"), dropout)
    return b.build(pooled=b.linear(x, "classifier" if pooled else "classifier.out_proj", labels, bias=True))


def language_model_head(c: Config, d: Design, root: str) -> Block:
    """Transform and the projection whose weight is the token embedding's; its bias has two names in most classes."""
    head = d.head
    b = BlockBuilder(head.name, part="head")
    vocabulary, tied = c.vocab_size, head.ties and c.flag("tie_word_embeddings", True)
    h = b.input("hidden", c.hidden_size)
    if head.dense:
        h = b.linear(h, head.dense, c.size(head.width, default=c.hidden_size), bias=True, shard="replicated")
        h = b.activation(h, c.text("hidden_act", "gelu") if head.follows_hidden_act else "gelu", "transform_act_fn")
        h = b.layer_norm(h, head.norm)
    own = head.own_bias
    if not own:
        h = b.unary(Hold(), h, "", [b.parameter("", "bias", (vocabulary,), shard="vocab")])
    weight = b.parameter(
        head.decoder, "weight", (vocabulary, h.width), shard="vocab", is_linear=True,
        tied_to=f"{root}embeddings.word_embeddings.weight" if tied else None,
    )  # fmt: skip
    bias_owner = f"{b.name}.bias" if tied and not own else None
    bias = b.parameter(head.decoder, "bias", (vocabulary,), shard="vocab", tied_to=bias_owner)
    return b.build(logits=b.unary(Linear(), h, head.decoder, [weight, bias], vocabulary))
