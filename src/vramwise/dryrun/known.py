"""Values that are known after all: of what came from the CPU, whose tensors are real, and of what is made of it.

Labels, masks, lengths and grids of images reach the card from a batch that was really read. Beside each such fake
tensor stands its value on the CPU, worked out by the same operations, until something writes to its storage. So a count
of labels, a choice of rows by a mask and the sizes of images are what they are; what hangs on weights is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from vramwise.measure.libraries import library

_VALUE: Final = "_vramwise_value"
_LARGEST: Final = 1_000_000
"""Elements of whole numbers and truth values that are followed."""
_LARGEST_FLOAT: Final = 1024
_UNSET: Final = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")
_FILLED: Final = frozenset({"ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full"})
"""What these give hangs on the shape of their tensor, and not on what is in it."""
_GROUPS: Final = "c10d"
_KEPT_BY_ALL: Final = frozenset({"broadcast_", "allreduce_"})

_written: dict[int, int] = {}


def value_of(tensor: object) -> Any | None:
    """The value of a fake tensor as a real one on the CPU, or None where nobody knows it."""
    found = getattr(tensor, _VALUE, None)
    if found is None:
        return None
    value, generation = found
    return value if generation_of(tensor) == generation else None


def generation_of(tensor: Any) -> int:
    """How often something has written to a tensor's storage."""
    return _written.get(tensor.untyped_storage()._cdata, 0)


def say(tensor: object, value: object) -> None:
    """A fake tensor has this value."""
    setattr(tensor, _VALUE, (value, generation_of(tensor)))


class Values:
    """Follows values through operations on fake tensors."""

    def __init__(self) -> None:
        self._torch = library("torch")
        fakes = library("torch._subclasses.fake_tensor")
        self._fake, self._aside = fakes.FakeTensor, fakes.unset_fake_temporarily
        self._leaves = library("torch.utils._pytree").tree_leaves
        self._by_chance = self._torch.Tag.nondeterministic_seeded
        _written.clear()

    def before(self, func: Any, args: tuple[object, ...], kwargs: object) -> Callable[[], Any] | None:
        """How the value of a result is worked out, where every input's is known."""
        schema = func._schema
        name = schema.name.rpartition("::")[2]
        if self._by_chance in func.tags or name in _UNSET or schema.name.startswith(_GROUPS):
            return None
        is_of_shape = name in _FILLED
        if not is_of_shape and any(isinstance(one, self._fake) and value_of(one) is None for one in args):
            return None  # most end here: to look into lists costs more
        given: dict[int, object] = {}
        for one in self._leaves((args, kwargs)):
            if isinstance(one, self._fake):
                value = self._of_shape(one) if is_of_shape else value_of(one)
                if value is None:
                    return None
                given[id(one)] = value
        return lambda: self._worked_out(func, args, kwargs, given)

    def after(self, func: Any, args: object, kwargs: object, out: object, known: Callable[[], Any] | None) -> None:
        """An operation has run: its results have values, what it wrote to has none any more but those."""
        is_mutable = func._schema.is_mutable
        values = self._values(out, known) if not is_mutable or _writes_to_first(func) else None
        if func.namespace == _GROUPS or (is_mutable and values is None):
            self._write(func, args, kwargs)
        for one, value in values or ():
            if value.shape == one.shape:
                say(one, value)

    def _values(self, out: object, known: Callable[[], Any] | None) -> list[tuple[Any, Any]] | None:
        """Each result with its value; None where they are not worked out."""
        if known is None or not isinstance(out, self._torch.Tensor | tuple | list):
            return None
        results = [out] if isinstance(out, self._torch.Tensor) else list(out)
        if not results or not all(isinstance(one, self._fake) and self._is_small(one) for one in results):
            return None
        values = known()
        values = [values] if isinstance(values, self._torch.Tensor) else values
        return None if values is None else list(zip(results, values, strict=False))

    def _of_shape(self, one: Any) -> Any:
        with self._aside():
            return self._torch.empty((), dtype=one.dtype, device="cpu").expand(tuple(one.shape))

    def fill(self, tensor: object, value: float) -> None:
        """Every element of a fake tensor is this, where it has few."""
        if isinstance(tensor, self._fake) and tensor.numel() <= _LARGEST_FLOAT:
            with self._aside():
                say(tensor, self._torch.full(tuple(tensor.shape), value, dtype=tensor.dtype, device="cpu"))

    def _is_small(self, one: Any) -> bool:
        return bool(one.numel() <= (_LARGEST_FLOAT if one.dtype.is_floating_point else _LARGEST))

    def _worked_out(self, func: Any, args: Any, kwargs: Any, given: dict[int, Any]) -> Any | None:
        """The value of a view is a view of a value, so that what is written to one is in all of them."""
        tree = library("torch.utils._pytree").tree_map
        torch = self._torch

        shares = func._schema.is_mutable or any(one.alias_info is not None for one in func._schema.returns)

        def real(one: object) -> Any:
            if isinstance(one, torch.device):
                return torch.device("cpu")
            return given.get(id(one), one)

        with self._aside(), torch.no_grad():
            try:
                out = func(*tree(real, args), **tree(real, kwargs))
                if shares:
                    return list(out) if isinstance(out, tuple | list) else out
                return [one.clone() for one in out] if isinstance(out, tuple | list) else out.clone()
            except (RuntimeError, NotImplementedError, TypeError, IndexError, AttributeError):
                return None  # no kernel for the CPU, or none for these values

    def _write(self, func: Any, args: Any, kwargs: Any) -> None:
        """What is written to loses its value; ranks are alike, so that a sum over them is a multiple."""
        name = func._schema.name.rpartition("::")[2]
        if func.namespace == _GROUPS and name in _KEPT_BY_ALL and self._agreed(name, args):
            return
        for place, argument in enumerate(func._schema.arguments):
            writes = func.namespace == _GROUPS or (argument.alias_info is not None and argument.alias_info.is_write)
            if writes:
                for one in self._leaves(args[place] if place < len(args) else kwargs.get(argument.name)):
                    if isinstance(one, self._fake):
                        key = one.untyped_storage()._cdata
                        _written[key] = _written.get(key, 0) + 1

    def _agreed(self, name: str, args: Any) -> bool:
        """Whether what a group does leaves a tensor as it is, since all ranks have the same."""
        if name == "broadcast_":
            return True
        dist = library("torch.distributed")
        kinds = (dist.ReduceOp.AVG, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
        try:
            kind, world = args[2].op() if hasattr(args[2], "op") else args[2], dist.get_world_size()
        except (IndexError, RuntimeError, TypeError, AttributeError):
            return False
        if kind in kinds:
            return True
        if kind != dist.ReduceOp.SUM:
            return False
        for one in args[0]:
            value = value_of(one)
            if value is not None:
                with self._aside():
                    say(one, value * world)
        return True


def _writes_to_first(func: Any) -> bool:
    """Whether an operation changes its first argument in place, gives it back and changes nothing else."""
    written = [one for one in func._schema.arguments if one.alias_info is not None and one.alias_info.is_write]
    is_first = len(written) == 1 and written[0].name == func._schema.arguments[0].name
    return is_first and len(func._schema.returns) == 1 and func.namespace == "aten"
