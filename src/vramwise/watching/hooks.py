"""Hooks on a user's model and optimizer: where a step's moments begin, and what sizes the batches really have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vramwise.measure.libraries import library
from vramwise.measure.optimizing import state_tensors
from vramwise.watching.meters import storage_bytes

_COUNTED_STEPS = 3
"""Optimizer states appear at the end of the first step; their sizes do not change after the third."""


@dataclass(slots=True)
class Observed:
    """What the hooks saw. Sizes of tensors are bytes on the watched device; None where nothing was attached."""

    batch_size: int = 0
    sequence_length: int = 0
    tokens: int = 0
    is_loss_inside: bool = False
    weights: int | None = None
    gradients: int | None = None
    optimizer_states: int | None = None
    num_parameters: int | None = None
    num_trainable: int | None = None
    settings: dict[str, object] = field(default_factory=dict)
    """The scenario's keys as the model has them: `attention`, `checkpointing`."""


class Hooks:
    """Marks `forward`, `backward`, `optimizer step` and `between` at a model's and an optimizer's calls.

    Forward passes without gradients are marked `evaluation` and their sizes are not counted, unless the task has no
    training.
    """

    def __init__(self, mark: Callable[[str], None], observed: Observed, device: str, *, trains: bool) -> None:
        self._mark, self._observed, self._trains = mark, observed, trains
        self._kind = device.partition(":")[0]
        self._handles: list[Any] = []
        self._model: Any = None
        self._optimizer: Any = None
        self._steps = 0

    def attach(self, model: Any = None, optimizer: Any = None) -> None:
        """Hook a module and a torch optimizer (accelerate's wrapper is looked into); either may be left out."""
        if model is not None and self._model is None:
            self._model = model
            self._handles.append(
                model.register_forward_pre_hook(_outside_graphs(self._before_forward), with_kwargs=True)
            )
            self._handles.append(model.register_forward_hook(_outside_graphs(self._after_forward)))
            self.look_at_model()
        inner = getattr(optimizer, "optimizer", optimizer)
        if inner is not None and self._optimizer is None and hasattr(inner, "register_step_pre_hook"):
            self._optimizer = inner
            self._handles.append(inner.register_step_pre_hook(self._before_step))
            self._handles.append(inner.register_step_post_hook(self._after_step))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def look_at_model(self) -> None:
        """Count the model's parameters and read its settings."""
        from vramwise.watching.reading import settings_of_model

        parameters = list(self._model.parameters())
        self._observed.weights = storage_bytes([*parameters, *self._model.buffers()], self._kind)
        self._observed.num_parameters = sum(p.numel() for p in parameters)
        self._observed.num_trainable = sum(p.numel() for p in parameters if p.requires_grad)
        self._observed.settings = settings_of_model(self._model)

    def _before_forward(self, _module: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if self._trains and not library("torch").is_grad_enabled():
            self._mark("evaluation")
            return
        shape = _sizes(args, kwargs)
        if shape is not None:
            seen = self._observed
            seen.batch_size = max(seen.batch_size, shape[0])
            seen.sequence_length = max(seen.sequence_length, shape[1])
            seen.tokens = max(seen.tokens, shape[0] * shape[1])
        self._mark("forward")

    def _after_forward(self, _module: object, _args: object, output: object) -> None:
        if self._trains and not library("torch").is_grad_enabled():
            self._mark("between")
            return
        loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
        self._observed.is_loss_inside = self._observed.is_loss_inside or loss is not None
        self._mark("backward" if self._trains else "between")

    def _before_step(self, *_: object) -> None:
        if self._steps < _COUNTED_STEPS:
            gradients = [p.grad for group in self._optimizer.param_groups for p in group["params"]]
            self._observed.gradients = storage_bytes((g for g in gradients if g is not None), self._kind)
        self._mark("optimizer step")

    def _after_step(self, *_: object) -> None:
        self._steps += 1
        self._mark("between")
        if self._steps <= _COUNTED_STEPS:
            self._observed.optimizer_states = storage_bytes(state_tensors(self._optimizer), self._kind)


def _outside_graphs(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook that torch.compile runs as it is, where a program compiles at all."""
    if "torch._dynamo" not in sys.modules:
        return hook
    found: Callable[..., None] = library("torch").compiler.disable(hook)
    return found


def _sizes(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[int, int] | None:
    """(batch, sequence) of token ids or embeddings among a forward's arguments."""
    for name in ("input_ids", "inputs_embeds", "decoder_input_ids"):
        shape = getattr(kwargs.get(name), "shape", None)
        if shape is not None and len(shape) >= 2:
            return int(shape[0]), int(shape[1])
    for value in args:
        shape = getattr(value, "shape", None)
        if shape is not None and len(shape) >= 2:
            return int(shape[0]), int(shape[1])
    return None
