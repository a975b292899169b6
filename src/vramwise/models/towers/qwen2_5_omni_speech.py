"""The weights that turn Qwen2.5-Omni's codes into sound: a diffusion transformer and a vocoder."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.models.config import Config
from vramwise.models.towers.tower_design import Weight, with_bias

# Defaults of Qwen2_5OmniDiTConfig and Qwen2_5OmniBigVGANConfig (transformers 5.23).
_DIFFUSION: dict[str, object] = {
    "hidden_size": 1024, "num_hidden_layers": 22, "num_attention_heads": 16, "ff_mult": 2, "emb_dim": 512,
    "head_dim": 64, "num_embeds": 8193, "mel_dim": 80, "enc_emb_dim": 192, "enc_dim": 128,
    "enc_channels": [256, 256, 256, 256, 768], "enc_kernel_sizes": [5, 3, 3, 3, 1], "enc_attention_channels": 64,
    "enc_res2net_scale": 2, "enc_se_channels": 64,
}  # fmt: skip
_VOCODER: dict[str, object] = {
    "mel_dim": 80, "upsample_initial_channel": 1536, "resblock_kernel_sizes": [3, 7, 11],
    "resblock_dilation_sizes": [[1, 3, 5]] * 3, "upsample_rates": [5, 3, 2, 2, 2, 2],
    "upsample_kernel_sizes": [11, 7, 4, 4, 4, 4],
}  # fmt: skip
_FREQUENCIES = 256
"""Width of the sinusoids of a diffusion step's time, a default of the class's code."""


def _speaker(c: Config, name: str) -> Iterator[Weight]:
    """ECAPA-TDNN: convolutions in time with squeeze and excitation, attention over time, one vector a speaker."""
    channels, kernels = c.items("enc_channels") or [], c.items("enc_kernel_sizes") or []
    scale, squeezed, last = c.size("enc_res2net_scale"), c.size("enc_se_channels"), channels[-1]
    yield from with_bias(f"{name}.blocks.0.conv", channels[0], c.size("mel_dim"), kernels[0])
    for i in range(1, len(channels) - 1):
        block, given, made = f"{name}.blocks.{i}", channels[i - 1], channels[i]
        yield from with_bias(f"{block}.tdnn1.conv", made, given, 1)
        for j in range(scale - 1):
            yield from with_bias(f"{block}.res2net_block.blocks.{j}.conv", made // scale, made // scale, kernels[i])
        yield from with_bias(f"{block}.tdnn2.conv", made, made, 1)
        yield from with_bias(f"{block}.se_block.conv1", squeezed, made, 1)
        yield from with_bias(f"{block}.se_block.conv2", made, squeezed, 1)
    yield from with_bias(f"{name}.mfa.conv", last, last, kernels[-1])
    yield from with_bias(f"{name}.asp.tdnn.conv", c.size("enc_attention_channels"), 3 * last, 1)
    yield from with_bias(f"{name}.asp.conv", last, c.size("enc_attention_channels"), 1)
    yield from with_bias(f"{name}.fc", c.size("enc_dim"), 2 * last, 1)


def _diffusion(c: Config, name: str) -> Iterator[Weight]:
    """A transformer from codes, speaker and noise to a spectrogram."""
    width, mel, code, inner = c.hidden_size, c.size("mel_dim"), c.size("emb_dim"), c.num_attention_heads * c.head_dim
    yield from with_bias(f"{name}.time_embed.time_mlp.0", width, _FREQUENCIES)
    yield from with_bias(f"{name}.time_embed.time_mlp.2", width, width)
    yield f"{name}.text_embed.codec_embed.weight", (c.size("num_embeds") + 1, code)
    yield from with_bias(f"{name}.input_embed.proj", width, mel + c.size("enc_dim") + c.size("enc_emb_dim") + code)
    yield from _speaker(c, f"{name}.input_embed.spk_encoder")
    for i in range(c.num_hidden_layers):
        layer, wide = f"{name}.transformer_blocks.{i}", c.size("ff_mult") * width
        yield from with_bias(f"{layer}.attn_norm.linear", 6 * width, width)
        for piece in "qkv":
            yield from with_bias(f"{layer}.attn.to_{piece}", inner, width)
        yield from with_bias(f"{layer}.attn.to_out.0", width, inner)
        yield from with_bias(f"{layer}.ff.ff.0", wide, width)
        yield from with_bias(f"{layer}.ff.ff.3", width, wide)
    yield from with_bias(f"{name}.norm_out.linear", 2 * width, width)
    yield from with_bias(f"{name}.proj_out", mel, width)


def _vocoder(c: Config, name: str) -> Iterator[Weight]:
    """BigVGAN: transposed convolutions that halve the channels, residual blocks with learned periodic activations."""
    first, kernels = c.size("upsample_initial_channel"), c.items("resblock_kernel_sizes") or []
    upsampling = c.items("upsample_kernel_sizes") or []
    yield from with_bias(f"{name}.conv_pre", first, c.size("mel_dim"), 7)
    for i, kernel in enumerate(upsampling):
        given, made = first // 2**i, first // 2 ** (i + 1)
        yield f"{name}.ups.{i}.0.weight", (given, made, kernel)
        yield f"{name}.ups.{i}.0.bias", (made,)
        for j, own in enumerate(kernels):
            block = f"{name}.resblocks.{i * len(kernels) + j}"
            for k in range(3):
                yield from with_bias(f"{block}.convs1.{k}", made, made, own)
                yield from with_bias(f"{block}.convs2.{k}", made, made, own)
            for k in range(6):
                yield from ((f"{block}.activations.{k}.act.{leaf}", (made,)) for leaf in ("alpha", "beta"))
    last = first // 2 ** len(upsampling)
    yield from ((f"{name}.activation_post.act.{leaf}", (last,)) for leaf in ("alpha", "beta"))
    yield f"{name}.conv_post.weight", (1, last, 7)


def sound_weights(c: Config) -> tuple[Weight, ...]:
    """Every weight of `token2wav`."""
    diffusion, vocoder = (c.table(f"{part}_config") or Config({}, c.model_id) for part in ("dit", "bigvgan"))
    return (
        *_diffusion(diffusion.filled(_DIFFUSION), "code2wav_dit_model"),
        *_vocoder(vocoder.filled(_VOCODER), "code2wav_bigvgan_model"),
    )
