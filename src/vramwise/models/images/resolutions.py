"""The whole image and tiles of a resolution that suits it: LLaVA-NeXT, LLaVA-OneVision, Step 3.7."""

from __future__ import annotations

import math
from collections.abc import Iterable

from vramwise.models.config import Config
from vramwise.models.images.tokens import ImageTokens, vision_table

STEP_WINDOW, STEP_LARGEST = 504, 3024  # image_processing_step3p7.py
LEAST_SHRINK = 1.1  # modeling_llava_onevision.py pack_image_features
_PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


def best_resolution(width: int, height: int, choices: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Of sizes (height, width) the one that keeps most pixels of the image, then the one that wastes least."""

    def worth(choice: tuple[int, int]) -> tuple[int, int]:
        scale = min(choice[1] / width, choice[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - choice[0] * choice[1]

    return max(choices, key=worth)


def llava_next(c: Config, width: int, height: int) -> ImageTokens:
    """The whole image in one tile, and as tiles of the best resolution, without padding and with line ends."""
    v = vision_table(c)
    side, patch = v.size("image_size", default=336), v.size("patch_size", default=14)
    points = [tuple(point) for point in c.items("image_grid_pinpoints") or _PINPOINTS]
    per_side, (high, wide), tiles = side // patch, *unpadded(width, height, side, patch, points)
    return ImageTokens(
        per_side**2 + high * wide + high, (1 + tiles) * per_side**2,
        f"the image at {side} × {side} and in {tiles} tiles (best of {len(points)} resolutions), without padding, and "
        "a token at the end of each line",
        rows=per_side, columns=per_side, tiles=1 + tiles,
    )  # fmt: skip


def llava_onevision(c: Config, width: int, height: int) -> ImageTokens:
    """As LLaVA-NeXT's, then shrunk to about as many patches as `vision_aspect_ratio` allows."""
    v = vision_table(c)
    side, patch = v.size("image_size", default=384), v.size("patch_size", default=14)
    points = [tuple(point) for point in c.items("image_grid_pinpoints") or [
        (side * i, side * j) for i in range(1, 7) for j in range(1, 7)
    ]]  # fmt: skip
    per_side, (high, wide), tiles = side // patch, *unpadded(width, height, side, patch, points)
    most = c.text("vision_aspect_ratio", "anyres_max_9").removeprefix("anyres_max_")
    if not most.isdigit() or not int(most):
        raise c.error(f"vision_aspect_ratio: expected anyres_max_N, got {c.text('vision_aspect_ratio')}")
    shrink = math.sqrt(high * wide / (int(most) * per_side**2))
    if shrink > LEAST_SHRINK:
        high, wide = int(high // shrink), int(wide // shrink)
    return ImageTokens(
        per_side**2 + high * wide + high, (1 + tiles) * per_side**2,
        f"the image at {side} × {side} and in {tiles} tiles (best of {len(points)} resolutions), without padding, "
        f"shrunk to about {most} tiles, and a token at the end of each line",
        rows=per_side, columns=per_side, tiles=1 + tiles,
    )  # fmt: skip


def one_tile(c: Config, width: int, height: int) -> ImageTokens:
    """One of several images in a sequence of LLaVA-OneVision's: a single tile and the token that ends a line."""
    v = vision_table(c)
    side, patch = v.size("image_size", default=384), v.size("patch_size", default=14)
    rows = side // patch
    rule = f"each of several images is {side} × {side} pixels, with a token at the end"
    return ImageTokens(rows**2 + 1, rows**2, rule, rows=rows, columns=rows)


def unpadded(
    width: int, height: int, side: int, patch: int, points: Iterable[tuple[int, int]]
) -> tuple[tuple[int, int], int]:  # fmt: skip
    """Rows and columns of patches without padding on the best resolution, and its tiles."""
    best_height, best_width = best_resolution(width, height, points)
    per_side = side // patch
    high, wide = per_side * (best_height // side), per_side * (best_width // side)
    tiles = (best_height // side) * (best_width // side)
    if width / height > wide / high:
        high -= (high - int(round(height * (wide / width), 7))) // 2 * 2
    else:
        wide -= (wide - int(round(width * (high / height), 7))) // 2 * 2
    return (high, wide), tiles


def step3p7(c: Config, width: int, height: int) -> ImageTokens:
    """The whole image, and windows of it that do not overlap; small images that are not long have no windows.

    Markers stand around each, and one ends each row of windows but the last.
    """
    v = vision_table(c)
    side, patch = v.size("image_size", default=728), v.size("patch_size", default=14)
    columns, rows = _windows(width, height, side)
    whole, window = (side // patch, STEP_WINDOW // patch)
    tokens, each = (side // (4 * patch)) ** 2 + 2, (STEP_WINDOW // (4 * patch)) ** 2 + 2
    count = columns * rows
    said = (
        f"the image at {side} × {side} and {count} windows of {STEP_WINDOW} × {STEP_WINDOW} pixels, {each} tokens each"
    )
    patches, total = whole**2 + count * window**2, tokens + count * each + max(0, rows - 1)
    if not count:
        return ImageTokens(total, patches, f"the image at {side} × {side}", rows=whole, columns=whole)
    return ImageTokens(
        total, patches, said, rows=window, columns=window, tiles=count + 1, last_grid=(whole, whole)
    )  # fmt: skip


def _windows(width: int, height: int, side: int) -> tuple[int, int]:
    """Columns and rows of windows, 0 without any."""
    if min(width, height) < 32 and max(width, height) > 4 * min(width, height):
        width = height = max(width, height)
    if max(width, height) > STEP_LARGEST:
        scale = STEP_LARGEST / max(width, height)
        width, height = int(width * scale), int(height * scale)
    short, long = min(width, height), max(width, height)
    if long <= side:
        window = short if long / short > 1.5 else 0
    else:
        window = min(short, STEP_WINDOW) if long / short > 4 else STEP_WINDOW
    if not window:
        return 0, 0
    columns, rows = (max(1, n // window + (n % window > 0.2 * window and n >= window)) for n in (width, height))
    return columns, rows
