"""The real optimizer of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.measure.libraries import library

_RATE = 1e-5


def optimizer_for(settings: Mapping[str, Any], parameters: list[Any]) -> Any | None:
    """The optimizer over `parameters`; None for `none`.

    adafactor is transformers' with a fixed rate, as its Trainer makes it; 8-bit ones and lion are bitsandbytes'.
    """
    name = str(settings.get("optimizer", "adamw"))
    torch = library("torch")
    if name == "none" or not parameters:
        return None
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=_RATE, **_implementation(settings))
    if name.startswith("sgd"):
        momentum = 0.9 if name == "sgd-momentum" else 0.0
        return torch.optim.SGD(parameters, lr=_RATE, momentum=momentum, **_implementation(settings))
    if name == "adafactor":
        return library("transformers").Adafactor(parameters, lr=_RATE, scale_parameter=False, relative_step=False)
    kinds = {
        "adamw-8bit": "AdamW8bit", "paged-adamw": "PagedAdamW32bit", "paged-adamw-8bit": "PagedAdamW8bit",
        "lion": "Lion", "lion-8bit": "Lion8bit",
    }  # fmt: skip
    return getattr(library("bitsandbytes").optim, kinds[name])(parameters, lr=_RATE)


def _implementation(settings: Mapping[str, object]) -> dict[str, bool]:
    wanted = settings.get("optimizer_impl", "foreach")
    return {"foreach": True} if wanted == "foreach" else {"fused": True} if wanted == "fused" else {"foreach": False}


def state_tensors(optimizer: Any) -> list[Any]:
    """Tensors that an optimizer keeps between steps, however deep its states nest."""
    torch = library("torch")
    found: list[object] = []
    waiting = list(optimizer.state.values()) if optimizer is not None else []
    while waiting:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    return found
