"""Memory snapshots in torch's format, made by a small allocator of our own: every number is known beforehand."""

from __future__ import annotations

import pickle
from typing import Any

MIB = 2**20


def frames(*names: str) -> list[dict[str, Any]]:
    """A stack, innermost first: `file.py:12 name`."""
    found = []
    for name in names:
        place, function = name.split()
        file, line = place.rsplit(":", 1)
        found.append({"filename": file, "line": int(line), "name": function})
    return found


FORWARD = frames("modeling_llama.py:176 forward", "train.py:10 main")
MLP = frames("/site/torch/nn/functional.py:2 silu", "modeling_llama.py:160 mlp", "train.py:10 main")
STEP = frames("/site/torch/optim/adamw.py:99 _multi_tensor_adamw", "train.py:12 main")
STATES = frames("/site/torch/optim/adamw.py:120 _init_group", "train.py:12 main")


class Allocator:
    """Writes a history and the segments that it leaves: each allocation in a segment of its own, 2 MiB multiples."""

    def __init__(self) -> None:
        self.address = 0x7F0000000000
        self.events: list[dict[str, Any]] = []
        self.blocks: dict[int, dict[str, Any]] = {}

    def alloc(self, size: int, stack: list[dict[str, Any]]) -> int:
        address, taken = self.address, -(-size // (2 * MIB)) * 2 * MIB
        self.address += taken
        self._event("segment_alloc", address, taken, [])
        self._event("alloc", address, size, stack)
        self.blocks[address] = {"size": taken, "requested_size": size, "state": "active_allocated", "frames": stack}
        return address

    def free(self, address: int) -> None:
        block = self.blocks[address]
        for action in ("free_requested", "free_completed"):
            self._event(action, address, block["requested_size"], [])
        block["state"] = "inactive"

    def oom(self, size: int, free: int, stack: list[dict[str, Any]]) -> None:
        self._event("oom", 0, size, stack, device_free=free)

    def snapshot(self, last: int | None = None) -> dict[str, Any]:
        """The snapshot, with only the last entries of the history."""
        segments = [
            {
                "device": 0, "address": address, "total_size": block["size"], "stream": 0, "segment_type": "large",
                "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [{"address": address, **block}],
            }
            for address, block in self.blocks.items()
        ]  # fmt: skip
        history = self.events if last is None else self.events[-last:]
        return {"segments": segments, "device_traces": [history, []], "allocator_settings": {"max_split_size": -1}}

    def _event(self, action: str, address: int, size: int, stack: list[dict[str, Any]], **more: int) -> None:
        at = 1_700_000_000_000_000 + len(self.events)
        row = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": at, "frames": stack}
        self.events.append({**row, **more})


def small_run(*, fails: bool = True) -> Allocator:
    """Ten blocks of weights, an MLP's tensors, optimizer states; a step over all tensors fails."""
    run = Allocator()
    for _ in range(10):
        run.alloc(3 * MIB, FORWARD)
    kept = [run.alloc(8 * MIB, MLP) for _ in range(4)]
    run.alloc(60 * MIB, STATES)
    run.free(kept[0])
    if fails:
        run.oom(40 * MIB, 2 * MIB, STEP)
    return run


def pickled(value: Any, protocol: int = 4) -> bytes:
    return pickle.dumps(value, protocol)
