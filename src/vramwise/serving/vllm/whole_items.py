"""Models that see an item's tokens from both sides: a batch takes the largest item whole."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.models.type_facts import fact_value
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.vllm.towers import media_limits, sees_nothing

# 0.28.0 to 0.33.0 config/model.py _supports_multimodal_for_mm_prefix; 0.22.1 and 0.25.0 ask no limits
LIMITS_ASKED_VERSION = (0, 28)


def least_batched_tokens(model: Model, settings: ServeSettings, version: tuple[int, ...]) -> int:
    """Tokens that a default max_num_batched_tokens is raised to; 0 where it stays.

    Source: vLLM 0.22.0 to 0.33.0 engine/arg_utils.py _get_min_mm_batched_tokens; not in 0.20.2. It asks every kind of
    item, whatever the limits; of Gemma 3, PaliGemma and Molmo 2 it learns nothing.
    """
    largest = fact_value("vllm", "largest_item_tokens", model.config.model_type, version)
    if largest is None or text_config(model).get("use_bidirectional_attention") != "vision":
        return 0
    deaf = model.config.table("audio_config") is None or media_limits(settings).get("audio") == 0
    text_alone = version >= LIMITS_ASKED_VERSION and deaf and sees_nothing(model, settings)
    return 0 if text_alone else int(largest)
