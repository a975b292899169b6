"""The dispatch mode of a watch: operations that touch CUDA run on fake tensors, and are seen."""

from __future__ import annotations

import sys
from typing import Any, Final

from vramwise.dryrun.assumed import Assumptions
from vramwise.dryrun.dynamic import needs_values, sized_by_values
from vramwise.dryrun.fake_mode import kept_from_compilers, mode_below
from vramwise.dryrun.finite import passed_on
from vramwise.dryrun.known import Values
from vramwise.dryrun.signs import Signs
from vramwise.dryrun.tracer import Watcher
from vramwise.measure.libraries import library

_FACTORIES: Final = frozenset({"aten::empty", "aten::zeros", "aten::ones", "aten::randn", "aten::rand", "aten::full"})
_PINNED: Final = "_is_pinned_in_name"
_LARGEST_MASK: Final = 2**26
_LARGE: Final = 16_384
"""Elements from which a CPU tensor of a module is fake too."""


def tracing_mode(watcher: Watcher, assumed: Assumptions | None = None) -> Any:
    """The dispatch mode that feeds a watcher: calls that touch CUDA run on fake tensors, all others as they are.

    `assumed`: somebody's own code runs, and what hangs on values is as was assumed.
    """
    torch = library("torch")
    fake_tensors = library("torch._subclasses.fake_tensor")
    fake, aside = fake_tensors.FakeTensor, fake_tensors.unset_fake_temporarily
    copy = torch.ops.aten._to_copy.default
    sdpa = torch.ops.aten.scaled_dot_product_attention.default
    asks_for_pins = torch.ops.aten.is_pinned.default
    aten = torch.ops.aten
    values, signs = Values() if assumed is not None else None, Signs()
    sized = sized_by_values(assumed) if assumed is not None else {}

    below = mode_below(torch)
    asked_of = fake_tensors._DISPATCH_META_HANDLERS  # a tensor's device, sizes and strides

    class Tracing(library("torch.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        _should_skip_dynamo: Any = kept_from_compilers(assumed is not None)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if fake in types and func in asked_of:
                return asked_of[func](args)
            kwargs = kwargs or {}
            if func is asks_for_pins:
                return getattr(args[0], _PINNED, False)
            if kwargs.get("pin_memory"):
                out = self.__torch_dispatch__(func, types, args, {**kwargs, "pin_memory": None})
                setattr(out, _PINNED, True)  # the reducer of DDP asks (reducer.cpp)
                return out
            if fake not in types and not _asks_for_cuda(kwargs):
                if _is_large_weight(func, args):
                    return func(*args, **kwargs)
                with aside():
                    return func(*args, **kwargs)
            if func in sized and needs_values(func, args, aten):
                known = values.before(func, args, kwargs) if values is not None else None
                with self:
                    out = sized[func](*args, **kwargs)
                if values is not None:
                    values.after(func, args, kwargs, out, known)
                return out
            if func is sdpa:
                with self:
                    return watcher.attention(*args, **kwargs)
            if values is None:
                out = below(func, types, args, kwargs)
            else:
                known, sign = values.before(func, args, kwargs), signs.before(func, args, kwargs)
                out = below(func, types, args, kwargs)
                values.after(func, args, kwargs, out, known)
                signs.after(func, args, out, sign)
                passed_on(func._schema.name.removeprefix("aten::"), args, out, values)
            watcher.seen(func, args, kwargs, out)
            watcher.written(func, args, out)
            if func is copy and isinstance(out, fake) and not out.is_floating_point():
                with aside():
                    out.is_whole = watcher.of_ones(args[0]) or _is_whole(args[0], fake)
            return out

    return Tracing()


def _is_whole(source: Any, fake: type) -> bool:
    """Whether a mask hides nothing, as far as its tensor on the CPU or the mask that it is a copy of says."""
    if isinstance(source, fake):
        return bool(getattr(source, "is_whole", False))
    return source.numel() <= _LARGEST_MASK and bool((source == 1).all())


def _asks_for_cuda(kwargs: Any) -> bool:
    device = kwargs.get("device")
    return device is not None and getattr(device, "type", str(device)).startswith("cuda")


def _is_large_weight(func: Any, args: Any) -> bool:
    """Whether a module that is being made asks for a tensor of its own on the CPU: it needs no data."""
    if func._schema.name not in _FACTORIES or not args or not isinstance(args[0], list | tuple):
        return False
    numel = 1
    for size in args[0]:
        numel *= size
    if numel < _LARGE:
        return False
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and hasattr(frame.f_locals.get("self"), "_parameters"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
