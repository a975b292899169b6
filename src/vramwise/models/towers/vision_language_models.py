"""Which tower, projector and language model each model with images or sound has; `vision_language` builds them."""

from __future__ import annotations

from typing import Any

from vramwise.models.towers import projectors, query_projectors, qwen_projectors
from vramwise.models.towers.vision_language_design import Assembly

_LLAVA_TOWER = (
    ("hidden_size", 1024), ("intermediate_size", 4096), ("patch_size", 14), ("image_size", 336),
    ("num_hidden_layers", 24), ("num_attention_heads", 16),
)  # fmt: skip


_QWEN: dict[str, Any] = {"own_tower": True, "tower": "model.visual", "bridge": "model.visual.merger", "scatters": True}


_QWEN3 = {**_QWEN, "bridge": "model.visual"}


_IDEFICS: dict[str, Any] = {
    "own_tower": True, "tower": "model.vision_model", "bridge": "model.connector.modality_projection",
    "text": "model.text_model", "scatters": True,
}  # fmt: skip


ASSEMBLIES: dict[str, Assembly] = {
    "aria": Assembly(
        "idefics3_vision", "aria_text", query_projectors.aria, features=-1, select="full", scatters=True, listed=False
    ),
    "audioflamingo3": Assembly(
        "audioflamingo3_encoder", "qwen2", projectors.audioflamingo3, config="audio_config", tower="model.audio_tower",
        tied=None,
    ),
    "aya_vision": Assembly(
        "siglip_vision_model", "cohere2", projectors.aya, tied=True, features=-1, select="full", scatters=True,
        listed=False,
        absent_tower=(("hidden_size", 1152), ("intermediate_size", 4304), ("patch_size", 14), ("image_size", 384),
                      ("num_hidden_layers", 26), ("num_attention_heads", 14), ("vision_use_head", False)),
    ),
    "cohere_compass": Assembly(
        "cohere_compass_vision", "cohere_compass_text", qwen_projectors.qwen3_vl, **{**_QWEN3, "scatters": False},
        text_ties=True, capped=True,
    ),
    "cohere2_vision": Assembly(
        "siglip_vision_model", "cohere2", projectors.cohere2, tied=True,
        absent_tower=(("hidden_size", 1152), ("intermediate_size", 3072), ("image_size", 512),
                      ("num_hidden_layers", 27), ("num_attention_heads", 12)),
    ),
    "deepseek_vl": Assembly(
        "siglip_vision_model", "llama", projectors.deepseek_vl, tower="model.vision_model", bridge="model.aligner",
        tied=True, scatters=True, listed=False,
    ),
    "exaone4_5": Assembly(
        "exaone4_5_vision", "exaone4", qwen_projectors.qwen2_vl, **{**_QWEN, "scatters": False}
    ),
    "gemma3": Assembly(
        "siglip_vision_model", "gemma3_text", projectors.gemma3, own_tower=True, tied=True, scatters=True,
        see_each_other="all",
    ),
    "glm46v": Assembly("glm4v_vision", "glm4v_text", projectors.glm4v, **_QWEN),
    "glm4v": Assembly("glm4v_vision", "glm4v_text", projectors.glm4v, **_QWEN, text_ties=True),
    "glm4v_moe": Assembly("glm4v_vision", "glm4v_moe_text", projectors.glm4v, **_QWEN, text_ties=True),
    "glmga": Assembly("glm4v_vision", "glm4v_text", projectors.glm4v, **_QWEN),
    "glm_ocr": Assembly(
        "glm_ocr_vision", "glm_ocr_text", projectors.glm4v, **{**_QWEN, "scatters": False}, text_ties=True
    ),
    "glmasr": Assembly(
        "glmasr_encoder", "llama", projectors.glmasr, config="audio_config", tower="model.audio_tower", tied=True,
        absent_text=(("vocab_size", 59_264), ("hidden_size", 2048), ("intermediate_size", 6144),
                     ("num_hidden_layers", 28), ("num_attention_heads", 16), ("num_key_value_heads", 4)),
    ),
    "got_ocr2": Assembly(
        "got_ocr2_vision", "qwen2", projectors.got_ocr2, own_tower=True, tied=True, scatters=True,
        listed=False,
        absent_text=(("vocab_size", 151_860), ("hidden_size", 1024), ("intermediate_size", 2816),
                     ("num_hidden_layers", 24), ("num_attention_heads", 16), ("num_key_value_heads", 16)),
    ),
    "hyperclovax_vision_v2": Assembly(
        "qwen2_5_vl_vision", "hyperclovax", qwen_projectors.hyperclovax, tower="model.vision_model", bridge="model",
        tied=True,
    ),
    "idefics2": Assembly(
        "idefics3_vision", "mistral", query_projectors.idefics2,
        **{**_IDEFICS, "bridge": "model.connector"},
    ),
    "idefics3": Assembly("idefics3_vision", "llama", projectors.idefics3, **_IDEFICS),
    "internvl": Assembly(
        "internvl_vision", "qwen2", projectors.internvl, own_tower=True, tied=True, features=-1, scatters=True
    ),
    # vLLM 0.33.0 runs internvl's class and this one, whose code comes with checkpoints, as one (models/interns1.py)
    "interns1": Assembly(
        "internvl_vision", "qwen3_moe", projectors.internvl, own_tower=True, features=-1, scatters=True
    ),
    "lighton_ocr": Assembly(
        "pixtral", "qwen3", projectors.lighton, tower="model.vision_encoder", bridge="model.vision_projection",
        tied=True, absent_tower=(("image_size", 1540), ("patch_size", 14)),
        absent_text=(("hidden_size", 1024), ("intermediate_size", 3072), ("num_hidden_layers", 28),
                     ("num_attention_heads", 16), ("num_key_value_heads", 8)),
    ),
    "llama4": Assembly(
        "llama4_vision_model", "llama4_text", projectors.llama4, own_tower=True, tower="vision_model",
        bridge="", text="language_model.model", head="language_model.lm_head",
        tied=None, text_ties=True, text_class="Llama4ForCausalLM", scatters=True, listed=False,
    ),
    "llava": Assembly(
        "clip_vision_model", "llama", projectors.llava, text_ties=True, absent_tower=_LLAVA_TOWER, features=-2,
        scatters=True,
    ),
    "llava_next": Assembly(
        "clip_vision_model", "llama", projectors.llava, absent_tower=_LLAVA_TOWER, newline=True, features=-2,
        scatters=True, cut_joined=True,
    ),
    "llava_onevision": Assembly(
        "siglip_vision_model", "qwen2", projectors.llava, text_ties=True, newline=True, features=-1, select="full",
        scatters=True, cut_joined=True,
        absent_tower=(("hidden_size", 1152), ("intermediate_size", 4304), ("patch_size", 14), ("image_size", 384),
                      ("num_hidden_layers", 26), ("num_attention_heads", 16), ("vision_use_head", False)),
    ),
    "lfm2_vl": Assembly("siglip2_vision_model", "lfm2", projectors.lfm2_vl, tied=True, scatters=True),
    "minimax_m3_vl": Assembly(
        "minimax_m3_vl_vision", "minimax_m3_vl_text", projectors.minimax_m3, own_tower=True, text_ties=True,
        scatters=True,
    ),
    "mistral3": Assembly(
        "pixtral", "mistral", projectors.mistral3, tied=True, features=-1, scatters=True,
        absent_tower=(("patch_size", 14), ("image_size", 1540)),
        absent_text=(("head_dim", 128), ("hidden_size", 5120), ("intermediate_size", 32_768),
                     ("num_hidden_layers", 40), ("vocab_size", 131_072), ("sliding_window", 0)),
    ),
    "mistral_large4": Assembly(
        "pixtral", "mistral_large4_text", projectors.mistral3, features=-1, scatters=True, capped=True,
        absent_tower=(("hidden_size", 2048), ("intermediate_size", 6144), ("num_hidden_layers", 30),
                      ("num_attention_heads", 16), ("patch_size", 14), ("image_size", 1540)),
    ),
    "moss_transcribe_diarize": Assembly(
        "moss_transcribe_diarize_audio", "qwen3", projectors.moss, config="audio_config",
        tower="model.audio_tower", tied=True,
        absent_text=(("hidden_size", 1024), ("intermediate_size", 3072), ("num_hidden_layers", 28),
                     ("num_attention_heads", 16), ("num_key_value_heads", 8)),
    ),
    "musicflamingo": Assembly(
        "audioflamingo3_encoder", "qwen2", projectors.audioflamingo3, own_tower=True, config="audio_config",
        tower="model.audio_tower", tied=None,
    ),
    "ovis2": Assembly("ovis2_vision", "qwen2", projectors.ovis2, own_tower=True, bridge="model", tied=True),
    "paligemma": Assembly(
        "siglip_vision_model", "gemma", projectors.linear, tied=True, capped=True, scatters=True, see_each_other="all",
        absent_tower=(*_LLAVA_TOWER, ("hidden_size", 1152), ("image_size", 224), ("num_hidden_layers", 27),
                      ("vision_use_head", False)),
        absent_text=(("hidden_size", 2048), ("num_hidden_layers", 18), ("intermediate_size", 16_384),
                     ("num_attention_heads", 8), ("num_key_value_heads", 1), ("vocab_size", 257_152)),
    ),
    "paddleocr_vl": Assembly(
        "paddleocr_vl_vision", "paddleocr_vl_text", projectors.paddleocr, own_tower=True,
        tower="model.visual.vision_model", bridge="model.projector", tied=True, text_ties=True,
    ),
    "qianfan_ocr": Assembly("qianfan_ocr_vision", "qwen3", projectors.internvl, own_tower=True, features=-1),
    "llava_next_video": Assembly(
        "clip_vision_model", "llama", projectors.llava, absent_tower=_LLAVA_TOWER, newline=True, features=-2,
        scatters=True, cut_joined=True,
    ),
    "video_llava": Assembly(
        "clip_vision_model", "llama", projectors.llava, tower="model.image_tower", unused_tower="model.video_tower",
        absent_tower=(*_LLAVA_TOWER, ("image_size", 224)), features=-2, scatters=True, listed=False,
    ),
    "vipllava": Assembly(
        "clip_vision_model", "llama", projectors.vipllava, absent_tower=_LLAVA_TOWER, features=(-2, -5, -8, -11, 6),
        scatters=True, listed=False,
    ),
    "qwen2_5_vl": Assembly("qwen2_5_vl_vision", "qwen2_5_vl_text", qwen_projectors.qwen2_vl, **_QWEN, text_ties=True),
    "qwen2_audio": Assembly(
        "qwen2_audio_encoder", "qwen2", projectors.linear, config="audio_config", tower="model.audio_tower"
    ),
    "qwen2_vl": Assembly("qwen2_vl_vision", "qwen2_vl_text", qwen_projectors.qwen2_vl, **_QWEN, text_ties=True),
    "qwen3_asr": Assembly(
        "qwen3_asr_encoder", "qwen3", projectors.qwen3_asr, config="audio_config", tower="model.audio_tower", tied=True,
        absent_text=(("hidden_size", 2048), ("intermediate_size", 6144), ("num_hidden_layers", 28),
                     ("num_attention_heads", 16), ("num_key_value_heads", 8)),
    ),
    "video_llama_3": Assembly(
        "video_llama_3_vision", "qwen2", projectors.video_llama_3, own_tower=True, tower="model.vision_model",
        bridge="model.projector", text_ties=True,
    ),
    "voxtral": Assembly(
        "voxtral_encoder", "llama", projectors.voxtral, config="audio_config", tower="model.audio_tower",
        absent_text=(("vocab_size", 131_072), ("hidden_size", 3072), ("intermediate_size", 8192),
                     ("num_hidden_layers", 30), ("num_key_value_heads", 8), ("head_dim", 128)),
    ),
    "qwen3_vl": Assembly("qwen3_vl_vision", "qwen3_vl_text", qwen_projectors.qwen3_vl, **_QWEN3),
    "qwen3_vl_moe": Assembly("qwen3_vl_moe_vision", "qwen3_vl_moe_text", qwen_projectors.qwen3_vl, **_QWEN3),
    "smolvlm": Assembly("idefics3_vision", "llama", projectors.idefics3, **_IDEFICS),
}  # fmt: skip
