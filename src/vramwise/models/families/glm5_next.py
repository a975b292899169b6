"""GLM 5.3 Flash: Kimi's delta attention and latent attention by turns, streams that mix, clamped experts, images."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers.decoder import logits, token_embedding
from vramwise.models.layers.hyper_connections import averaged, connected, copies, merged
from vramwise.models.layers.indexer import Indexer, indexers
from vramwise.models.layers.kimi_delta import delta_attention
from vramwise.models.layers.latent_attention import attention
from vramwise.models.layers.latent_design import Latent
from vramwise.models.layers.layer_kinds import every, layer_kinds
from vramwise.models.layers.mixture import Mixture, experts, feed_forward, grouped, sparse_layers
from vramwise.models.layers.routed_experts import balancing_loss
from vramwise.models.operations.simple import Clamp
from vramwise.models.towers import qwen_vision
from vramwise.models.towers.projector_pieces import Ends
from vramwise.models.towers.projectors import glm4v
from vramwise.models.towers.vision_tower import tower_blocks

# Defaults of Glm5NextTextConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 154_880, "hidden_size": 4096, "intermediate_size": 12_288, "moe_intermediate_size": 2048,
    "num_hidden_layers": 45, "num_attention_heads": 64, "n_shared_experts": 1, "n_routed_experts": 288,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 256, "qk_nope_head_dim": 256, "num_experts_per_tok": 8,
    "hidden_act": "silu", "index_head_dim": 128, "index_n_heads": 32, "index_kpool": 16, "linear_head_dim": 128,
    "linear_num_heads": 64, "linear_conv_kernel_dim": 4, "hc_mult": 4, "hc_sinkhorn_iters": 20,
}  # fmt: skip
_NESTED_NAMES = {
    "head_dim": "linear_head_dim", "num_heads": "linear_num_heads", "short_conv_kernel_size": "linear_conv_kernel_dim",
    "gate_lower_bound": "linear_lower_bound",
}  # fmt: skip
_BOUND = -5.0
_LATENT = ("full_attention", "indexed_attention", "deepseek_sparse_attention")


def completed(c: Config) -> Config:
    """The text config with its class's defaults; a table of the linear layers' settings replaces their own keys."""
    values = dict(c.values)
    values.setdefault("linear_lower_bound", _BOUND)
    nested = c.table("linear_attn_config")
    if nested is not None:
        values |= {name: nested.values[old] for old, name in _NESTED_NAMES.items() if old in nested.values}
        if values["linear_lower_bound"] is None and nested.flag("safe_gate", True):
            values["linear_lower_bound"] = _BOUND
    return Config({**values, "model_type": "glm5_next_text"}, c.model_id).filled(_DEFAULTS)


def latent(c: Config) -> Latent:
    """Sizes of the latent attention, which has no positions."""
    return Latent(
        own=c.size("qk_nope_head_dim"), turned=0, compressed=c.size("kv_lora_rank"), value_dim=c.size("v_head_dim"),
        rank=c.size("q_lora_rank"), bias=c.flag("attention_bias"), style="unturned", masked=True,
    )  # fmt: skip


def clamped_mlp(b: BlockBuilder, x: Value, width: int, function: str, module: str = "mlp") -> Value:
    """Gates and values are clamped once both are made."""
    gate, up = (b.linear(x, f"{module}.{name}_proj", width, part="mlp") for name in ("gate", "up"))
    gate, up = b.unary(Clamp(), gate), b.unary(Clamp(), up)
    h = b.multiply(b.activation(gate, function, f"{module}.act_fn"), up)
    return b.linear(h, f"{module}.down_proj", x.width, shard="row", part="mlp")


def shared_expert(b: BlockBuilder, x: Value, m: Mixture) -> Value:
    return clamped_mlp(b, x, m.shared, m.experts.function, m.shared_module)


def mixture(c: Config) -> Mixture:
    """Experts of the best groups by corrected sigmoid scores, beside a shared one; all of them are clamped."""
    e = experts(
        c, None, keys=("n_routed_experts", "num_local_experts"), routing="deepseek_v3", gating="limited",
        normalized=c.flag("norm_topk_prob", True),
    )  # fmt: skip
    shared = e.intermediate_size * c.size("n_shared_experts")
    return Mixture(e, routing=grouped(c, e), shared=shared, shared_mlp=shared_expert)


def layer(c: Config, index: int, kind: str, own: Indexer | None, m: Mixture | None) -> Block:
    """Attention and MLP, each between a hyper-connection and its mix."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    *ways, h = connected(b, x, c, "attn_hc")
    h = b.rms_norm(h, "input_layernorm")
    linear = kind == "linear_attention"
    h = delta_attention(b, h, c) if linear else attention(b, h, c, replace(latent(c), indexer=own))
    x = merged(b, ways, h, x)
    *ways, h = connected(b, x, c, "ffn_hc")
    h = b.rms_norm(h, "post_attention_layernorm")
    h = clamped_mlp(b, h, c.intermediate_size, c.text("hidden_act")) if m is None else feed_forward(b, h, m=m)
    return b.build(hidden=merged(b, ways, h, x))


def text_blocks(c: Config, *, tied: bool) -> tuple[Block, ...]:
    """The language model, named as one of its own."""
    kinds = layer_kinds(c, every(c, 4), allowed=("linear_attention", *_LATENT))
    sparse = sparse_layers(c, 3)
    m = mixture(c) if any(sparse) else None
    each = enumerate(zip(kinds, indexers(c), sparse, strict=True))
    layers = [layer(c, i, kind, own, m if wide else None) for i, (kind, own, wide) in each]
    loss = () if m is None else balancing_loss(c, m.experts, sum(sparse))
    b = BlockBuilder("")
    head = b.build(logits=logits(b, averaged(b, c), c, "model.norm", tied=tied))
    return (token_embedding(c), copies(c), *layers, *loss, head)


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, language model; a config without a text part is one."""
    v = (c.table("vision_config") or Config({}, c.model_id)).filled(qwen_vision.DEFAULTS["glm5_next_vision"])
    text = completed(c.table("text_config") or c)
    tower = qwen_vision.glm_ocr(v)
    b = BlockBuilder("model.visual.merger", part="projector", modality="image")
    bridge = b.build(image=glm4v(b, b.input("image", tower.width), Ends(c, v, text.hidden_size)))
    language = text_blocks(text, tied=c.flag("tie_word_embeddings"))
    language = tuple(renamed(block, inside("model.language_model")) for block in language)
    return (*tower_blocks(v, tower, "model.visual"), bridge, *language)
