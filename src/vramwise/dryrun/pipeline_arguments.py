"""What a pipeline's `__call__` is given, as far as it takes it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from vramwise.errors import UsageError
from vramwise.scenario.pixels import pixels_of

_STEPS: Final = 2
"""The second step finds the first one's prediction alive."""
_PROMPT: Final = "a prompt"


def arguments_of(pipeline: Any, settings: Mapping[str, Any]) -> dict[str, object]:
    """Arguments of `__call__`: what it needs to run, where it takes it, and what was asked for.

    Raises UsageError for what was asked for and it does not take.
    """
    takes = inspect.signature(pipeline.__call__).parameters
    batch = int(settings.get("batch_size") or 1)
    usual = {"num_inference_steps": _STEPS, "output_type": "pt"}
    found: dict[str, Any] = {name: value for name, value in usual.items() if name in takes}
    found |= {"prompt": [_PROMPT] * batch} if "prompt" in takes else {"batch_size": batch} if batch > 1 else {}
    if settings.get("image_size"):
        width, height = pixels_of(str(settings["image_size"]), "generate.image_size")
        found |= {"width": width, "height": height}
    if settings.get("num_frames") and ("num_frames" in takes or settings["num_frames"] > 1):
        found["num_frames"] = int(settings["num_frames"])
    if settings.get("prompt_tokens") and "max_sequence_length" in takes:
        found["max_sequence_length"] = int(settings["prompt_tokens"])
    if settings.get("guidance_scale") is not None:
        found |= _guidance(takes, float(settings["guidance_scale"]), batch)
    for name in found:
        if name not in takes:
            raise UsageError(f"{type(pipeline).__name__} takes no {name}: leave out --{_FLAGS[name]}")
    return found


_FLAGS: Final = {"width": "image-size", "height": "image-size", "num_frames": "num-frames",
                 "batch_size": "batch-size", "guidance_scale": "guidance-scale"}  # fmt: skip


def _guidance(takes: Mapping[str, inspect.Parameter], scale: float, batch: int) -> dict[str, object]:
    """Guidance under the name that doubles the batch: a `guidance_scale` of None is one that distilled models read."""
    own = takes.get("guidance_scale")
    if (own is not None and own.default is not None) or "true_cfg_scale" not in takes:
        return {"guidance_scale": scale}
    doubled = scale > 1 and "negative_prompt" in takes
    return {"true_cfg_scale": scale} | ({"negative_prompt": [" "] * batch} if doubled else {})
