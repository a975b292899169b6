"""Class names of diffusers and of its text encoders -> the blocks that describe them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from importlib import import_module
from typing import Final

from vramwise.errors import UndescribedTypeError
from vramwise.models.autograd.tensor import ITEM_BYTES
from vramwise.models.blocks import Block, Parameter
from vramwise.models.config import Config
from vramwise.models.diffusion.live_set import Given, LiveSet, live_set
from vramwise.models.model import Model
from vramwise.records import record, replace

_MODULES: Final = {
    "FluxTransformer2DModel": "flux",
    "SD3Transformer2DModel": "mmdit",
    "QwenImageTransformer2DModel": "qwen_image",
    "WanTransformer3DModel": "wan",
    "LTXVideoTransformer3DModel": "ltx",
    "UNet2DConditionModel": "unet",
    "AutoencoderKL": "autoencoder_kl",
    "AutoencoderKLQwenImage": "causal_autoencoder",
    "AutoencoderKLWan": "causal_autoencoder",
}
_TEXT_ENCODERS: Final = {
    "T5EncoderModel": "t5_encoder",
    "UMT5EncoderModel": "umt5_encoder",
    "Qwen2_5_VLForConditionalGeneration": "described_text",
    "CLIPTextModel": "clip_text",
    "CLIPTextModelWithProjection": "clip_text_projected",
}


_KEPT_OF_FP16: Final = {"T5EncoderModel": ("wo",), "UMT5EncoderModel": ("wo",)}
"""`_keep_in_fp32_modules` of transformers 5.23 (modeling_t5.py, modeling_umt5.py): what overflows in fp16, and stays in
fp32 where a load asks for fp16 (modeling_utils.py `_get_dtype_plan`)."""


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
    kept_in_fp32: tuple[str, ...] = ()
    """Words in the names of what stays in fp32 whatever the dtype."""
    kept_in_fp32_of_fp16: tuple[str, ...] = ()
    """The same where the dtype is fp16 alone."""
    blocks_of_call: Callable[[Config, Mapping[str, tuple[int, ...]]], tuple[Block, ...]] | None = None
    """What is walked of a call with tensors of these shapes, where that is not all blocks as they are."""
    answered: dict[object, LiveSet] = field(default_factory=dict, repr=False)

    def stays_in_fp32(self, name: str, dtype: str) -> bool:
        """Whether a load in `dtype` leaves a tensor in fp32."""
        words = (*self.kept_in_fp32, *(self.kept_in_fp32_of_fp16 if dtype == "fp16" else ()))
        return any(word in name.split(".") for word in words)

    @property
    def model(self) -> Model:
        """All its weights."""
        return Model(self.config.model_id, self.class_name, self.config, (*self.blocks, *self.idle), "none")

    def call(
        self, given: Sequence[Given], dtype: str, *, unpacked_bytes: Mapping[str, int] | None = None,
        fetched: Mapping[str, int] | None = None, ahead: bool = False,
    ) -> LiveSet:  # fmt: skip
        """What one call with these tensors holds; of a text encoder ids of (batch, tokens).

        A language model among the encoders fills its cache of keys and values on the way, which is whole in the end.

        `unpacked_bytes`, `fetched`, `ahead`: see `live_set`. Asked again it is not worked out again.
        """
        asked = tuple(given), dtype, _frozen(unpacked_bytes), _frozen(fetched), ahead
        if asked not in self.answered:
            self.answered[asked] = self._called(given, dtype, unpacked_bytes, fetched, ahead=ahead)
        return self.answered[asked]

    def _called(
        self, given: Sequence[Given], dtype: str, unpacked_bytes: Mapping[str, int] | None,
        fetched: Mapping[str, int] | None, *, ahead: bool,
    ) -> LiveSet:  # fmt: skip
        ids = next((one.shape for one in given if one.stream == "input_ids"), (1, 1))
        others = [one for one in given if one.stream != "input_ids"]
        blocks = self.blocks
        if self.blocks_of_call is not None:
            blocks = self.blocks_of_call(self.config, {one.stream: one.shape for one in given})
        found = live_set(
            blocks, others, dtype, batch=ids[0], tokens=ids[1], unpacked_bytes=unpacked_bytes, fetched=fetched,
            ahead=ahead,
        )  # fmt: skip
        kept = sum(cache.elements_per_token for block in blocks for cache in block.caches) * ids[0] * ids[1]
        return replace(found, bytes=found.bytes + kept * ITEM_BYTES[dtype]) if kept else found


def _frozen(sizes: Mapping[str, int] | None) -> frozenset[tuple[str, int]] | None:
    return None if sizes is None else frozenset(sizes.items())


def tile_of(part: Component) -> tuple[int, int]:
    """Places of the latents along a side of a decoder's tile, and from one tile to the next."""
    found: tuple[int, int] = import_module(f"vramwise.models.diffusion.{_MODULES[part.class_name]}").tile_of(
        part.config
    )
    return found


def scale_of(part: Component) -> int:
    """Pixels along a side for each place of a decoder's latents."""
    found: int = import_module(f"vramwise.models.diffusion.{_MODULES[part.class_name]}").scale_of(part.config)
    return found


def component(class_name: str, config: Mapping[str, object], model_id: str = "") -> Component:
    """A component by its class. Raises UndescribedTypeError for another, SourceError for values that cannot be.

    The same component keeps what its calls were found to hold: plans and suggestions ask for them again and again.
    """
    return _component(class_name, json.dumps(config, sort_keys=True), model_id)


@lru_cache(maxsize=16)
def _component(class_name: str, config: str, model_id: str) -> Component:
    c = Config(json.loads(config), model_id)
    if class_name in _TEXT_ENCODERS:
        from vramwise.models.diffusion import text_encoders

        blocks = getattr(text_encoders, _TEXT_ENCODERS[class_name])(c)
        unread = tuple(block for block in blocks if block.modality != "text")
        return Component(
            class_name, c, tuple(block for block in blocks if block.modality == "text"), unread,
            kept_in_fp32_of_fp16=_KEPT_OF_FP16.get(class_name, ()),
        )  # fmt: skip
    name = _MODULES.get(class_name)
    if name is None:
        raise UndescribedTypeError(model_id, f'the Diffusers class "{class_name}"', None)
    module = import_module(f"vramwise.models.diffusion.{name}")
    blocks = module.blocks(c)  # first: it checks the values that the others read
    idle = module.idle_blocks(c) if hasattr(module, "idle_blocks") else ()
    buffers = module.buffers(c) if hasattr(module, "buffers") else ()
    return Component(
        class_name, c, blocks, idle, buffers, getattr(module, "KEPT_IN_FP32", ()),
        blocks_of_call=getattr(module, "blocks_of_call", None),
    )  # fmt: skip
