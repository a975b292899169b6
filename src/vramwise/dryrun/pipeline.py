"""A pipeline of Diffusers on fake tensors: its own `__call__`, two steps of the denoiser, and the VAE's decoder.

Offloading is the libraries' own (accelerate's hooks, Diffusers' groups), so that what waits on the host, and when it
comes, is what they do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from vramwise.dryrun.assumed import Assumptions
from vramwise.dryrun.card import Card
from vramwise.dryrun.categories import CARRIED
from vramwise.dryrun.pipeline_arguments import arguments_of
from vramwise.dryrun.pipeline_offload import model_offloaded, offloaded
from vramwise.dryrun.pipeline_parts import component_made, pipeline_made
from vramwise.dryrun.run import DryRun
from vramwise.dryrun.session import Session
from vramwise.errors import UsageError
from vramwise.measure.building import torch_dtype
from vramwise.measure.job import Job
from vramwise.measure.libraries import library
from vramwise.measure.steps import nbytes

ENCODING, STEP, DECODING = "text encoder", "denoise step", "VAE decode"
_DENOISERS: Final = ("transformer", "transformer_2", "unet")
_DECODERS: Final = ("vae", "vqvae")


class PipelineRun(DryRun):
    """One picture or video of a pipeline, or one call of its denoiser alone."""

    def __init__(self, job: Job, card: Card, workspace_bytes: int, progress: Callable[[int, int], None]) -> None:
        super().__init__(job, card, workspace_bytes, progress, Session(card, workspace_bytes, assumed=Assumptions({})))
        self.moment = ""

    def _run(self) -> None:
        torch = library("torch")
        self.facts["versions"] |= {"diffusers": library("diffusers").__version__}  # type: ignore[operator]
        self.facts["interval"] = "generation"  # convolutions take what cuDNN chooses, which no estimate knows either
        self.recorder.mark("0|load")
        parts = self._parts()
        self._describe_parts(parts)
        self.session.watcher.moved_as = "weights"
        with torch.no_grad():
            call = self._alone(*parts.values()) if "inputs" in self.job.config else self._whole(parts)
            self.recorder.mark("0|loaded")
            self.finished = 1
            if self.job.task == "load":
                return
            call()
            self.recorder.mark("1|end")

    def _parts(self) -> dict[str, Any]:
        config: Any = self.job.config
        device = "cpu" if _waits(self.job) else "cuda"
        if "inputs" in config:
            return {"": component_made(config["model"], config["dtype"], device)}
        return {
            name: component_made(one, config["decoder_dtype" if name in _DECODERS else "dtype"], device)
            for name, one in config["parts"].items()
        }

    def _describe_parts(self, parts: Mapping[str, Any]) -> None:
        watcher = self.session.watcher
        every = {id(p): p for part in parts.values() for p in part.parameters()}
        tables = [one for part in parts.values() for one in part.buffers()]
        self.facts["num_parameters"] = sum(p.numel() for p in every.values())
        self.facts["class"] = self.job.config["_class_name"]
        self.sizes["weights waiting" if _waits(self.job) else "weights"] = nbytes(list(every.values()), 512)
        watcher.name("weights", every.values())
        watcher.name("buffers", tables)
        for name, part in parts.items():
            for inner, tensor in [*part.named_parameters(), *part.named_buffers()]:
                watcher.place(tensor, ".".join(filter(None, (name, inner))))

    def _alone(self, model: Any) -> Callable[[], None]:
        """One call of a model with tensors of the shapes that its pipeline gives it."""
        torch, config = library("torch"), self.job.config
        if self.job.settings.get("quantization") == "fp8":
            self._in_fp8(model)

        def call() -> None:
            given: Any = config["inputs"]
            self._begin(STEP)
            inputs = {
                name: torch.zeros(shape, dtype=_dtype(kind), device="cuda") for name, (shape, kind) in given.items()
            }
            self.session.watcher.name(CARRIED, inputs.values())
            with model_offloaded(model, _offload(self.job)):
                model(**inputs)

        return call

    def _whole(self, parts: Mapping[str, Any]) -> Callable[[], None]:
        settings = self.job.settings
        pipeline = pipeline_made(self.job.config, parts, int(settings.get("prompt_tokens") or 77))
        denoisers = [parts[name] for name in _DENOISERS if parts.get(name) is not None]
        if settings.get("quantization") == "fp8":
            for one in denoisers:
                self._in_fp8(one)
        self._watch(parts)
        cut_decoding(pipeline, settings)
        given = arguments_of(pipeline, settings)

        def call() -> None:
            with offloaded(pipeline, _offload(self.job)):
                self._watch_moves(parts)
                pipeline(**given)

        return call

    def _in_fp8(self, model: Any) -> None:
        torch = library("torch")
        compute = torch_dtype(str(self.job.config["dtype"]))
        model.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=compute)

    def _watch(self, parts: Mapping[str, Any]) -> None:
        """A moment begins where a model's own code does, below what a hook of offloading puts around it."""
        for name, part in parts.items():
            method = "forward" if name not in _DECODERS else "_decode" if hasattr(part, "_decode") else "decode"
            setattr(part, method, self._begins(getattr(part, method), _moment(name)))

    def _watch_moves(self, parts: Mapping[str, Any]) -> None:
        """A moment begins as well where a model's weights come, once those of the one before it have gone."""
        torch = library("torch")

        def watched(part: Any, moment: str) -> None:
            move = part.to

            @functools.wraps(move)
            def moved(*args: object, **kwargs: object) -> Any:
                if any(isinstance(one, torch.device) and one.type == "cuda" for one in (*args, *kwargs.values())):
                    self._begin(moment)
                return move(*args, **kwargs)

            part.to = moved

        for name, part in parts.items():
            watched(part, _moment(name))

    def _begins(self, method: Any, moment: str) -> Any:
        @functools.wraps(method)
        def called(*args: Any, **kwargs: Any) -> Any:
            self._begin(moment)
            return method(*args, **kwargs)

        return called

    def _begin(self, moment: str) -> None:
        """A moment begins; what lives and is no weight is what the pipeline's frame carries into it."""
        if moment == self.moment:
            return
        self.moment = moment
        self.recorder.mark(f"1|{moment}")
        for life in self.session.watcher.alive.values():
            life.name = life.name or CARRIED


def _waits(job: Job) -> bool:
    """Whether weights wait in host memory."""
    return _offload(job) != "none"


def _offload(job: Job) -> str:
    return str(job.settings.get("offload") or "none")


def _moment(name: str) -> str:
    """The moment in which a component of this name runs."""
    return DECODING if name in _DECODERS else STEP if name in _DENOISERS else ENCODING


def cut_decoding(pipeline: object, settings: Mapping[str, Any]) -> None:
    """Tiling and slicing of the decoder. Raises UsageError where a pipeline has none that can."""
    decoder = next((one for one in (getattr(pipeline, name, None) for name in _DECODERS) if one is not None), None)
    for wanted in ("tiling", "slicing"):
        if not settings.get(f"vae_{wanted}"):
            continue
        enable = getattr(decoder, f"enable_{wanted}", None)
        if enable is None:
            has = f"{type(decoder).__name__} has no {wanted}" if decoder is not None else "it has no VAE"
            raise UsageError(f"{type(pipeline).__name__}: {has}: leave out --vae-{wanted}")
        enable()


def _dtype(kind: str) -> Any:
    return library("torch").int64 if kind == "int64" else torch_dtype(kind)
