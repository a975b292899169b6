"""Which function describes the tower of which vision or audio config."""

from __future__ import annotations

from vramwise.models.towers import qwen_vision, tower_defaults
from vramwise.models.towers.clip_vision import clip
from vramwise.models.towers.internvl_vision import internvl
from vramwise.models.towers.llama4_vision import llama4
from vramwise.models.towers.minimax_m3_vision import minimax_m3
from vramwise.models.towers.ovis_vision import ovis2
from vramwise.models.towers.pixtral_vision import pixtral
from vramwise.models.towers.segment_anything import got_ocr2
from vramwise.models.towers.siglip_vision import paddleocr, siglip, video_llama_3
from vramwise.models.towers.whisper_sound import glmasr, qwen3_omni, whisper

TOWERS = {
    "clip_vision_model": clip, "siglip_vision_model": siglip, "idefics3_vision": siglip, "pixtral": pixtral,
    "siglip2_vision_model": siglip, "minimax_m3_vl_vision": minimax_m3,
    "internvl_vision": internvl, "qianfan_ocr_vision": internvl, "paddleocr_vl_vision": paddleocr,
    "llama4_vision_model": llama4, "voxtral_encoder": whisper, "qwen3_asr_encoder": qwen3_omni,
    **qwen_vision.TOWERS,
    "audioflamingo3_encoder": whisper, "glmasr_encoder": glmasr, "ovis2_vision": ovis2,
    "video_llama_3_vision": video_llama_3,
    "got_ocr2_vision": got_ocr2, "moss_transcribe_diarize_audio": whisper, "qwen2_audio_encoder": whisper,
    "qwen2_5_omni_audio_encoder": whisper, "qwen3_omni_moe_audio_encoder": qwen3_omni,
}  # fmt: skip
"""`model_type` of a vision or audio config -> its tower."""


DEFAULTS = {**tower_defaults.DEFAULTS, **qwen_vision.DEFAULTS}
"""And the defaults of its class."""
