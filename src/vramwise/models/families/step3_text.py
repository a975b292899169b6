"""Step 3's language model: queries from a narrow product that is normed and widened, one key and value for all heads.

Parameter names are those of the modeling file that comes with stepfun-ai/step3, as vLLM 0.33.0 `models/step3_text.py`
reads them, except that routed experts are one 3-D parameter a product.
"""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.step3p5 import sparse_numbers
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.operations.attention import Attention

# Defaults of vLLM's `Step3TextConfig`.
_DEFAULTS = {
    "vocab_size": 128_815, "hidden_size": 7168, "intermediate_size": 18_432, "num_hidden_layers": 61,
    "num_attention_heads": 64, "num_attention_groups": 1, "moe_intermediate_size": 5120, "moe_num_experts": 48,
    "moe_top_k": 3, "share_expert_dim": 5120, "share_q_dim": 2048, "head_dim": 256,
    "moe_layers_enum": list(range(4, 60)),
}  # fmt: skip


def attention(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """Narrow queries, one key, one value; then queries of every head."""
    b.part = "attention"
    heads, d, narrow, module = c.num_attention_heads, c.head_dim, c.size("share_q_dim"), "self_attn"
    q = b.linear(x, f"{module}.q_proj", narrow, shard="replicated")
    q = b.linear(b.rms_norm(q, f"{module}.inter_norm"), f"{module}.wq", heads * d)
    q = b.heads_first(b.heads(q, heads))
    k, v = (
        b.heads_first(b.heads(b.linear(x, f"{module}.{name}_proj", d, shard="replicated"), 1)) for name in ("k", "v")
    )
    q, k = b.rotary(q, k)
    mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=1), q, k, v)
    return b.linear(mixed, f"{module}.o_proj", x.width, shard="row")


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = config.filled(_DEFAULTS)
    if c.size("num_attention_groups") != 1:
        raise c.error("num_attention_groups: Step 3 has one key-value head")
    e = experts(
        c, None, keys=("moe_num_experts",), routing="deepseek_v2", chosen="moe_top_k", module="moe.experts",
        router="moe.gate", normalized=c.flag("norm_expert_weight"),
    )  # fmt: skip
    m = Mixture(e, routing={"num_groups": 0}, shared=c.size("share_expert_dim"), shared_module="share_expert")
    sparse = sparse_numbers(c) or set()
    kinds = [LayerKind(attention=partial(attention, c=c))] * c.num_hidden_layers
    return mixture.model(c, Design(), m, [i in sparse for i in range(c.num_hidden_layers)], kinds)
