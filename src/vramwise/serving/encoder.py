"""What a vision tower takes while an engine's profile run feeds it its largest items."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from vramwise.models import Config, Model
from vramwise.serving.forward import block_live_set

DEFAULT_MERGE = 2  # Qwen2-VL and its followers join 2 × 2 patches into one token
LARGEST_DYNAMIC_TOKENS = 16384  # Qwen2-VL image processor: max_pixels 12,845,056 = 16,384 tokens of 28 × 28


@dataclass(frozen=True, slots=True)
class EncoderWork:
    """Patches in one profile batch, elements alive for each, and the bytes of both with the encoder cache."""

    patches: int
    elements_per_patch: int
    bytes: int


@lru_cache(maxsize=512)
def encoder_work(model: Model, budget_tokens: int, bytes_per_element: int) -> EncoderWork:
    """The tower over max(budget, one item) tokens' worth of the largest image.

    A tower with a fixed image size turns it into (image_size / patch_size)² patches and mm_tokens_per_image tokens;
    one with free sizes takes its processor's largest image. The batch keeps the images themselves meanwhile (cast to
    the model's dtype by vLLM's multimodal processor), and the cache of outputs those of every deepstack level too
    (vLLM models/qwen3_vl.py joins them along the hidden size).
    """
    vision = model.config.table("vision_config")
    live = max((block_live_set(b) for b in model.blocks if _is_vision(b.parameters)), default=0)
    if vision is None or not live:
        return EncoderWork(0, 0, 0)
    if vision.has("image_size") and vision.has("patch_size"):
        patches = (vision.size("image_size") // vision.size("patch_size")) ** 2
        tokens = model.config.size("mm_tokens_per_image", default=patches)
    else:
        tokens = LARGEST_DYNAMIC_TOKENS
        patches = tokens * vision.size("spatial_merge_size", default=DEFAULT_MERGE) ** 2
    items = max(1, budget_tokens // tokens)
    levels = 1 + len(vision.items("deepstack_visual_indexes") or ())
    cached = items * tokens * model.hidden_size * levels * bytes_per_element
    total = items * patches
    return EncoderWork(total, live, total * (live + _patch_inputs(vision)) * bytes_per_element + cached)


def _patch_inputs(vision: Config) -> int:
    """Values of one patch of an image: channels · frames of a patch · size²."""
    if not vision.has("patch_size"):
        return 0
    channels = vision.size("in_channels", "num_channels", "in_chans", default=3)
    return channels * vision.size("temporal_patch_size", default=1) * vision.size("patch_size") ** 2


def tower_bytes(model: Model, patches: int, bytes_per_element: int) -> int:
    """Largest live set of the vision part over `patches`, under SDPA: patches · elements alive · bytes of an element.

    Scores of eager attention and the frames of windowed attention are not counted.
    """
    live = max((block_live_set(block) for block in model.blocks if _is_vision(block.parameters)), default=0)
    return patches * live * bytes_per_element


def _is_vision(parameters: tuple[object, ...]) -> bool:
    return any(getattr(parameter, "part", "") == "vision" for parameter in parameters)
