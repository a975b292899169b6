"""Voxtral Realtime: a causal encoder over frames of sound and a Mistral whose MLPs read a stream scaled by the delay.

What training keeps is not described: the scales, and that the class takes no text without sound.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, LayerKind, sliding_window
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.known_weights import known_weights, product, products
from vramwise.models.towers.tower_design import Weight, with_bias

_TEXT: dict[str, object] = {
    "vocab_size": 131_072, "hidden_size": 3072, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "sliding_window": 8192,
}  # fmt: skip
"""What `VoxtralRealtimeConfig` fills its text config with (transformers 5.23)."""
_SOUND: dict[str, object] = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 32, "head_dim": 64,
    "num_mel_bins": 128,
}  # fmt: skip
"""Defaults of `VoxtralRealtimeEncoderConfig`."""
_SCALE_WIDTH = 32


def mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """A gated MLP of what comes in, times scales that two products make of the delay."""
    width, name = c.hidden_size, "ada_rms_norm"
    weights = [
        b.parameter(f"{name}.linear1", "weight", (_SCALE_WIDTH, width), is_linear=True),
        b.parameter(f"{name}.linear2", "weight", (width, _SCALE_WIDTH), is_linear=True),
    ]
    x = b.unary(Undescribed(name="scales by the delay"), x, name, weights)
    b.part = "mlp"
    return gated_mlp(b, x, c.intermediate_size, c.text("hidden_act", "silu"))


def sound(a: Config) -> list[Block]:
    """Two convolutions, layers that look back within a window, a norm."""
    width, inner, d = a.hidden_size, a.intermediate_size, a.size("head_dim")
    columns, heads = a.num_attention_heads * d, ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    layer = [
        *product(heads[0], columns, width), *product(heads[1], columns, width, bias=False),
        *product(heads[2], columns, width), *product("self_attn.o_proj", width, columns),
        ("self_attn_layer_norm.weight", (width,)), ("final_layer_norm.weight", (width,)),
        *products(("mlp.gate_proj", "mlp.up_proj"), inner, width, bias=False), *product("mlp.down_proj", width, inner),
    ]  # fmt: skip
    convolutions = with_bias("conv1", width, a.size("num_mel_bins"), 3), with_bias("conv2", width, width, 3)
    name = "model.audio_tower"
    first = [weight for convolution in convolutions for weight in convolution]
    return [
        known_weights(f"{name}.embedder", first, "frames of sound", part="audio", modality="audio"),
        *(known_weights(f"{name}.layers.{i}", layer, "a layer over frames", part="audio", modality="audio")
          for i in range(a.num_hidden_layers)),
        known_weights(name, [("norm.weight", (width,))], "a norm of frames", part="audio", modality="audio"),
    ]  # fmt: skip


def projector(c: Config, a: Config, width: int) -> Block:
    """Several frames side by side, two products without biases."""
    joined = a.hidden_size * c.size("downsample_factor", default=4)
    weights: list[Weight] = [
        *product("linear_1", width, joined, bias=False), *product("linear_2", width, width, bias=False)
    ]  # fmt: skip
    return known_weights("model.multi_modal_projector", weights, "frames joined", part="projector", modality="audio")


def blocks(c: Config) -> tuple[Block, ...]:
    """Encoder, projector, language model."""
    given = c.table("text_config") or Config({}, c.model_id)
    t = given.filled(_TEXT)
    t = Config({**t.values, "tie_word_embeddings": c.flag("tie_word_embeddings", True)}, c.model_id)
    a = (c.table("audio_config") or Config({}, c.model_id)).filled(_SOUND)
    kind = LayerKind(window=sliding_window(t), mlp=lambda b, x: mlp(b, x, t))
    language = model(t, Design(), [kind] * t.num_hidden_layers)
    return (
        *sound(a), projector(c, a, t.hidden_size),
        *(renamed(block, inside("model.language_model")) for block in language),
    )  # fmt: skip
