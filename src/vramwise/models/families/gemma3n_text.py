"""Gemma 3n's language model: four streams that a layer predicts and corrects, low-rank detours, sparse activations."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.altup import averaged, corrected_streams, low_rank, predicted, stacked
from vramwise.models.layers.decoder import logits
from vramwise.models.layers.gemma_attention import LayerSizes, attention, norm, sources
from vramwise.models.layers.per_layer_embeddings import layer_input_gate, layer_inputs
from vramwise.models.layers.sparse_activations import mlp, sparsities
from vramwise.models.operations.streams import AddToStreams, OneStream

# Defaults of Gemma3nTextConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 262_400, "hidden_size": 2048, "intermediate_size": 16_384, "num_hidden_layers": 35,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512,
    "vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256, "altup_num_inputs": 4,
    "altup_coef_clip": 120.0, "laurel_rank": 64, "final_logit_softcapping": 30.0,
}  # fmt: skip


def layer_sizes(c: Config) -> list[LayerSizes]:
    """Windows, the sharing of keys and the MLP's width of each layer; every fifth is full by default."""
    layers, window = range(c.num_hidden_layers), c.size("sliding_window")
    types = c.layer_types() or ["full_attention" if (i + 1) % 5 == 0 else "sliding_attention" for i in layers]
    widths = c.get("intermediate_size")
    inner = c.by_layer("intermediate_size") if isinstance(widths, (list, tuple)) else [widths for _ in layers]
    own = sources(c, types, shared=15)
    sizes = []
    for kind, source, width in zip(types, own, inner or [], strict=True):
        full, size = kind == "full_attention", Config({"intermediate_size": width}, c.model_id).intermediate_size
        sizes.append(LayerSizes(full, c.num_key_value_heads, c.head_dim, None if full else window, source, size))
    return sizes


def layer(c: Config, index: int, s: LayerSizes, sparse: bool) -> Block:
    """The active stream passes attention and MLP; all streams are predicted before and corrected after."""
    b = BlockBuilder(f"model.layers.{index}", layer=index, part="mixer")
    function = c.text("hidden_activation", "gelu_pytorch_tanh")
    predictions, scale = predicted(b, b.input("hidden", c.hidden_size), c)
    active = b.unary(OneStream(), predictions)
    read = norm(b, active, "input_layernorm")
    detour = low_rank(b, read, c.size("laurel_rank"))
    mixed, kept = attention(b, read, c, s)
    x = b.scale(b.add(b.add(active, norm(b, mixed, "post_attention_layernorm")), detour))
    h = mlp(b, norm(b, x, "pre_feedforward_layernorm"), s.inner, function, sparse)
    x = b.add(x, norm(b, h, "post_feedforward_layernorm"))
    corrected, first = corrected_streams(b, predictions, x, scale, c)
    first = layer_input_gate(b, first, c, function)
    return b.build(hidden=b.op(AddToStreams(), "", [corrected, first], [x.width])[0], **kept)


def with_defaults(c: Config) -> Config:
    return Config({**_DEFAULTS, **c.values}, c.model_id)


def embeddings(c: Config, merge: Callable[[BlockBuilder, Value], Value] = lambda b, x: x) -> tuple[Block, Block]:
    """Tokens' embeddings, among which `merge` puts other vocabularies'; those for each layer and the streams."""
    b = BlockBuilder("")
    x = b.scale_by_buffer(b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size), "model.embed_tokens")
    first = b.build(hidden=merge(b, x))
    b = BlockBuilder("")
    x = b.input("hidden", c.hidden_size)
    inputs = layer_inputs(b, x, c)
    return first, b.build(hidden=stacked(b, x, c), layer_inputs=inputs)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embeddings and streams, layers, the streams' mean and head."""
    c = with_defaults(c)
    pairs = zip(layer_sizes(c), sparsities(c), strict=True)
    layers = [layer(c, index, s, sparse) for index, (s, sparse) in enumerate(pairs)]
    b = BlockBuilder("")
    x = averaged(b, b.input("hidden", c.hidden_size), c)
    tied, capped = c.flag("tie_word_embeddings", True), c.has("final_logit_softcapping")
    last = b.build(logits=logits(b, x, c, "model.norm", tied=tied, norm_style="gemma4", capped=capped))
    return (*embeddings(c), *layers, last)
