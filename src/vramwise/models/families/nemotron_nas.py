"""Nemotron-NAS (DeciLM): Llama whose layers were searched one by one, in `block_configs`.

Attention may be left out, be one matrix, or have groups of its own size; the MLP may be left out, be one matrix, or
have a width of its own. Parameter names and the width's rule are those of `modeling_decilm.py` in
nvidia/Llama-3_3-Nemotron-Super-49B-v1 (also vllm/model_executor/models/nemotron_nas.py). What autograd keeps is derived
from transformers' Llama.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import LARGEST_SIZE, Config
from vramwise.models.layers.decoder import lm_head, token_embedding
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.mlp import gated_mlp

_MULTIPLE = 256  # widths are rounded up to it
# Defaults of LlamaConfig, which the remote configuration class extends.
_DEFAULTS = {"vocab_size": 32_000, "hidden_size": 4096, "num_attention_heads": 32}


def width(half: Config, hidden_size: int) -> int:
    """int(2 · ffn_mult · hidden_size / 3), rounded up to a multiple of 256."""
    factor = half.number("ffn_mult")
    if not 0 < factor <= LARGEST_SIZE:
        raise half.error(f"ffn_mult: expected a positive number, got {factor}")
    return -(-max(int(2 * factor * hidden_size / 3), 1) // _MULTIPLE) * _MULTIPLE


def searched_attention(b: BlockBuilder, x: Value, c: Config, half: Config) -> Value:
    """Attention of the layer's own groups, or one matrix in place of it."""
    if half.flag("replace_with_linear"):
        return b.linear(x, "self_attn.linear_attn", x.width, part="attention")
    heads, group = c.num_attention_heads, half.size("n_heads_in_group")
    if heads % group:
        raise c.error(f"n_heads_in_group ({group}) does not divide num_attention_heads ({heads})")
    bias = c.flag("attention_bias")
    own = Config({**c.values, "num_key_value_heads": heads // group}, c.model_id)
    return grouped_attention(b, x, own, bias=bias, output_bias=bias)


def searched_mlp(b: BlockBuilder, x: Value, c: Config, half: Config) -> Value:
    """A gated MLP of the layer's own width, or one matrix in place of it."""
    if half.flag("replace_with_linear"):
        return b.linear(x, "mlp.linear_mlp", x.width, part="mlp")
    return gated_mlp(b, x, width(half, x.width), c.text("hidden_act", "silu"), bias=c.flag("mlp_bias"))


def layer(c: Config, index: int, choice: Config) -> Block:
    """A pre-norm layer without the halves that the search left out, norms included."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    first, second = (choice.table(name) or Config({}, c.model_id) for name in ("attention", "ffn"))
    x = b.input("hidden", c.hidden_size)
    if not first.flag("no_op"):
        x = b.add(x, searched_attention(b, b.rms_norm(x, "input_layernorm"), c, first))
    if not second.flag("no_op"):
        x = b.add(x, searched_mlp(b, b.rms_norm(x, "post_attention_layernorm"), c, second))
    return b.build(hidden=x)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, one layer an entry of `block_configs`, head."""
    c = c.filled(_DEFAULTS)
    choices = c.items("block_configs")
    if choices is None or len(choices) != c.size("num_hidden_layers", default=len(choices or ())):
        raise c.error("block_configs must hold one entry a layer")
    if not all(isinstance(choice, dict) for choice in choices):
        raise c.error("block_configs: expected tables with attention and ffn")
    layers = tuple(layer(c, i, Config(choice, c.model_id)) for i, choice in enumerate(choices))
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings")))
