"""Bytes of one training step after another, cut by marks: torch.cuda's counters, or the CPU allocator's own events."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from vramwise.measure.libraries import library
from vramwise.measure.process_memory import process_bytes
from vramwise.measure.recorder import ALLOCATION_BYTES, CpuRecorder, CudaRecorder, Record
from vramwise.units import round_up


class Meter(Protocol):
    """`open` begins a step, `mark` cuts it, `close` ends it and gives its pieces."""

    def open(self, label: str) -> None: ...

    def mark(self, label: str) -> None: ...

    def close(self) -> list[Record]: ...

    def process(self) -> int | None: ...


class CudaMeter:
    """torch.cuda's counters of one device. Every mark resets torch's own peaks, as reset_peak_memory_stats does."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._recorder = CudaRecorder(index)

    def open(self, label: str) -> None:
        self._recorder.records.clear()
        self._recorder.mark(label)

    def mark(self, label: str) -> None:
        self._recorder.mark(label)

    def close(self) -> list[Record]:
        self._recorder.finish()
        return list(self._recorder.records)

    def process(self) -> int | None:
        """This process on the card as NVML counts it; None where the driver does not tell."""
        return process_bytes(self.index)


class CpuMeter:
    """A profile of the CPU allocator for each step, above what model and optimizer held when the watch began.

    Without a model, above what all tensors held that Python can reach. The allocator reports no free of a tensor that
    is older than the watch, so such a tensor counts until the end.
    """

    def __init__(self, model: object = None, optimizer: object = None) -> None:
        self.held = live_bytes() if model is None else bytes_of(model, optimizer)
        self._recorder: CpuRecorder | None = None

    def open(self, label: str) -> None:
        self._recorder = CpuRecorder()
        self._recorder.start()
        self._recorder.mark(label)

    def mark(self, label: str) -> None:
        if self._recorder is not None:
            self._recorder.mark(label)

    def close(self) -> list[Record]:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return []
        recorder.finish()
        records = [_above(record, self.held) for record in recorder.records]
        self.held = records[-1].end
        return records

    def process(self) -> int | None:
        """A CPU has no counter of the kind that a driver keeps."""
        return None


def meter_for(device: str, model: object = None, optimizer: object = None) -> Meter:
    """The meter of a torch device: `cuda:0` or `cpu`; on a CPU of a model and its optimizer."""
    if device.startswith("cuda"):
        return CudaMeter(int(device.partition(":")[2] or 0))
    return CpuMeter(model, optimizer)


def device_here() -> str:
    """The device that this process computes on: torch's current GPU, or the CPU."""
    cuda = library("torch").cuda
    return f"cuda:{cuda.current_device()}" if cuda.is_available() else "cpu"


def bytes_of(model: Any, optimizer: Any = None) -> int:
    """Bytes of a model's parameters, their gradients and its buffers on the CPU, and of an optimizer's states."""
    parameters = list(model.parameters())
    found = [*parameters, *model.buffers(), *(each.grad for each in parameters if each.grad is not None)]
    states = optimizer.state.values() if optimizer is not None else ()
    found += [value for state in states for value in state.values() if isinstance(value, library("torch").Tensor)]
    return storage_bytes(found, "cpu", ALLOCATION_BYTES)


def live_bytes() -> int:
    """Bytes of the CPU tensors that Python can reach, gradients included, storages once, rounded as in records."""
    torch = library("torch")
    found: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    found += [each.grad for each in found if each.is_leaf and each.grad is not None]
    return storage_bytes(found, "cpu", ALLOCATION_BYTES)


def storage_bytes(tensors: Iterable[Any], device: str, rounding: int = 1) -> int:
    """Bytes of the storages of the tensors on one kind of device (`cpu`, `cuda`), shared ones once."""
    torch = library("torch")
    fake = torch._subclasses.fake_tensor.FakeTensor  # of torch.compile and torch.export: a size and no memory
    storages = {}
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        if isinstance(local, fake) or local.device.type != device or local.layout != torch.strided:
            continue
        storage = local.untyped_storage()
        storages[storage.data_ptr()] = round_up(int(storage.nbytes()), rounding)
    return sum(storages.values())


def _above(record: Record, before: int) -> Record:
    return replace(record, start=record.start + before, end=record.end + before, peak=record.peak + before)
