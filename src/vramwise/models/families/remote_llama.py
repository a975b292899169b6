"""Remote-code families of Llama's shape and names: Baichuan, InternLM, MiniCPM, MiMo, Orion and DeepSeek's first MoE.

Parameter names are those of the modeling files in baichuan-inc/Baichuan-7B and Baichuan2-13B-Chat,
internlm/internlm-7b, openbmb/MiniCPM-2B-sft-bf16 and MiniCPM-MoE-8x2B, XiaomiMiMo/MiMo-7B-Base,
OrionStarAI/Orion-14B-Base and deepseek-ai/deepseek-moe-16b-base, except that routed experts are one 3-D parameter a
product, as in transformers' Mixtral, where these files have a linear layer for each expert. What autograd keeps is
derived from transformers' Llama. Not counted: MiMo's layers for multi-token prediction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.decoder import model
from vramwise.models.layers.design import Design, LayerKind
from vramwise.models.layers.parts import gated_mlp
from vramwise.models.layers.sparse import Experts, checked, routed_experts

# Defaults of the remote configuration classes in the order of _SIZES.
_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_DEFAULTS: dict[str, tuple[int, ...]] = {
    "baichuan": (64_000, 4096, 11_008, 32, 32),
    "deepseek": (102_400, 4096, 11_008, 30, 32),
    "internlm": (103_168, 4096, 11_008, 32, 32),
    "mimo": (151_936, 4096, 22_016, 32, 32),
    "minicpm": (32_000, 4096, 11_008, 32, 32),
    "orion": (84_608, 4096, 15_360, 40, 40),
}


def packed_attention(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Baichuan: one product for q, k and v; ALiBi instead of rotary positions in the models of 13B.

    The config does not say which. As in vLLM's `baichuan.py`, `BaiChuanForCausalLM` and a width of 4096 turn.
    """
    b.part = "attention"
    heads = c.num_attention_heads
    alibi = c.hidden_size != 4096 and "BaiChuanForCausalLM" not in (c.items("architectures") or [])
    fused = b.split(b.linear(x, "self_attn.W_pack", 3 * x.width), [x.width] * 3)
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in fused)
    if alibi:
        mixed = b.attention(
            q, k, v, num_heads=heads, num_key_value_heads=heads, style="falcon", others=[x], alibi=True
        )  # fmt: skip
    else:
        q, k = b.rotary(q, k)
        mixed = b.attention(q, k, v, num_heads=heads, num_key_value_heads=heads)
    return b.linear(mixed, "self_attn.o_proj", x.width, shard="row")


def sparse_mlp(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Routed experts, and in DeepSeek's the shared ones as one dense MLP."""
    deepseek = c.model_type == "deepseek"
    e = checked(c, Experts(
        num_experts=c.size("n_routed_experts" if deepseek else "num_experts"),
        experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.size("moe_intermediate_size", default=1407) if deepseek else c.intermediate_size,
        function=c.text("hidden_act", "silu"), routing="deepseek_v2" if deepseek else "qwen",
        normalized=not deepseek or c.flag("norm_topk_prob"),
    ))  # fmt: skip
    routed = routed_experts(b, x, e, num_groups=0)
    shared = c.size("n_shared_experts", default=0, least=0) if deepseek else 0
    if not shared:
        return routed
    return b.add(routed, gated_mlp(b, x, shared * e.intermediate_size, e.function, module="mlp.shared_experts"))


def layer_kinds(c: Config) -> list[LayerKind]:
    """What stands in place of Llama's attention and MLP."""
    layers = range(c.num_hidden_layers)
    if c.model_type == "baichuan":
        return [LayerKind(attention=partial(packed_attention, c=c)) for _ in layers]
    sparse = LayerKind(mlp=partial(sparse_mlp, c=c))
    if c.model_type == "minicpm":
        return [sparse if c.size("num_experts", default=0, least=0) else LayerKind() for _ in layers]
    if c.model_type != "deepseek" or not c.has("n_routed_experts"):
        return [LayerKind() for _ in layers]
    first, period = c.size("first_k_dense_replace", default=0, least=0), c.size("moe_layer_freq", default=1)
    return [sparse if i >= first and i % period == 0 else LayerKind() for i in layers]


def biased(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(qkv_bias=bias, output_bias=bias)


_DESIGNS: dict[str, Callable[[Config], Design]] = {
    "baichuan": lambda c: Design(),
    "deepseek": biased,
    "internlm": lambda c: Design(qkv_bias=c.flag("bias", True), output_bias=c.flag("bias", True)),
    "mimo": lambda c: Design(qkv_bias=True),
    "minicpm": lambda c: Design(scaled=True, scaled_logits=True, tied=True),
    "orion": lambda c: replace(biased(c), norm="layer", norm_style="torch", norm_bias=True),
}


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(dict(zip(_SIZES, _DEFAULTS[c.model_type], strict=True)))
    return model(c, _DESIGNS[c.model_type](c), layer_kinds(c))
