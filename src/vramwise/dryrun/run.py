"""A scenario's run on fake tensors: `measure`'s own steps, with a card that is not there."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from vramwise.dryrun.card import Card
from vramwise.dryrun.recorder import FakeRecorder
from vramwise.dryrun.session import Session, watching
from vramwise.errors import UsageError
from vramwise.measure.job import Job, Report
from vramwise.measure.libraries import library
from vramwise.measure.local_run import LocalRun
from vramwise.measure.steps import GenerationRun, TrainingRun, cache_tensors, nbytes

STEPS = 2
"""Optimizer states appear at the end of the first step, so the second is the first whole one, and the last that
differs: shapes repeat."""

_TOKENS_AT_AN_END = 4


class DryRun(LocalRun):
    """One run on fake tensors; `session` holds what was seen."""

    def __init__(
        self, job: Job, card: Card, workspace_bytes: int, progress: Callable[[int, int], None],
        session: Session | None = None,
    ) -> None:  # fmt: skip
        super().__init__(job, progress)
        self.session = session or Session(card, workspace_bytes)
        self.recorder: Any = FakeRecorder(self.session.watcher)

    def report(self) -> Report:
        with watching(self.session, has_trainer=False):
            gc.freeze()  # what libraries made at their import is not searched for garbage: a tenth of a run
            return super().report()

    def runner(self, model: Any, sharded: bool) -> Any:
        kind = FakeGeneration if self.job.task == "generate" else FakeTraining
        return kind(self.job, model, self.recorder)

    def _describe(self, model: Any) -> None:
        super()._describe(model)
        adapters = [p for name, p in model.named_parameters() if "lora_" in name]
        self.recorder.capture("adapters", adapters)
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            self.session.watcher.place(tensor, name)

    def _prepare_device(self) -> None:
        self.facts["gpu"] = self.session.card.name

    def _finish(self) -> None:
        self.recorder.finish()
        self.sizes |= self.recorder.owned


class FakeTraining(TrainingRun):
    """Training whose loss and backward are cut where the estimate cuts them."""

    recorder: Any

    def __init__(self, job: Job, model: Any, recorder: FakeRecorder) -> None:
        super().__init__(job, model, recorder)
        for module in model.modules():
            if getattr(module, "layerdrop", 0):
                module.layerdrop = 0.0  # layers that chance leaves out: a step with all of them takes most
        self.last_of_layers: int | None = None
        watcher = recorder.watcher
        watcher.on_backward = self._in_backward
        self._watch_layers(model)
        head = getattr(model, "get_output_embeddings", lambda: None)()
        watcher.head = next((name for name, module in model.named_modules() if module is head), "") if head else ""

    def _watch_layers(self, model: Any) -> None:
        """The engine numbers operations as forward runs them: what is below the last layer's belongs to layers."""
        sequence = library("torch")._C._autograd._get_sequence_nr

        def after(*_: Any) -> None:
            if self.label.endswith("|forward"):
                self.last_of_layers = sequence() - 1

        lists = [m for m in model.modules() if type(m).__name__ == "ModuleList" and len(m)]
        self.has_layers = bool(lists)
        for layer in (layer for layers in self._outer(lists) for layer in layers):
            layer.register_forward_hook(after)  # of each: a batch of text leaves out the layers that look at images

    @staticmethod
    def _outer(lists: list[Any]) -> list[Any]:
        """The lists that lie in no other list."""
        inside = {id(module) for one in lists for member in one for module in member.modules()}
        return [one for one in lists if id(one) not in inside]

    def _in_backward(self, sequence: int) -> None:
        if self.last_of_layers is None or sequence > self.last_of_layers:
            return
        self.last_of_layers = None
        self.recorder.mark(self.label.replace("|backward: head", "|backward: layers"))

    def _mark(self, step: int, moment: str) -> None:
        first = "backward: head" if self.has_layers else "backward: layers"
        super()._mark(step, first if moment == "backward" else moment)

    def _mark_the_loss(self, model: Any) -> None:
        super()._mark_the_loss(model)
        inner = getattr(model, "get_base_model", lambda: model)()
        if "_loss_function" not in vars(inner):
            return
        marked = inner._loss_function

        def returned(*args: Any, **kwargs: Any) -> Any:
            loss = marked(*args, **kwargs)
            self.recorder.mark(self.label.replace("|forward", "|forward return"))
            return loss

        inner._loss_function = returned


