"""ModernBERT and its decoder: rotary positions, gated feed-forward, full and windowed layers in turn."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.tasks import Task, task_of

CLASS_DEFAULTS = {
    "vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22,
    "num_attention_heads": 12, "local_attention": 128,
}  # fmt: skip
"""Defaults of `ModernBertConfig` and `ModernBertDecoderConfig`."""


def decodes(c: Config) -> bool:
    return c.model_type == "modernbert-decoder"


def task(c: Config) -> Task:
    """The decoder predicts the next token; the encoder is a masked language model or bare."""
    return "causal-lm" if decodes(c) else task_of(c, "masked-lm")


def loss(c: Config) -> str:
    """The encoder's class widens the logits."""
    return "" if decodes(c) else "fp32-lm"


def windows(c: Config) -> list[int | None]:
    """The window of each layer, None where attention is full; the class takes half of `local_attention`."""
    every = c.size("global_attn_every_n_layers", default=3)
    default = ["sliding_attention" if i % every else "full_attention" for i in range(c.num_hidden_layers)]
    window = c.size("local_attention") // 2 + (0 if decodes(c) else 1)
    return [window if kind == "sliding_attention" else None for kind in c.layer_types() or default]


def norm(b: BlockBuilder, x: Value, module: str, c: Config) -> Value:
    return b.layer_norm(x, module, bias=c.flag("norm_bias"))


def attention(b: BlockBuilder, x: Value, c: Config, window: int | None) -> Value:
    """Multi-head attention; the encoder's is one product and looks both ways."""
    heads, bias, dropout = c.num_attention_heads, c.flag("attention_bias"), c.number("attention_dropout")
    if x.width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({x.width})")
    if decodes(c):
        q, k, v = (b.heads(b.linear(x, f"attn.{name}_proj", x.width, bias=bias), heads) for name in "qkv")
    else:
        fused = b.linear(x, "attn.Wqkv", 3 * x.width, bias=bias)
        q, k, v = b.op("unbound_qkv", "attn", [fused], [x.width // heads] * 3, num_heads=heads)
    q, k, v = (b.heads_first(piece) for piece in (q, k, v))
    table = ("rows " if decodes(c) else "") + ("sliding" if window else "full")
    q, k = b.rotary(q, k, style="half_widened", table=table)
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, module="attn", causal=decodes(c), window=window,
        dropout=dropout, cache="own" if decodes(c) else None,
    )  # fmt: skip
    return b.dropout(b.linear(mixed, "attn.Wo", x.width, bias=bias, shard="row"), dropout)


def layer(c: Config, index: int, window: int | None, root: str) -> Block:
    """A pre-norm layer; the first takes the embedding's norm for its own."""
    b = BlockBuilder(f"{root}layers.{index}", layer=index, part="attention")
    x = b.input("hidden", c.hidden_size)
    x = b.add(x, attention(b, norm(b, x, "attn_norm", c) if index else x, c, window))
    b.part, bias = "mlp", c.flag("mlp_bias")
    h = b.linear(norm(b, x, "mlp_norm", c), "mlp.Wi", 2 * c.intermediate_size, bias=bias)
    h, gate = b.split(h, [c.intermediate_size] * 2)
    h = b.multiply(b.activation(h, c.text("hidden_activation", "gelu"), "mlp.act"), gate)
    h = b.linear(b.dropout(h, c.number("mlp_dropout")), "mlp.Wo", x.width, bias=bias, shard="row")
    return b.build(hidden=b.add(x, h))


def embedding(c: Config, root: str) -> Block:
    """Tokens, norm, dropout."""
    b = BlockBuilder(f"{root}embeddings", part="embedding")
    x = norm(b, b.embedding("tok_embeddings", c.vocab_size, c.hidden_size), "norm", c)
    return b.build(hidden=b.dropout(x, c.number("embedding_dropout")))


def head(c: Config, root: str) -> Block:
    """Final norm, and unless the model is bare a dense layer with norm and the output projection."""
    b = BlockBuilder("", part="head")
    x = norm(b, b.input("hidden", c.hidden_size), f"{root}final_norm", c)
    if not root:
        return b.build(hidden=x)
    module = "lm_head" if decodes(c) else "head"
    h = b.linear(x, f"{module}.dense", x.width, bias=c.flag("classifier_bias"), shard="replicated")
    h = norm(b, b.activation(h, c.text("classifier_activation", "gelu"), f"{module}.act"), f"{module}.norm", c)
    tied_to = f"{root}embeddings.tok_embeddings.weight" if c.flag("tie_word_embeddings", True) else None
    bias = c.flag("decoder_bias", True)
    return b.build(logits=b.linear(h, "decoder", c.vocab_size, bias=bias, shard="vocab", tied_to=tied_to))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = config.filled(CLASS_DEFAULTS)
    root = "" if task(c) == "none" else "model."
    layers = (layer(c, i, window, root) for i, window in enumerate(windows(c)))
    return (embedding(c, root), *layers, head(c, root))
