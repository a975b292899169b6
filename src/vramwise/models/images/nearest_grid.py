"""Tiles of the grid whose ratio is nearest, and a thumbnail: InternVL, Aya Vision, LFM2-VL, Phi-4."""

from __future__ import annotations

import math
from collections.abc import Callable

from vramwise.errors import UsageError
from vramwise.models.config import Config
from vramwise.models.images.merged import within_pixels
from vramwise.models.images.tokens import ImageTokens, first_side, vision_table

PHI4_NARROWEST = 10
# image_processing_lfm2_vl.py: tokens of an image, its tiles, their side in pixels, and how much larger is not cut yet.
LFM2_TOKENS, LFM2_TILES, LFM2_TILE, LFM2_TOLERANCE = (64, 256), (2, 10), 512, 2.0
MOST_TILES = {"internvl": 12, "internvl_chat": 12, "aya_vision": 12, "phi4_multimodal": 36, "phi4mm": 36}


def nearest_grid(width: int, height: int, side: int, most: int, fewest: int = 1) -> tuple[int, int]:
    """Columns and rows of at most `most` tiles whose ratio is nearest; of equal ones more, while not twice the area."""
    grids = [(w, h) for w in range(1, most + 1) for h in range(1, most + 1) if fewest <= w * h <= most]
    best, least = (1, 1), math.inf
    for grid in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        off = abs(width / height - grid[0] / grid[1])
        if off < least:
            best, least = grid, off
        elif off == least and width * height > 0.5 * side * side * grid[0] * grid[1]:
            best = grid
    return best


def tiled(frame: int, each: int) -> Callable[[Config, int, int], ImageTokens]:
    """Tiles of the nearest grid, with a thumbnail where there are several; `frame` tokens around, `each` a tile."""

    def rule(c: Config, width: int, height: int) -> ImageTokens:
        v = vision_table(c)
        side, patch, most = first_side(v, 448), first_side(v, 14, "patch_size"), MOST_TILES[c.model_type]
        shrink = c.number("downsample_ratio", 0.5) if c.model_type != "aya_vision" else 1 / c.size(
            "downsample_factor", default=2
        )  # fmt: skip
        columns, rows = nearest_grid(width, height, side, most)
        tiles = columns * rows + (columns * rows > 1)
        tokens = int((side // patch * shrink) ** 2)
        return ImageTokens(
            frame + tiles * tokens + (tiles - 1) * each, tiles * (side // patch) ** 2,
            f"{columns} × {rows} tiles of {side} × {side} pixels, at most {most}, and a thumbnail, {tokens} each",
            rows=side // patch, columns=side // patch, tiles=tiles,
        )  # fmt: skip

    return rule


def lfm2_vl(c: Config, width: int, height: int) -> ImageTokens:
    """A large image in tiles of 512 pixels and whole, a smaller one only whole; padded to the most patches of either.

    Markers stand before and behind the image and before each of its tiles.
    """
    patch, factor = vision_table(c).size("patch_size", default=16), c.size("downsample_factor", default=2)
    unit, area = patch * factor, (patch * factor) ** 2
    wide, high = (max(patch, round(length / unit) * unit) for length in (width, height))
    split = wide * high > LFM2_TOKENS[1] * area * LFM2_TOLERANCE
    least, most = (tokens * area for tokens in LFM2_TOKENS)
    wide, high = within_pixels(width, height, unit, least, most)
    last = (max(high // patch, factor), max(wide // patch, factor))
    slots = max(LFM2_TOKENS[1] * factor**2, (LFM2_TILE // patch) ** 2)
    whole = (last[0] // factor) * (last[1] // factor)
    if not split:
        said = f"{last[1]} × {last[0]} patches of {patch} × {patch} pixels, padded to {slots:,}"
        return ImageTokens(whole + 2, slots, said, rows=last[0], columns=last[1], padded_to=slots)
    columns, rows = nearest_grid(width, height, LFM2_TILE, LFM2_TILES[1], LFM2_TILES[0])
    side, tiles = LFM2_TILE // patch, columns * rows + 1
    tokens = columns * rows * ((-(-side // factor)) ** 2 + 1) + whole + 1 + 2
    return ImageTokens(
        tokens, tiles * slots, f"{columns} × {rows} tiles of {LFM2_TILE} × {LFM2_TILE} pixels, and the whole image",
        rows=side, columns=side, tiles=tiles, padded_to=slots, last_grid=last,
    )  # fmt: skip


def phi4(c: Config, width: int, height: int) -> ImageTokens:
    """Tiles that cover the image, or of 36 at most the nearest grid; padding takes no tokens; the whole image besides.

    A token is 2 × 2 patches; one ends each line, one stands between whole image and tiles.
    Raises UsageError for an image too narrow for a tile.
    """
    v = vision_table(c)
    side, patch, most = v.size("image_size", default=448), v.size("patch_size", default=14), MOST_TILES[c.model_type]
    columns, rows = -(-width // side), -(-height // side)
    if columns * rows > most:
        columns, rows = nearest_grid(width, height, side, most)
    by_width, by_height = columns * side / width, rows * side / height
    wide, high = columns * side, rows * side
    if by_width < by_height:
        high = int(height * by_width)
    else:
        wide = int(width * by_height)
    if min(wide, high) < PHI4_NARROWEST:
        raise UsageError(f"an image of {width} × {height} pixels: Phi-4 leaves fewer than {PHI4_NARROWEST} of a side")
    across, down = (
        -(-(count * (side // patch) - (count * side - kept) // patch) // 2)
        for count, kept in ((columns, wide), (rows, high))
    )
    line, tiles = (side // patch + 1) // 2, columns * rows + 1
    padded = max((columns * side - wide) // patch, (rows * side - high) // patch) > 0
    return ImageTokens(
        line * (line + 1) + 1 + down * (across + 1), tiles * (side // patch) ** 2,
        f"{columns} × {rows} tiles of {side} × {side} pixels, at most {most}, and the whole image, without padding",
        rows=side // patch, columns=side // patch, tiles=tiles, padded_to=(side // patch) ** 2 if padded else 0,
    )  # fmt: skip
