"""The weights of Mimi, the codec of Moshi and CSM: convolutions as EnCodec's without norms, a transformer a half."""

from __future__ import annotations

import math
from collections.abc import Iterator

from vramwise.models.config import LARGEST_SIZE, Config
from vramwise.models.towers.encodec import codebooks, halves
from vramwise.models.towers.known_weights import inside, norms, product, products
from vramwise.models.towers.tower_design import Weight

_DEFAULTS: dict[str, object] = {
    "audio_channels": 1, "hidden_size": 512, "num_filters": 64, "num_residual_layers": 1,
    "upsampling_ratios": [8, 6, 5, 4], "kernel_size": 7, "last_kernel_size": 3, "residual_kernel_size": 3,
    "compress": 2, "use_conv_shortcut": False, "sampling_rate": 24_000, "codebook_size": 2048, "codebook_dim": 256,
    "num_quantizers": 32, "num_semantic_quantizers": 1, "vector_quantization_hidden_dimension": 256,
    "upsample_groups": 512, "num_hidden_layers": 8, "intermediate_size": 2048, "num_attention_heads": 8,
    "num_key_value_heads": 8,
}  # fmt: skip
"""Defaults of `MimiConfig` (transformers 5.23)."""


def layer(c: Config) -> list[Weight]:
    """A pre-norm layer whose halves are scaled before they are added; its products have no biases by default."""
    width, inner, d = c.hidden_size, c.intermediate_size, c.head_dim
    bias, rows = c.flag("attention_bias"), c.num_attention_heads * d
    found = [*norms(["input_layernorm", "post_attention_layernorm"], width), *product("mlp.fc1", inner, width, False)]
    found += [*product("mlp.fc2", width, inner, False), *product("self_attn.q_proj", rows, width, bias)]
    found += products(["self_attn.k_proj", "self_attn.v_proj"], c.num_key_value_heads * d, width, bias)
    found += product("self_attn.o_proj", width, rows, bias)
    return [*found, ("self_attn_layer_scale.scale", (width,)), ("mlp_layer_scale.scale", (width,))]


def between(c: Config) -> Iterator[Weight]:
    """Convolutions to fewer frames and back, where the codec has fewer than its convolutions make."""
    hop = math.prod(c.sizes("upsampling_ratios"))
    convolved = math.ceil(c.size("sampling_rate") / hop)
    frames = c.number("frame_rate") or c.number("_frame_rate") or c.size("sampling_rate") / (2 * hop)
    if frames == convolved:
        return
    if not 0 < frames <= convolved or convolved / frames > LARGEST_SIZE:
        raise c.error(f"frame_rate ({frames}): expected a number above 0 up to the {convolved} of the convolutions")
    kernel, width, groups = 2 * int(convolved / frames), c.hidden_size, c.size("upsample_groups")
    if width % groups:
        raise c.error(f"upsample_groups ({groups}) does not divide hidden_size ({width})")
    yield "encoder.downsample.conv.weight", (width, width, kernel)
    yield "decoder.upsample.conv.weight", (width, width // groups, kernel)


_KINDS = ("semantic", "acoustic")


def mimi_weights(config: Config) -> tuple[Weight, ...]:
    """Every parameter of both halves and of the quantizer."""
    c = config.filled(_DEFAULTS)
    inner, width = c.size("vector_quantization_hidden_dimension"), c.hidden_size
    found = [*halves(c, "encoder.encoder_seanet", "decoder.decoder_seanet", plain=True), *between(c)]
    for half in ("encoder", "decoder"):
        name = f"{half}.{half}_transformer.layers"
        found += [weight for i in range(c.num_hidden_layers) for weight in inside(f"{name}.{i}", layer(c))]
    for kind in _KINDS if inner != width else ():
        name = f"quantizer.{kind}_residual_vector_quantizer"
        found += [(f"{name}.input_proj.weight", (inner, width, 1)), (f"{name}.output_proj.weight", (width, inner, 1))]
    return tuple(found)


def mimi_buffers(config: Config) -> tuple[Weight, ...]:
    """The codebooks, of which the class keeps sums."""
    c = config.filled(_DEFAULTS)
    counts = dict(zip(_KINDS, (c.size("num_semantic_quantizers"), c.size("num_quantizers")), strict=True))
    counts["acoustic"] -= counts["semantic"]
    if counts["acoustic"] < 1:
        raise c.error("num_semantic_quantizers: expected fewer than num_quantizers")
    size, width = c.size("codebook_size"), c.size("codebook_dim", default=c.hidden_size)
    return tuple(
        table
        for kind, count in counts.items()
        for table in codebooks(
            count, size, width, f"quantizer.{kind}_residual_vector_quantizer.layers.{{}}", "embed_sum"
        )
    )
