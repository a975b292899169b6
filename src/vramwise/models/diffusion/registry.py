"""Class names of diffusers and of its text encoders -> the blocks that describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from vramwise.errors import UndescribedTypeError
from vramwise.models.blocks import Block, Parameter
from vramwise.models.config import Config
from vramwise.models.diffusion.live_set import Given, LiveSet, live_set
from vramwise.models.model import Model
from vramwise.records import record

_MODULES: Final = {
    "FluxTransformer2DModel": "flux",
    "SD3Transformer2DModel": "mmdit",
    "UNet2DConditionModel": "unet",
    "AutoencoderKL": "autoencoder_kl",
}
_TEXT_ENCODERS: Final = {
    "T5EncoderModel": "t5_encoder",
    "UMT5EncoderModel": "umt5_encoder",
    "CLIPTextModel": "clip_text",
    "CLIPTextModelWithProjection": "clip_text_projected",
}


def described_classes() -> tuple[str, ...]:
    """Every class that is described."""
    return (*_MODULES, *_TEXT_ENCODERS)


@record(eq=False, slots=False)
class Component:
    """One model of a pipeline: its class, config, the blocks of one call, and those that it holds and does not run."""

    class_name: str
    config: Config
    blocks: tuple[Block, ...]
    idle: tuple[Block, ...] = ()
    buffers: tuple[Parameter, ...] = ()
    """Tables that its files hold beside the parameters."""

    @property
    def model(self) -> Model:
        """All its weights."""
        return Model(self.config.model_id, self.class_name, self.config, (*self.blocks, *self.idle), "none")

    def call(
        self, given: Sequence[Given], dtype: str, *, unpacked_bytes: Mapping[str, int] | None = None,
        fetched: Mapping[str, int] | None = None, ahead: bool = False,
    ) -> LiveSet:  # fmt: skip
        """What one call with these tensors holds; of a text encoder ids of (batch, tokens).

        `unpacked_bytes`, `fetched`, `ahead`: see `live_set`.
        """
        ids = next((one.shape for one in given if one.stream == "input_ids"), (1, 1))
        others = [one for one in given if one.stream != "input_ids"]
        return live_set(
            self.blocks, others, dtype, batch=ids[0], tokens=ids[1], unpacked_bytes=unpacked_bytes, fetched=fetched,
            ahead=ahead,
        )  # fmt: skip


def component(class_name: str, config: Mapping[str, object], model_id: str = "") -> Component:
    """A component by its class. Raises UndescribedTypeError for another, SourceError for values that cannot be."""
    c = Config(config, model_id)
    if class_name in _TEXT_ENCODERS:
        from vramwise.models.diffusion import text_encoders

        return Component(class_name, c, getattr(text_encoders, _TEXT_ENCODERS[class_name])(c))
    name = _MODULES.get(class_name)
    if name is None:
        raise UndescribedTypeError(model_id, f'the Diffusers class "{class_name}"', None)
    module = import_module(f"vramwise.models.diffusion.{name}")
    idle = module.idle_blocks(c) if hasattr(module, "idle_blocks") else ()
    buffers = module.buffers(c) if hasattr(module, "buffers") else ()
    return Component(class_name, c, module.blocks(c), idle, buffers)
