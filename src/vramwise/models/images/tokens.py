"""What one image costs, and how the rules of the families read a config."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.records import record


@record
class ImageTokens:
    """Tokens that one image takes of the prompt, patches that the vision part computes, and the rule in words.

    `cross_tokens` are states that layers of cross-attention read instead of tokens of the prompt. The tower takes
    `tiles` inputs of `rows` × `columns` patches each; 0 where that is not one grid. `padded_to`: patches to which they
    are padded, 0 where they are not. `last_grid`: rows and columns of the last of them, where those are others.
    `pixels`: height and width of an input that need not be a whole number of patches.
    """

    tokens: int
    patches: int
    rule: str
    cross_tokens: int = 0
    rows: int = 0
    columns: int = 0
    tiles: int = 1
    padded_to: int = 0
    last_grid: tuple[int, int] | None = None
    pixels: tuple[int, int] | None = None


def vision_table(c: Config) -> Config:
    """The config of the vision part, empty where it has none."""
    return c.table("vision_config") or Config({}, c.model_id)


def first_side(v: Config, default: int, key: str = "image_size") -> int:
    """A size that some configs write as [height, width]."""
    value = v.get(key)
    return v.size(key, default=default) if not isinstance(value, list) else int(value[0])
