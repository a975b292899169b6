"""A script that starts its own processes, or joins a group by itself: its first process runs, in place.

`torch.multiprocessing.spawn` calls the function as number 0, and a group of any size is a fake one, as a launcher's is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

from vramwise.dryrun.fake_cuda import holders, replaced
from vramwise.dryrun.ranks import Ranks, fake_groups
from vramwise.dryrun.tracer import Watcher
from vramwise.measure.libraries import library


class OwnRanks:
    """The group that a script without a launcher makes, once it does; `ranks` says how large it is."""

    def __init__(self, watcher: Watcher) -> None:
        self.ranks: Ranks | None = None
        self._watcher, self._replaced = watcher, ExitStack()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Processes that the script starts run in place, and its group is a fake one."""
        processes = library("torch.multiprocessing")
        begin = library("torch.distributed.distributed_c10d").init_process_group
        begins = [(owner, name, self._begin) for owner, name in holders(begin, "torch.distributed")]
        with replaced([(processes, name, _first_alone) for name in ("spawn", "start_processes")]), self._replaced:
            self._replaced.enter_context(replaced(begins))
            yield

    def _begin(self, *args: Any, **kwargs: Any) -> Any:
        if self.ranks is None:
            said = {"world_size": os.environ.get("WORLD_SIZE", 1), "rank": os.environ.get("RANK", 0), **kwargs}
            world, rank = max(1, int(said["world_size"])), max(0, int(said["rank"]))
            self.ranks = Ranks(world, world, rank)
            self._replaced.close()  # the real ones are back, which a fake group is made by
            self._replaced.enter_context(replaced(fake_groups(self.ranks, self._watcher)))
        return library("torch.distributed").init_process_group(*args, **kwargs)


def _first_alone(
    fn: Callable[..., object], args: Sequence[object] = (), nprocs: int = 1, join: bool = True, *_: object, **__: object
) -> object:
    """torch/multiprocessing/spawn.py `start_processes`: the first of them, which has ended when this returns."""
    fn(0, *args)
    return None if join else SimpleNamespace(processes=[], join=lambda *_, **__: True)
