"""What `torch.cuda` answers while a card is stood in for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

from vramwise.dryrun.generators import card_generator
from vramwise.measure.libraries import library

_IN_ACCELERATOR = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "empty_cache", "current_stream",
)  # fmt: skip


def stream_in_use() -> int:
    """The number of the stream that allocates; 0 is the default one."""
    return int(FakeStream.entered[-1].stream_id) if FakeStream.entered else 0


@dataclass(frozen=True, slots=True)
class Card:
    """The card that `torch.cuda` describes: driver's name, bytes, compute capability, how many there are."""

    name: str
    total_bytes: int
    capability: tuple[int, int]
    multiprocessors: int = 108
    count: int = 1
    index: int = 0


class Counters(Protocol):
    """Where `torch.cuda`'s memory counters come from."""

    def counters(self) -> dict[str, int]: ...

    def reset_peaks(self) -> None: ...

    def empty_cache(self) -> None: ...


class FakeStream:
    """A stream that orders nothing; its number keeps its blocks apart in the allocator. `entered`: those in use."""

    made = 0
    entered: ClassVar[list[Any]] = []

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        type(self).made += 1
        self.stream_id = self.cuda_stream = type(self).made
        self.device = library("torch").device("cuda", 0)
        self.device_index, self.priority = 0, priority

    def wait_stream(self, *_: object) -> None: ...
    def wait_event(self, *_: object) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: object = None) -> object:
        return event or FakeEvent()

    def __enter__(self) -> FakeStream:
        self.entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.entered.pop()


class FakeEvent:
    """An event that has happened."""

    def __init__(self, *_: object, **__: object) -> None: ...
    def record(self, *_: object) -> None: ...
    def wait(self, *_: object) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: object) -> float:
        return 1.0


def answers_of(card: Card, counters: Counters) -> list[tuple[object, str, object]]:
    """Attributes of torch's modules to replace so that they answer as with the card."""
    torch = library("torch")
    main = FakeStream.__new__(FakeStream)
    main.stream_id = main.cuda_stream = main.priority = main.device_index = 0
    main.device = torch.device("cuda", 0)
    streams = FakeStream.entered
    streams[:] = [main]

    @contextmanager
    def on_stream(stream: Any) -> Any:
        with stream if stream is not None else main:
            yield

    class OnDevice:
        def __init__(self, *_: object, **__: object) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    properties = SimpleNamespace(
        name=card.name, total_memory=card.total_bytes, major=card.capability[0], minor=card.capability[1],
        multi_processor_count=card.multiprocessors, warp_size=32, max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536, shared_memory_per_block=49152, shared_memory_per_block_optin=166912,
        is_integrated=False, gcnArchName="", uuid="",
    )  # fmt: skip

    def counter(name: str) -> Callable[..., int]:
        return lambda *_, **__: counters.counters()[name]

    def memory_stats(*_: object, **__: object) -> dict[str, int]:
        found = counters.counters()
        return {
            "allocated_bytes.all.current": found["allocated"], "allocated_bytes.all.peak": found["peak_allocated"],
            "active_bytes.all.current": found["allocated"], "active_bytes.all.peak": found["peak_allocated"],
            "reserved_bytes.all.current": found["reserved"], "reserved_bytes.all.peak": found["peak_reserved"],
            "num_ooms": 0, "num_alloc_retries": 0,
        }  # fmt: skip

    def nothing(*_: object, **__: object) -> None: ...
    def random_state(*_: object, **__: object) -> Any:
        return torch.zeros(16, dtype=torch.uint8, device="cpu")

    values: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: card.count,
        "current_device": lambda: card.index,
        "get_device_name": lambda *_, **__: card.name,
        "get_device_capability": lambda *_, **__: card.capability,
        "get_device_properties": lambda *_, **__: properties,
        "get_arch_list": lambda: [f"sm_{card.capability[0]}{card.capability[1]}"],
        "is_bf16_supported": lambda *_, **__: card.capability >= (8, 0),
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda *_, **__: True,
        "current_stream": lambda *_, **__: streams[-1],
        "default_stream": lambda *_, **__: main,
        "stream": on_stream,
        "Stream": FakeStream,
        "Event": FakeEvent,
        "device": OnDevice,
        "device_of": OnDevice,
        "_DeviceGuard": OnDevice,
        "get_rng_state": random_state,
        "get_rng_state_all": lambda *_, **__: [random_state() for _ in range(card.count)],
        "initial_seed": lambda: 0,
        "memory_allocated": counter("allocated"),
        "max_memory_allocated": counter("peak_allocated"),
        "memory_reserved": counter("reserved"),
        "max_memory_reserved": counter("peak_reserved"),
        "memory_stats": memory_stats,
        "memory_summary": lambda *_, **__: "",
        "mem_get_info": lambda *_, **__: (card.total_bytes - counters.counters()["reserved"], card.total_bytes),
        "reset_peak_memory_stats": lambda *_, **__: counters.reset_peaks(),
        "reset_max_memory_allocated": lambda *_, **__: counters.reset_peaks(),
        "empty_cache": lambda: counters.empty_cache(),
        "utilization": lambda *_, **__: 0,
    }
    for name in (
        "_lazy_init", "init", "set_device", "synchronize", "set_stream", "manual_seed", "manual_seed_all", "seed",
        "seed_all", "set_rng_state", "set_rng_state_all", "ipc_collect", "set_per_process_memory_fraction",
        "reset_accumulated_memory_stats", "_lazy_call", "_check_capability",
    ):  # fmt: skip
        values[name] = nothing
    for name in ("_exchange_device", "_maybe_exchange_device"):
        values[name] = lambda *_, **__: card.index
    found: list[tuple[object, str, object]] = [(torch.cuda, name, value) for name, value in values.items()]
    generator = card_generator()
    generators = tuple(generator(device="cuda") for _ in range(card.count))
    found += [(torch, "Generator", generator), (torch.cuda, "default_generators", generators)]
    in_memory = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
                 "mem_get_info", "reset_peak_memory_stats", "empty_cache")  # fmt: skip
    found += [(torch.cuda.memory, name, values[name]) for name in in_memory]
    cuda = torch.device("cuda")
    found += [
        (torch._C, "_get_accelerator", lambda *_, **__: cuda),
        (torch.accelerator, "current_accelerator", lambda *_, **__: cuda),
        (torch.accelerator, "is_available", lambda: True),
        *((torch.accelerator, name, values[name]) for name in ("device_count", "synchronize")),
        *(
            (torch.accelerator, name, values["current_device"])
            for name in ("current_device_index", "current_device_idx")
        ),
        *((torch.accelerator, name, nothing) for name in ("set_device_index", "set_device_idx")),
        *((torch.accelerator, name, values[name]) for name in _IN_ACCELERATOR if hasattr(torch.accelerator, name)),
        (torch.Tensor, "record_stream", nothing),
        (torch.Tensor, "pin_memory", lambda self, *_, **__: self),
    ]
    found += [
        (torch.cuda.nvtx, name, nothing) for name in ("range_push", "range_pop", "range_start", "range_end", "mark")
    ]
    found += [(torch.cuda.random, name, values[name]) for name in ("get_rng_state", "set_rng_state", "manual_seed_all")]
    return [(owner, name, _own(value)) for owner, name, value in found]


def _own(value: object) -> Any:
    """A function of its own under each name: torch/_dynamo/trace_rules.py wants no object under two."""
    if not callable(value) or isinstance(value, type):
        return value

    def called(*args: object, **kwargs: object) -> Any:
        return value(*args, **kwargs)

    return called
