"""A card that is not there: `torch.cuda`, its device guard, and process groups of which one rank alone runs."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import platform
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from vramwise.dryrun.vllm_start.memory import CardMemory
from vramwise.units import MIB

_alive: list[Any] = []
_RETURN_ZERO = {"x86_64": b"\x31\xc0\xc3", "aarch64": bytes.fromhex("000080d2c0035fd6")}


@dataclass(frozen=True)
class Card:
    """What vLLM asks a card for. The default is an H100 as drivers describe it."""

    name: str = "NVIDIA H100 80GB HBM3"
    capability: tuple[int, int] = (9, 0)
    total_bytes: int = 85_028_896_768
    multiprocessors: int = 132


class Stream:
    """A stream, or a context of one, in which everything is done at once."""

    cuda_stream, device_index, device_type = 0, 0, 1

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.device = torch.device("cuda", 0)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *args: object) -> None: ...

    def wait_stream(self, *args: object) -> None: ...

    def wait_event(self, *args: object) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self, event: Event | None = None) -> Event:
        return event or Event()

    def query(self) -> bool:
        return True


class Event:
    """An event that has happened."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def record(self, *args: object) -> None: ...

    def wait(self, *args: object) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Event) -> float:
        return 0.0


def install_device_guard() -> None:
    """A guard of CUDA devices that does nothing, in the registry of a CPU build of torch."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(_RETURN_ZERO[platform.machine()])
    code = ctypes.addressof(ctypes.c_char.from_buffer(page))
    methods = (ctypes.c_void_p * 64)(*[code] * 64)
    guard = (ctypes.c_void_p * 8)(ctypes.addressof(methods))
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 64).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    if guards[1] is None:
        guards[1] = ctypes.addressof(guard)
        torch._C._ensureCUDADeviceGuardSet()
    _alive.extend([page, methods, guard])


def install_cuda(card: Card, memory: CardMemory, devices: int) -> None:
    """`torch.cuda` and `torch.accelerator` answer for `devices` cards of one kind with `memory`."""
    plain = _answers(card, memory, devices)
    for module in (torch.cuda, torch.cuda.memory):
        for key, value in plain.items():
            if hasattr(module, key):
                setattr(module, key, value)
    accelerator: Any = torch.accelerator
    for key, value in plain.items():
        if hasattr(accelerator, key):
            setattr(accelerator, key, value)
    accelerator.get_memory_info = plain["mem_get_info"]
    accelerator.set_device_index = accelerator.set_device_idx = plain["set_device"]
    accelerator.current_device_index = accelerator.current_device_idx = plain["current_device"]
    accelerator.current_accelerator = lambda *a, **k: torch.device("cuda")
    torch.version.cuda = "13.0"
    anything: Any = torch
    anything.Event, anything.Stream = Event, Stream
    _without_pinned_memory()
    cpu_generator: Any = torch.Generator
    anything.Generator = type(
        "Generator", (cpu_generator,), {"__new__": lambda cls, device=None: cpu_generator.__new__(cls, "cpu")}
    )
    anything.inference_mode = lambda *a, **k: torch.no_grad()
    anything.compile = lambda model=None, **k: model if model is not None else (lambda f: f)


def _answers(card: Card, memory: CardMemory, devices: int) -> dict[str, object]:
    stream = Stream()
    major, minor = card.capability
    properties = SimpleNamespace(
        name=card.name, total_memory=card.total_bytes, major=major, minor=minor,
        multi_processor_count=card.multiprocessors, uuid="GPU-0", warp_size=32, shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, is_integrated=0,
        regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, L2_cache_size=50 * MIB, gcnArchName="",
        is_multi_gpu_board=0, pci_bus_id=0,
    )  # fmt: skip

    def same(value: object) -> Any:
        return lambda *args, **kwargs: value  # a function of its own for each: dynamo tells them apart by identity

    nothings = ("_lazy_init", "init", "set_device", "synchronize", "empty_cache", "set_stream", "manual_seed",
                "manual_seed_all")  # fmt: skip
    truths = ("is_available", "is_initialized", "is_bf16_supported", "can_device_access_peer")
    return {
        **{key: same(None) for key in nothings},
        **{key: same(True) for key in truths},
        "device_count": same(devices),
        "current_device": same(0),
        "mem_get_info": lambda *a, **k: (card.total_bytes - memory.allocated, card.total_bytes),
        "get_device_properties": same(properties),
        "get_device_name": same(card.name),
        "get_device_capability": same(card.capability),
        "current_stream": same(stream),
        "default_stream": same(stream),
        "Stream": Stream,
        "Event": Event,
        "stream": same(contextlib.nullcontext()),
        "device": same(contextlib.nullcontext()),
        "memory_allocated": lambda *a, **k: memory.allocated,
        "memory_reserved": lambda *a, **k: memory.allocated,
        "max_memory_allocated": lambda *a, **k: memory.peak_allocated,
        "reset_peak_memory_stats": lambda *a, **k: memory.reset_peak(),
        "is_current_stream_capturing": same(False),
        "memory_stats": lambda *a, **k: {
            "allocated_bytes.all.peak": memory.peak_allocated,
            "allocated_bytes.all.current": memory.allocated,
            "num_alloc_retries": 0,
        },
        "get_arch_list": same([f"sm_{major}{minor}a"]),
    }


def _without_pinned_memory() -> None:
    """Page-locked memory of the host is plain memory here."""
    from torch.utils._device import _device_constructors

    _device_constructors()  # keeps the originals, by which `with torch.device(...)` knows them
    for name in ("tensor", "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "arange"):
        original = getattr(torch, name)
        setattr(torch, name, functools.partial(lambda f, *a, pin_memory=False, **k: f(*a, **k), original))
    anything: Any = torch.Tensor
    anything.pin_memory = lambda self, *a, **k: self


def install_process_groups(ranks: int) -> None:
    """A world of `ranks` ranks; collectives on it move nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group(backend="fake", store=FakeStore(), rank=0, world_size=ranks)
    new_group = dist.new_group
    anything: Any = dist
    anything.new_group = lambda members=None, *a, **k: new_group(members, backend="fake")
    anything.is_nccl_available = lambda: True
    for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "barrier", "gather",
                 "all_gather", "broadcast_object_list", "send", "recv", "all_to_all_single",
                 "all_gather_object"):  # fmt: skip
        setattr(anything, name, lambda *a, **k: None)
