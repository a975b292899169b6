"""The whole image and tiles of the best of given resolutions: LLaVA-NeXT."""

from __future__ import annotations

from collections.abc import Iterable

from vramwise.models.config import Config
from vramwise.models.images.tokens import ImageTokens, vision_table

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
    best_height, best_width = best_resolution(width, height, points)
    per_side = side // patch
    high, wide = per_side * (best_height // side), per_side * (best_width // side)
    tiles = (best_height // side) * (best_width // side)
    if width / height > wide / high:
        high -= (high - int(round(height * (wide / width), 7))) // 2 * 2
    else:
        wide -= (wide - int(round(width * (high / height), 7))) // 2 * 2
    return ImageTokens(
        per_side**2 + high * wide + high, (1 + tiles) * per_side**2,
        f"the image at {side} × {side} and in {tiles} tiles (best of {len(points)} resolutions), without padding, and "
        "a token at the end of each line",
        rows=per_side, columns=per_side, tiles=1 + tiles,
    )  # fmt: skip
