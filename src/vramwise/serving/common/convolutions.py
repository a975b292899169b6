"""Convolution states as engines keep them."""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.lengths import text_config

_KERNEL_KEYS = (
    "conv_kernel", "linear_conv_kernel_dim", "mamba_d_conv", "d_conv", "short_conv_kernel_size", "conv_L_cache",
    "conv1d_width",
)  # fmt: skip


def engine_conv_elements(model: Model, elements: int, drafted: int = 0) -> int:
    """A convolution state as engines keep it: kernel − 1 past inputs, where transformers keeps `kernel` of them, and
    one more for each drafted token.

    Sources: vLLM model_executor/layers/mamba/mamba_utils.py, llama.cpp src/llama-hparams.cpp n_embd_r.
    """
    config = text_config(model)
    kernel = next((config.size(key) for key in _KERNEL_KEYS if config.has(key)), 0)
    return elements * (kernel - 1 + drafted) // kernel if kernel > 1 else elements
