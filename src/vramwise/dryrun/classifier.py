"""A classifier of timm on fake tensors: a step as timm's own train.py has it, or one forward pass.

timm 1.0.31 train.py `train_one_epoch`: forward and loss under autocast in a function of its own, so that the outputs
are gone before backward; of several outputs the first is trained. Images have the size of the model's pretrained_cfg.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from vramwise.dryrun.assumed import Assumptions
from vramwise.dryrun.card import Card
from vramwise.dryrun.run import DryRun, FakeTraining, ForwardPass
from vramwise.dryrun.session import Session
from vramwise.dryrun.whose import ARCHITECTURE
from vramwise.errors import UsageError, clipped
from vramwise.measure.building import freeze, torch_dtype, weight_dtype
from vramwise.measure.job import Job
from vramwise.measure.libraries import library
from vramwise.scenario.pixels import pixels_of

CONVOLUTIONS = "what cuDNN takes for convolutions beside their results is not seen"


class ClassifierRun(DryRun):
    """Two steps, or one forward pass, of a class that timm's `create_model` makes."""

    def __init__(self, job: Job, card: Card, workspace_bytes: int, progress: Callable[[int, int], None]) -> None:
        super().__init__(job, card, workspace_bytes, progress, Session(card, workspace_bytes, assumed=Assumptions({})))
        self.pixels: tuple[int, ...] = ()

    def prepared(self) -> tuple[Any, bool]:
        """Raises UsageError for what timm has no model of."""
        timm, torch = library("timm"), library("torch")
        self.facts["versions"] |= {"timm": timm.__version__}  # type: ignore[operator]
        model = self._made(timm).to("cuda", weight_dtype(self.job))
        self.pixels = timm.data.resolve_model_data_config(model)["input_size"]
        if self.job.settings.get("image_size"):
            width, height = pixels_of(str(self.job.settings["image_size"]), "generate.image_size")
            self.pixels = self.pixels[0], height, width
        if any(isinstance(part, torch.nn.Conv2d) for part in model.modules()):
            self.remarks.append(CONVOLUTIONS)
        if self.job.task != "train":
            return model.eval(), False
        if self.job.settings.get("checkpointing") == "full":
            if not hasattr(model, "set_grad_checkpointing"):
                raise UsageError(f"--checkpointing full: {type(model).__name__} has no set_grad_checkpointing")
            model.set_grad_checkpointing(True)
        return freeze(model.train(), self.job.settings), False

    def _made(self, timm: Any) -> Any:
        config = dict(self.job.config)
        name = str(config.pop(ARCHITECTURE))
        plain = name.partition(".")[0]
        if not timm.is_model(plain):
            near = difflib.get_close_matches(plain, timm.list_models(), 1)
            meant = f": did you mean {near[0]}?" if near else ""
            raise UsageError(f'timm {timm.__version__} has no model "{clipped(name, 80)}"{meant}')
        given = config.pop("model_args", None)
        own = dict(given) if isinstance(given, Mapping) else {}
        try:
            return timm.create_model(name, pretrained=False, **config, **own)
        except (RuntimeError, ValueError, TypeError) as problem:
            raise UsageError(f"timm makes no {clipped(name, 80)} of its config: {clipped(str(problem), 200)}") from None

    def images(self, samples: int) -> Any:
        """A batch of images as a loader leaves them on the card, normalized."""
        pixels = samples, *self.pixels
        return library("torch").zeros(pixels, dtype=weight_dtype(self.job), device=self.job.device)

    def runner(self, model: Any, sharded: bool) -> Any:
        settings = self.job.settings
        if self.job.task == "train":
            return _Training(self, model)
        images = self.images(int(settings.get("batch_size") or 1))
        self.recorder.capture("inputs", [images])
        return ForwardPass(self.recorder, lambda: model(images))


class _Training(FakeTraining):
    def __init__(self, run: ClassifierRun, model: Any) -> None:
        self.images = run.images
        super().__init__(run.job, model, run.recorder)

    def batch(self) -> dict[str, Any]:
        samples = int(self.settings.get("micro_batch_size") or 1)
        torch = library("torch")
        labels = torch.zeros(samples, dtype=torch.int64, device=self.job.device)
        return {"images": self.images(samples), "labels": labels}

    def _loss(self, batch: Mapping[str, Any]) -> Any:
        torch = library("torch")
        with self._cast():
            output = self.model(batch["images"])
            if isinstance(output, list | tuple):
                output = output[0]
            self.recorder.mark(self.label.replace("|forward", "|loss"))
            return torch.nn.functional.cross_entropy(output, batch["labels"])

    def _cast(self) -> AbstractContextManager[Any]:
        precision = str(self.settings.get("precision", ""))
        if not precision.endswith("-mixed"):
            return nullcontext()
        found: AbstractContextManager[Any] = library("torch").autocast(
            "cuda", dtype=torch_dtype(precision.removesuffix("-mixed"))
        )
        return found

    def _autocast(self, model: Any) -> None:
        """The loss is inside of it too."""

    def _mark_the_loss(self, model: Any) -> None:
        """Where it begins is seen here."""
