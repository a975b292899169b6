"""What a vision tower takes while an engine's profile run feeds it its largest items."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from vramwise.memo import of_model
from vramwise.models import Config, Model
from vramwise.models.images import image_tokens
from vramwise.models.towers.tower_design import num_patches, pair
from vramwise.serving.common.forward.modules import block_live_set

DEFAULT_MERGE = 2  # Qwen2-VL and its followers join 2 × 2 patches into one token
LARGEST_SIDE = 4096  # pixels: more than any processor keeps
_SHAPES = ((2, 2), (2, 1), (1, 2), (3, 1), (1, 3), (4, 3), (3, 4), (4, 1), (1, 4))
LARGEST_DYNAMIC_TOKENS = 16384  # Qwen2-VL image processor: max_pixels 12,845,056 = 16,384 tokens of 28 × 28


@dataclass(frozen=True, slots=True)
class VideoRule:
    """A version's largest video: `tokens` of the tower, how many the engine counts for each, and whether outputs are
    padded to what it counts."""

    tokens: int
    counted_per_token: float
    padded: bool


@dataclass(frozen=True, slots=True)
class EncoderWork:
    """Patches in one profile batch, elements alive for each, bytes while the tower runs, and bytes of the outputs that
    stay until the profile run ends."""

    patches: int
    elements_per_patch: int
    bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class _Item:
    """The largest item of a model: its patches, its tokens, and the tokens that the engine counts for it."""

    patches: int
    tokens: int
    counted: int


@of_model
def encoder_work(
    model: Model, budget_tokens: int, bytes_per_element: int, ranks: int = 1, most_items: int | None = None,
    video: VideoRule | None = None,
) -> EncoderWork:  # fmt: skip
    """The tower over max(budget, one item) tokens' worth of the largest item, on one of `ranks` ranks.

    That is the image of most tokens by the rule of its processor (`vramwise.models.images`), or a video where `video`
    says so; without a rule, (image_size / patch_size)² patches of a fixed size, or as many as Qwen2-VL takes. The batch
    keeps the images themselves meanwhile (cast to the model's dtype by vLLM's multimodal processor), and the cache of
    outputs those of every deepstack level too (vLLM models/qwen3_vl.py joins them along the hidden size).
    """
    vision = model.config.table("vision_config")
    live = max((block_live_set(b, ranks) for b in model.blocks if _is_vision(b.parameters)), default=0)
    if vision is None or not live:
        return EncoderWork(0, 0, 0, 0)
    item = _largest_item(model, vision, video)
    items = max(1, min(budget_tokens // item.counted, most_items or budget_tokens))
    levels = 1 + len(vision.items("deepstack_visual_indexes") or ())
    token_bytes = model.hidden_size * levels * bytes_per_element
    made = items * item.tokens * token_bytes
    padded = video is not None and video.padded and item.tokens < max(budget_tokens, item.counted)
    kept = items * max(budget_tokens, item.counted) * token_bytes if padded else made
    total = items * item.patches
    running = total * (live + _patch_inputs(vision)) * bytes_per_element + made
    return EncoderWork(total, live, max(running, made + kept) if padded else running, kept)


def largest_item_tokens(model: Model) -> int:
    """Tokens that an engine counts for the largest image; 0 where the model sees none."""
    vision = model.config.table("vision_config")
    return 0 if vision is None else _largest_item(model, vision, None).counted


def _largest_item(model: Model, vision: Config, video: VideoRule | None) -> _Item:
    merged = vision.size("spatial_merge_size", default=DEFAULT_MERGE) ** 2
    if video is not None and video.tokens * video.counted_per_token > LARGEST_DYNAMIC_TOKENS:
        return _Item(video.tokens * merged, video.tokens, round(video.tokens * video.counted_per_token))
    shapes = [image_tokens(model.config, LARGEST_SIDE * wide, LARGEST_SIDE * high) for wide, high in _SHAPES]
    images = [image for image in shapes if image is not None and image.tokens > 1]  # 1: states for cross-attention
    if images:
        largest = max(images, key=lambda image: image.tokens)
        return _Item(largest.patches, largest.tokens, largest.tokens)
    if vision.has("image_size") and vision.has("patch_size"):
        patches = num_patches(vision)
        return _Item(patches, patches, patches)
    return _Item(LARGEST_DYNAMIC_TOKENS * merged, LARGEST_DYNAMIC_TOKENS, LARGEST_DYNAMIC_TOKENS)


def _patch_inputs(vision: Config) -> int:
    """Values of one patch of an image: channels · frames of a patch · size²."""
    if not vision.has("patch_size"):
        return 0
    channels = vision.size("in_channels", "num_channels", "in_chans", default=3)
    return channels * vision.size("temporal_patch_size", default=1) * prod(pair(vision, "patch_size"))


def tower_bytes(model: Model, patches: int, bytes_per_element: int) -> int:
    """Largest live set of the vision part over `patches`, under SDPA: patches · elements alive · bytes of an element.

    Scores of eager attention and the frames of windowed attention are not counted.
    """
    live = max((block_live_set(block) for block in model.blocks if _is_vision(block.parameters)), default=0)
    return patches * live * bytes_per_element


def _is_vision(parameters: tuple[object, ...]) -> bool:
    return any(getattr(parameter, "part", "") == "vision" for parameter in parameters)
