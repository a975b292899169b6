"""The towers for sound of Gemma 3n and 4: a conformer, under the names of each."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.encoders import Convolution, Sound
from vramwise.models.operations.undescribed import Undescribed
from vramwise.records import record

# Defaults of Gemma4AudioConfig and Gemma3nAudioConfig (transformers 5.23).
AUDIO_DEFAULTS: dict[str, object] = {
    "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8, "hidden_act": "silu",
    "subsampling_conv_channels": [128, 32], "conv_kernel_size": 5, "output_proj_dims": 1536,
}  # fmt: skip
AUDIO_3N_DEFAULTS: dict[str, object] = {
    "hidden_size": 1536, "conf_num_hidden_layers": 12, "conf_num_attention_heads": 8, "conf_conv_kernel_size": 5,
    "sscp_conv_channel_size": [128, 32], "sscp_conv_kernel_size": [[3, 3], [3, 3]],
    "sscp_conv_stride_size": [[2, 2], [2, 2]], "input_feat_size": 128,
}  # fmt: skip


@record
class Names:
    """How a tower calls its modules. `attention`: norm before, q k v, positions, product and norm after.

    `inner` is the linear layer inside a module that clips what it reads and makes.
    """

    first: tuple[str, str]
    layers: str
    feed_forward: tuple[str, str]
    attention: tuple[str, str, str, str, str]
    last: str
    inner: str


GEMMA4 = Names(
    first=("layer0", "layer1"), layers="layers", feed_forward=("feed_forward1", "feed_forward2"), last="norm_out",
    attention=("norm_pre_attn", "self_attn", "self_attn.relative_k_proj", "self_attn.post", "norm_post_attn"),
    inner=".linear",
)  # fmt: skip
GEMMA3N = Names(
    first=("conv_0", "conv_1"), layers="conformer", feed_forward=("ffw_layer_start", "ffw_layer_end"), last="norm",
    attention=("attention.pre_attn_norm", "attention.attn", "attention.attn.relative_position_embedding.pos_proj",
               "attention.post", "attention.post_norm"),
    inner="",
)  # fmt: skip


def _norm(b: BlockBuilder, x: Value, name: str) -> Value:
    return b.rms_norm(x, name, part="audio")


def _feed_forward(b: BlockBuilder, x: Value, module: str, n: Names, function: str) -> Value:
    """Half a step: norm, product to four times the width, product back, norm."""
    h = b.linear(_norm(b, x, f"{module}.pre_layer_norm"), f"{module}.ffw_layer_1{n.inner}", 4 * x.width)
    h = b.linear(b.activation(h, function), f"{module}.ffw_layer_2{n.inner}", x.width, shard="row")
    return b.add(x, b.scale(_norm(b, h, f"{module}.post_layer_norm")))


def audio_layer(c: Config, n: Names, name: str, index: int) -> Block:
    """A conformer's layer: half a feed-forward step, attention in chunks, a convolution, the other half."""
    b = BlockBuilder(f"{name}.{n.layers}.{index}", part="audio", modality="audio")
    heads, width, function, kernel = c.num_attention_heads, c.hidden_size, c.text("hidden_act"), "conv_kernel_size"
    before, module, relative, post, after = n.attention
    x = _feed_forward(b, b.input("audio", width), n.feed_forward[0], n, function)
    h = _norm(b, x, before)
    q, k, v = (b.heads(b.linear(h, f"{module}.{p}_proj{n.inner}", width), heads) for p in "qkv")
    q = b.unary(Undescribed(name="scaled heads"), q, module, [b.parameter(module, "per_dim_scale", (width // heads,))])
    positions = b.linear(h, relative, width)
    q, k, v = b.heads_first(q), b.heads_first(k), b.heads_first(v)
    h = b.attention(
        Attention(num_heads=heads, num_key_value_heads=heads, causal=False), q, k, v, cache=None, others=[positions]
    )
    x = b.add(x, _norm(b, b.linear(h, f"{post}{n.inner}", width, shard="row"), after))
    h = b.linear(_norm(b, x, "lconv1d.pre_layer_norm"), f"lconv1d.linear_start{n.inner}", 2 * width)
    left, right = b.split(h, [width, width])
    h = b.multiply(left, b.activation(right, "sigmoid"))
    weight = b.parameter("lconv1d.depthwise_conv1d", "weight", (width, 1, c.size(kernel)))
    h = _norm(b, b.unary(Convolution(), h, "lconv1d.depthwise_conv1d", [weight]), "lconv1d.conv_norm")
    x = b.add(x, b.linear(b.activation(h, function), f"lconv1d.linear_end{n.inner}", width, shard="row"))
    return b.build(audio=_norm(b, _feed_forward(b, x, n.feed_forward[1], n, function), n.last))


def _channels(c: Config) -> list[int]:
    """What the two convolutions make."""
    given = c.items("subsampling_conv_channels") or []
    if len(given) != 2:
        raise c.error(f"the audio tower has two convolutions, and {len(given)} numbers of channels")
    return [Config({"channels": count}, c.model_id).size("channels") for count in given]


def subsampling(c: Config, n: Names, name: str, kernels: list[tuple[int, int]], bins: int) -> Block:
    """Two convolutions over time and bins, of which `bins` are left, and a product."""
    b = BlockBuilder(f"{name}.subsample_conv_projection", part="audio", modality="audio")
    channels, weights = _channels(c), []
    for module, before, made, kernel in zip(n.first, [1, channels[0]], channels, kernels, strict=True):
        weights.append(b.parameter(f"{module}.conv", "weight", (made, before, *kernel)))
        weights.append(b.parameter(f"{module}.norm", "weight", (made,)))
    x = b.op(Sound(), "", [], [bins * channels[1]], weights)[0]
    return b.build(audio=b.linear(x, "input_proj_linear", c.hidden_size))


def _layers(c: Config, n: Names, name: str) -> list[Block]:
    if c.hidden_size % c.num_attention_heads:
        raise c.error(f"num_attention_heads ({c.num_attention_heads}) of the audio tower does not divide its width")
    return [audio_layer(c, n, name, index) for index in range(c.num_hidden_layers)]


def audio_tower(c: Config, name: str) -> tuple[Block, ...]:
    """Gemma 4's: convolutions that each halve time and bins, the layers, a product."""
    first = subsampling(c, GEMMA4, name, [(3, 3)] * 2, _channels(c)[0] // 4)
    b = BlockBuilder(name, part="audio", modality="audio")
    last = b.build(
        audio=b.linear(b.input("audio", c.hidden_size), "output_proj", c.size("output_proj_dims"), bias=True)
    )
    return (first, *_layers(c, GEMMA4, name), last)


def _pairs(c: Config, key: str) -> list[tuple[int, int]]:
    """Two sizes, over time and over bins, for each of the two convolutions."""
    pairs = [Config({"pair": pair}, c.model_id).items("pair") or [] for pair in c.items(key) or []]
    if len(pairs) != 2 or any(len(pair) != 2 for pair in pairs):
        raise c.error(f"{key}: expected two pairs of numbers")
    read = [[Config({key: side}, c.model_id).size(key) for side in pair] for pair in pairs]
    return [(time, over) for time, over in read]


def audio_tower_3n(given: Config, name: str) -> tuple[Block, ...]:
    """Gemma 3n's: convolutions over a bin more on either side, and the layers."""
    sizes = ("num_hidden_layers", "num_attention_heads", "conv_kernel_size")
    others = {"hidden_act": "silu", "subsampling_conv_channels": given.get("sscp_conv_channel_size")}
    others |= {name: given.get(f"conf_{name}") for name in sizes}
    c, bins = Config({**given.values, **others}, given.model_id), given.size("input_feat_size")
    kernels = _pairs(given, "sscp_conv_kernel_size")
    for (_, kernel), (_, stride) in zip(kernels, _pairs(given, "sscp_conv_stride_size"), strict=True):
        bins = (bins + 2 - kernel) // stride + 1
    return (subsampling(c, GEMMA3N, name, kernels, bins), *_layers(c, GEMMA3N, name))
