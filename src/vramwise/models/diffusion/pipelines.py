"""What a pipeline of diffusers calls its components with: tensors by name, for an image of a size.

Sizes and defaults are those of each pipeline's `__call__` (diffusers 0.42.1 pipelines/…).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from vramwise.models.config import Config
from vramwise.models.diffusion.autoencoder_kl import CLASS_DEFAULTS
from vramwise.models.diffusion.live_set import Given
from vramwise.models.diffusion.registry import Component, scale_of
from vramwise.records import record, replace

Parts = Mapping[str, Component]


@record
class Asked:
    """What is made: images in a batch, pixels, frames, tokens of the prompt (None: the pipeline's own), guidance."""

    batch: int
    width: int
    height: int
    frames: int
    tokens: int | None
    guidance: float
    dtype: str

    @property
    def doubled(self) -> int:
        """Rows of the denoiser's batch where guidance takes the prompt and an empty one together."""
        return 2 * self.batch if self.guidance > 1 else self.batch


@record
class Pipeline:
    """One class of pipelines.

    `encoders`: components that read the prompt, with the tokens that each pads it to (None: `tokens`); `denoiser`,
    `decoder`: names of the others; `size`: what it makes without a word; `multiple`: of what a side is; `doubles`:
    guidance doubles the denoiser's batch; `dtype`: in which its model card loads it.
    """

    encoders: tuple[tuple[str, int | None], ...]
    denoiser: str
    step: Callable[[Parts, Asked], tuple[Given, ...]]
    latents: Callable[[Parts, Asked], tuple[int, ...]]
    size: Callable[[Parts], tuple[int, int]]
    tokens: int
    guidance: float
    doubles: bool
    dtype: str
    decoder: str = "vae"
    latent_input: str = "z"
    multiple: int = 8
    frames: int = 1
    frame_step: int = 4
    """Frames to one place of the latents."""
    all_states: bool = False
    masks_prompt: bool = False
    encodes_empty_prompt: bool = False
    """Guidance takes the empty prompt through all encoders, once the prompt has been; others take zeros for it."""
    calls_twice: bool = False
    """Guidance calls the denoiser a second time, with an empty prompt of its own."""
    latents_in_fp32: bool = False
    """The latents are in fp32 whatever the dtype, beside a mask of ones as large."""
    upcasts_decoder: bool = False
    idle: tuple[str, ...] = ()
    second: str = ""
    """Another denoiser as large, which the steps of less noise take."""
    loads_decoder_in: str = ""
    """The dtype in which its model card loads the decoder, whatever the rest."""
    tokens_before: int = 0
    """Tokens of the template around a prompt."""
    source: str = ""

    @property
    def makes_video(self) -> bool:
        """Whether it makes more than one frame."""
        return self.frames > 1


def _scale(parts: Parts) -> int:
    return scale_of(parts["vae"])


def _kl_latents(parts: Parts, asked: Asked) -> tuple[int, ...]:
    """(batch, channels, rows, columns) of an `AutoencoderKL`."""
    c, scale = parts["vae"].config.filled(CLASS_DEFAULTS), _scale(parts)
    return (asked.batch, c.size("latent_channels"), asked.height // scale, asked.width // scale)


def _of_sample(name: str) -> Callable[[Parts], tuple[int, int]]:
    """The size that a denoiser's `sample_size` says, in places of the latents."""

    def size(parts: Parts) -> tuple[int, int]:
        c = parts[name].config
        side = c.size("sample_size", default=128 if name == "transformer" else 64) * _scale(parts)
        return side, side

    return size


def _flux_step(parts: Parts, asked: Asked) -> tuple[Given, ...]:
    """`FluxPipeline`: four places of the latents are one token; guidance is a number that the denoiser reads."""
    c, dtype, scale = parts["transformer"].config, asked.dtype, 2 * _scale(parts)
    tokens, text = (asked.height // scale) * (asked.width // scale), asked.tokens or 512
    given = [
        Given("hidden_states", (asked.batch, tokens, c.size("in_channels", default=64)), dtype),
        Given("encoder_hidden_states", (asked.batch, text, c.size("joint_attention_dim", default=4096)), dtype),
        Given("pooled_projections", (asked.batch, c.size("pooled_projection_dim", default=768)), dtype),
        Given("timestep", (asked.batch,), dtype),
        Given("img_ids", (tokens, 3), dtype),
        Given("txt_ids", (text, 3), dtype),
    ]
    return (*given, Given("guidance", (asked.batch,), "fp32")) if c.flag("guidance_embeds") else tuple(given)


def _sd3_step(parts: Parts, asked: Asked) -> tuple[Given, ...]:
    """`StableDiffusion3Pipeline`: the two CLIPs' 77 tokens and T5's, one behind the other."""
    c, dtype, rows = parts["transformer"].config, asked.dtype, asked.doubled
    _, *latent = _kl_latents(parts, asked)
    text = 77 + (asked.tokens or 256)
    return (
        Given("hidden_states", (rows, *latent), dtype),
        Given("encoder_hidden_states", (rows, text, c.size("joint_attention_dim", default=4096)), dtype),
        Given("pooled_projections", (rows, c.size("pooled_projection_dim", default=2048)), dtype),
        Given("timestep", (rows,), dtype),
    )


def _unet_step(parts: Parts, asked: Asked) -> tuple[Given, ...]:
    """`StableDiffusionPipeline`, `StableDiffusionXLPipeline`: 77 tokens; the large one reads more."""
    c, dtype, rows = parts["unet"].config, asked.dtype, asked.doubled
    _, *latent = _kl_latents(parts, asked)
    wide = c.get("cross_attention_dim", 1280)
    given = [
        Given("sample", (rows, *latent), dtype),
        Given("timestep", (rows,), dtype),
        Given("encoder_hidden_states", (rows, 77, int(wide[0] if isinstance(wide, list) else wide)), dtype),
    ]
    if c.get("addition_embed_type") == "text_time":
        pooled = c.size("projection_class_embeddings_input_dim") - 6 * c.size("addition_time_embed_dim")
        given += [Given("text_embeds", (rows, pooled), dtype), Given("time_ids", (rows, 6), dtype)]
    return tuple(given)


def _clip_latents(parts: Parts, asked: Asked) -> tuple[int, ...]:
    """(batch, channels, frames, rows, columns) of a causal decoder: four frames to one after the first."""
    scale, channels = _scale(parts), parts["vae"].config.size("z_dim", default=16)
    return (asked.batch, channels, (asked.frames - 1) // 4 + 1, asked.height // scale, asked.width // scale)


def _qwen_step(parts: Parts, asked: Asked) -> tuple[Given, ...]:
    """`QwenImagePipeline`: four places of the latents are one token; an empty prompt is a call of its own."""
    c, dtype, scale = parts["transformer"].config, asked.dtype, 2 * _scale(parts)
    tokens, text = (asked.height // scale) * (asked.width // scale), asked.tokens or 512
    return (
        Given("hidden_states", (asked.batch, tokens, c.size("in_channels", default=64)), dtype),
        Given("encoder_hidden_states", (asked.batch, text, c.size("joint_attention_dim", default=3584)), dtype),
        Given("timestep", (asked.batch,), dtype),
    )


def _wan_step(parts: Parts, asked: Asked) -> tuple[Given, ...]:
    """`WanPipeline`: prompts padded to 512 tokens; an empty prompt is a call of its own."""
    c = parts["transformer"].config
    text = (asked.batch, asked.tokens or 512, c.size("text_dim", default=4096))
    return (
        Given("hidden_states", _clip_latents(parts, asked), asked.dtype),
        Given("encoder_hidden_states", text, asked.dtype),
        Given("timestep", (asked.batch,), "int64"),
    )


_LTX_SIDE, _LTX_FRAMES = 32, 8  # LTXPipeline vae_spatial_compression_ratio, vae_temporal_compression_ratio


def _ltx_latents(parts: Parts, asked: Asked) -> tuple[int, ...]:
    """(batch, channels, frames, rows, columns) of `AutoencoderKLLTXVideo`."""
    channels = parts["transformer"].config.size("in_channels", default=128)
    frames = (asked.frames - 1) // _LTX_FRAMES + 1
    return (asked.batch, channels, frames, asked.height // _LTX_SIDE, asked.width // _LTX_SIDE)


def _ltx_step(parts: Parts, asked: Asked) -> tuple[Given, ...]:
    """`LTXPipeline`: a place of the latents is a token; the empty prompt is a second row."""
    c, rows = parts["transformer"].config, asked.doubled
    _, channels, frames, height, width = _ltx_latents(parts, asked)
    text = asked.tokens or 128
    return (
        Given("hidden_states", (rows, frames * height * width, channels), asked.dtype),
        Given("encoder_hidden_states", (rows, text, c.size("caption_channels", default=4096)), asked.dtype),
        Given("timestep", (rows,), "int64"),
        Given("encoder_attention_mask", (rows, text), "int64"),
    )


_CLIP = 77
"""Tokens to which every CLIP pads a prompt."""

PIPELINES: Final = {
    "FluxPipeline": Pipeline(
        (("text_encoder", _CLIP), ("text_encoder_2", None)), "transformer", _flux_step, _kl_latents,
        lambda parts: (128 * _scale(parts),) * 2, 512, 3.5, doubles=False, dtype="bf16", multiple=16,
        source="diffusers 0.42.1 pipelines/flux/pipeline_flux.py",
    ),
    "StableDiffusion3Pipeline": Pipeline(
        (("text_encoder", _CLIP), ("text_encoder_2", _CLIP), ("text_encoder_3", None)), "transformer", _sd3_step,
        _kl_latents, _of_sample("transformer"), 256, 7.0, doubles=True, dtype="bf16", multiple=16, all_states=True,
        encodes_empty_prompt=True,
        source="diffusers 0.42.1 pipelines/stable_diffusion_3/pipeline_stable_diffusion_3.py",
    ),
    "StableDiffusionXLPipeline": Pipeline(
        (("text_encoder", _CLIP), ("text_encoder_2", _CLIP)), "unet", _unet_step, _kl_latents, _of_sample("unet"),
        _CLIP, 5.0, doubles=True, dtype="fp16", all_states=True, upcasts_decoder=True,
        source="diffusers 0.42.1 pipelines/stable_diffusion_xl/pipeline_stable_diffusion_xl.py",
    ),
    "StableDiffusionPipeline": Pipeline(
        (("text_encoder", _CLIP),), "unet", _unet_step, _kl_latents, _of_sample("unet"), _CLIP, 7.5, doubles=True,
        dtype="fp16", source="diffusers 0.42.1 pipelines/stable_diffusion/pipeline_stable_diffusion.py",
        idle=("safety_checker",),
    ),
    "QwenImagePipeline": Pipeline(
        (("text_encoder", None),), "transformer", _qwen_step, _clip_latents, lambda parts: (128 * _scale(parts),) * 2,
        512, 1.0, doubles=False, dtype="bf16", multiple=16, calls_twice=True, tokens_before=34,
        source="diffusers 0.42.1 pipelines/qwenimage/pipeline_qwenimage.py",
    ),
    "WanPipeline": Pipeline(
        (("text_encoder", None),), "transformer", _wan_step, _clip_latents, lambda parts: (832, 480), 512, 5.0,
        doubles=False, dtype="bf16", multiple=16, frames=81, masks_prompt=True, second="transformer_2",
        calls_twice=True, latents_in_fp32=True, loads_decoder_in="fp32",
        source="diffusers 0.42.1 pipelines/wan/pipeline_wan.py",
    ),
    "LTXPipeline": Pipeline(
        (("text_encoder", None),), "transformer", _ltx_step, _ltx_latents, lambda parts: (704, 512), 128, 3.0,
        doubles=True, dtype="bf16", multiple=32, frames=161, frame_step=_LTX_FRAMES, masks_prompt=True,
        source="diffusers 0.42.1 pipelines/ltx/pipeline_ltx.py",
    ),
}  # fmt: skip
"""Pipelines that are described, by the `_class_name` of their `model_index.json`."""


def prompt_given(pipeline: Pipeline, encoder: str, length: int | None, asked: Asked) -> tuple[Given, ...]:
    """Ids of the prompt, and a mask where the pipeline passes one."""
    tokens = length or (asked.tokens or pipeline.tokens) + pipeline.tokens_before
    ids = Given("input_ids", (asked.batch, tokens), "int64")
    return (ids, Given("attention_mask", (asked.batch, tokens), "int64")) if pipeline.masks_prompt else (ids,)


def config_as_called(pipeline: Pipeline, name: str, config: Mapping[str, object]) -> Mapping[str, object]:
    """A text encoder's config with what the pipeline asks of it."""
    asked = pipeline.all_states and any(name == encoder for encoder, _ in pipeline.encoders)
    return {**config, "output_hidden_states": True} if asked else config


_PIPELINE_OF: Final = {
    "FluxTransformer2DModel": "FluxPipeline",
    "SD3Transformer2DModel": "StableDiffusion3Pipeline",
    "UNet2DConditionModel": "StableDiffusionXLPipeline",
    "QwenImageTransformer2DModel": "QwenImagePipeline",
    "WanTransformer3DModel": "WanPipeline",
    "LTXVideoTransformer3DModel": "LTXPipeline",
}


def alone(denoiser: Component) -> tuple[Pipeline, Parts] | None:
    """A pipeline that has the denoiser alone, which it calls once a row of the batch; None where none is described.

    The latents are an eighth of the picture's sides, as every decoder of these pipelines makes them.
    """
    found = PIPELINES.get(_PIPELINE_OF.get(denoiser.class_name, ""))
    if found is None:
        return None
    channels = denoiser.config.size("in_channels", default=16 if found.denoiser == "transformer" else 4)
    if found.latents is _clip_latents:
        decoder = Component("AutoencoderKLWan", Config({"z_dim": min(channels, 16)}), ())
    else:
        places = {"block_out_channels": [1, 1, 1, 1], "latent_channels": min(channels, 16)}
        decoder = Component("AutoencoderKL", Config(places), ())
    return replace(found, encoders=(), doubles=False), {found.denoiser: denoiser, found.decoder: decoder}
