"""torch's FakeTensorMode, which remembers what operations answered, with a cheaper question of its memory.

Two thirds of a dry run's time is the mode's own: it hashes seventeen facts of every tensor for each operation, asks
each time whether its log is read, and passes every call through a function that keeps the compiler out
(torch 2.13 _subclasses/fake_tensor.py `_cache_key`, `dispatch`, `_get_output_tensor_from_cache_entry`). Here a tensor
is told by its sizes, strides, dtype, device, place in its storage and dispatch keys, among which are its layout and
whether it is conjugated, negated, quantized or made for inference; what it answers is made with the attributes that
torch's own constructor gave to another one of that device. Whatever is out of the ordinary is left to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from vramwise.measure.libraries import library

TESTED: Final = ("2.13",)
"""Versions of torch whose mode was read."""


IN_PLACE: Final = object()
"""What an operation on lists of tensors is that changes them in place."""


class _OutOfTheOrdinaryError(Exception):
    """An argument that torch's own key has to tell."""


def fake_mode(*, compiles: bool) -> Any:
    """A mode of fake tensors on a card that is not there. `compiles`: somebody's own code, which may call compilers."""
    fake_tensors = library("torch._subclasses.fake_tensor")
    kept = {"avoid_device_init": True}  # it would ask torch.cuda, which answers as the card
    base = fake_tensors.FakeTensorMode
    version = ".".join(library("torch").__version__.split(".")[:2])
    kind = _quicker(fake_tensors, base, compiles) if version in TESTED else base
    return type("FakeMode", (kind,), kept)(allow_non_fake_inputs=True)


def kept_from_compilers(wanted: bool) -> Any:
    """`_should_skip_dynamo` of a mode: whether torch keeps compilers out of it, which takes time at each call."""
    return classmethod(lambda _: wanted)


def mode_below(torch: Any) -> Any:
    """What runs an operation that another mode has seen: the fake mode, where nothing else stands between the two.

    torch would take the arguments apart and put them together again on the way to it.
    """
    inside = torch._C
    fake = inside._TorchDispatchModeKey.FAKE
    modes, mode_of = inside._len_torch_dispatch_stack, inside._get_dispatch_mode
    taken, put_back = inside._unset_dispatch_mode, inside._set_dispatch_mode

    def run(func: Callable[..., object], types: object, args: Sequence[object], kwargs: dict[str, object]) -> object:
        mode = mode_of(fake)
        if mode is None or modes() != 1:
            return func(*args, **kwargs)
        taken(fake)
        try:
            out = mode.__torch_dispatch__(func, types, args, kwargs)
        finally:
            put_back(mode)
        return func(*args, **kwargs) if out is NotImplemented else out  # a kind of tensor that dispatches itself

    return run


