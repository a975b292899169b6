"""Kimi Linear and Bailing hybrid: layers of Kimi delta attention and of latent attention, with experts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import latent_attention, latent_design, layer_residuals
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.kimi_delta import delta_attention
from vramwise.models.layers.layer_kinds import every, layer_kinds
from vramwise.models.layers.mixture import Mixture, experts, grouped, model, narrowed, sparse_layers

_SHARED: dict[str, object] = {
    "num_attention_heads": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "hidden_act": "silu",
    "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "norm_topk_prob": True,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, object]] = {
    "kimi_linear": {
        **_SHARED, "vocab_size": 163_840, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
        "moe_intermediate_size": 1024, "n_group": 1, "topk_group": 1, "num_local_experts": 256,
        "linear_num_heads": 32, "first_k_dense_replace": 1,
    },
    "bailing_hybrid": {
        **_SHARED, "vocab_size": 157_184, "hidden_size": 2560, "intermediate_size": 6144, "num_hidden_layers": 42,
        "moe_intermediate_size": 768, "n_group": 8, "topk_group": 4, "num_local_experts": 512,
        "first_k_dense_replace": 2, "layer_group_size": 6,
    },
}  # fmt: skip
"""Defaults of the configuration classes (transformers 5.23)."""
_OTHER_NAMES = {
    "moe_renormalize": "norm_topk_prob", "num_expert_group": "n_group", "num_experts": "num_local_experts",
    "num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}  # fmt: skip
_NESTED_NAMES = {
    "head_dim": "linear_head_dim", "num_heads": "linear_num_heads", "short_conv_kernel_size": "linear_conv_kernel_dim",
    "use_full_rank_gate": "use_full_rank_gate"
}  # fmt: skip


def completed(c: Config) -> tuple[Config, list[str]]:
    """The config under the class's names, with its defaults, and the kind of each layer."""
    values = {_OTHER_NAMES.get(name, name): value for name, value in c.values.items()}
    nested = c.table("linear_attn_config") or Config({}, c.model_id)
    values |= {name: nested.get(old) for old, name in _NESTED_NAMES.items() if nested.has(old)}
    if c.model_type == "bailing_hybrid":
        # The class writes the rotary width over `head_dim`; the linear layers' own width is kept beside it.
        values.setdefault("linear_head_dim", values.get("head_dim"))
        values.setdefault("linear_num_heads", values.get("num_attention_heads", 32))
    c = Config(values, c.model_id).filled(_DEFAULTS[c.model_type])
    layers = range(c.num_hidden_layers)
    if c.model_type == "bailing_hybrid":
        default = every(c, c.size("layer_group_size"))
    elif nested.has("full_attn_layers"):
        attending = nested.items("full_attn_layers") or []  # counted from one
        default = ["full_attention" if i + 1 in attending else "linear_attention" for i in layers]
    else:
        default = ["full_attention" if i and i % 4 == 0 else "linear_attention" for i in layers]
    return c, layer_kinds(c, default, allowed=("linear_attention", "full_attention"))


def latent(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Latent attention; Kimi's has no positions, Bailing's a gate for every head."""
    s = latent_design.sizes(c)
    if c.model_type == "kimi_linear":
        return latent_attention.attention(b, x, c, replace(s, style="unturned"))
    return latent_attention.attention(b, x, c, replace(s, rank=None, output_gate="by_head_fp32"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; the classes never tie the head's weight."""
    c, names = completed(c)
    mixers = {"linear_attention": delta_attention, "full_attention": latent}
    kinds = [LayerKind(attention=partial(layer_residuals.before_mixer, c=c, mixer=mixers[name])) for name in names]
    e = experts(c, None, keys=("num_local_experts",), routing="deepseek_v3", normalized=c.flag("norm_topk_prob"))
    m = narrowed(c, Mixture(e, routing=grouped(c, e), shared=e.intermediate_size * c.size("n_shared_experts")))
    sparse = sparse_layers(c, c.size("first_k_dense_replace", least=0))
    c = Config({**c.values, "tie_word_embeddings": False}, c.model_id)
    return layer_residuals.before_head(c, model(c, Design(), m, sparse, kinds))
