"""Nemotron H: every layer is one thing, Mamba 2, attention without positions, an MLP or experts."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers import mamba2_mixer
from vramwise.models.layers.class_defaults import class_defaults
from vramwise.models.layers.decoder import lm_head, token_embedding
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.layer_kinds import old_names
from vramwise.models.layers.mamba2_mixer import Mamba2
from vramwise.models.layers.mixture import Mixture, experts, feed_forward, grouped
from vramwise.models.layers.mlp import plain_mlp
from vramwise.models.operations.simple import ToParameterDtype

_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
_OLDER = {
    "n_groups": "mamba_n_groups", "conv_kernel": "mamba_d_conv", "use_conv_bias": "mamba_conv_bias",
    "chunk_size": "mamba_chunk_size", "n_routed_experts": "num_local_experts",
}  # fmt: skip


def kinds(c: Config) -> list[str]:
    """What each layer is, from a list or from a pattern of letters, whose length is the number of layers."""
    given = c.items("layers_block_type") or c.items("layer_types")
    letters = [_LETTERS.get(letter, letter) for letter in c.text("hybrid_override_pattern", "ME*-")]
    found, known = old_names(letters if given is None else given), list(_LETTERS.values())
    if unknown := [kind for kind in found if kind not in known]:
        raise c.error(f'"{unknown[0]:.40}" is no kind of layer; known are {", ".join(known)}')
    return found


def mixture(c: Config) -> Mixture:
    """Experts of two products, on a narrower copy of the stream where the config names one, plus a shared MLP."""
    e = experts(
        c, None, keys=("n_routed_experts",), routing="deepseek_v3", normalized=c.flag("norm_topk_prob"), gating="none",
        router="mixer.gate", module="mixer.experts", fused_branches=1, gated=False,
    )  # fmt: skip
    return Mixture(
        e, routing=grouped(c, e), bias=c.flag("mlp_bias"), shared=c.size("moe_shared_expert_intermediate_size"),
        shared_module="mixer.shared_experts", narrow=c.size("moe_latent_size") if c.has("moe_latent_size") else 0,
    )  # fmt: skip


def mixer_sizes(c: Config) -> Mamba2:
    return mamba2_mixer.checked(c, Mamba2(
        c.size("mamba_num_heads"), c.size("mamba_head_dim"), c.size("n_groups"), c.size("ssm_state_size"),
        c.size("conv_kernel"), c.size("chunk_size"), c.flag("use_bias"), c.flag("use_bias"), c.flag("use_conv_bias"),
        c.text("mamba_hidden_act"),
    ))  # fmt: skip


def layer(c: Config, index: int, kind: str) -> Block:
    """A norm, one mixer and a residual."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(b.unary(ToParameterDtype(), x), "norm", style="fp32-weight")
    if kind == "linear_attention":
        h = mamba2_mixer.mixer(b, h, mixer_sizes(c))
    elif kind == "full_attention":
        h = grouped_attention(b, h, c, "mixer", turned=None)
    elif kind == "moe":
        h = feed_forward(b, h, m=mixture(c))
    else:
        h = plain_mlp(b, h, c.intermediate_size, c.text("hidden_act"), module="mixer", bias=c.flag("mlp_bias"))
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; the class never ties the head's weight."""
    older = {name: c.get(old) for name, old in _OLDER.items() if c.has(old)}
    c = Config({**c.values, **older}, c.model_id).filled(class_defaults("nemotron_h"))
    c = Config({**c.values, "hidden_act": c.text("mlp_hidden_act")}, c.model_id)
    layers = (layer(c, i, kind) for i, kind in enumerate(kinds(c)))
    head = lm_head(c, "model.norm_f", tied=False, norm_style="fp32-weight", widened=True)
    return (token_embedding(c, "model.embeddings"), *layers, head)
