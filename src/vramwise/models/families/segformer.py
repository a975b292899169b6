"""SegFormer: stages of attention whose keys and values come from a smaller image; every parameter is of part `vision`.

With `architectures` naming the classifier or the segmentation it follows; else the bare model. What training keeps is
not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.known_weights import known_weights, norms, product, products
from vramwise.models.towers.tower_design import Weight, with_bias

CLASS_DEFAULTS: dict[str, object] = {
    "num_channels": 3, "num_encoder_blocks": 4, "depths": [2, 2, 2, 2], "sr_ratios": [8, 4, 2, 1],
    "hidden_sizes": [32, 64, 160, 256], "patch_sizes": [7, 3, 3, 3], "num_attention_heads": [1, 2, 5, 8],
    "mlp_ratios": [4, 4, 4, 4], "decoder_hidden_size": 256,
}  # fmt: skip
"""Defaults of `SegformerConfig` (transformers 5.23)."""
_BY_STAGE = ("depths", "sr_ratios", "hidden_sizes", "patch_sizes", "num_attention_heads", "mlp_ratios")


def task(c: Config) -> str:
    """It predicts no tokens, and its losses are not described."""
    return "none"


def head_of(c: Config) -> str:
    """What `architectures` puts behind the stages."""
    named = [str(name) for name in c.items("architectures") or []]
    endings = {"ForImageClassification": "classifier", "ForSemanticSegmentation": "decode_head"}
    return next((head for name in named for ending, head in endings.items() if name.endswith(ending)), "")


def layer(width: int, heads: int, ratio: int, inner: int) -> list[Weight]:
    """Attention, an MLP with a convolution by channel between its products."""
    found, columns = norms(["layernorm_before", "layernorm_after"], width), heads * (width // heads)
    found += products([f"attention.{name}_proj" for name in "qkv"], columns, width)
    found += product("attention.o_proj", width, columns)
    if ratio > 1:
        reduced = "attention.sequence_reduction"
        found += with_bias(f"{reduced}.sequence_reduction", width, width, ratio, ratio)
        found += norms([f"{reduced}.layer_norm"], width)
    found += [*product("mlp.fc1", inner, width), *with_bias("mlp.dwconv.dwconv", inner, 1, 3, 3)]
    return [*found, *product("mlp.fc2", width, inner)]


def segmentation(c: Config, widths: list[int]) -> list[Weight]:
    """A product for each stage, a convolution over all of them, a norm by batch, classes."""
    width = c.size("decoder_hidden_size")
    found = [w for i, n in enumerate(widths) for w in product(f"linear_projections.{i}.proj", width, n)]
    found += [("linear_fuse.weight", (width, width * len(widths), 1, 1)), *norms(["batch_norm"], width)]
    return [*found, *with_bias("classifier", c.num_labels, width, 1, 1)]


def blocks(config: Config) -> tuple[Block, ...]:
    """Each stage's patches, layers and norm, and what follows them."""
    c = config.filled(CLASS_DEFAULTS)
    count, head = c.size("num_encoder_blocks"), head_of(c)
    lists = {name: c.depths(name) if name == "depths" else c.sizes(name) for name in _BY_STAGE if name != "mlp_ratios"}
    ratios = [Config({"mlp_ratios": ratio}, c.model_id).number("mlp_ratios") for ratio in c.items("mlp_ratios") or []]
    lengths = {**{name: len(values) for name, values in lists.items()}, "mlp_ratios": len(ratios)}
    short = [name for name, length in lengths.items() if length < count]
    if short:
        raise c.error(f"{short[0]} names fewer stages than num_encoder_blocks ({count})")
    depths, reductions, widths, patches, heads = lists.values()
    found, root = [], "segformer." if head else ""
    for i, (given, width) in enumerate(zip([c.size("num_channels"), *widths], widths[:count], strict=False)):
        if heads[i] > width:  # fewer than divide it leave columns unused, and the class takes them
            raise c.error(f"num_attention_heads ({heads[i]}) is more than hidden_sizes ({width}) of stage {i}")
        name = f"{root}stages.{i}"
        first = [*with_bias("proj", width, given, patches[i], patches[i]), *norms(["layer_norm"], width)]
        weights = layer(width, heads[i], reductions[i], int(width * ratios[i]))
        found.append(known_weights(f"{name}.patch_embeddings", first, "an embedding of patches"))
        found += [known_weights(f"{name}.blocks.{j}", weights, "a stage of attention") for j in range(depths[i])]
        found.append(known_weights(name, norms(["layer_norm"], width), "a norm of a stage"))
    if head == "decode_head":
        found.append(known_weights(head, segmentation(c, widths[:count]), "a segmentation"))
    elif head:
        found.append(known_weights("", product(head, c.num_labels, widths[-1]), "a classifier"))
    return tuple(found)
