"""Zamba and Zamba 2: Mamba layers, and now and then a transformer before one that several layers share."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import decoder, mamba2_mixer
from vramwise.models.layers.class_defaults import class_defaults
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.mamba2_mixer import Mamba2
from vramwise.models.layers.mamba_mixer import Mamba, low_rank, mixer_by_heads
from vramwise.models.layers.shared_transformer import transformer, with_shared_weights


def kinds(c: Config) -> list[str]:
    """Which layers have the shared transformer before them."""
    hybrids = {6, 12, 18, 24, 30, 36, 42, 47, 51}
    if c.model_type == "zamba":
        period, offset = c.size("attn_layer_period"), c.size("attn_layer_offset", least=0)
        hybrids = {2} | {i + 3 for i in range(c.num_hidden_layers) if i % period == offset}
    default = ["hybrid" if i in hybrids else "linear_attention" for i in range(c.num_hidden_layers)]
    key = "layers_block_type" if c.has("layers_block_type") else "layer_types"
    return layer_kinds(c, default, key=key, allowed=("linear_attention", "hybrid"))


def mixer(b: BlockBuilder, x: Value, c: Config, module: str) -> Value:
    """Mamba 2, or Mamba 1 by heads."""
    inner, heads, state = int(c.number("mamba_expand") * x.width), c.size("n_mamba_heads"), c.size("mamba_d_state")
    kernel = c.size("mamba_d_conv")
    if c.model_type == "zamba2":
        bias, groups = c.flag("add_bias_linear"), c.size("mamba_ngroups")
        s = Mamba2(heads, inner // heads, groups, state, kernel, c.size("chunk_size"), bias, bias)
        return mamba2_mixer.mixer(b, x, mamba2_mixer.checked(c, s, inner), module)
    bias, conv_bias, function = c.flag("mamba_proj_bias"), c.flag("mamba_conv_bias"), c.text("hidden_mamba_act", "silu")
    one = Mamba(inner, state, low_rank(c, "mamba_dt_rank"), kernel, bias, conv_bias, function)
    return mixer_by_heads(b, x, one, heads, module)


def layer(c: Config, index: int, kind: str, slots: range, number: int) -> Block:
    """norm, mixer, residual; what a shared transformer makes is added to what the norm reads only."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    within, read = "", x
    if kind == "hybrid":
        within = "mamba_decoder."
        read = b.add(x, transformer(b, x, c, slots, number))
    h = mixer(b, b.rms_norm(read, f"{within}input_layernorm"), c, f"{within}mamba")
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(class_defaults(c.model_type))
    found, memory = kinds(c), c.size("num_mem_blocks", default=1)
    hybrids = [i for i, kind in enumerate(found) if kind == "hybrid"]
    layers: list[Block] = []
    for index, kind in enumerate(found):
        number = sum(i < index for i in hybrids)
        block = layer(c, index, kind, range(number % memory, len(hybrids), memory), number)
        # The library ties the transformers together with the head, by the same switch.
        if kind == "hybrid" and number >= memory and c.flag("tie_word_embeddings"):
            block = with_shared_weights(block, f"model.layers.{hybrids[number % memory]}")
        layers.append(block)
    first, last = decoder.model(c, Design(final_norm="model.final_layernorm"), [])
    return (replace(first, outputs={**first.outputs, "embedded": first.outputs["hidden"]}), *layers, last)