class ForwardPass:
    """Inference that is one forward pass, for classes that generate nothing."""

    def __init__(self, recorder: FakeRecorder, call: Callable[[], Any]) -> None:
        self.recorder, self.call = recorder, call
        self.finished = 0
        self.remarks: list[str] = []

    def run(self, progress: Callable[[int, int], None]) -> None:
        self.recorder.mark("1|forward")
        with library("torch").no_grad():
            out = self.call()
        self.recorder.mark("1|end")
        del out
        self.finished = 1
        progress(1, 1)

    def sizes(self) -> dict[str, int]:
        return {}


class FakeGeneration(GenerationRun):
    """A prefill and greedy decoding as `generate` does them, without its question whether the end was reached.

    The cache grows by one token at a time only at its beginning and its end: what lies between repeats.
    """

    def run(self, progress: Callable[[int, int], None]) -> None:
        """Raises UsageError for what a prefill of token ids does not run."""
        config, kind = self.model.config, type(self.model).__name__
        if getattr(config, "is_encoder_decoder", False) or self.model.main_input_name != "input_ids":
            raise UsageError(
                f"{kind} is an encoder-decoder or reads no text, and dry-run's generation is that of a decoder: "
                "vramwise estimate answers for it, dry-run -- python FILE.py runs code of yours"
            )
        self._once(STEPS, int(self.settings.get("prompt_tokens", 1)), int(self.settings.get("new_tokens", 1)))
        self.finished = STEPS
        progress(1, 1)
        self.notes.remove()

    def _once(self, step: int, prompt: int, new: int) -> None:
        torch = library("torch")
        self.recorder.mark(f"{step}|inputs")
        shape = int(self.settings.get("batch_size", 1)), prompt
        vocabulary = int(self.model.get_input_embeddings().weight.shape[0])
        ids = torch.randint(0, vocabulary, shape, device=self.job.device)
        self.recorder.capture("inputs", [ids])
        self.notes.active = True
        cache = library("transformers").DynamicCache(config=self.model.config)
        with torch.no_grad(), self._cut(step):
            self._tokens(ids, cache, new)
        tensors = cache_tensors(cache)
        self.cache_bytes = nbytes(tensors)
        self.recorder.capture("KV cache", tensors)
        self.recorder.mark(f"{step}|end")

    def _tokens(self, ids: Any, cache: Any, new: int) -> None:
        torch = library("torch")
        given, made = ids, 0
        while made < new:
            outputs = self.model(input_ids=given, past_key_values=cache, use_cache=True, logits_to_keep=1)
            scores = outputs.logits[:, -1, :].to(copy=True, dtype=torch.float32)
            given = torch.argmax(scores, dim=-1)[:, None]
            ids = torch.cat([ids, given], dim=-1)
            del outputs, scores
            made += 1
            if made == _TOKENS_AT_AN_END and new - made > _TOKENS_AT_AN_END:
                skipped = new - made - _TOKENS_AT_AN_END
                if _grown(cache, skipped):
                    ids = torch.cat([ids, ids.new_zeros((ids.shape[0], skipped))], dim=-1)
                    made += skipped


def _grown(cache: Any, tokens: int) -> bool:
    """Whether every layer of a cache only appends, and now holds so many tokens more."""
    layers = getattr(cache, "layers", [])
    if not layers or any(type(layer).__name__ != "DynamicLayer" for layer in layers):
        return False
    for layer in layers:
        for name in ("keys", "values"):
            held = getattr(layer, name)
            longer = (*held.shape[:-2], held.shape[-2] + tokens, held.shape[-1])
            setattr(layer, name, held.new_empty(longer))
            del held
    return True
