"""Towers of a model, and those that vLLM leaves out because no item of their kind may come."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.models import Model
from vramwise.models.type_facts import ANY, has_fact
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.versions import version_of

# vLLM 0.11.2 models/: these look at the limits themselves; 0.15.1 models/interfaces.py _mark_tower_model: all do
FIRST_VERSION, GENERAL_VERSION = (0, 11), (0, 15)
VIDEO_KEYS = ("video_token_id", "video_token_index")


def has_encoder(model: Model) -> bool:
    """Whether the model reads images or sound besides text."""
    return any(part in model.parts for part in ("vision", "audio", "projector"))


def towers_left_out(model: Model, settings: ServeSettings) -> frozenset[str]:
    """Parts of the model whose weights are not made: `limit_mm_per_prompt` is 0 for everything they read.

    A modality that the limits do not name is not limited.
    """
    limits = media_limits(settings)
    version = version_of(settings.engine_version)
    if not limits or version < FIRST_VERSION:
        return frozenset()
    if version < GENERAL_VERSION and not has_fact("vllm", "leaves_towers_out", model.config.model_type, version):
        return frozenset()
    deaf = limits.get("audio") == 0
    blind = sees_nothing(model, settings)
    return frozenset(({"vision", "projector"} if blind else set()) | ({"audio"} if deaf else set()))


def media_limits(settings: ServeSettings) -> Mapping[str, int]:
    """Media of a kind in one prompt, as far as they are limited (0.33.0 config/multimodal.py: none without towers)."""
    if settings.language_model_only:
        return dict.fromkeys(("image", "video", "audio"), 0)
    return settings.limit_mm_per_prompt or {}


def sees_nothing(model: Model, settings: ServeSettings) -> bool:
    """Whether no image and, where the model reads videos, no video may come."""
    limits = media_limits(settings)
    thinker = model.config.table("thinker_config") or model.config
    videos = has_fact(ANY, "reads_videos", model.config.model_type) or any(thinker.has(key) for key in VIDEO_KEYS)
    return limits.get("image") == 0 and (limits.get("video") == 0 or not videos)
