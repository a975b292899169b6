"""A pipeline's scheduler, which looks its steps up by value: those that its own code makes on the host."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Final

from vramwise.measure.libraries import library

_USUAL: Final = "EulerDiscreteScheduler"
"""Where a pipeline takes many and its index names none, as the Stable Diffusion pipelines do: XL's own."""


def scheduler_made(said: object, annotation: object) -> Any:
    """The scheduler that an index names (`said`: library and class), else the one that a pipeline's argument takes."""
    diffusers = library("diffusers")
    named = said[1] if isinstance(said, list | tuple) and len(said) == 2 else None
    kind = getattr(diffusers, str(named), None) if named else None
    if kind is None:
        kind = annotation if isinstance(annotation, type) and hasattr(annotation, "from_config") else None
    return with_known_steps((kind or getattr(diffusers, _USUAL))())


def with_known_steps(scheduler: Any) -> object:
    """A scheduler whose `step` is given the time of a step as a number on the host, where a card's would be read.

    A step's time is an element of `timesteps`: its place there says which it is.
    """
    known: list[Any] = []
    sets, step = scheduler.set_timesteps, scheduler.step

    @functools.wraps(sets)
    def set_timesteps(*args: object, **kwargs: object) -> object:
        if "device" in inspect.signature(sets).parameters:
            sets(*args, **{**kwargs, "device": "cpu"})
            known[:] = scheduler.timesteps
        return sets(*args, **kwargs)

    def on_host(one: object) -> object:
        torch = library("torch")
        times = scheduler.timesteps
        if not known or not isinstance(one, torch.Tensor) or one.dim() or one.device.type != "cuda":
            return one
        lies_there = one.untyped_storage()._cdata == times.untyped_storage()._cdata
        return known[one.storage_offset() - times.storage_offset()] if lies_there else one

    @functools.wraps(step)
    def stepped(*args: object, **kwargs: object) -> object:
        return step(*map(on_host, args), **{name: on_host(one) for name, one in kwargs.items()})

    scheduler.set_timesteps, scheduler.step = set_timesteps, stepped
    if hasattr(scheduler, "index_for_timestep"):
        scheduler.index_for_timestep = lambda *_, **__: 0  # asked once, before the first step
    return scheduler
