"""What a dry run of a pipeline is given: its index and its components' configs, or a denoiser and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vramwise.errors import UndescribedTypeError, UsageError
from vramwise.estimation import pipeline_parts
from vramwise.measure.libraries import need
from vramwise.models.diffusion.pipelines import PIPELINES, Asked, alone
from vramwise.models.diffusion.registry import component
from vramwise.scenario.pixels import pixels_of
from vramwise.sources import ModelSource

_BY_CASTS: Final = (None, "fp8")
"""Quantization that needs no kernel: Diffusers stores in 8 bits and casts before a layer runs."""
_DTYPE: Final = "bf16"


def is_pipeline(config: Mapping[str, object]) -> bool:
    """Whether a config is a `model_index.json` or a component of one."""
    return isinstance(config.get("_class_name"), str)


def pipeline_config(found: ModelSource, table: Mapping[str, Any]) -> dict[str, object]:
    """`_class_name` and `dtype`; of a whole pipeline `index`, `parts` and `decoder_dtype`, of a denoiser alone `model`,
    its config, and `inputs`, shape and dtype of what its pipeline calls it with.

    Raises UsageError where there is nothing that could run, MissingLibraryError without Diffusers.
    """
    need("diffusers")
    settings = table.get(str(table["task"])) or {}
    if table["task"] not in ("generate", "load"):
        raise UsageError(f"{found.id} is made by Diffusers: dry-run runs --task generate and load of it")
    if settings.get("quantization") not in _BY_CASTS:
        raise UsageError("dry-run has no fake of bitsandbytes' kernels: leave out --quantization, or use fp8")
    name = str(found.config["_class_name"])
    parts = pipeline_parts(found)
    described = PIPELINES.get(name)
    wanted = settings.get("dtype", "auto")
    dtype = str(wanted if wanted != "auto" else described.dtype if described is not None else _DTYPE)
    if not parts:
        return {"_class_name": name, "dtype": dtype, **_denoiser(found, name, settings, dtype)}
    decoder = described.loads_decoder_in if described is not None else ""
    index = {key: value for key, value in found.config.items() if key not in parts}
    return {"_class_name": name, "dtype": dtype, "index": index, "parts": parts, "decoder_dtype": decoder or dtype}


def _denoiser(found: ModelSource, name: str, settings: Mapping[str, Any], dtype: str) -> dict[str, object]:
    try:
        made = alone(component(name, found.config, found.id))
    except UndescribedTypeError:
        made = None
    if made is None:
        raise UsageError(f"dry-run needs the configs of {found.id}'s components, or one of the denoisers it can call")
    pipeline, components = made
    size, frames = settings.get("image_size"), settings.get("num_frames")
    width, height = pixels_of(str(size), "generate.image_size") if size else pipeline.size(components)
    asked = Asked(
        int(settings.get("batch_size") or 1), width, height, int(frames or pipeline.frames),
        settings.get("prompt_tokens") or pipeline.tokens, 0.0, dtype,
    )  # fmt: skip
    inputs = {one.stream: [list(one.shape), one.dtype] for one in pipeline.step(components, asked)}
    return {"model": dict(found.config), "inputs": inputs}
