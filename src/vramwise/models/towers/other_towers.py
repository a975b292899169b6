"""The towers of GOT-OCR 2 (Segment Anything's) and Whisper's as Qwen2-Audio and Qwen2.5-Omni have it."""

from __future__ import annotations

from typing import Any

from vramwise.models.config import Config
from vramwise.models.towers.vision_tower import Tower, Weight, layer_norm, pair, with_bias

# Defaults of the configuration classes of transformers 5.23.
_WHISPER = {
    "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "d_model": 1280,
    "max_source_positions": 1500, "activation_function": "gelu", "output_dim": 3584,
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "got_ocr2_vision": {
        "hidden_size": 768, "output_channels": 256, "num_hidden_layers": 12, "num_attention_heads": 12,
        "num_channels": 3, "image_size": 1024, "patch_size": 16, "hidden_act": "gelu", "window_size": 14,
        "global_attn_indexes": [2, 5, 8, 11], "mlp_dim": 3072,
    },
    "qwen2_audio_encoder": _WHISPER,
    "qwen2_5_omni_audio_encoder": _WHISPER,
    "qwen3_omni_moe_audio_encoder": {**_WHISPER, "downsample_hidden_size": 480},
    "moss_transcribe_diarize_audio": {
        "num_mel_bins": 80, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
        "hidden_size": 1024, "max_source_positions": 1500, "activation_function": "gelu",
    },
}  # fmt: skip


def _relative_positions(c: Config) -> tuple[tuple[Weight, ...], ...]:
    """Each layer's tables of relative positions: of a window, or of the whole image in layers that attend to it."""
    if not c.flag("use_rel_pos", True):
        return ()
    d, whole = c.hidden_size // c.num_attention_heads, c.items("global_attn_indexes") or []
    sides = (c.size("image_size") // c.size("patch_size"), c.size("window_size"))
    rows = (2 * sides[index not in whole] - 1 for index in range(c.num_hidden_layers))
    return tuple((("attn.rel_pos_h", (n, d)), ("attn.rel_pos_w", (n, d))) for n in rows)


def got_ocr2(c: Config) -> Tower:
    """GOT-OCR 2: attention in windows with relative positions, and a neck of convolutions."""
    width, out, side = c.hidden_size, c.size("output_channels"), c.size("image_size") // c.size("patch_size")
    bias = c.flag("qkv_bias", True)
    positions: tuple[Weight, ...] = (("pos_embed", (1, side, side, width)),) if c.flag("use_abs_pos", True) else ()
    patches = with_bias("patch_embed.projection", width, c.size("num_channels"), *pair(c, "patch_size"))
    neck = (
        ("neck.conv1.weight", (out, width, 1, 1)), *layer_norm("neck.layer_norm1", out),
        ("neck.conv2.weight", (out, out, 3, 3)), *layer_norm("neck.layer_norm2", out),
    )  # fmt: skip
    whole, window = c.items("global_attn_indexes") or [], c.size("window_size")
    return Tower(
        width, c.size("mlp_dim"), c.num_hidden_layers, c.num_attention_heads, c.text("hidden_act"),
        before=(*positions, *patches), after=neck, layers="layers", qkv=("attn.qkv",), output="attn.proj",
        biases=(bias, bias, bias, True), mlp=("mlp.lin1", "mlp.lin2"), of_layer=_relative_positions(c), rows=side,
        windows=tuple(0 if i in whole else window for i in range(c.num_hidden_layers)), embedding="grid_embedding",
        embedding_settings=(("image_size", c.size("image_size")), ("num_channels", c.size("num_channels"))),
        closing="sam_neck", eager_only=c.model_type == "got_ocr2_vision",
    )  # fmt: skip


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
    )  # fmt: skip


def qwen3_omni(c: Config) -> Tower:
    """Qwen3-Omni: three convolutions over time and pitch that each halve both, two products at the end."""
    width, channels, out = c.size("d_model"), c.size("downsample_hidden_size"), c.size("output_dim")
    pitches = -(-c.size("num_mel_bins") // 8)
    before = [weight for i, given in ((1, 1), (2, channels), (3, channels))
              for weight in with_bias(f"conv2d{i}", channels, given, 3, 3)]  # fmt: skip
    return Tower(
        width, c.size("encoder_ffn_dim"), c.size("encoder_layers"), c.size("encoder_attention_heads"),
        c.text("activation_function"), before=(*before, ("conv_out.weight", (width, channels * pitches))),
        after=(*layer_norm("ln_post", width), *with_bias("proj1", width, width), *with_bias("proj2", out, width)),
        layers="layers", norms=("self_attn_layer_norm", "final_layer_norm"), mlp=("fc1", "fc2"), part="audio",
        modality="audio",
    )  # fmt: skip


TOWERS = {
    "got_ocr2_vision": got_ocr2, "moss_transcribe_diarize_audio": whisper, "qwen2_audio_encoder": whisper,
    "qwen2_5_omni_audio_encoder": whisper, "qwen3_omni_moe_audio_encoder": qwen3_omni,
}  # fmt: skip
"""`model_type` of a vision or audio config -> its tower."""
