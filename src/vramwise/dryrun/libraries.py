"""What libraries do otherwise once they notice fake tensors, put back to what they do on a card."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.measure.libraries import is_installed, library


def as_on_a_card(*, has_trainer: bool = True) -> list[tuple[object, str, object]]:
    """Attributes to replace while fake tensors run.

    transformers masking_utils: a batch is looked at for several sequences in a row unless it is traced, when a mask is
    made in any case; a batch of whole sequences, which is what is meant here, gets none, nor does one whose padding
    mask hid nothing on the CPU. torch's GradScaler reads whether a gradient overflowed: none does. `Module.to`
    exchanges tensors (torch/utils `swap_tensors`) unless something refers to them weakly, which fake tensors' own
    books do. DataParallel hands its batch to the one card by a function that builds for the CPU lack. Trainer looks
    for losses that are no numbers. Optimizers and clip_grad_norm_ take all tensors at once only where they know the
    tensors' type (torch/utils/_foreach_utils.py, torch/optim/optimizer.py). `trunc_normal_` draws again while any
    number lies outside of its bounds: none does. `has_trainer`: the code that runs may be transformers' Trainer;
    to import that takes a second.
    """
    torch = library("torch")
    fake = library("torch._subclasses.fake_tensor").FakeTensor
    for owner in (library("torch.utils._foreach_utils"), library("torch.optim.optimizer")):
        if fake not in owner._foreach_supported_types:
            owner._foreach_supported_types.append(fake)  # other modules have the list itself
    found: list[tuple[object, str, object]] = [
        (torch.amp.GradScaler, "_maybe_opt_step", _stepped),
        (torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda _: ())),
        (library("torch.nn.parallel.comm"), "scatter", _to_the_one_card),
        (torch.nn.init, "_no_grad_trunc_normal_", _cut_at_once(torch.nn.init._no_grad_trunc_normal_)),
    ]
    if is_installed("transformers"):
        masks = _module("transformers.masking_utils")
        if masks is not None and hasattr(masks, "find_packed_sequence_indices"):
            look = masks.find_packed_sequence_indices

            def looked(position_ids: object) -> None:
                look(position_ids)

            found.append((masks, "find_packed_sequence_indices", looked))
        if masks is not None and hasattr(masks, "_ignore_causal_mask_sdpa"):
            ignore = masks._ignore_causal_mask_sdpa

            def ignored(padding_mask: object, *args: object, **kwargs: object) -> Any:
                whole = getattr(padding_mask, "is_whole", False)
                return ignore(None if whole else padding_mask, *args, **kwargs)

            found.append((masks, "_ignore_causal_mask_sdpa", ignored))
        trainer = _module("transformers.trainer") if has_trainer and is_installed("accelerate") else None
        if trainer is not None:
            found.append((trainer.Trainer, "__init__", _unfiltered(trainer.Trainer.__init__)))
    return found


def _module(name: str) -> Any | None:
    try:
        return library(name)
    except ImportError:
        return sys.modules.get(name)


def _stepped(_: object, optimizer: Any, __: object, *args: Any, **kwargs: Any) -> Any:
    return optimizer.step(*args, **kwargs)


def _to_the_one_card(tensor: Any, devices: Any = None, *_: object, **__: object) -> Any:
    """torch/csrc/cuda/comm.cpp `scatter` over one device: the only chunk is the tensor, moved where it is not there."""
    if devices is None or len(devices) != 1:
        raise VramwiseError("a dry run has one card: DataParallel's batch is not split over several")
    return (tensor.to(f"cuda:{int(devices[0])}"),)


def _unfiltered(make: Any) -> Any:
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.args.logging_nan_inf_filter = False

    return made


def _cut_at_once(draw: Callable[..., Any]) -> Callable[..., Any]:
    """torch.nn.init's truncated normal numbers, of which every first one of a fake tensor lies inside."""
    torch = library("torch")
    fake = library("torch._subclasses.fake_tensor").FakeTensor

    def drawn(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any = None) -> Any:
        if not isinstance(tensor.data, fake):
            return draw(tensor, mean, std, a, b, generator=generator)
        with torch.no_grad():
            outside = (tensor.normal_(mean, std, generator=generator) < a) | (tensor > b)
            del outside
        return tensor

    return drawn
