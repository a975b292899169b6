"""The moments of a real run: training steps, or prefill and decode, each cut by marks.

Training follows Hugging Face's Trainer: forward with labels (the loss inside, under autocast when the precision is
mixed, outputs converted to fp32 by accelerate), backward, clipping, the optimizer's step, gradients set to None.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vramwise.frameworks import framework_named
from vramwise.measure.attribution import ModuleNotes
from vramwise.measure.building import torch_dtype, trains
from vramwise.measure.classes import batch_of, sees_more_than_text
from vramwise.measure.job import Job
from vramwise.measure.libraries import is_installed, library
from vramwise.measure.optimizing import optimizer_for, state_tensors
from vramwise.measure.recorder import ALLOCATION_BYTES, Recorder, local
from vramwise.scenario import Scenario
from vramwise.scenario.names import FRAMEWORKS
from vramwise.units import round_up

CLIP_NORM = 1.0


class TrainingRun:
    """Steps of one model on one device; `finished` counts whole ones."""

    def __init__(self, job: Job, model: Any, recorder: Recorder, sharded: bool = False) -> None:
        self.job, self.model, self.recorder = job, model, recorder
        self.settings: Mapping[str, Any] = job.settings
        self.finished = 0
        self.remarks: list[str] = []
        self.label = ""
        self.device_type = job.device.partition(":")[0]
        self.gradient_bytes = 0
        self.parameters = trains(model)
        self.optimizer = optimizer_for(self.settings, self.parameters)
        self.scaler = self._scaler()
        train = Scenario.from_dict(job.scenario).train
        framework = framework_named(train.framework)
        self.names_outputs = framework.names_logits(train) if train.keeps_outputs is None else train.keeps_outputs
        self.caches = framework.caches_in_training(train)
        self.outputs: Any = None
        self.notes = ModuleNotes(getattr(model, "module", model), recorder)  # DDP holds the model as `module`
        self._mark_the_loss(model)
        if sees_more_than_text(model):
            self.remarks.append("a batch of text: what sees images and sound has no gradients and no optimizer states")
        if not sharded:
            self._autocast(model)

    def run(self, progress: Callable[[int, int], None]) -> None:
        """Every step; modules are noted in the last."""
        for step in range(1, self.job.steps + 1):
            self._mark(step, "inputs")
            batch = self.batch()
            self.notes.active = step == self.job.steps
            for _ in range(int(self.settings.get("gradient_accumulation_steps", 1))):
                self._forward_and_backward(step, batch)
            self._optimizer_step(step)
            self.recorder.capture("inputs", [value for value in batch.values() if not isinstance(value, bool)])
            self._mark(step, "end")
            self.finished = step
            progress(step, self.job.steps)
        self.notes.remove()

    def batch(self) -> dict[str, Any]:
        """What a step reads, by name."""
        return batch_of(self.model, self.settings, self.job.device, caches=self.caches)

    def sizes(self) -> dict[str, int]:
        """Bytes of what lives between the moments, by tensor."""
        states = [t for t in state_tensors(self.optimizer) if t.device.type == self.device_type]
        return {"optimizer states": nbytes(states, ALLOCATION_BYTES), "gradients": self.gradient_bytes}

    def _forward_and_backward(self, step: int, batch: Mapping[str, Any]) -> None:
        self._mark(step, "forward")
        loss = self._loss(batch)
        self.notes.active = False  # a checkpointed layer runs again in backward
        self._mark(step, "backward")
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        (loss / int(self.settings.get("gradient_accumulation_steps", 1))).backward()

    def _loss(self, batch: Mapping[str, Any]) -> Any:
        """In a function of its own, so that outputs end with it as they do in Trainer.compute_loss; a loop that names
        them keeps them until the next ones are there."""
        outputs = self.model(**batch)
        if self.names_outputs:
            self.outputs = outputs
        return outputs.loss

    def _optimizer_step(self, step: int) -> None:
        torch = library("torch")
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.gradient_bytes = nbytes(gradients, ALLOCATION_BYTES)
        self.recorder.capture("gradients", gradients)
        if self.settings.get("clip_grad_norm", True) and self.parameters:
            self._mark(step, "clipping")
            if self.scaler is not None and self.optimizer is not None:
                self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.parameters, CLIP_NORM)
        self._mark(step, "optimizer step")
        if self.optimizer is not None:
            if self.scaler is not None:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
            self._capture_states()
        for parameter in self.parameters:
            parameter.grad = None

    def _capture_states(self) -> None:
        """Scalars are counters of steps, which AdamW keeps in host memory on CUDA (but for `fused`)."""
        states = state_tensors(self.optimizer)
        self.recorder.capture("optimizer states", [t for t in states if t.dim()])
        self.recorder.capture("step counters", [t for t in states if not t.dim()])

    def _mark(self, step: int, moment: str) -> None:
        self.label = f"{step}|{moment}"
        self.recorder.mark(self.label)

    def _mark_the_loss(self, model: Any) -> None:
        """A mark where the loss begins, for models that call transformers' loss function (all but a few do)."""
        inner = getattr(model, "get_base_model", lambda: model)()
        original = getattr(inner, "loss_function", None)
        if original is None:
            self.remarks.append("this class works its loss out inside forward: forward and loss are one moment")
            return

        def marked(*args: object, **kwargs: object) -> object:
            self.recorder.mark(self.label.replace("|forward", "|loss"))
            return original(*args, **kwargs)

        inner._loss_function = marked

    def _autocast(self, model: Any) -> None:
        """Mixed precision as accelerate's prepare_model does it: forward under autocast, outputs converted to fp32."""
        precision = str(self.settings.get("precision", ""))
        if not precision.endswith("-mixed"):
            return
        torch = library("torch")
        kind = "cuda" if self.job.device.startswith("cuda") else "cpu"
        cast = torch.autocast(device_type=kind, dtype=torch_dtype("fp16" if precision.startswith("fp16") else "bf16"))
        forward = cast(model.forward)
        if framework_named(self.settings.get("framework", FRAMEWORKS[0])).trainer:
            if is_installed("accelerate"):
                forward = library("accelerate.utils").convert_outputs_to_fp32(forward)
            else:
                self.remarks.append("accelerate is not installed: outputs were not converted to fp32 as Trainer does")
        model.forward = forward

    def _scaler(self) -> Any | None:
        if self.settings.get("precision") != "fp16-mixed" or not self.job.device.startswith("cuda"):
            return None
        return library("torch").amp.GradScaler("cuda")


