"""Every image in one size, or padded to one number of patches: LLaVA, PaliGemma, GIT, Gemma 3 and 4."""

from __future__ import annotations

import math
from collections.abc import Callable

from vramwise.models.config import Config
from vramwise.models.images.tokens import ImageTokens, vision_table

GEMMA3N_SIDE = 768  # preprocessor_config.json of Gemma 3n
GEMMA4_TOKENS = 280
Rule = Callable[[Config, int, int], ImageTokens]


def fixed(c: Config, width: int, height: int) -> ImageTokens:
    """The image is made square; the vision part's first token, where it has one, is left out."""
    v = vision_table(c)
    side, patch = (
        v.size("image_size", default=336 if c.model_type != "video_llava" else 224),
        v.size("patch_size", default=14),
    )
    patches = (side // patch) ** 2
    whole = c.text("vision_feature_select_strategy", "default") == "full"
    tokens = patches + 1 if whole and c.model_type in ("llava", "video_llava") else patches
    rule = f"every image is {side} × {side} pixels, patches of {patch} × {patch}"
    return ImageTokens(tokens, patches, rule, rows=side // patch, columns=side // patch)


def every_patch(side: int, patch: int) -> Rule:
    """Images of one size, made square, a token a patch; these sizes where the config has none."""

    def rule(c: Config, width: int, height: int) -> ImageTokens:
        v = vision_table(c)
        own, size = v.size("image_size", default=side), v.size("patch_size", default=patch)
        rows = own // size
        said = f"every image is {own} × {own} pixels, patches of {size} × {size}"
        return ImageTokens(rows**2, rows**2, said, rows=rows, columns=rows)

    return rule


def before_text(c: Config, width: int, height: int) -> ImageTokens:
    """The image is made square; the vision part's class token is read too (GIT)."""
    v = vision_table(c)
    side, patch = v.size("image_size", default=224), v.size("patch_size", default=16)
    rows = side // patch
    rule = f"every image is {side} × {side} pixels, patches of {patch} × {patch} and a class token"
    return ImageTokens(rows**2 + 1, rows**2, rule, rows=rows, columns=rows)


def got_ocr2(c: Config, width: int, height: int) -> ImageTokens:
    """Two convolutions halve the sides each; a token before and one behind."""
    v = vision_table(c)
    side, patch = v.size("image_size", default=1024), v.size("patch_size", default=16)
    rows = side // patch
    tokens = (-(-rows // 4)) ** 2
    rule = f"every image is {side} × {side} pixels, 4 × 4 patches in a token, and 2 tokens around"
    return ImageTokens(tokens + 2, rows**2, rule, rows=rows, columns=rows)


def gemma3(c: Config, width: int, height: int) -> ImageTokens:
    v = vision_table(c)
    side, patch = v.size("image_size", default=896), v.size("patch_size", default=14)
    tokens = c.size("mm_tokens_per_image", default=256)
    patches = (side // patch) ** 2
    if tokens > patches:
        raise c.error(f"mm_tokens_per_image ({tokens}) is more than the {patches} patches of an image")
    return ImageTokens(
        tokens, patches, f"every image is {side} × {side} pixels, pooled to {tokens} tokens (one crop)",
        rows=side // patch, columns=side // patch,
    )  # fmt: skip


def gemma3n(c: Config, width: int, height: int) -> ImageTokens:
    """A square of 768 × 768 pixels, of which an encoder of convolutions makes a token for each of 16 × 16 places.

    A patch is a place of its last stage, which halves the sides for the fifth time.
    """
    tokens, places = c.size("vision_soft_tokens_per_image", default=256), GEMMA3N_SIDE // 2**5
    return ImageTokens(
        tokens, places**2, f"every image is {GEMMA3N_SIDE} × {GEMMA3N_SIDE} pixels, pooled to {tokens} tokens",
        rows=places, columns=places,
    )  # fmt: skip


def gemma4(c: Config, width: int, height: int) -> ImageTokens:
    """Sides as large as most patches allow, whole squares of patches each; fewer patches are padded to the most.

    The unified models take whole squares for patches.
    """
    v = vision_table(c)
    size, pool = v.size("patch_size", default=16), v.size("pooling_kernel_size", default=3)
    squares = c.size("vision_soft_tokens_per_image", default=GEMMA4_TOKENS)
    unit, side = size * pool, 1 if c.model_type == "gemma4_unified" else pool
    scale = math.sqrt(squares * unit**2 / (width * height))
    columns, rows = math.floor(scale * width / unit), math.floor(scale * height / unit)
    if not rows or not columns:
        columns, rows = min(max(width // height, 1), squares), min(max(height // width, 1), squares)
    return ImageTokens(
        columns * rows, squares * side**2,
        f"at most {squares} squares of {unit} × {unit} pixels, to which fewer are padded in the vision part",
        rows=rows * side, columns=columns * side, padded_to=squares * side**2,
    )  # fmt: skip
