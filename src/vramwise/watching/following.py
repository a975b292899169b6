"""Following a trainer: callbacks of transformers' Trainer and Lightning's that run a watch inside it.

Both libraries are imported when a class is made. What a callback follows with is a `Follows`, which `Watch` is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from vramwise.errors import VramwiseError
from vramwise.measure.libraries import is_installed, library
from vramwise.scenario import Scenario
from vramwise.watching.account import Account, StepRow
from vramwise.watching.given import with_card
from vramwise.watching.reading import read_training, transformers_model_in

_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
_CALLED_BY_LIGHTNING = {
    "gradient_accumulation_steps": "accumulate_grad_batches",
    "max_grad_norm": "gradient_clip_val",
    "the trainer's bf16": "the trainer's precision",
    "the trainer's fp16": "the trainer's precision",
}


class Follows(Protocol):
    """What a callback needs of a watch."""

    scenario: Scenario | None
    account: Account

    @property
    def device(self) -> str: ...
    @property
    def is_running(self) -> bool: ...
    def begin(self, model: object = None, optimizer: object = None) -> object: ...
    def attach(self, model: object = None, optimizer: object = None) -> None: ...
    def step(self) -> StepRow: ...
    def end(self, error: BaseException | None = None) -> None: ...
    def hold_against(self, scenario: Scenario) -> None: ...
    def metrics(self) -> Mapping[str, float]: ...
    def say(self, line: str) -> None: ...


class MakesWatch(Protocol):
    """A watch out of what a callback was given: a watch, or what `watch()` takes."""

    def __call__(self, given: Any = None, **options: Any) -> Follows: ...


class Follower:
    """What both callbacks do: begin, read the scenario at the first batch where none was given, step, end.

    Nothing of it may stop a training: what it cannot do, it says once, and follows the actual numbers alone. A watch
    that runs already (the callback was made inside its `with`) is left running, so that it sees also how train() fails.
    """

    def __init__(self, watched: Follows, framework: str, called: Mapping[str, str]) -> None:
        self.watched = watched
        self._framework, self._called = framework, called
        self._is_owner = False
        self._reads = False
        self._read_from: tuple[object, object, Mapping[str, object]] = (None, None, {})
        self._sizes = (0, 0)

    def begin(self, model: object, optimizer: object, arguments: Mapping[str, object]) -> None:
        self._is_owner = not self.watched.is_running
        self._sizes = (0, 0)
        try:
            if self._is_owner:
                self.watched.begin(model, optimizer)
            else:
                self.watched.attach(model, optimizer)
        except VramwiseError as error:
            self.watched.say(f"not followed: {error}")
            return
        self._reads = self.watched.scenario is None
        self._read_from = model, optimizer, arguments

    def step(self) -> None:
        if self.watched.is_running:
            self._read()
            self.watched.step()

    def end(self, error: BaseException | None = None) -> None:
        self._read_from = None, None, {}
        if self._is_owner:
            self.watched.end(error)

    def _read(self) -> None:
        """Read the scenario off the objects, once the first batch told its sizes; again where a longer one comes."""
        seen = self.watched.account.observed
        sizes = max(self._sizes[0], seen.batch_size), max(self._sizes[1], seen.sequence_length)
        if not self._reads or not all(sizes) or sizes == self._sizes:
            return
        is_first, self._sizes = self._sizes == (0, 0), sizes
        model, optimizer, arguments = self._read_from
        try:
            taken = read_training(model, optimizer, arguments, sizes, framework=self._framework, called=self._called)
            self.watched.hold_against(with_card(Scenario.from_dict(taken.scenario()), self.watched.device))
        except VramwiseError as error:
            self._reads = False
            self.watched.say(f"no estimate: {error}")
            return
        if is_first:
            self.watched.say("scenario read off this training: " + "; ".join(taken.sentences()))
        else:
            self.watched.say(f"larger batches came: held against {sizes[0]:,} × {sizes[1]:,} tokens from here on")


def trainer_class(watch_of: MakesWatch) -> type[Any]:
    """The class of transformers' callback. Raises VramwiseError without transformers."""
    base: Any = library("transformers").TrainerCallback

    class VramwiseCallback(base):  # type: ignore[misc]
        """Logs estimated against actual memory during Trainer.train(), and warns with the reason.

        Takes a `Watch`, or what `watch()` takes; without any it reads the scenario off the TrainingArguments, the
        model's config, peft's and the optimizer, and says what it took from where.
        """

        def __init__(self, given: object = None, **options: object) -> None:
            self.watched = watch_of(given, **options)
            self._follower = Follower(self.watched, "transformers", {})

        def on_train_begin(self, args: object, state: object, control: object, **kwargs: object) -> None:
            self._follower.begin(kwargs.get("model"), kwargs.get("optimizer"), trainer_arguments(args))

        def on_step_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
            self._follower.step()

        def on_log(self, args: object, state: Any, control: object, logs: Any = None, **kwargs: object) -> None:
            """The counters beside the loss, in the printed line and in the trainer's history."""
            found = self.watched.metrics() if self.watched.is_running else {}
            for row in (logs, state.log_history[-1] if state.log_history else None):
                if row is not None:
                    row.update(found)

        def on_train_end(self, args: object, state: object, control: object, **kwargs: object) -> None:
            self._follower.end()

    return VramwiseCallback


