"""DeepSeek V2 and V3 (and Kimi K2): multi-head latent attention, dense layers first, shared and routed experts."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families.parts import gated_mlp, lm_head, token_embedding
from vramwise.models.families.sparse import Experts, checked, routed_experts

# Defaults of the configuration classes of transformers 5.23 where they differ. The layers for multi-token
# prediction (num_nextn_predict_layers) that checkpoints hold are not part of the model class.
_V2 = {
    "n_shared_experts": 2, "moe_intermediate_size": 1407, "first_k_dense_replace": 0,
}  # fmt: skip
_V3 = {
    "n_shared_experts": 1, "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
    "n_group": 8, "topk_group": 4,
}  # fmt: skip


def is_v2(c: Config) -> bool:
    return c.model_type == "deepseek_v2"


def size(c: Config, name: str, least: int = 1) -> int:
    """A size that the configuration class has a default for."""
    return c.size(name, default=(_V2 if is_v2(c) else _V3).get(name), least=least)


def mlp_bias(c: Config) -> bool:
    return is_v2(c) and c.flag("mlp_bias")


def query_lora_rank(c: Config) -> int | None:
    """Rank of the query's compression: 1536 where the key is absent, none where it is null."""
    return c.size("q_lora_rank") if c.has("q_lora_rank") else (None if "q_lora_rank" in c.values else 1536)


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head latent attention: keys and values of every head are made from one compressed vector a token."""
    b.part = "attention"
    heads, bias = c.num_attention_heads, c.flag("attention_bias")
    nope, rope = c.size("qk_nope_head_dim", default=128), c.size("qk_rope_head_dim", default=64)
    latent, value_dim = c.size("kv_lora_rank", default=512), c.size("v_head_dim", default=128)
    if rope % 2 or (is_v2(c) and latent % 2):
        raise c.error(
            f"rotary positions turn pairs: qk_rope_head_dim ({rope}) and kv_lora_rank ({latent}) must be even"
        )
    rank = query_lora_rank(c)
    if rank is None:
        q = b.linear(x, "self_attn.q_proj", heads * (nope + rope))
    else:
        q = b.linear(x, "self_attn.q_a_proj", rank, bias=bias, shard="replicated")
        q = b.linear(b.rms_norm(q, "self_attn.q_a_layernorm"), "self_attn.q_b_proj", heads * (nope + rope))
    q_own, q_turned = b.split(b.heads_first(b.heads(q, heads)), [nope, rope])
    joint = b.linear(x, "self_attn.kv_a_proj_with_mqa", latent + rope, bias=bias, shard="replicated")
    compressed, shared = b.split(joint, [latent, rope])
    compressed = b.rms_norm(compressed, "self_attn.kv_a_layernorm")
    shared = b.heads_first(b.heads(shared, 1))
    if is_v2(c):
        q_turned, shared = b.op("rotary_complex", "", [q_turned, shared], [rope, rope])
    else:
        style = "interleaved_cat" if c.flag("rope_interleave", True) else "half"
        q_turned, shared = b.rotary(q_turned, shared, style=style)
    compressed, shared = b.op("cached", "", [compressed, shared], [latent, rope])
    q = b.op("concatenate", "", [q_own, q_turned], [nope + rope])[0]
    joint = b.linear(compressed, "self_attn.kv_b_proj", heads * (nope + value_dim))
    k_own, v = b.split(b.heads_first(b.heads(joint, heads)), [nope, value_dim])
    k = b.op("latent_key", "self_attn", [k_own, shared], [nope + rope])[0]
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, dropout=c.number("attention_dropout"), latent=True,
        cache=LayerCache("latent", latent_dim=latent, rope_dim=rope),
    )  # fmt: skip
    return b.linear(mixed, "self_attn.o_proj", c.hidden_size, bias=bias, shard="row")


def experts(c: Config) -> Experts:
    """The routed experts of a sparse layer."""
    v2, num_experts = (
        is_v2(c),
        c.size("n_routed_experts", "num_local_experts", "num_experts", default=64 if is_v2(c) else 256),
    )
    # The class of V2 has no default for the number of experts a token; without one all of them count as active.
    chosen = c.size("num_experts_per_tok", default=num_experts if v2 else 8)
    return checked(c, Experts(
        num_experts=num_experts, experts_per_token=chosen,
        intermediate_size=size(c, "moe_intermediate_size"), function=c.text("hidden_act", "silu"),
        routing="deepseek_v2" if v2 else "deepseek_v3", normalized=not v2 and c.flag("norm_topk_prob", True),
    ))  # fmt: skip


def sparse_mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Routed experts, limited to the best groups, plus the shared ones as one dense MLP."""
    e = experts(c)
    groups = chosen = 0
    if not is_v2(c) or c.text("topk_method", "greedy") == "group_limited_greedy":
        groups, chosen = size(c, "n_group"), size(c, "topk_group")
        if e.num_experts % groups or chosen > groups:
            raise c.error(f"n_group ({groups}) must divide n_routed_experts ({e.num_experts}) and reach topk_group")
    routed = routed_experts(b, x, e, num_groups=groups, num_chosen_groups=chosen)
    width = e.intermediate_size * size(c, "n_shared_experts")
    return b.add(routed, gated_mlp(b, x, width, e.function, module="mlp.shared_experts", bias=mlp_bias(c)))


def layer(c: Config, index: int) -> Block:
    """A pre-norm decoder layer, dense among the first `first_k_dense_replace`."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(x, attention(b, b.rms_norm(x, "input_layernorm"), c))
    h = b.rms_norm(x, "post_attention_layernorm")
    if index >= size(c, "first_k_dense_replace", least=0):
        h = sparse_mlp(b, h, c)
    else:
        h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act", "silu"), bias=mlp_bias(c))
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    layers = tuple(layer(c, i) for i in range(c.num_hidden_layers))
    return (token_embedding(c), *layers, lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings")))
