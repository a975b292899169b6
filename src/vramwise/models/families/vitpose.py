"""ViTPose: a ViT whose patches become one map of heat for each point of a body; every parameter is of part `vision`.

The larger ones (ViTPose++) have experts for each data set in their MLPs. The parameters are those of
`VitPoseForPoseEstimation` in transformers 5.23; what training keeps is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.known_weights import known_weights, norms, product, products
from vramwise.models.towers.tower_design import Weight, num_patches, pair, with_bias

BACKBONE: dict[str, object] = {
    "image_size": [256, 192], "patch_size": [16, 16], "num_channels": 3, "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "mlp_ratio": 4, "num_experts": 1, "part_features": 256,
}  # fmt: skip
"""Defaults of `VitPoseBackboneConfig`."""
_WITHIN = 256
"""Channels of the classic decoder, which the class writes out."""
MOST_EXPERTS = 64


def task(c: Config) -> str:
    """It predicts no tokens."""
    return "none"


def layer(v: Config) -> list[Weight]:
    """A pre-norm layer; experts make a part of the MLP's result where there are several."""
    width, inner, experts = v.hidden_size, int(v.hidden_size * v.number("mlp_ratio")), v.size("num_experts")
    v.heads_of(width)
    found = products([f"attention.attention.{name}" for name in ("query", "key", "value")], width, width,
                     v.flag("qkv_bias", True))  # fmt: skip
    found += [*product("attention.output.dense", width, width), *norms(["layernorm_before", "layernorm_after"], width)]
    found += product("mlp.fc1", inner, width)
    if experts == 1:
        return [*found, *product("mlp.fc2", width, inner)]
    of_expert = v.size("part_features")
    if experts > MOST_EXPERTS:
        raise v.error(f"num_experts: expected at most {MOST_EXPERTS}, got {experts:,}")
    if of_expert >= width:
        raise v.error(f"part_features: expected fewer than hidden_size ({width:,}), got {of_expert:,}")
    found += product("mlp.fc2", width - of_expert, inner)
    return [*found, *products([f"mlp.experts.{i}" for i in range(experts)], of_expert, inner)]


def decoder(c: Config, width: int) -> list[Weight]:
    """One convolution, or two that double the image's sides before it."""
    if c.flag("use_simple_decoder", True):
        return list(with_bias("conv", c.num_labels, width, 3, 3))
    found: list[Weight] = [("deconv1.weight", (width, _WITHIN, 4, 4)), *norms(["batchnorm1"], _WITHIN)]
    found += [("deconv2.weight", (_WITHIN, _WITHIN, 4, 4)), *norms(["batchnorm2"], _WITHIN)]
    return [*found, *with_bias("conv", c.num_labels, _WITHIN, 1, 1)]


def blocks(c: Config) -> tuple[Block, ...]:
    """Patches and places, layers, norm, decoder."""
    v = c.part("backbone_config", BACKBONE)
    if v.model_type not in ("", "vitpose_backbone"):
        raise c.error(f"backbone_config: only vitpose_backbone is described here, not {v.model_type:.40}")
    width = v.hidden_size
    patches: list[Weight] = [
        ("position_embeddings", (1, num_patches(v) + 1, width)),
        *with_bias("patch_embeddings.projection", width, v.size("num_channels"), *pair(v, "patch_size")),
    ]
    weights = layer(v)
    layers = (known_weights(f"backbone.encoder.layer.{i}", weights, "a layer over patches", layer=i)
              for i in range(v.num_hidden_layers))  # fmt: skip
    return (
        known_weights("backbone.embeddings", patches, "an embedding of patches"), *layers,
        known_weights("backbone", norms(["layernorm"], width), "a norm of the whole image"),
        known_weights("head", decoder(c, width), "maps of heat"),
    )  # fmt: skip
