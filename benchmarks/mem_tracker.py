"""A dry run beside torch's own MemTracker, on the same fake card: python benchmarks/mem_tracker.py [NAME …]

Both run the same two steps of the same class (torch/distributed/_tools/mem_tracker.py as the dispatch mode in the place
of ours), each in a process of its own that has torch and transformers imported; CPU seconds from the question to the
peak, the repeated layers traced once where `dry-run` does so. MemTracker has no allocator, so that its peak stands
beside the bytes of all tensors; cuBLAS' workspaces, which it does not see, are taken off ours.

MemTracker registers a hook on every parameter, which a frozen one refuses: where adapters alone train it stops, and its
words stand in the place of its numbers.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import processes

NOT_SEEN = ("library workspace", "unsplit remainders")
STEP: dict[str, Any] = {
    "precision": "bf16",
    "micro_batch_size": 1,
    "sequence_length": 2048,
    "optimizer_impl": "foreach",
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama 3.2 1B": ("meta-llama/Llama-3.2-1B", STEP),
    "Llama 3.1 8B": ("meta-llama/Llama-3.1-8B", STEP),
    "Llama 3.1 8B, checkpointing": ("meta-llama/Llama-3.1-8B", STEP | {"checkpointing": "full"}),
    "Llama 3.2 1B, LoRA": ("meta-llama/Llama-3.2-1B", STEP | {"method": "lora"}),
    "Llama 3.1 70B, checkpointing": ("meta-llama/Llama-3.1-70B", STEP | {"checkpointing": "full"}),
}
OURS_ALONE = frozenset({"Llama 3.1 70B, checkpointing"})
"""MemTracker takes minutes."""


def question(name: str) -> dict[str, Any]:
    """What a dry run's process is asked."""
    from vramwise.dryrun.scenario import question_of
    from vramwise.scenario import Scenario

    model, train = CASES[name]
    return question_of(Scenario.from_dict({"model": model, "task": "train", "train": train}))


def dry_run(one: dict[str, Any], *, whole: bool) -> tuple[float, int]:
    """CPU seconds and the peak's bytes; `whole`: with every layer traced."""
    from vramwise.dryrun import worker

    if whole:
        worker.short_run = lambda _: None  # type: ignore[assignment]
    began = time.process_time()
    found = worker.answer(one)
    spent = time.process_time() - began
    assert not found["report"]["failure"], found["report"]["failure"]
    sizes = [
        sum(size for kind, size in moment["categories"].items() if kind not in NOT_SEEN) for moment in found["moments"]
    ]
    return spent, max(sizes)


def mem_tracker(one: dict[str, Any]) -> tuple[float, int] | str:
    """The same with torch's tracker; in its words, why it stopped."""
    from torch.distributed._tools.mem_tracker import MemTracker

    from vramwise.dryrun import session, tracer, worker

    tracker = MemTracker()
    mark = tracer.Watcher.mark

    def marked(watcher: Any, label: str) -> None:
        if label.endswith("|inputs"):
            tracker.reset_mod_stats()  # it wants that once an iteration
        mark(watcher, label)

    session.tracing_mode = lambda *_: tracker  # type: ignore[assignment]
    tracer.Watcher.mark = marked  # type: ignore[method-assign]
    began = time.process_time()
    report, *_ = worker.whole_run(one)
    spent = time.process_time() - began
    if report.failure:
        return report.failure.splitlines()[0][:100]
    peaks = tracker.get_tracker_snapshot("peak")
    return spent, max(sizes["Total"] for device, sizes in peaks.items() if device.type == "cuda")


def warmed() -> None:
    """Imports what a run imports, so that none of it is measured."""
    import peft  # noqa: F401
    import torch
    import transformers

    torch.set_num_threads(1)
    for lazy in ("AutoModelForCausalLM", "Trainer"):
        getattr(transformers, lazy)


def measured(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What a function gives in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=warmed) as fresh:
        return fresh.submit(function, *args, **kwargs).result()


def main(names: list[str]) -> None:
    """Measure and print."""
    print(processes.machine())
    print(f"{'':<30}{'dry-run':>10}{'all layers':>12}{'MemTracker':>12}{'ratio':>8}{'peak':>12}{'theirs':>12}")
    for name in names or CASES:
        one = question(name)
        spent, peak = measured(dry_run, one, whole=False)
        whole, same = measured(dry_run, one, whole=True)
        assert peak == same, name
        line = f"{name:<30}{spent:>8.2f} s{whole:>10.2f} s"
        theirs = "not run" if name in OURS_ALONE else measured(mem_tracker, one)
        if isinstance(theirs, str):
            print(f"{line}   {theirs}", flush=True)
            continue
        ratio, apart = theirs[0] / spent, theirs[1] / peak - 1
        print(f"{line}{theirs[0]:>10.2f} s{ratio:>6.1f} ×{peak / 2**20:>8,.0f} MiB{apart:>+11.2%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
