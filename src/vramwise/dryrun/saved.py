"""Checkpoints that a script writes and reads: nothing on a card has bytes that a file could hold."""

from __future__ import annotations

import os
from typing import Any

from vramwise.dryrun.fake_cuda import holders
from vramwise.measure.libraries import is_installed, library


def saved_in_memory() -> list[tuple[object, str, object]]:
    """`torch.save` and safetensors' `save_file`: an empty file stands for each; `torch.load` gives back what it held.

    A copy on the CPU is kept, as a file would be: it takes nothing on the card. A folder that is missing is
    missed, as ever.
    """
    torch = library("torch")
    write, read = torch.save, torch.load
    held: dict[str, Any] = {}

    def saved(obj: object, f: Any, *args: object, **kwargs: object) -> None:
        if not isinstance(f, str | os.PathLike):
            f.write(b"")  # a buffer: what is read from it again is not known
            held[f"buffer {id(f)}"] = _on_cpu(obj)
            return
        with open(f, "wb"):
            held[os.path.abspath(f)] = _on_cpu(obj)

    def loaded(f: object, map_location: object = None, *args: object, **kwargs: object) -> Any:
        key = os.path.abspath(f) if isinstance(f, str | os.PathLike) else f"buffer {id(f)}"
        if key not in held:
            return read(f, map_location, *args, **kwargs)
        return _moved(held[key], map_location)

    found: list[tuple[object, str, object]] = [(torch, "save", saved), (torch, "load", loaded)]
    found += [(owner, name, saved) for owner, name in holders(write)] + [(o, n, loaded) for o, n in holders(read)]
    if is_installed("safetensors"):
        module = library("safetensors.torch")
        save_file = module.save_file

        def filed(tensors: Any, filename: Any, *_: object, **__: object) -> None:
            saved(dict(tensors), filename)

        found += [(module, "save_file", filed), *((owner, name, filed) for owner, name in holders(save_file))]
    return found


def _on_cpu(obj: object) -> Any:
    torch = library("torch")

    def copied(one: object) -> Any:
        return one.detach().cpu() if isinstance(one, torch.Tensor) else one

    return library("torch.utils._pytree").tree_map(copied, obj)


def _moved(obj: object, where: object) -> Any:
    torch = library("torch")

    def placed(one: object) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return one.clone() if where is None or callable(where) or isinstance(where, dict) else one.to(where)

    return library("torch.utils._pytree").tree_map(placed, obj)
