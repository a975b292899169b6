"""Janus: a tower that reads images, and a tokenizer, embeddings and head that a batch of text or images never runs."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.norms import LayerNorm
from vramwise.models.operations.simple import Hold
from vramwise.models.operations.towers import SiglipEmbedding
from vramwise.models.towers.emu3_tokenizer import conv, residual, widths
from vramwise.models.towers.tower_design import Tower, Weight, layer_norm, num_patches, own_size, pair, with_bias

# Defaults of JanusVisionConfig and JanusVQVAEConfig (transformers 5.23).
VISION: dict[str, object] = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "num_channels": 3, "image_size": 384,
    "patch_size": 16, "hidden_act": "gelu", "mlp_ratio": 4.0, "attention_bias": True, "projection_dim": 2048,
    "depth": 2,
}  # fmt: skip
CODES: dict[str, object] = {
    "embed_dim": 8, "num_embeddings": 16_384, "latent_channels": 256, "in_channels": 3, "base_channels": 128,
    "channel_multiplier": [1, 1, 2, 2, 4], "num_res_blocks": 2, "out_channels": 3, "projection_dim": 2048,
    "num_hidden_layers": 2, "image_token_embed_dim": 2048,
}  # fmt: skip


def tower(c: Config) -> Tower:
    """SigLIP's with layers' names of its own; norms of queries and keys, where switched on, span all heads."""
    width, bias = c.hidden_size, c.flag("attention_bias", True)
    return Tower(
        width, int(width * c.number("mlp_ratio", 4.0)), c.num_hidden_layers, c.num_attention_heads,
        c.text("hidden_act"),
        before=(
            *with_bias("embeddings.patch_embedding", width, c.size("num_channels"), *pair(c, "patch_size")),
            ("embeddings.position_embedding.weight", (num_patches(c), width)),
        ),
        after=layer_norm("post_layernorm", width), closing=LayerNorm(), output="self_attn.projection_layer",
        biases=(bias, bias, bias, True), embedding=SiglipEmbedding(**own_size(c)),
        of_layer=(tuple(w for n in "qk" for w in layer_norm(f"self_attn.{n}_norm", width)),) * c.num_hidden_layers
        if c.flag("use_qk_norm") else (),
    )  # fmt: skip


def _attention(name: str, width: int) -> list[Weight]:
    convolutions = (conv(f"{name}.{n}", width, width, 1, 1) for n in ("q", "k", "v", "proj_out"))
    return [*layer_norm(f"{name}.norm", width), *(weight for found in convolutions for weight in found)]


def _middle(name: str, width: int) -> list[Weight]:
    ends = [w for n in (1, 2) for w in residual(f"{name}.block_{n}", width, width, 0)]
    return [*ends, *_attention(f"{name}.attn_1", width)]


def _stage(name: str, inner: int, outer: int, count: int, attends: bool) -> list[Weight]:
    weights: list[Weight] = []
    for i in range(count):
        weights += residual(f"{name}.block.{i}", inner if i == 0 else outer, outer, 0)
        weights += _attention(f"{name}.attn.{i}", outer) if attends else []
    return weights


def _tokenizer(c: Config) -> list[Weight]:
    sizes, latent, width = widths(c), c.size("latent_channels"), c.size("embed_dim")
    count, last = c.size("num_res_blocks"), len(sizes) - 1
    weights = [*conv("encoder.conv_in", c.size("in_channels"), c.size("base_channels"), 3, 3)]
    for i, outer in enumerate(sizes):
        name, inner = f"encoder.down.{i}", sizes[i - 1] if i else c.size("base_channels")
        weights += _stage(name, inner, outer, count, i == last)
        weights += conv(f"{name}.downsample.conv", outer, outer, 3, 3) if i < last else []
    out = latent * (2 if c.flag("double_latent") else 1)
    weights += [*_middle("encoder.mid", sizes[-1]), *layer_norm("encoder.norm_out", sizes[-1])]
    weights += [*conv("encoder.conv_out", sizes[-1], out, 3, 3), *conv("quant_conv", latent, width, 1, 1)]
    weights += [*conv("post_quant_conv", width, latent, 1, 1), *conv("decoder.conv_in", latent, sizes[-1], 3, 3)]
    weights += _middle("decoder.mid", sizes[-1])
    for place, i in enumerate(reversed(range(last + 1))):  # counted from the smallest resolution
        name, inner = f"decoder.up.{place}", sizes[i + 1] if i < last else sizes[i]
        weights += _stage(name, inner, sizes[i], count + 1, i == last)
        weights += conv(f"{name}.upsample.conv", sizes[i], sizes[i], 3, 3) if i else []
    weights += [
        *layer_norm("decoder.norm_out", sizes[0]),
        *conv("decoder.conv_out", sizes[0], c.size("out_channels"), 3, 3),
    ]
    return [*weights, ("quantize.embedding.weight", (c.size("num_embeddings"), width))]


def generation_blocks(config: Config) -> tuple[Block, ...]:
    """What makes images: codes to pixels and back, codes to the language model's width, and their head."""
    c = config.filled(CODES)
    inner, codes = c.size("projection_dim"), c.size("num_embeddings")
    weights = [(f"vqmodel.{leaf}", shape) for leaf, shape in _tokenizer(c)]
    weights += [("generation_embeddings.weight", (codes, c.size("embed_dim")))]
    weights += [*with_bias("generation_aligner.fc1", inner, c.size("embed_dim"))]
    for i in range(c.num_hidden_layers - 1):
        weights += with_bias(f"generation_aligner.hidden_layers.{i}", inner, inner)
    weights += with_bias("generation_head.proj_out", inner, c.size("image_token_embed_dim"))
    weights += with_bias("generation_head.vision_head", codes, inner)
    b = BlockBuilder("model", part="vision", modality="image", no_grad=True)
    held = [b.parameter("", leaf, shape) for leaf, shape in weights]
    return (b.build(unread=b.unary(Hold(), b.input("image", inner), "", held)),)
