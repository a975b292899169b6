"""Tiles of a canvas: Llama 4 and Llama 3.2 Vision."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.images.tokens import ImageTokens, vision_table

LLAMA4_TILES = 16
MLLAMA_TILES = 4


def _canvas(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    """Columns and rows of the canvas that enlarges least, else shrinks least; of equal ones the smallest."""
    grids = [(w, h) for w in range(1, most + 1) for h in range(1, most + 1) if w * h <= most]
    scale = {grid: min(grid[0] * side / width, grid[1] * side / height) for grid in grids}
    enlarging = [value for value in scale.values() if value >= 1]
    chosen = min(enlarging) if enlarging else max(scale.values())
    return min((grid for grid in grids if scale[grid] == chosen), key=lambda grid: grid[0] * grid[1])


def llama4(c: Config, width: int, height: int) -> ImageTokens:
    """Tiles of the canvas that fits best, and the whole image where there are several, with markers between."""
    v = vision_table(c)
    side, patch, most = v.size("image_size", default=336), v.size("patch_size", default=14), LLAMA4_TILES
    tokens = int((side // patch) ** 2 * v.number("pixel_shuffle_ratio", 0.5) ** 2)
    columns, rows = _canvas(width, height, side, most)
    tiles = columns * rows
    markers = rows * columns if tiles > 1 else 0  # one between neighbours and one at the end of each row
    tiles += tiles > 1
    return ImageTokens(
        tiles * tokens + markers + 3, tiles * ((side // patch) ** 2 + 1),
        f"{columns} × {rows} tiles of {side} × {side} pixels, at most {most}, and the whole image, {tokens} tokens "
        "each",
        rows=side // patch, columns=side // patch, tiles=tiles,
    )  # fmt: skip


def mllama(c: Config, width: int, height: int) -> ImageTokens:
    """Layers of cross-attention read the tiles, always as many as there may be; the prompt holds one token."""
    v = vision_table(c)
    side, patch = v.size("image_size", default=448), v.size("patch_size", default=14)
    tiles = v.size("max_num_tiles", default=MLLAMA_TILES)
    each = (side // patch) ** 2 + 1
    return ImageTokens(
        1, tiles * each, f"{tiles} tiles of {side} × {side} pixels, padded, {each:,} states each for cross-attention",
        cross_tokens=tiles * each, rows=side // patch, columns=side // patch, tiles=tiles,
    )  # fmt: skip
