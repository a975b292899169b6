"""A callback that checks a transformers or TRL Trainer before its first step; transformers is imported when asked for.

from vramwise.checking.trainer import TrainerCheck
Trainer(..., callbacks=[TrainerCheck("raise")])
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vramwise.checking.job import Check, judged
from vramwise.errors import UsageError, VramwiseError, clipped
from vramwise.hardware import context_bytes, find_gpu
from vramwise.measure.libraries import library
from vramwise.scenario import Scenario
from vramwise.watching.following import trainer_arguments
from vramwise.watching.given import with_card
from vramwise.watching.reading import Taken, read_training

if TYPE_CHECKING:
    TrainerCheck: type[object]

ACTIONS = ("warn", "raise")
_LOOKED_AT = 256
"""Samples whose lengths are looked at."""


class DoesNotFitError(VramwiseError):
    """The training that is about to start does not fit on its card."""

    exit_code = 3


class Look:
    """What a callback does once: reads the scenario off the live objects and judges it.

    `found` is the check, `taken` what was read from where, `unseen` what it could not see.
    """

    def __init__(self, action: str, strict: bool, settings: Mapping[str, object]) -> None:
        if action not in ACTIONS:
            raise UsageError(f'TrainerCheck: expected {" or ".join(ACTIONS)}, got "{clipped(action)}"')
        self.action, self.strict, self._settings = action, strict, settings
        self.found: Check | None = None
        self.taken: Taken | None = None
        self.unseen: list[str] = []

    def at(self, args: object, model: object, optimizer: object, batches: object) -> None:
        """Look, and say what is wrong. Raises DoesNotFitError where that was asked for."""
        try:
            self.found = judged(self._scenario(args, model, optimizer, batches))
        except VramwiseError as problem:  # nothing that is not understood may stop a training
            warnings.warn(f"vramwise: not checked: {problem}", RuntimeWarning, stacklevel=3)
            return
        found = self.found
        if found.word == "fits" or (found.word == "tight" and not self.strict):
            return
        text = f"vramwise: this training {found.line()}; not seen: {'; '.join(self.unseen)}"
        if self.action == "raise":
            raise DoesNotFitError(text)
        if getattr(args, "process_index", 0) == 0:
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def _scenario(self, args: object, model: object, optimizer: object, batches: object) -> Scenario:
        arguments = trainer_arguments(args)
        batch = int(arguments.get("per_device_train_batch_size") or 1)
        self.taken = read_training(model, optimizer, arguments, (batch, self._length(arguments, model, batches)))
        data = self.taken.scenario()
        top = {key: value for key, value in self._settings.items() if key != "sequence_length"}
        scenario = Scenario.from_dict({**data, **top})
        scenario = with_card(scenario, str(getattr(args, "device", "cpu")))
        self.unseen += ["models beside this one (reference, reward, rollout)", "what other programs take later"]
        return _with_free_memory(scenario, str(getattr(args, "device", "cpu")))

    def _length(self, arguments: Mapping[str, Any], model: object, batches: object) -> int:
        """Tokens of the longest sample: as told, as the data has it unless it is cut, else as many as there may be."""
        told = self._settings.get("sequence_length")
        if isinstance(told, int):
            return told
        limit = next((int(arguments[name]) for name in ("max_length", "max_seq_length") if arguments.get(name)), None)
        longest = max(_lengths(getattr(batches, "dataset", None)), default=0)
        if longest:
            if _size(batches) > _LOOKED_AT:
                self.unseen.append(
                    f"samples behind the first {_LOOKED_AT}, of which the longest has {longest:,} tokens"
                )
            return min(longest, limit) if limit else longest
        most = limit or int(getattr(getattr(model, "config", None), "max_position_embeddings", 0) or 0) or 2048
        self.unseen.append(f"how long the samples are: {most:,} tokens are taken, the most that there may be")
        return most


def _with_free_memory(scenario: Scenario, device: str) -> Scenario:
    """With what this process had free before it loaded its model: what it holds itself is no other program's."""
    if not device.startswith("cuda") or scenario.gpu_free_bytes is not None:
        return scenario
    torch = library("torch")
    index = int(device.partition(":")[2] or 0)
    free, _ = torch.cuda.mem_get_info(index)
    context = context_bytes(find_gpu(scenario.gpu).gpu if scenario.gpu is not None else None)
    return scenario.replace(gpu_free_bytes=int(free) + int(torch.cuda.memory_reserved(index)) + context.expected)


def _lengths(dataset: Any) -> Iterator[int]:
    """Tokens of the first samples of a data set that can be indexed; reading them changes nothing."""
    for index in range(min(_size(dataset), _LOOKED_AT)):
        try:
            sample = dataset[index]
            ids = sample["input_ids"]
            yield len(ids)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError):
            return


def _size(sized: Any) -> int:
    dataset = getattr(sized, "dataset", sized)
    try:
        return len(dataset) if hasattr(dataset, "__getitem__") else 0
    except TypeError:
        return 0


def _made() -> type[object]:
    base: Any = library("transformers").TrainerCallback

    class TrainerCheck(base):  # type: ignore[misc]
        """Checks before the first step whether the training fits, and warns, or raises DoesNotFitError.

        `strict`: where it is tight too. Keywords are keys of a scenario that the objects do not tell or tell otherwise:
        `gpu="h100"`, `gpu_free_bytes`, `reserve_bytes`, `sequence_length`. After it `look` has what was found, read
        and not seen.
        """

        def __init__(self, action: str = "warn", *, strict: bool = False, **settings: object) -> None:
            self.look = Look(action, strict, settings)

        def on_train_begin(self, args: object, state: object, control: object, **kwargs: object) -> None:
            self.look.at(args, kwargs.get("model"), kwargs.get("optimizer"), kwargs.get("train_dataloader"))

    return TrainerCheck


def __getattr__(name: str) -> type[object]:
    if name != "TrainerCheck":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _made()
    return made
