"""dots.ocr: a tower of root mean square norms and gated MLPs, Qwen2-VL's merger, and Qwen2 as its language model.

Its code is on the hub; tensors are those that vLLM 0.11.2 reads (model_executor/models/dots_ocr.py).
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.tower_design import Tower, Weight, with_bias
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks

# Defaults of DotsVisionConfig (vLLM 0.11.2 transformers_utils/configs/dotsocr.py).
_DEFAULTS: dict[str, object] = {
    "embed_dim": 1536, "hidden_size": 1536, "intermediate_size": 4224, "num_hidden_layers": 42, "num_channels": 3,
    "num_attention_heads": 12, "patch_size": 14, "spatial_merge_size": 2,
}  # fmt: skip
_FLAT = "vision_config"


def tower(v: Config) -> Tower:
    """Patches with a norm behind them, layers without biases, a norm after the last."""
    width, patch = v.size("embed_dim"), v.size("patch_size")
    bias = v.flag("use_bias")
    after: tuple[Weight, ...] = (("post_trunk_norm.weight", (width,)),) if v.flag("post_norm", True) else ()
    return Tower(
        width=width, intermediate_size=v.intermediate_size, num_layers=v.num_hidden_layers, function="silu",
        num_heads=v.num_attention_heads, before=(
            *with_bias("patch_embed.patchifier.proj", width, v.size("num_channels"), patch, patch),
            ("patch_embed.patchifier.norm.weight", (width,)),
        ),
        after=after, closing=RmsNorm(), layers="blocks", norm="rms", norms=("norm1", "norm2"), qkv=("attn.qkv",),
        output="attn.proj", biases=(bias, bias, bias, bias), mlp=("mlp.fc1", "mlp.fc3", "mlp.fc2"), mlp_bias=bias,
        packed=True,
    )  # fmt: skip


def merger(v: Config) -> Block:
    """A layer norm of each patch, squares side by side, two products."""
    b = BlockBuilder("vision_tower.merger", part="projector", modality="image")
    joined = v.size("embed_dim") * v.size("spatial_merge_size") ** 2
    x = b.layer_norm(b.input("image", v.size("embed_dim")), "ln_q", part="projector")
    h = b.linear(b.unary(Undescribed(name="squares of patches"), x, width=joined), "mlp.0", joined, bias=True)
    return b.build(image=b.linear(b.activation(h, "gelu"), "mlp.2", v.hidden_size, bias=True, shard="row"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, merger, and the language model that the rest of the config describes."""
    v = (c.table(_FLAT) or Config({}, c.model_id)).filled(_DEFAULTS)
    text = c.table("text_config") or Config({key: c.values[key] for key in c.values if key != _FLAT}, c.model_id)
    embedding, *language = language_model(Config({**text.values, "model_type": "qwen2"}, c.model_id), str)
    width = language[-1].inputs["hidden"].width
    if v.hidden_size != width:
        raise c.error(f"vision_config.hidden_size: expected the language model's ({width}), got {v.hidden_size}")
    return (*tower_blocks(v, tower(v), "vision_tower"), merger(v), embedding, image_tokens(width), *language)
