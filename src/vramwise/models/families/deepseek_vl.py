"""DeepSeek-VL 7B: SigLIP over small images beside Segment Anything's encoder over large ones, and a Llama."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.operations.sam import HighResolution, JoinHalves
from vramwise.models.towers import segment_anything, siglip_vision, tower_defaults
from vramwise.models.towers.projector_pieces import tapped
from vramwise.models.towers.tower_design import pair
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks

# Defaults of SamVisionConfig (transformers 5.23) that Segment Anything's tower does not have already.
_SAM: dict[str, object] = tower_defaults.DEFAULTS["got_ocr2_vision"]
_HIGH = "model.high_res_vision_model.vision_encoder"


def high_config(c: Config, table: str = "high_res_vision_config") -> Config:
    """Segment Anything's part; its MLP is `mlp_ratio` times as wide where no width is given."""
    given = c.part(table, _SAM | {"mlp_dim": None})
    inner = given.size("mlp_dim", default=int(given.hidden_size * given.number("mlp_ratio", 4.0)))
    return Config({**given.values, "mlp_dim": inner}, c.model_id)


def inner_layer(c: Config, high: Config) -> int:
    """The layer of the large images' part whose result is read besides: the first that attends to the whole image."""
    chosen = high.items("global_attn_indexes") or []
    if not chosen or not isinstance(chosen[0], int) or not 0 <= chosen[0] < high.num_hidden_layers:
        raise c.error(
            "high_res_vision_config: global_attn_indexes: expected layers of the tower, got none of them first"
        )
    return chosen[0]


def downsampled(high: Config, inner: int, rows: int) -> Block:
    """What both results of the large images' part pass: a second neck for the inner one, two convolutions."""
    b = BlockBuilder("model", part="vision", modality="image")
    out, width = high.size("output_channels"), high.hidden_size
    neck = "high_res_vision_neck"
    shapes = {
        f"{neck}.conv1.weight": (out, width, 1, 1), f"{neck}.layer_norm1.weight": (out,),
        f"{neck}.layer_norm1.bias": (out,), f"{neck}.conv2.weight": (out, out, 3, 3),
        f"{neck}.layer_norm2.weight": (out,), f"{neck}.layer_norm2.bias": (out,),
        "high_res_vision_proj.conv1.weight": (2 * out, out, 3, 3),
        "high_res_vision_proj.conv2.weight": (4 * out, 2 * out, 3, 3), "high_res_vision_alpha": (1,),
    }  # fmt: skip
    weights = [b.parameter("", name, shape) for name, shape in shapes.items()]
    results = [b.input("image", out), b.input(tapped(inner), width)]
    return b.build(high=b.op(HighResolution(rows=rows), "", results, [4 * out], weights)[0])


def aligner(low: Config, high: Config, width: int) -> Block:
    """Half of the width from either part, a product of both."""
    b = BlockBuilder("model.aligner", part="projector", modality="image")
    small = b.linear(b.input("image", low.hidden_size), "vision_proj", width // 2, bias=True)
    large = b.input("high", 4 * high.size("output_channels"))
    large = b.linear(large, "high_res_vision_proj", width // 2, bias=True)
    x = b.activation(b.op(JoinHalves(), "", [large, small], [width])[0], "gelu")
    return b.build(image=b.linear(x, "proj", width, bias=True, shard="row"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Both towers, what joins them, and the language model."""
    low = (c.table("vision_config") or Config({}, c.model_id)).filled(tower_defaults.DEFAULTS["siglip_vision_model"])
    low, high = Config({**low.values, "model_type": "siglip_vision_model"}, c.model_id), high_config(c)
    text = text_config(c, "llama", {})
    if text.hidden_size % 2:
        raise c.error(f"text_config: both parts of an image take half of hidden_size, got {text.hidden_size}")
    embedding, *language = language_blocks(text, "model.language_model", tied=c.flag("tie_word_embeddings", True))
    return (
        *high_blocks(c, low, high, _HIGH), *tower_blocks(low, siglip_vision.siglip(low), "model.vision_model"),
        aligner(low, high, text.hidden_size), embedding, image_tokens(text.hidden_size, listed=False), *language,
    )  # fmt: skip


def high_blocks(c: Config, low: Config, high: Config, name: str) -> tuple[Block, ...]:
    """The large images' part, down to as many patches as the small images' has."""
    inner, rows = inner_layer(c, high), pair(low, "image_size")[0] // pair(low, "patch_size")[0]
    tower = segment_anything.got_ocr2(high)
    return (*tower_blocks(high, tower, name, also=frozenset({inner + 1})), downsampled(high, inner, rows))
