"""Operations whose results are as large as values say: as large as was assumed, else a line that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from vramwise.dryrun.assumed import Assumptions
from vramwise.dryrun.known import say, value_of
from vramwise.dryrun.values import unknown_value, users_line
from vramwise.measure.libraries import library

Answer = Callable[..., Any]


def sized_by_values(assumed: Assumptions) -> dict[Any, Answer]:
    """Stand-ins by operation. They make the tensors that the CUDA kernels give back (ATen/native/cuda/Nonzero.cu,
    IndexKernel.cpp, Unique.cu, Repeat.cu)."""
    torch = library("torch")
    aten = torch.ops.aten
    aside = library("torch._subclasses.fake_tensor").unset_fake_temporarily

    def count(operation: str, tensor: Any) -> int:
        known = value_of(tensor)
        if known is not None:
            with aside():
                return int(_FOUND[operation](known))
        found = assumed.value(operation, users_line(), tensor.numel())
        if found is None:
            raise unknown_value(f"how much {operation} finds is a matter of the values of a tensor on the card")
        return max(0, int(found))

    def places(tensor: Any, operation: str = "nonzero") -> Any:
        found, known = tensor.new_empty((count(operation, tensor), tensor.dim()), dtype=torch.int64), value_of(tensor)
        if known is not None:
            with aside():
                say(found, known.nonzero())
        return found

    def told(found: Any, worked_out: Answer, *of: Any) -> Any:
        """The result, with its value where those of what it is made of are known."""
        known = [value_of(one) for one in of]
        if all(one is not None for one in known):
            with aside():
                say(found, worked_out(*known))
        return found

    def chosen(tensor: Any, mask: Any) -> Any:
        return told(tensor.new_empty((count("masked_select", mask),)), torch.masked_select, tensor, mask)

    def indexed(tensor: object, indices: Any) -> Any:
        whole: list[Any] = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                whole += places(index).unbind(1)
            else:
                whole.append(index)
        return aten.index.Tensor(tensor, whole)

    def unique(tensor: Any, *_: object, **__: object) -> Any:
        size = count("unique", tensor)
        numbers = tensor.new_empty(tensor.shape, dtype=torch.int64)
        return told(tensor.new_empty((size,)), torch.unique, tensor), numbers, numbers.new_empty((size,))

    def runs(tensor: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
        if dim is not None:
            raise unknown_value("how many slices differ from the one before is a matter of values")
        size = count("unique_consecutive", tensor)
        found = told(tensor.new_empty((size,)), torch.unique_consecutive, tensor)
        shapes = tensor.shape if return_inverse else (0,), (size,) if return_counts else (0,)
        return found, *(tensor.new_empty(shape, dtype=torch.int64) for shape in shapes)

    def repeated(repeats: Any, output_size: int | None = None) -> Any:
        size = count("repeat_interleave", repeats) if output_size is None else output_size
        return told(repeats.new_empty((size,), dtype=torch.int64), torch.repeat_interleave, repeats)

    def number(tensor: Any) -> Any:
        known = value_of(tensor)
        if known is not None:
            with aside():
                return known.item()
        found = assumed.value("item", users_line())
        if found is None:
            raise unknown_value("this reads the value of a tensor on the card")
        return found

    return {
        aten._local_scalar_dense.default: number,  # of a slice whose end is a tensor: `item` itself is never called
        aten.nonzero.default: places,
        aten.masked_select.default: chosen,
        aten.index.Tensor: indexed,
        aten._unique2.default: unique,
        aten.unique_consecutive.default: runs,
        aten.repeat_interleave.Tensor: repeated,
    }


_FOUND: Final[dict[str, Answer]] = {
    "nonzero": lambda known: known.count_nonzero(),
    "masked_select": lambda known: known.count_nonzero(),
    "unique": lambda known: known.unique().numel(),
    "unique_consecutive": lambda known: known.unique_consecutive().numel(),
    "repeat_interleave": lambda known: known.sum(),
}
"""How much an operation finds in a tensor whose values are known."""


def needs_values(func: Any, args: Any, aten: Any) -> bool:
    """Whether an `index` has masks; every other operation of the table hangs on values in any case."""
    if func is not aten.index.Tensor:
        return True
    return any(index is not None and not index.dtype.is_signed for index in args[1])