def lightning_class(watch_of: MakesWatch) -> type[Any]:
    """The class of Lightning's callback. Raises VramwiseError without Lightning."""
    base: Any = _lightning().Callback

    class VramwiseLightningCallback(base):  # type: ignore[misc]
        """Logs estimated against actual memory during Lightning's Trainer.fit(), and warns with the reason.

        Without a scenario it reads one off the transformers model inside the LightningModule, its optimizer and the
        trainer's settings.
        """

        def __init__(self, given: object = None, **options: object) -> None:
            self.watched = watch_of(given, **options)
            self._follower = Follower(self.watched, "pytorch", _CALLED_BY_LIGHTNING)
            self._last = 0

        def on_train_start(self, trainer: Any, pl_module: object) -> None:
            optimizer = trainer.optimizers[0] if trainer.optimizers else None
            model = transformers_model_in(pl_module) or pl_module
            self._follower.begin(model, optimizer, _lightning_arguments(trainer))

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: object) -> None:
            """A step ends where the optimizer stepped, not with each accumulated batch."""
            if trainer.global_step == self._last:
                return
            self._last = trainer.global_step
            self._follower.step()
            if trainer.logger is not None:
                pl_module.log_dict(dict(self.watched.metrics()))

        def on_train_end(self, trainer: object, pl_module: object) -> None:
            self._follower.end()

        def on_exception(self, trainer: object, pl_module: object, exception: BaseException) -> None:
            self._follower.end(exception)

    return VramwiseLightningCallback


def _lightning() -> Any:
    """The one of Lightning's two packages that the program uses already, else the one that is installed."""
    for name in (*(name for name in _LIGHTNING if name in sys.modules), *_LIGHTNING):
        if is_installed(name.partition(".")[0]):
            return import_module(name)
    raise VramwiseError("the Lightning callback needs Lightning: pip install lightning")


def trainer_arguments(args: object) -> dict[str, Any]:
    """What of transformers' TrainingArguments says something about memory."""
    names = (
        "per_device_train_batch_size", "gradient_accumulation_steps", "max_grad_norm", "bf16", "fp16", "world_size",
        "torch_compile", "use_liger_kernel", "fsdp", "fsdp_config", "hf_deepspeed_config", "max_length",
        "max_seq_length",
    )  # fmt: skip
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


def _lightning_arguments(trainer: object) -> dict[str, object]:
    precision = str(getattr(trainer, "precision", ""))
    return {
        "bf16": precision == "bf16-mixed",
        "fp16": precision == "16-mixed",
        "gradient_accumulation_steps": getattr(trainer, "accumulate_grad_batches", 1),
        "max_grad_norm": getattr(trainer, "gradient_clip_val", None) or 0,
        "world_size": getattr(trainer, "world_size", 1),
    }
