"""How many tokens of the prompt an image takes, and how many patches the vision part computes for it.

Each family's processor resizes or tiles the image first. What a config.json does not say (most pixels, most tiles) is
the published processor's value, named in the rule. Sources: processors of transformers 5.23, models/TYPE/
processing_TYPE.py and image_processing_TYPE.py; tests/models/test_image_tokens.py runs their code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vramwise.errors import UsageError
from vramwise.models.config import Config

WIDEST_RATIO = 200  # the processors refuse images that are narrower
LARGEST_SIDE = 100_000
IDEFICS_LARGEST_SIDE = 4096  # image_processing_idefics3.py MAX_IMAGE_SIZE
MOST_TILES = {"internvl": 12, "internvl_chat": 12, "aya_vision": 12, "llama4": 16, "mllama": 4, "phi4_multimodal": 36}
GEMMA4_TOKENS = 280
PHI4_NARROWEST = 10


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """Tokens that one image takes of the prompt, patches that the vision part computes, and the rule in words.

    `cross_tokens` are states that layers of cross-attention read instead of tokens of the prompt. The tower takes
    `tiles` inputs of `rows` × `columns` patches each; 0 where that is not one grid.
    """

    tokens: int
    patches: int
    rule: str
    cross_tokens: int = 0
    rows: int = 0
    columns: int = 0
    tiles: int = 1


def image_tokens(c: Config, width: int, height: int) -> ImageTokens | None:
    """What one image of `width` × `height` pixels costs, None for a type without a rule here.

    Raises UsageError for a size that no processor takes.
    """
    if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
        raise UsageError(f"an image of {width} × {height} pixels: expected sides from 1 to {LARGEST_SIDE:,}")
    if max(width, height) > WIDEST_RATIO * min(width, height):
        raise UsageError(f"an image of {width} × {height} pixels: expected sides at most {WIDEST_RATIO} : 1")
    thinker = c.table("thinker_config")
    rule = _RULES.get(c.model_type)
    return rule(thinker or c, width, height) if rule is not None else None


def _vision(c: Config) -> Config:
    return c.table("vision_config") or Config({}, c.model_id)


# -- patches of the image as it is, merged (Qwen) ---------------------------------------------------------------


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


def _merged(least: int, most: int, patch: int) -> Callable[[Config, int, int], ImageTokens]:
    def rule(c: Config, width: int, height: int) -> ImageTokens:
        v = _vision(c)
        size, merge = v.size("patch_size", default=patch), v.size("spatial_merge_size", default=2)
        wide, high = within_pixels(width, height, size * merge, least, most)
        patches = (wide // size) * (high // size)
        return ImageTokens(
            patches // merge**2, patches,
            f"patches of {size} × {size} pixels, {merge} × {merge} in a token, {least:,} to {most:,} pixels",
            rows=high // size, columns=wide // size,
        )  # fmt: skip

    return rule


def _glm4v(c: Config, width: int, height: int) -> ImageTokens:
    """As Qwen's, for two equal frames; sides below one token grow first."""
    v = _vision(c)
    size, merge, frames = v.size("patch_size", default=14), v.size("spatial_merge_size", default=2), 2
    least, most, multiple = 112 * 112, 28 * 28 * 15_000, size * merge
    if width < multiple or height < multiple:
        grow = max(multiple / height, multiple / width)
        width, height = int(width * grow), int(height * grow)
    wide, high = within_pixels(width, height, multiple, least, most, frames)
    patches = (wide // size) * (high // size)
    return ImageTokens(
        patches // merge**2, patches,
        f"patches of {size} × {size} pixels, {merge} × {merge} in a token, up to {most:,} pixels in {frames} frames",
        rows=high // size, columns=wide // size,
    )  # fmt: skip


# -- one fixed size ---------------------------------------------------------------------------------------------


def _fixed(c: Config, width: int, height: int) -> ImageTokens:
    """The image is made square; the vision part's first token, where it has one, is left out."""
    v = _vision(c)
    side, patch = v.size("image_size", default=336), v.size("patch_size", default=14)
    patches = (side // patch) ** 2
    whole = c.text("vision_feature_select_strategy", "default") == "full"
    tokens = patches + 1 if whole and c.model_type == "llava" else patches
    rule = f"every image is {side} × {side} pixels, patches of {patch} × {patch}"
    return ImageTokens(tokens, patches, rule, rows=side // patch, columns=side // patch)


def _gemma3(c: Config, width: int, height: int) -> ImageTokens:
    v = _vision(c)
    side, patch = v.size("image_size", default=896), v.size("patch_size", default=14)
    tokens = c.size("mm_tokens_per_image", default=256)
    return ImageTokens(
        tokens, (side // patch) ** 2, f"every image is {side} × {side} pixels, pooled to {tokens} tokens (one crop)",
        rows=side // patch, columns=side // patch,
    )  # fmt: skip


def _gemma4(c: Config, width: int, height: int) -> ImageTokens:
    """Sides as large as most patches allow, whole squares of patches each; fewer patches are padded to the most."""
    v = _vision(c)
    size, pool = v.size("patch_size", default=16), v.size("pooling_kernel_size", default=3)
    unit, most = size * pool, GEMMA4_TOKENS * pool**2
    scale = math.sqrt(most * size**2 / (width * height))
    columns, rows = math.floor(scale * width / unit), math.floor(scale * height / unit)
    if not rows or not columns:
        columns, rows = min(max(width // height, 1), GEMMA4_TOKENS), min(max(height // width, 1), GEMMA4_TOKENS)
    unified = c.model_type == "gemma4_unified"
    return ImageTokens(
        columns * rows, GEMMA4_TOKENS if unified else most,
        f"at most {GEMMA4_TOKENS} squares of {unit} × {unit} pixels, to which fewer are padded in the vision part",
    )  # fmt: skip


# -- tiles ------------------------------------------------------------------------------------------------------


def best_resolution(width: int, height: int, choices: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Of sizes (height, width) the one that keeps most pixels of the image, then the one that wastes least."""

    def worth(choice: tuple[int, int]) -> tuple[int, int]:
        scale = min(choice[1] / width, choice[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - choice[0] * choice[1]

    return max(choices, key=worth)


def _llava_next(c: Config, width: int, height: int) -> ImageTokens:
    """The whole image in one tile, and as tiles of the best resolution, without padding and with line ends."""
    v = _vision(c)
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


_PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]


def _nearest_grid(width: int, height: int, side: int, most: int) -> tuple[int, int]:
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


def _tiled(frame: int, each: int) -> Callable[[Config, int, int], ImageTokens]:
    """Tiles of the nearest grid, with a thumbnail where there are several; `frame` tokens around, `each` a tile."""

    def rule(c: Config, width: int, height: int) -> ImageTokens:
        v = _vision(c)
        side, patch, most = _side(v, 448), _side(v, 14, "patch_size"), MOST_TILES[c.model_type]
        shrink = c.number("downsample_ratio", 0.5) if c.model_type != "aya_vision" else 1 / c.size(
            "downsample_factor", default=2
        )  # fmt: skip
        columns, rows = _nearest_grid(width, height, side, most)
        tiles = columns * rows + (columns * rows > 1)
        tokens = int((side // patch * shrink) ** 2)
        return ImageTokens(
            frame + tiles * tokens + (tiles - 1) * each, tiles * (side // patch) ** 2,
            f"{columns} × {rows} tiles of {side} × {side} pixels, at most {most}, and a thumbnail, {tokens} each",
            rows=side // patch, columns=side // patch, tiles=tiles,
        )  # fmt: skip

    return rule


def _side(v: Config, default: int, key: str = "image_size") -> int:
    """A size that some configs write as [height, width]."""
    value = v.get(key)
    return v.size(key, default=default) if not isinstance(value, list) else int(value[0])


def _idefics3(c: Config, width: int, height: int) -> ImageTokens:
    """The longest side becomes four tiles; rows of tiles with a marker each, then the whole image."""
    v = _vision(c)
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


def _pixtral(c: Config, width: int, height: int) -> ImageTokens:
    """One token a patch (or square of patches) and one at the end of each line."""
    v = _vision(c)
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


def _llama4(c: Config, width: int, height: int) -> ImageTokens:
    """Tiles of the canvas that fits best, and the whole image where there are several, with markers between."""
    v = _vision(c)
    side, patch, most = v.size("image_size", default=336), v.size("patch_size", default=14), MOST_TILES["llama4"]
    tokens = int((side // patch) ** 2 * v.number("pixel_shuffle_ratio", 0.5) ** 2)
    columns, rows = _canvas(width, height, side, most)
    tiles = columns * rows
    markers = rows * columns if tiles > 1 else 0  # one between neighbours and one at the end of each row
    tiles += tiles > 1
    return ImageTokens(
        tiles * tokens + markers + 3, tiles * ((side // patch) ** 2 + 1),
        f"{columns} × {rows} tiles of {side} × {side} pixels, at most {most}, and the whole image, {tokens} tokens "
        "each",
    )  # fmt: skip


def _canvas(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    """Columns and rows of the canvas that enlarges least, else shrinks least; of equal ones the smallest."""
    grids = [(w, h) for w in range(1, most + 1) for h in range(1, most + 1) if w * h <= most]
    scale = {grid: min(grid[0] * side / width, grid[1] * side / height) for grid in grids}
    enlarging = [value for value in scale.values() if value >= 1]
    chosen = min(enlarging) if enlarging else max(scale.values())
    return min((grid for grid in grids if scale[grid] == chosen), key=lambda grid: grid[0] * grid[1])


def _phi4(c: Config, width: int, height: int) -> ImageTokens:
    """Tiles that cover the image, or of 36 at most the nearest grid; padding takes no tokens; the whole image besides.

    A token is 2 × 2 patches; one ends each line, one stands between whole image and tiles.
    """
    v = _vision(c)
    side, patch, most = v.size("image_size", default=448), v.size("patch_size", default=14), MOST_TILES[c.model_type]
    columns, rows = -(-width // side), -(-height // side)
    if columns * rows > most:
        columns, rows = _nearest_grid(width, height, side, most)
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
    line, tiles = side // patch // 2, columns * rows + 1
    return ImageTokens(
        line * (line + 1) + 1 + down * (across + 1), tiles * (side // patch) ** 2,
        f"{columns} × {rows} tiles of {side} × {side} pixels, at most {most}, and the whole image, without padding",
    )  # fmt: skip


def _mllama(c: Config, width: int, height: int) -> ImageTokens:
    """Layers of cross-attention read the tiles, always as many as there may be; the prompt holds one token."""
    v = _vision(c)
    side, patch = v.size("image_size", default=448), v.size("patch_size", default=14)
    tiles = v.size("max_num_tiles", default=MOST_TILES["mllama"])
    each = (side // patch) ** 2 + 1
    return ImageTokens(
        1, tiles * each, f"{tiles} tiles of {side} × {side} pixels, padded, {each:,} states each for cross-attention",
        cross_tokens=tiles * each, rows=side // patch, columns=side // patch, tiles=tiles,
    )  # fmt: skip


_QWEN2 = _merged(56 * 56, 12_845_056, 14)  # preprocessor_config.json of Qwen2-VL and Qwen2.5-VL
_QWEN3 = _merged(65_536, 16_777_216, 16)  # preprocessor_config.json of Qwen3-VL and Qwen3.5
_QWEN3_OMNI = _merged(56 * 56, 12_845_056, 16)  # preprocessor_config.json of Qwen3-Omni
_RULES: dict[str, Callable[[Config, int, int], ImageTokens]] = {
    "aya_vision": _tiled(3, 1),
    "gemma3": _gemma3,
    "gemma4": _gemma4,
    "gemma4_unified": _gemma4,
    "glm4v": _glm4v,
    "idefics3": _idefics3,
    "internvl": _tiled(2, 0),
    "internvl_chat": _tiled(2, 0),
    "llama4": _llama4,
    "llava": _fixed,
    "llava_next": _llava_next,
    "mistral3": _pixtral,
    "mllama": _mllama,
    "paligemma": _fixed,
    "phi4_multimodal": _phi4,
    "qwen2_5_omni": _QWEN2,
    "qwen2_5_omni_thinker": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
    "qwen3_omni_moe": _QWEN3_OMNI,
    "qwen3_omni_moe_thinker": _QWEN3_OMNI,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "smolvlm": _idefics3,
}


def types_with_rule() -> tuple[str, ...]:
    """Model types whose images can be counted."""
    return tuple(_RULES)
