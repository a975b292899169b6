"""The longest side decides: rows of tiles (Idefics 3) or of patches (Pixtral), each with a mark; a square (Aria).

Idefics 2: the image as it is and its four quarters.
"""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.images.one_size import fixed
from vramwise.models.images.tokens import ImageTokens, vision_table

IDEFICS_LARGEST_SIDE = 4096  # image_processing_idefics3.py MAX_IMAGE_SIZE
ARIA_SIDE, ARIA_LEAST = 980, 336  # image_processing_aria.py: the longest side, and the least of the other

IDEFICS2_LONGEST, IDEFICS2_SHORTEST = 980, 378  # preprocessor_config.json of Idefics2: do_image_splitting too


def idefics2(c: Config, width: int, height: int) -> ImageTokens:
    """Four quarters and the whole image, each within two sides, padded to one size, with markers between them."""
    patch = vision_table(c).size("patch_size", default=32)
    latents = (c.table("perceiver_config") or Config({})).size("resampler_n_latents", default=64)
    inputs = [(width, height)]
    inputs += [(w, h) for w in (width // 2, width - width // 2) for h in (height // 2, height - height // 2)]
    sizes = [_between(*size, IDEFICS2_SHORTEST, IDEFICS2_LONGEST) for size in inputs if min(size)]
    wide, high = (max(sides) for sides in zip(*sizes, strict=True))
    columns, rows = wide // patch, high // patch
    padded = any((w // patch, h // patch) != (columns, rows) for w, h in sizes)
    return ImageTokens(
        len(sizes) * (latents + 1) + 1, len(sizes) * rows * columns,
        f"four quarters and the whole image of {wide} × {high} pixels, {latents} tokens each, with markers",
        rows=rows, columns=columns, tiles=len(sizes), padded_to=rows * columns if padded else 0, pixels=(high, wide),
    )  # fmt: skip


def _between(width: int, height: int, shortest: int, longest: int) -> tuple[int, int]:
    ratio = width / height
    if width >= height and width > longest:
        width, height = longest, int(longest / ratio)
    elif height > width and height > longest:
        width, height = int(longest * ratio), longest
    return max(width, shortest), max(height, shortest)


def idefics3(c: Config, width: int, height: int) -> ImageTokens:
    """The longest side becomes four tiles; rows of tiles with a marker each, then the whole image."""
    v = vision_table(c)
    side, patch, scale = v.size("image_size", default=364), v.size("patch_size", default=14), c.size(
        "scale_factor", default=2
    )  # fmt: skip
    tokens = (side // patch) ** 2 // scale**2
    ratio, longest = width / height, 4 * side
    if width >= height:
        wide, high = longest, int(longest / ratio)
        high += high % 2
    else:
        wide, high = int(longest * ratio), longest
        wide += wide % 2
    wide, high = max(wide, 1), max(high, 1)
    if max(wide, high) > IDEFICS_LARGEST_SIDE:
        ratio = wide / high
        wide, high = (
            (IDEFICS_LARGEST_SIDE, int(IDEFICS_LARGEST_SIDE / ratio))
            if wide >= high
            else (int(IDEFICS_LARGEST_SIDE * ratio), IDEFICS_LARGEST_SIDE)
        )
    columns, rows = -(-max(wide, 1) // side), -(-max(high, 1) // side)
    if columns * rows == 1:
        columns = rows = 0
    return ImageTokens(
        tokens + 3 + rows * (columns * (tokens + 2) + 1), (columns * rows + 1) * (side // patch) ** 2,
        f"{columns} × {rows} tiles of {side} × {side} pixels and the whole image, {tokens} tokens each, with markers",
        rows=side // patch, columns=side // patch, tiles=columns * rows + 1,
    )  # fmt: skip


def llava(c: Config, width: int, height: int) -> ImageTokens:
    """LLaVA: with a tower of Pixtral's, its images (Pixtral 12B), else one square size."""
    return pixtral(c, width, height) if vision_table(c).model_type == "pixtral" else fixed(c, width, height)


def pixtral(c: Config, width: int, height: int) -> ImageTokens:
    """One token a patch (or square of patches) and one at the end of each line."""
    v = vision_table(c)
    longest, size = v.size("image_size", default=1024), v.size("patch_size", default=16)
    merge = c.size("spatial_merge_size", default=1)
    ratio = max(width, height) / longest
    if ratio > 1:
        width, height = int(width / ratio), int(height / ratio)
    columns, rows = (max(0, side - 1) // (size * merge) + 1 for side in (width, height))
    return ImageTokens(
        (columns + 1) * rows, columns * rows * merge**2,
        f"sides up to {longest:,} pixels, a token for {size * merge} × {size * merge} and one at the end of each line",
        rows=rows * merge, columns=columns * merge,
    )  # fmt: skip


def aria(c: Config, width: int, height: int) -> ImageTokens:
    """The longest side as given, the other at least so long, padded to a square; a number of queries reads it."""
    patch, queries = vision_table(c).size("patch_size", default=32), c.table("projector_patch_to_query_dict")
    rows = ARIA_SIDE // patch
    tokens = (queries or Config({"1225": 128, "4900": 256})).size(str(rows**2), default=256)
    scale = ARIA_SIDE / max(width, height)
    padded = max(int(min(width, height) * scale), ARIA_LEAST) <= ARIA_SIDE - patch
    side = rows if vision_table(c).size("image_size", default=224) == ARIA_SIDE else 0
    return ImageTokens(
        tokens, rows**2, f"every image is padded to {ARIA_SIDE} × {ARIA_SIDE} pixels, {tokens} queries read it",
        rows=side, columns=side, padded_to=rows**2 if padded else 0,
    )  # fmt: skip