def _quicker(fake_tensors: Any, base: Any, compiles: bool) -> type:
    torch = library("torch")
    handlers, fake = fake_tensors._DISPATCH_META_HANDLERS, fake_tensors.FakeTensor
    directly = fake_tensors._DISPATCH_HANDLE_DIRECTLY
    told = _arguments_told(torch, fake)
    default_dtype, default_device = torch.get_default_dtype, torch._C._get_default_device
    for_inference, tracing = torch.is_inference_mode_enabled, torch._C._get_dispatch_mode
    proxy = torch._C._TorchDispatchModeKey.PROXY
    modes, in_kernel = torch._C._len_torch_dispatch_stack, torch._C._meta_in_tls_dispatch_include
    empty_strided, subclass = torch.empty_strided, torch.Tensor._make_subclass
    guarded = torch._C._set_throw_on_mutable_data_ptr
    unsafe_view, view = torch.ops.aten._unsafe_view.default, torch.ops.aten.view.default
    lists = _ListsOfTensors(torch.ops.aten, fake)

    class Quicker(base):  # type: ignore[misc]
        _attributes: dict[object, dict[str, object]]
        _should_skip_dynamo: Any = kept_from_compilers(compiles)

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            self._attributes = {}

        def __torch_dispatch__(self, func: object, types: object, args: Any = (), kwargs: Any = None) -> Any:
            handler = handlers.get(func)
            if handler is not None:
                return handler(args)
            if not self.cache_enabled or func in directly:
                return self.dispatch(func, types, args, kwargs or {})
            if func is unsafe_view:  # to a kernel the same; torch's mode remembers no answer of it
                func = view
            elif args and type(args[0]) is list:
                kind = lists.kind(func)
                if kind is not None and lists.are_alike(args, self):
                    if kind is IN_PLACE:
                        return None
                    return [self._cached_dispatch_impl(kind, types, (one,), {}) for one in args[0]]
            return self._cached_dispatch_impl(func, types, args, kwargs or {})

        def _cache_key(self, state: object, func: object, args: Iterable[object], kwargs: dict[str, object]) -> Any:
            if self.shape_env is not None or tracing(proxy) is not None:
                return super()._cache_key(state, func, args, kwargs)
            key = [func, default_dtype(), default_device(), for_inference()]
            try:
                told(key, args, self)
                if kwargs:
                    key += kwargs
                    told(key, kwargs.values(), self)
            except _OutOfTheOrdinaryError:
                return super()._cache_key(state, func, args, kwargs)
            return tuple(key)

        def _get_output_tensor_from_cache_entry(
            self, state: object, entry: Any, key: object, func: object, args: Any
        ) -> object:
            facts = entry.metadata
            if facts is None or type(key) is not tuple or modes() or in_kernel():
                return super()._get_output_tensor_from_cache_entry(state, entry, key, func, args)
            attributes = self._attributes.get(facts.device)
            if attributes is None or facts.is_conj or facts.is_neg:
                made = super()._get_output_tensor_from_cache_entry(state, entry, key, func, args)
                self._attributes[facts.device] = dict(vars(made))
                return made
            meta = empty_strided(
                facts.shape, facts.stride, dtype=facts.dtype, layout=facts.layout, device="meta",
                requires_grad=facts.requires_grad,
            )  # fmt: skip
            if entry.view_idx is not None:
                meta.set_(args[entry.view_idx].untyped_storage(), facts.storage_offset, facts.shape, facts.stride)
            made = subclass(fake, meta, facts.requires_grad, dispatch_device=True, device_for_backend_keys=facts.device)
            guarded(made)
            vars(made).update(attributes)
            return made

    return Quicker


class _ListsOfTensors:
    """Optimizers' operations on lists: in place they change no shape, and of one list each tensor is asked alone.

    torch remembers no answer that is a list (`_validate_output_for_cache_entry`), and asks every tensor anew.
    """

    def __init__(self, operations: object, fake: Any) -> None:
        self.operations, self.fake = operations, fake
        self.kinds: dict[object, object] = {}

    def kind(self, func: object) -> object:
        """IN_PLACE, the operation on one tensor that the list's is made of, or None where torch has to answer."""
        if func not in self.kinds:
            self.kinds[func] = self._kind(func)
        return self.kinds[func]

    def _kind(self, func: Any) -> object:
        name = func._schema.name.removeprefix("aten::_foreach_")
        if name == func._schema.name:
            return None
        if name.endswith("_"):
            return None if func._schema.returns else IN_PLACE
        single = getattr(self.operations, name, None)
        return getattr(single, "default", None) if len(func._schema.arguments) == 1 else None

    def are_alike(self, args: Sequence[Any], mode: object) -> bool:
        """Whether every list has tensors of this mode with the same shapes, dtype and device as the first one's."""
        first = args[0]
        for listed in args:
            if type(listed) is not list or not listed or type(listed[0]) in (int, float):
                continue
            if len(listed) != len(first):
                return False
            if not all(self._is_like(one, other, mode) for one, other in zip(listed, first, strict=True)):
                return False
        return True

    def _is_like(self, one: Any, other: Any, mode: object) -> bool:
        return type(one) is self.fake and one.fake_mode is mode and (
            (one.shape, one.dtype, one.fake_device) == (other.shape, other.dtype, other.fake_device)
        )  # fmt: skip


def _arguments_told(torch: Any, fake: type) -> Any:
    """The function that adds to a key what an operation's answer hangs on in its arguments."""
    plain = {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
    keys = torch._C._dispatch_keys

    def told(key: list[object], args: Iterable[Any], mode: object) -> None:
        for arg in args:
            kind = type(arg)
            if kind is fake:
                if arg.fake_mode is not mode or arg.constant is not None:
                    raise _OutOfTheOrdinaryError
                key += (
                    arg.dtype, arg.shape, arg.stride(), arg.fake_device, arg.storage_offset(),
                    arg.untyped_storage().nbytes(), arg.requires_grad, keys(arg).raw_repr(),
                )  # fmt: skip
            elif kind in plain:
                key += (kind, arg)
            elif kind is list or kind is tuple:
                key += (kind, len(arg))
                told(key, arg, mode)
            else:
                raise _OutOfTheOrdinaryError

    return told
