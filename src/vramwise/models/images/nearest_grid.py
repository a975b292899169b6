"""Tiles of the grid whose ratio is nearest, and a thumbnail: InternVL, Aya Vision, Phi-4."""

from __future__ import annotations

import math
from collections.abc import Callable

from vramwise.errors import UsageError
from vramwise.models.config import Config
from vramwise.models.images.tokens import ImageTokens, first_side, vision_table

PHI4_NARROWEST = 10
MOST_TILES = {"internvl": 12, "internvl_chat": 12, "aya_vision": 12, "phi4_multimodal": 36}


def nearest_grid(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    """Columns and rows of at most `most` tiles whose ratio is nearest; of equal ones more, while not twice the area."""
    grids = [(w, h) for w in range(1, most + 1) for h in range(1, most + 1) if w * h <= most]
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


def phi4(c: Config, width: int, height: int) -> ImageTokens:
    """Tiles that cover the image, or of 36 at most the nearest grid; padding takes no tokens; the whole image besides.

    A token is 2 × 2 patches; one ends each line, one stands between whole image and tiles.
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
