"""Patches of the image as it is, several merged to a token: Qwen and GLM."""

from __future__ import annotations

import math
from collections.abc import Callable

from vramwise.models.config import Config
from vramwise.models.images.tokens import ImageTokens, vision_table

KIMI_VL_PATCHES = 4096  # vLLM 0.33.0 model_executor/models/kimi_vl.py, moonshotai/Kimi-VL-A3B-Instruct's in_token_limit
KIMI_PATCHES, KIMI_SIDE = 16_384, 512  # image_processing_kimi_k25.py: most patches of an image, and of a side


def within_pixels(width: int, height: int, multiple: int, least: int, most: int, frames: int = 1) -> tuple[int, int]:
    """Sides rounded to `multiple` at about the same ratio, so that `least` ≤ frames · pixels ≤ `most`."""
    wide, high = (round(side / multiple) * multiple for side in (width, height))
    if frames * wide * high > most:
        shrink = math.sqrt(frames * width * height / most)
        wide, high = (max(multiple, math.floor(side / shrink / multiple) * multiple) for side in (width, height))
    elif frames * wide * high < least:
        grow = math.sqrt(least / (frames * width * height))
        wide, high = (math.ceil(side * grow / multiple) * multiple for side in (width, height))
    return wide, high


def _in_squares(columns: int, rows: int, size: int, merge: int, bounds: str) -> ImageTokens:
    """A token for each square of `merge` × `merge` patches."""
    said = f"patches of {size} × {size} pixels, {merge} × {merge} in a token, {bounds}"
    return ImageTokens(columns * rows // merge**2, columns * rows, said, rows=rows, columns=columns)


def merged(least: int, most: int, patch: int) -> Callable[[Config, int, int], ImageTokens]:
    def rule(c: Config, width: int, height: int) -> ImageTokens:
        v = vision_table(c)
        size, merge = v.size("patch_size", default=patch), v.size("spatial_merge_size", default=2)
        wide, high = within_pixels(width, height, size * merge, least, most)
        return _in_squares(wide // size, high // size, size, merge, f"{least:,} to {most:,} pixels")

    return rule


def glm4v(c: Config, width: int, height: int) -> ImageTokens:
    """As Qwen's, for two equal frames; sides below one token grow first."""
    v = vision_table(c)
    size, merge, frames = v.size("patch_size", default=14), v.size("spatial_merge_size", default=2), 2
    least, most, multiple = 112 * 112, 28 * 28 * 15_000, size * merge
    if width < multiple or height < multiple:
        grow = max(multiple / height, multiple / width)
        width, height = int(width * grow), int(height * grow)
    wide, high = within_pixels(width, height, multiple, least, most, frames)
    return _in_squares(wide // size, high // size, size, merge, f"up to {most:,} pixels in {frames} frames")


def kimi_k25(c: Config, width: int, height: int) -> ImageTokens:
    """As large as it is, shrunk to the most patches of all or of a side, padded to whole squares of patches."""
    v = vision_table(c)
    size, merge = v.size("patch_size", default=14), v.sides("merge_kernel_size", (2, 2))
    patches = max(1, height // size) * max(1, width // size)
    scale = min(1.0, math.sqrt(KIMI_PATCHES / patches), *(KIMI_SIDE * size / side for side in (width, height)))
    wide, high = (min(max(1, int(side * scale)), KIMI_SIDE * size) for side in (width, height))
    columns, rows = (-(-side // (size * merge[0])) * merge[0] for side in (wide, high))
    return ImageTokens(
        columns * rows // (merge[0] * merge[1]), columns * rows,
        f"patches of {size} × {size} pixels, {merge[0]} × {merge[1]} in a token, at most {KIMI_PATCHES:,} of them",
        rows=rows, columns=columns,
    )  # fmt: skip


def kimi_vl(c: Config, width: int, height: int) -> ImageTokens:
    """As large as it is, shrunk to the most patches, padded to whole squares of them."""
    v = vision_table(c)
    size, merge = v.size("patch_size", default=14), v.sides("merge_kernel_size", (2, 2))
    patches = max(1, width // size) * max(1, height // size)
    scale = min(1.0, math.sqrt(KIMI_VL_PATCHES / patches))
    columns, rows = (
        -(-max(1, int(side * scale)) // (size * by)) * by
        for side, by in zip((width, height), reversed(merge), strict=True)
    )
    return ImageTokens(
        columns * rows // (merge[0] * merge[1]), columns * rows,
        f"patches of {size} × {size} pixels, {merge[0]} × {merge[1]} in a token, at most {KIMI_VL_PATCHES:,} of them",
        rows=rows, columns=columns,
    )  # fmt: skip
