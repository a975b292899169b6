"""One rank of many: `torch.distributed` on torch's own fake process group, which answers at once and moves nothing.

torch/testing/_internal/distributed/fake_pg.py: a group of any size in one process. What libraries allocate for their
collectives (DDP's buckets, FSDP's gathered parameters) they allocate themselves, so that it is seen; what NCCL takes
is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vramwise.dryrun.fake_cuda import holders
from vramwise.dryrun.tracer import Watcher
from vramwise.measure.libraries import library

MOST_RANKS: Final = 1024


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of a launch, and which of them runs."""

    world: int = 1
    of_a_node: int = 1
    rank: int = 0

    def environment(self) -> dict[str, str]:
        """What a launcher tells its processes (torch/distributed/elastic/agent/server/local_elastic_agent.py).

        The rank that runs is the first of its machine: only one card is stood in for, and that is number 0.
        """
        node, nodes = self.rank // self.of_a_node, -(-self.world // self.of_a_node)
        numbers = {
            "WORLD_SIZE": self.world, "RANK": self.rank, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": self.of_a_node,
            "GROUP_RANK": node, "GROUP_WORLD_SIZE": nodes, "ROLE_RANK": self.rank, "ROLE_WORLD_SIZE": self.world,
            "MASTER_PORT": 29500, "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0,
        }  # fmt: skip
        return {name: str(number) for name, number in numbers.items()} | {
            "MASTER_ADDR": "127.0.0.1", "ROLE_NAME": "default", "TORCHELASTIC_RUN_ID": "none",
        }  # fmt: skip


def fake_groups(ranks: Ranks, watcher: Watcher) -> list[tuple[object, str, object]]:
    """Attributes of torch.distributed to replace so that groups of `ranks` are fake ones."""
    fake = library("torch.testing._internal.distributed.fake_pg")
    dist, c10d = library("torch.distributed"), library("torch.distributed.distributed_c10d")
    start = c10d.init_process_group

    def started(*_: object, **kwargs: object) -> None:
        rank, world = (kwargs.get(name) for name in ("rank", "world_size"))
        size = world if isinstance(world, int) and world > 0 else int(os.environ.get("WORLD_SIZE", ranks.world))
        mine = rank if isinstance(rank, int) and rank >= 0 else int(os.environ.get("RANK", ranks.rank))
        start(backend="fake", store=fake.FakeStore(), rank=mine, world_size=size)

    def grouped(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: object, **kwargs: object) -> Any:
            kept = {name: kwargs[name] for name in kwargs if name not in _OF_REAL_GROUPS}
            return make(*args[:1], **kept)

        return made

    def nothing(*_: object, **__: object) -> None: ...

    def everybody_has(found: list[Any], mine: object, *_: object, **__: object) -> None:
        found[:] = [mine] * len(found)

    def gathered(mine: object, found: list[Any] | None = None, *_: object, **__: object) -> None:
        if found is not None:
            everybody_has(found, mine)

    def scattered(out: list[Any], given: list[Any] | None = None, *_: object, **__: object) -> None:
        if given:
            out[0] = given[min(ranks.rank, len(given) - 1)]

    answers: dict[str, Any] = {
        "init_process_group": started,
        "new_group": grouped(c10d.new_group),
        "barrier": nothing,
        "monitored_barrier": nothing,
        "all_gather_object": everybody_has,
        "gather_object": gathered,
        "broadcast_object_list": nothing,
        "scatter_object_list": scattered,
        "is_nccl_available": lambda: True,
    }
    data_parallel = library("torch.nn.parallel").DistributedDataParallel
    before_forward = data_parallel._pre_forward

    def hooked(self: Any, *inputs: object, **kwargs: object) -> Any:
        if not self._comm_hooks and not hasattr(self, _HOOKED):
            setattr(self, _HOOKED, True)
            dist._register_comm_hook(self.reducer, watcher, _reduced)
        return before_forward(self, *inputs, **kwargs)

    torch = library("torch")
    random = library("torch.distributed.tensor._random").OffsetBasedRNGTracker
    return [
        (random, "_get_device_state", lambda _: torch.zeros(16, dtype=torch.uint8)),  # DTensor's: on the card, for real
        (data_parallel, "_pre_forward", hooked),
        (dist.Logger, "set_runtime_stats_and_log", nothing),  # wants a timer of the card
        (dist, "_verify_params_across_processes", nothing),  # reads sizes that came from the others
        *(
            (owner, name, value)  # device_mesh calls init_process_group by a name of its own
            for name, value in answers.items()
            for owner, held in holders(getattr(c10d, name), "torch.distributed")
            if held == name
        ),
    ]


_OF_REAL_GROUPS: Final = frozenset({"backend", "timeout", "pg_options", "device_id", "use_local_synchronization"})
_HOOKED: Final = "_vramwise_hooked"


def _reduced(watcher: Watcher, bucket: Any) -> Any:
    """DDP's sum of a bucket. Its own asks the group's work for tensors, and a fake group's has none (reducer.cpp)."""
    future = library("torch").futures.Future()
    watcher.name("gradient buckets", [bucket.buffer()])
    future.set_result(bucket.buffer())
    return future
