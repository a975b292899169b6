"""One run on one device: context, load, steps, counters and the report; out of memory and failures are answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vramwise.errors import VramwiseError
from vramwise.measure.attribution import module_weights
from vramwise.measure.building import build, trains
from vramwise.measure.job import Job, Report
from vramwise.measure.libraries import library, versions
from vramwise.measure.process_memory import context_bytes, driver_version, process_bytes
from vramwise.measure.recorder import ALLOCATION_BYTES, CpuRecorder, CudaRecorder, Refused, recorder_for
from vramwise.measure.steps import GenerationRun, TrainingRun, nbytes
from vramwise.units import format_bytes

_OOM_WORDS = ("out of memory", "can't allocate memory", "not enough memory")
MOST_HISTORY_ENTRIES = 1_000_000


class LocalRun:
    """One run on one device, from the context to the report."""

    def __init__(self, job: Job, progress: Any) -> None:
        self.job, self.progress = job, progress
        self.facts: dict[str, object] = {"versions": versions()}
        self.sizes: dict[str, int] = {}
        self.remarks: list[str] = []
        self.weights: dict[str, int] = {}
        self.oom: str | None = None
        self.failure: str | None = None
        self.interrupted = False
        self.finished = 0
        self.recorder: CudaRecorder | CpuRecorder = recorder_for(job.device, job.memory_cap_bytes)

    def report(self) -> Report:
        """Run, and report also what ended early."""
        try:
            self._prepare_device()
            self.recorder.start()
            self._run()
        except KeyboardInterrupt:
            self.interrupted = True
        except VramwiseError as error:
            self.failure = str(error)
        except Exception as error:
            self._failed(error)
        finally:
            self._finish()
        return Report(
            records=tuple(asdict(record) for record in self.recorder.records),
            notes=tuple(self.recorder.notes),
            sizes=self.sizes,
            module_weights=self.weights,
            facts=self.facts,
            remarks=tuple(self.remarks),
            finished_steps=self.finished,
            oom=self.oom,
            failure=self.failure,
            interrupted=self.interrupted,
        )

    def prepared(self) -> tuple[object, bool]:
        """The model on its device, and whether it is sharded (then its own policy casts, not autocast)."""
        return build(self.job), False

    def wrapped(self, model: object) -> object:
        """The loaded model in what trains it."""
        return model

    def runner(self, model: object, sharded: bool) -> GenerationRun | TrainingRun:
        """What runs the task's steps."""
        if self.job.task == "generate":
            return GenerationRun(self.job, model, self.recorder)
        return TrainingRun(self.job, model, self.recorder, sharded)

    def _run(self) -> None:
        torch = library("torch")
        torch.manual_seed(0)
        self.recorder.mark("0|load")
        model, sharded = self.prepared()
        self._describe(model)
        if self.job.device.startswith("cuda"):
            torch.cuda.empty_cache()  # what making random weights took on the way would stay reserved
        self.recorder.mark("0|loaded")
        if self.job.task == "load":
            self.finished = 1
            return
        model = self.wrapped(model)
        run = self.runner(model, sharded)
        try:
            with _attention_kernel(self.job.settings):
                run.run(self.progress)
        finally:
            self.finished = run.finished
            self.remarks += run.remarks
            self.sizes |= run.sizes()

    def _describe(self, model: Any) -> None:
        parameters = list(model.parameters())
        self.facts["num_parameters"] = sum(p.numel() for p in parameters)
        self.facts["num_trainable_parameters"] = sum(p.numel() for p in trains(model))
        self.facts["class"] = type(model).__name__
        self.sizes["weights"] = nbytes(parameters, ALLOCATION_BYTES)
        self.sizes["buffers"] = nbytes(list(model.buffers()), ALLOCATION_BYTES)
        self.weights = module_weights(model)
        self.recorder.capture("weights", parameters)
        self.recorder.capture("buffers", list(model.buffers()))

    def _prepare_device(self) -> None:
        torch = library("torch")
        if not self.job.device.startswith("cuda"):
            torch.set_num_threads(1)  # kernels of a CPU take scratch memory for every thread
            return
        index = int(self.job.device.partition(":")[2] or 0)
        torch.cuda.set_device(index)
        self.facts["context_bytes"] = context_bytes(index)
        properties = torch.cuda.get_device_properties(index)
        self.facts["gpu"] = properties.name
        self.facts["gpu_total_bytes"] = int(properties.total_memory)
        self.facts["cuda"] = torch.version.cuda
        self.facts["driver"] = driver_version()
        if self.job.memory_cap_bytes is not None:
            share = min(1.0, self.job.memory_cap_bytes / properties.total_memory)
            torch.cuda.set_per_process_memory_fraction(share, index)
        if self.job.history:
            torch.cuda.memory._record_memory_history(max_entries=MOST_HISTORY_ENTRIES)

    def _failed(self, error: Exception) -> None:
        import traceback

        words = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        if type(error).__name__ == "OutOfMemoryError" or any(said in words for said in _OOM_WORDS):
            self.oom = trace[-20_000:]
        else:
            self.failure = words[:2000]
            self.facts["traceback"] = trace[-8000:]

    def _finish(self) -> None:
        torch = library("torch")
        if self.recorder_started:
            self.recorder.finish()
            self.sizes |= self.recorder.owned
        if isinstance(self.recorder, CpuRecorder) and self.recorder.refused is not None:
            self._ran_out(self.recorder.refused)
        if not self.job.device.startswith("cuda"):
            return
        index = int(self.job.device.partition(":")[2] or 0)
        self.facts["process_bytes"] = process_bytes(index)
        self.facts["reserved_at_end_bytes"] = int(torch.cuda.memory_reserved(index))
        self.facts["num_ooms"] = torch.cuda.memory_stats(index).get("num_ooms", 0)
        if self.job.history:
            torch.cuda.memory._dump_snapshot(history_file(self.job))

    def _ran_out(self, refused: Refused) -> None:
        """A CPU run that went beyond the cap, in the words of torch's allocator."""
        step, _, moment = refused.label.partition("|")
        self.finished = max(0, int(step) - 1)
        cap = self.job.memory_cap_bytes or 0
        asked, held, free = (format_bytes(n, "auto") for n in (refused.asked, refused.held, cap - refused.held))
        where = f"step {step}, {moment}" if int(step) else moment
        self.remarks.append(f"the cap of {format_bytes(cap, 'auto')} was reached at {where}")
        self.oom = (
            f"Tried to allocate {asked}. The CPU run has a total capacity of {format_bytes(cap, 'auto')} of which "
            f"{free} is free. Of the allocated memory {held} is allocated by PyTorch."
        )

    @property
    def recorder_started(self) -> bool:
        """A CPU recorder that never started has no profile to end."""
        return isinstance(self.recorder, CudaRecorder) or self.recorder.started


def history_file(job: Job) -> str:
    """Where this process writes the allocator's history: one file a rank where there are several."""
    path = Path(str(job.history))
    rank = f"-rank{os.environ.get('RANK', '0')}" if job.num_processes > 1 else ""
    return str(path.with_name(path.stem + rank + path.suffix))


def _attention_kernel(settings: Mapping[str, Any]) -> Any:
    """SDPA held to the flash kernel where the scenario says flash and flash-attn itself is not installed."""
    from contextlib import nullcontext

    from vramwise.measure.libraries import is_installed

    if settings.get("attention") != "flash" or is_installed("flash_attn"):
        return nullcontext()
    attention = library("torch.nn.attention")
    return attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION)
