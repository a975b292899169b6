"""ChatGLM: the first generation (two-dimensional positions), and ChatGLM 2, 3 and GLM-4-9B.

Parameter names are those of `modeling_chatglm.py` in THUDM/chatglm-6b, THUDM/chatglm3-6b and THUDM/glm-4-9b-chat. What
autograd keeps is derived: attention and norms run as transformers' GLM runs them.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.chatglm_layers import first_layer, layer, norm

# Defaults of the remote configuration classes.
_FIRST = {"vocab_size": 150_528, "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32}
_LATER = {
    "padded_vocab_size": 65_024, "hidden_size": 4096, "ffn_hidden_size": 13_696, "num_layers": 28,
    "num_attention_heads": 32, "multi_query_group_num": 1,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head: tied in the first generation, of its own in the later ones."""
    if c.size("pre_seq_len", default=0, least=0):
        raise c.error("pre_seq_len: a P-tuning prefix is not described; leave it out for the model itself")
    first = any(c.has(key) for key in ("inner_hidden_size", "position_encoding_2d", "max_sequence_length"))
    c = c.filled(_FIRST if first else _LATER)
    vocabulary = c.vocab_size if first else c.size("padded_vocab_size")
    words = "transformer.word_embeddings" if first else "transformer.embedding.word_embeddings"
    b = BlockBuilder("")
    embedded = b.build(hidden=b.embedding(words, vocabulary, c.hidden_size))
    layers = tuple((first_layer if first else layer)(c, i) for i in range(c.num_hidden_layers))
    b = BlockBuilder("")
    x = b.input("hidden", c.hidden_size)
    if first:
        x = b.layer_norm(x, "transformer.final_layernorm")
    elif c.flag("post_layer_norm", True):
        x = norm(b, x, "transformer.encoder.final_layernorm", c)
    tied_to = f"{words}.weight" if first and c.flag("tie_word_embeddings", True) else None
    head = "lm_head" if first else "transformer.output_layer"
    return (embedded, *layers, b.build(
        logits=b.linear(x, head, vocabulary, shard="vocab", part="head", tied_to=tied_to)
    ))  # fmt: skip