class GenerationRun:
    """`generate` of one batch: the prefill and the decoding of the new tokens."""

    def __init__(self, job: Job, model: Any, recorder: Recorder) -> None:
        self.job, self.model, self.recorder = job, model, recorder
        self.settings: Mapping[str, Any] = job.settings
        self.finished = 0
        self.remarks: list[str] = []
        self.cache_bytes = 0
        self.notes = ModuleNotes(model, recorder)

    def run(self, progress: Callable[[int, int], None]) -> None:
        """A run of few tokens to load kernels, then the whole, so often as there are steps beyond the first."""
        prompt, new = int(self.settings.get("prompt_tokens", 1)), int(self.settings.get("new_tokens", 1))
        for step in range(1, self.job.steps + 1):
            self._once(step, prompt, new if step > 1 else min(new, 2))
            self.finished = step
            progress(step, self.job.steps)
        self.notes.remove()

    def sizes(self) -> dict[str, int]:
        return {"KV cache": self.cache_bytes}

    def _once(self, step: int, prompt: int, new: int) -> None:
        torch = library("torch")
        self.recorder.mark(f"{step}|inputs")
        vocabulary = int(self.model.get_input_embeddings().weight.shape[0])
        shape = int(self.settings.get("batch_size", 1)), prompt
        ids = torch.randint(0, vocabulary, shape, device=self.job.device)
        self.notes.active = step == self.job.steps
        with torch.no_grad(), self._cut(step):
            found = self.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new,
                do_sample=False, return_dict_in_generate=True, pad_token_id=0,
            )  # fmt: skip
        tensors = cache_tensors(found.past_key_values)
        self.cache_bytes = nbytes(tensors)
        self.recorder.capture("KV cache", tensors)
        self.recorder.mark(f"{step}|end")

    @contextlib.contextmanager
    def _cut(self, step: int) -> Iterator[None]:
        """The first forward pass is the prefill; from the second on it is decoding."""
        passes = 0

        def before(*_: object) -> None:
            nonlocal passes
            passes += 1
            if passes <= 2:
                self.recorder.mark(f"{step}|{'prefill' if passes == 1 else 'decode'}")

        def after(module: object, inputs: object, output: object) -> None:
            self.recorder.capture("KV cache", cache_tensors(getattr(output, "past_key_values", None)))
            self.notes.active = False

        handles = self.model.register_forward_pre_hook(before), self.model.register_forward_hook(after)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def cache_tensors(cache: object) -> list[object]:
    """Keys, values and states of a transformers cache, of any of its classes."""
    torch = library("torch")
    found: list[object] = []
    seen: set[int] = set()
    waiting = [cache]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            found += [value] if value.dim() else []  # not the counters of positions
        elif isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
        elif type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__"):
            waiting.extend(vars(value).values())
    return found


def nbytes(tensors: list[object], rounding: int = 1) -> int:
    """Bytes of the storages of tensors, shared ones once, each rounded up as an allocator does."""
    storages = {}
    for tensor in tensors:
        storage = local(tensor).untyped_storage()
        storages[storage._cdata] = round_up(storage.nbytes(), rounding)
    return sum(storages.values())
