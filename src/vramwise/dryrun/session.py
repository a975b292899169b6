"""A process, or a part of it, in which a card is stood in for and every allocation on it is watched."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from vramwise.dryrun import fake_cuda
from vramwise.dryrun.assigned import assigned_data
from vramwise.dryrun.assumed import Assumptions
from vramwise.dryrun.card import Card, answers_of, stream_in_use
from vramwise.dryrun.fake_mode import fake_mode
from vramwise.dryrun.finite import all_finite
from vramwise.dryrun.generated import generated_tokens
from vramwise.dryrun.libraries import as_on_a_card
from vramwise.dryrun.recorder import replayed
from vramwise.dryrun.tracer import Watcher
from vramwise.dryrun.tracing_mode import tracing_mode
from vramwise.dryrun.values import without_values
from vramwise.measure.libraries import library

_open: list[Any] = []


class Session:
    """What is watched, and the counters that `torch.cuda` answers with."""

    def __init__(
        self, card: Card, workspace_bytes: int = 0, *, stacks: bool = True, assumed: Assumptions | None = None
    ) -> None:
        """`assumed`: somebody's own code runs, and may ask for numbers; what it gets where it decides by them."""
        self.card, self.assumed = card, assumed
        self.watcher = Watcher(card.capability, workspace_bytes, stacks=stacks)
        self.watcher.stream_of = stream_in_use

    def counters(self) -> dict[str, int]:
        """torch.cuda's counters now; peaks since the start."""
        found = replayed(self.watcher.log)
        return {
            "allocated": found.allocated, "reserved": found.reserved,
            "peak_allocated": found.peak_allocated, "peak_reserved": found.peak_reserved,
        }  # fmt: skip

    def reset_peaks(self) -> None:
        """Peaks are of the whole run here: the answer names the moment of each."""

    def empty_cache(self) -> None:
        self.watcher.empty_cache()


@contextmanager
def watching(session: Session, *, has_trainer: bool = True) -> Iterator[Session]:
    """CUDA stood in for and watched inside the block; `has_trainer`: it may run transformers' Trainer."""
    torch = library("torch")
    fake = fake_mode(compiles=session.assumed is not None)  # loads what reads torch.cuda as it is
    with ExitStack() as stack:
        stack.callback(fake_cuda.install())
        stack.enter_context(fake_cuda.replaced(answers_of(session.card, session)))
        stack.enter_context(fake_cuda.replaced(as_on_a_card(has_trainer=has_trainer)))
        stack.enter_context(_attention(session.watcher.attention))
        stack.enter_context(_modules(session.watcher))
        if session.assumed is not None:
            own = [
                *without_values(session.assumed),
                *all_finite(),
                *assigned_data(),
                *generated_tokens(session.watcher),
            ]
            stack.enter_context(fake_cuda.replaced(own))
        resize = torch.UntypedStorage.resize_
        stack.enter_context(fake_cuda.replaced([(torch.UntypedStorage, "resize_", _watched_resize(session, resize))]))
        swaps = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, swaps)
        stack.enter_context(fake)
        stack.enter_context(tracing_mode(session.watcher, session.assumed))
        _open.append(session)
        stack.callback(_open.remove, session)
        yield session


def is_watching() -> bool:
    """Whether a session runs in this process."""
    return bool(_open)


def _watched_resize(session: Session, resize: Any) -> Any:
    def resized(storage: Any, size: int) -> object:
        known = storage._cdata in session.watcher.alive or not storage.nbytes()
        found = resize(storage, size)
        if known and storage.device.type in ("meta", "cuda"):
            session.watcher.resized(storage, size)
        return found

    return resized


@contextmanager
def _attention(kernel: object) -> Iterator[None]:
    """SDPA as the card chooses it, where autograd would take it apart."""
    registered = library("torch.library").Library("aten", "IMPL")
    registered.impl("scaled_dot_product_attention", kernel, "AutogradCUDA")
    try:
        yield
    finally:
        registered._destroy()


@contextmanager
def _modules(watcher: Watcher) -> Iterator[None]:
    """Which module runs, by its name below the outermost one."""
    hooks = library("torch.nn.modules.module")
    names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    inside = library("torch")._C

    def before(module: Any, _: object) -> None:
        # A fake mode sets this for its own thread; what a checkpoint runs again is on the engine's.
        if inside._current_graph_task_id() != -1 and not inside._only_lift_cpu_tensors():
            inside._set_only_lift_cpu_tensors(True)
        if not watcher.modules and module not in names:  # a layer that a checkpoint runs again keeps its name
            names.update((inner, name) for name, inner in module.named_modules())
        watcher.modules.append(names.get(module, "") or type(module).__name__)

    def after(*_: object) -> None:
        if watcher.modules:
            watcher.modules.pop()

    handles = (
        hooks.register_module_forward_pre_hook(before),
        hooks.register_module_forward_hook(after, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
