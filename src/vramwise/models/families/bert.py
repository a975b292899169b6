"""BERT and its relatives: encoders with learned positions, segments and a head that predicts tokens.

A config whose `architectures` names a bare model (`BertModel`, ...) is described with its pooler and without a head,
as `AutoModel` builds it; one that names a causal head, or sets `is_decoder`, with the causal loss; any other as the
masked language model. Without `is_decoder` every position attends to every other, whatever the head. BigBird is
described with full attention, which its class itself takes for decoders and for up to 704 tokens by default.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.encoder_design import Design, design_of
from vramwise.models.layers.encoder_embedding import after_embedding, embedding
from vramwise.models.layers.language_adapters import language_adapters
from vramwise.models.layers.tasks import Task, task_of


def task(c: Config) -> Task:
    """The head that the config asks for."""
    return task_of(c, "causal-lm" if c.model_type == "bert-generation" else "masked-lm")


def attention(b: BlockBuilder, x: Value, c: Config, d: Design, module: str = "attention") -> Value:
    """Multi-head attention over all positions, or causal where the config says `is_decoder`, and its projection."""
    heads, bias = c.num_attention_heads, c.flag("use_bias", True)
    if x.width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({x.width})")
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"{module}.self.{name}", x.width, bias=bias), heads))
        for name in ("query", "key", "value")
    )
    if d.positions == "rotary":
        turned = [q, k, v] if c.flag("rotary_value") else [q, k]
        turned = list(
            b.op("rotary", "", turned, [q.width] * len(turned), rotary_dim=q.width, style="pairs", table="parameter")
        )
        q, k, v = (*turned, v)[:3]
    causal = c.flag("is_decoder")
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, module=f"{module}.self", causal=causal, style="plain",
        dropout=c.number("attention_probs_dropout_prob", 0.1), cache="own" if causal else None,
        eager_only=d.written_out,
    )  # fmt: skip
    return b.linear(mixed, f"{module}.output.dense", x.width, bias=True, shard="row")


def attention_half(b: BlockBuilder, x: Value, c: Config, d: Design, module: str = "attention") -> Value:
    """Attention with its residual and norm."""
    h = b.layer_norm(x, d.pre_norms[0].replace("attention", module)) if d.pre_norms else x
    h = b.dropout(attention(b, h, c, d, module), c.number("hidden_dropout_prob", 0.1))
    x = b.add(h, x)
    return x if d.pre_norms else b.layer_norm(x, f"{module}.output.LayerNorm")


def cross_attention(b: BlockBuilder, x: Value, c: Config, d: Design) -> Value:
    """The parameters of a decoder's cross-attention, which runs only beside an encoder."""
    aside = BlockBuilder(b.name, b.layer, b.part)
    attention_half(aside, aside.value(x.width), c, d, "crossattention")
    return b.unary("hold", x, "crossattention", [p for op in aside.ops for p in op.parameters])


def layer(c: Config, d: Design, index: int, root: str) -> Block:
    """Attention, then feed-forward; norms before or after them."""
    b = BlockBuilder(f"{root}encoder.layer.{index}", layer=index, part="attention")
    x = attention_half(b, b.input("hidden", c.hidden_size), c, d)
    if c.flag("add_cross_attention"):
        x = cross_attention(b, x, c, d)
    b.part = "mlp"
    h = b.layer_norm(x, d.pre_norms[1]) if d.pre_norms else x
    h = b.linear(h, "intermediate.dense", c.intermediate_size, bias=True)
    h = b.activation(h, c.text("hidden_act", "gelu"), "intermediate.intermediate_act_fn")
    h = b.linear(h, "output.dense", x.width, bias=True, shard="row")
    x = b.add(b.dropout(h, c.number("hidden_dropout_prob", 0.1)) if d.dropout_after_mlp else h, x)
    if c.model_type == "xmod":
        x = language_adapters(b, x, c)
    return b.build(hidden=x if d.pre_norms else b.layer_norm(x, "output.LayerNorm"))


def closing(c: Config, d: Design, root: str) -> tuple[Block, ...]:
    """The norm after the layers of a pre-norm model, and the pooler of a class that keeps it beside a head."""
    b = BlockBuilder(root.rstrip("."))
    x = b.input("hidden", c.hidden_size)
    if d.final_norm:
        x = b.layer_norm(x, d.final_norm)
    if d.keeps_pooler and root:
        shapes = (("weight", (x.width, x.width)), ("bias", (x.width,)))
        b.op(
            "pool_aside", "pooler", [x], [], [b.parameter("pooler", leaf, shape, part="head") for leaf, shape in shapes]
        )
    return (b.build(hidden=x),) if b.ops else ()


def pooler(c: Config, module: str) -> Block:
    """The bare model's last block: tanh of a projection of the first token."""
    name, _, leaf = module.partition(".")
    b = BlockBuilder(name, part="head")
    first = b.unary("first_token", b.input("hidden", c.hidden_size))
    h = b.linear(first, leaf, c.hidden_size, bias=True)
    return b.build(pooled=b.activation(h, "tanh", "activation"))


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
        h = b.unary("hold", h, "", [b.parameter("", "bias", (vocabulary,), shard="vocab")])
    weight = b.parameter(
        head.decoder, "weight", (vocabulary, h.width), shard="vocab", is_linear=True,
        tied_to=f"{root}embeddings.word_embeddings.weight" if tied else None,
    )  # fmt: skip
    bias_owner = f"{b.name}.bias" if tied and not own else None
    bias = b.parameter(head.decoder, "bias", (vocabulary,), shard="vocab", tied_to=bias_owner)
    return b.build(logits=b.unary("linear", h, head.decoder, [weight, bias], vocabulary))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, then the head, or the pooler of the bare model."""
    c, d = design_of(config)
    if c.flag("add_cross_attention") and not c.flag("is_decoder"):
        raise c.error("add_cross_attention: only a decoder (is_decoder) has cross-attention")
    bare = task(c) == "none"
    root = "" if bare else f"{d.root}."
    layers = (layer(c, d, i, root) for i in range(c.num_hidden_layers))
    last = language_model_head(c, d, root) if not bare else pooler(c, d.pooler) if d.pooler else None
    first = (embedding(c, d, root), *after_embedding(c, d, root))
    return (*first, *layers, *closing(c, d, root), *([last] if last else []))
