"""Qwen 3 Next: three layers of gated DeltaNet to one of gated attention, with experts; Qwen 3.5's too."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import decoder, delta_net, mixture
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.gated_attention import attention
from vramwise.models.layers.layer_kinds import every, layer_kinds
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.routed_experts import Experts

# Defaults of the configuration classes (transformers 5.23): those of Qwen 3 Next, 3.5 and 4, and of Qwen 3 Next.
SHARED: dict[str, object] = {
    "num_attention_heads": 16, "head_dim": 256, "hidden_act": "silu", "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "full_attention_interval": 4,
}  # fmt: skip
_DEFAULTS: dict[str, object] = {
    **SHARED, "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
    "num_key_value_heads": 2, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10, "num_experts": 512, "norm_topk_prob": True,
}  # fmt: skip


def routed(c: Config) -> Experts | None:
    """The routed experts of a sparse layer; Qwen 3.5 without "moe" in its name has none."""
    if c.size("num_experts", default=0, least=0) == 0:
        return None
    return experts(c, None, keys=("num_experts",), routing="qwen", normalized=c.flag("norm_topk_prob", True))


def language(c: Config, root: str = "model") -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head of the language model, which is named `root`."""
    types = layer_kinds(c, every(c, c.size("full_attention_interval")), allowed=("linear_attention", "full_attention"))
    e, dense, step = routed(c), c.items("mlp_only_layers") or [], c.size("decoder_sparse_step", default=1)
    third = c.model_type == "qwen3_next"
    if not third:
        dense, step = [], 1
    attends = LayerKind(attention=partial(attention, c=c, table="default" if third else "rows"))
    recurs = LayerKind(attention=partial(delta_net.mixer, s=delta_net.sizes(c), fused=third))
    kinds = [attends if kind == "full_attention" else recurs for kind in types]
    s = Design(root=root, norm_style="gemma", final_norm=f"{root}.norm")
    if e is None:
        return decoder.model(c, s, kinds)
    m = Mixture(e, shared=c.size("shared_expert_intermediate_size"), shared_gate=True, balanced=True)
    return mixture.model(c, s, m, [i not in dense and (i + 1) % step == 0 for i in range(len(kinds))], kinds)


def blocks(c: Config) -> tuple[Block, ...]:
    """The language model, which is all there is."""
    return language(c.filled(_DEFAULTS))
