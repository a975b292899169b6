"""How many tokens of the prompt an image takes, and how many patches the vision part computes for it.

Each family's processor resizes or tiles the image first. What a config.json does not say (most pixels, most tiles) is
the published processor's value, named in the rule. Sources: processors of transformers 5.23, models/TYPE/
processing_TYPE.py and image_processing_TYPE.py; tests/models/test_image_tokens.py runs their code.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.errors import UsageError
from vramwise.models.config import Config
from vramwise.models.images import canvas, longest_side, merged, nearest_grid, one_size, resolutions
from vramwise.models.images.tokens import ImageTokens

__all__ = ["ImageTokens", "image_tokens", "types_with_rule"]

WIDEST_RATIO = 200  # the processors refuse images that are narrower
LARGEST_SIDE = 100_000

_QWEN2 = merged.merged(56 * 56, 12_845_056, 14)  # preprocessor_config.json of Qwen2-VL and Qwen2.5-VL
_DOTS = merged.merged(3136, 11_289_600, 14)  # rednote-hilab/dots.ocr dots_ocr/utils/consts.py
_QWEN3 = merged.merged(65_536, 16_777_216, 16)  # preprocessor_config.json of Qwen3-VL and Qwen3.5
_QWEN3_OMNI = merged.merged(56 * 56, 12_845_056, 16)  # preprocessor_config.json of Qwen3-Omni
_RULES: dict[str, Callable[[Config, int, int], ImageTokens]] = {
    "aria": longest_side.aria,
    "aya_vision": nearest_grid.tiled(3, 1),
    "deepseek_vl": one_size.every_patch(224, 16),
    "dots_ocr": _DOTS,
    "ernie4_5_vl_moe": merged.merged(56 * 56, 28 * 28 * 6177, 14),
    "deepseek_vl_hybrid": one_size.every_patch(224, 16),
    "gemma3": one_size.gemma3,
    "gemma3n": one_size.gemma3n,
    "gemma4": one_size.gemma4,
    "gemma4_unified": one_size.gemma4,
    "git": one_size.before_text,
    "glm46v": merged.glm4v,
    "glm4v": merged.glm4v,
    "glm4v_moe": merged.glm4v,
    "got_ocr2": one_size.got_ocr2,
    "idefics2": longest_side.idefics2,
    "idefics3": longest_side.idefics3,
    "internvl": nearest_grid.tiled(2, 0),
    "internvl_chat": nearest_grid.tiled(2, 0),
    "janus": one_size.every_patch(384, 16),
    "kimi_k25": merged.kimi_k25,
    "kimi_vl": merged.kimi_vl,
    "lfm2_vl": nearest_grid.lfm2_vl,
    "llama4": canvas.llama4,
    "llava": longest_side.llava,
    "llava_next": resolutions.llava_next,
    "llava_next_video": resolutions.llava_next,
    "llava_onevision": resolutions.llava_onevision,
    "minimax_m3_vl": merged.merged(4 * 28 * 28, 451_584, 14),
    "mistral3": longest_side.pixtral,
    "mistral_large4": longest_side.pixtral,
    "mllama": canvas.mllama,
    "paligemma": one_size.fixed,
    "phi4_multimodal": nearest_grid.phi4,
    "phi4mm": nearest_grid.phi4,
    "qwen2_5_omni": _QWEN2,
    "qwen2_5_omni_thinker": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
    "qwen3_omni_moe": _QWEN3_OMNI,
    "qwen3_omni_moe_thinker": _QWEN3_OMNI,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "smolvlm": longest_side.idefics3,
    "step3p7": resolutions.step3p7,
    "video_llava": one_size.fixed,
    "vipllava": one_size.fixed,
}
_RULES_OF_SEVERAL = {"llava_onevision": resolutions.one_tile}
"""Rules of types that treat each of several images of a sequence in another way than a single one."""


def image_tokens(c: Config, width: int, height: int, together: int = 1) -> ImageTokens | None:
    """What one image of `width` × `height` pixels costs, None for a type without a rule here.

    `together`: how many such images a sequence has.

    Raises UsageError for a size that no processor takes.
    """
    if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
        raise UsageError(f"an image of {width} × {height} pixels: expected sides from 1 to {LARGEST_SIDE:,}")
    if max(width, height) > WIDEST_RATIO * min(width, height):
        raise UsageError(f"an image of {width} × {height} pixels: expected sides at most {WIDEST_RATIO} : 1")
    thinker = c.table("thinker_config") if "omni" in c.model_type else None
    rule = _RULES.get(c.model_type)
    if together > 1:
        rule = _RULES_OF_SEVERAL.get(c.model_type, rule)
    return rule(thinker or c, width, height) if rule is not None else None


def types_with_rule() -> tuple[str, ...]:
    """Model types whose images can be counted."""
    return tuple(_RULES)
