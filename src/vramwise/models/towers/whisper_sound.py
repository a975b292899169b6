"""Whisper's encoder, and those of Qwen2-Audio, Qwen's Omni models and MOSS that are like it."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.towers.tower_design import Tower, Weight, encoder_sizes, layer_norm, with_bias


def whisper(c: Config) -> Tower:
    """Whisper's encoder: two convolutions, keys without bias; Omni has fixed positions and a product at the end."""
    width, bins = c.size("d_model", "hidden_size"), c.size("num_mel_bins")
    before: tuple[Weight, ...] = (*with_bias("conv1", width, bins, 3), *with_bias("conv2", width, width, 3))
    after: tuple[Weight, ...] = layer_norm("layer_norm", width)
    if c.model_type != "qwen2_5_omni_audio_encoder":
        before = (*before, ("embed_positions.weight", (c.size("max_source_positions"), width)))
    else:
        out = c.size("output_dim")
        after = (
            *layer_norm("ln_post", width),
            *with_bias("proj", out, width),
            ("audio_bos_eos_token.weight", (2, out)),
        )
    return Tower(
        width, c.size("encoder_ffn_dim", "intermediate_size"), c.size("encoder_layers", "num_hidden_layers"),
        c.size("encoder_attention_heads", "num_attention_heads"),
        c.text("activation_function"), before=before, after=after, layers="layers", biases=(True, False, True, True),
        norms=("self_attn_layer_norm", "final_layer_norm"), mlp=("fc1", "fc2"), part="audio", modality="audio",
        frozen=frozenset({"embed_positions.weight"}),
    )  # fmt: skip


def glmasr(c: Config) -> Tower:
    """GLM-ASR's: Whisper's convolutions, and layers that are turned by their places instead of learned ones."""
    width, bins, heads = c.hidden_size, c.size("num_mel_bins"), c.num_attention_heads
    if c.size("num_key_value_heads", default=heads) != heads:
        raise c.error("audio_config: as many num_key_value_heads as num_attention_heads are described")
    return Tower(
        **encoder_sizes(c), before=(*with_bias("conv1", width, bins, 3), *with_bias("conv2", width, width, 3)),
        after=layer_norm("norm", width), layers="layers", norms=("input_layernorm", "post_attention_layernorm"),
        output="self_attn.o_proj", biases=(True, False, True, True), part="audio", modality="audio",
    )  # fmt: skip


def qwen3_omni(c: Config) -> Tower:
    """Qwen3-Omni: three convolutions over time and pitch that each halve both, two products at the end.

    Those of Qwen3-ASR are a projector of their own.
    """
    width, channels, out = c.size("d_model"), c.size("downsample_hidden_size"), c.size("output_dim")
    products = () if c.model_type == "qwen3_asr_encoder" else (
        *with_bias("proj1", width, width), *with_bias("proj2", out, width))  # fmt: skip
    pitches = -(-c.size("num_mel_bins") // 8)
    before = [weight for i, given in ((1, 1), (2, channels), (3, channels))
              for weight in with_bias(f"conv2d{i}", channels, given, 3, 3)]  # fmt: skip
    return Tower(
        width, c.size("encoder_ffn_dim"), c.size("encoder_layers"), c.size("encoder_attention_heads"),
        c.text("activation_function"), before=(*before, ("conv_out.weight", (width, channels * pitches))),
        after=(*layer_norm("ln_post", width), *products),
        layers="layers", norms=("self_attn_layer_norm", "final_layer_norm"), mlp=("fc1", "fc2"), part="audio",
        modality="audio",
    )  # fmt: skip
