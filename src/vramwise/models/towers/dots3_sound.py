"""Dots 3's tower for sound: three strided convolutions, layers with fused gated MLPs, an adapter."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.dots3_vision import attention, checked_heads, renamed_keys

# Defaults of Dots3NoteAudioConfig (transformers 5.23), and Whisper's names for them.
_AUDIO: dict[str, object] = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20,
    "hidden_act": "silu", "feature_size": 128, "downsample_hidden_size": 480, "adapter_out_dim": 5120,
}  # fmt: skip
_WHISPER = {
    "d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads", "encoder_layers": "num_hidden_layers",
    "encoder_ffn_dim": "intermediate_size", "num_mel_bins": "feature_size",
}  # fmt: skip


def audio_layer(c: Config, name: str, index: int) -> Block:
    """A pre-norm layer with a fused gated MLP; only keys have no bias."""
    b, heads = BlockBuilder(f"{name}.layers.{index}", part="audio", modality="audio"), checked_heads(c)
    x, bias, inner = b.input("audio", c.hidden_size), c.flag("attention_bias", True), c.intermediate_size
    h = b.rms_norm(x, "input_layernorm", part="audio")
    q, k, v = (
        b.heads(b.linear(h, f"self_attn.{n}_proj", x.width, bias=bias and n != "k"), heads) for n in ("q", "k", "v")
    )
    x = b.add(x, b.linear(attention(b, q, k, v, heads), "self_attn.o_proj", x.width, bias=bias, shard="row"))
    h = b.linear(b.rms_norm(x, "post_attention_layernorm", part="audio"), "mlp.gate_up_proj", 2 * inner, bias=True)
    gate, up = b.split(h, [inner, inner])
    h = b.multiply(up, b.activation(gate, c.text("hidden_act")))
    return b.build(audio=b.add(x, b.linear(h, "mlp.down_proj", x.width, bias=True, shard="row")))


def audio_tower(config: Config, name: str) -> tuple[Block, ...]:
    """Three convolutions, each of half the length, layers, norm and adapter."""
    whisper = config.table("whisper_config") or Config({}, config.model_id)
    c = Config({**config.values, **renamed_keys(whisper, _WHISPER)}, config.model_id).filled(_AUDIO)
    b, width = BlockBuilder(name, part="audio", modality="audio"), c.size("downsample_hidden_size")
    weights = [
        b.parameter(f"conv_stem.convs.{i}", leaf, shape)
        for i, inner in enumerate((1, width, width))
        for leaf, shape in (("weight", (width, inner, 3, 3)), ("bias", (width,)))
    ]
    x = b.op(
        Undescribed(name="convolutions over frames of sound"),
        "conv_stem",
        [],
        [width * -(-c.size("feature_size") // 8)],
        weights,
    )[0]
    first = b.build(audio=b.linear(x, "conv_stem.conv_out", c.hidden_size))
    b = BlockBuilder(name, part="projector", modality="audio")
    x = b.rms_norm(b.input("audio", c.hidden_size), "layer_norm", part="audio")
    x = b.linear(b.layer_norm(x, "adapter.norm", part="projector"), "adapter.fc1", c.size("adapter_out_dim"), bias=True)
    last = b.build(audio=b.linear(b.activation(x, "gelu"), "adapter.fc2", x.width, bias=True, shard="row"))
    return (first, *(audio_layer(c, name, i) for i in range(c.num_hidden_layers)), last)
