"""`tensor.data = other` and `tensor.data_ptr()`: how libraries move and tell apart parameters, without any data."""

from __future__ import annotations

from typing import Any, Final

from vramwise.measure.libraries import library


def assigned_data() -> list[tuple[object, str, object]]:
    """`torch.Tensor.data` whose setter keeps what fake tensors know of themselves, and addresses that differ.

    torch's own setter sets the implementation alone: a fake tensor would stay on its former device, and a real one
    would be left without data. The address of every fake tensor is 0, by which accelerate finds an optimizer's
    parameters again.
    """
    torch = library("torch")
    fake = library("torch._subclasses.fake_tensor").FakeTensor
    data = torch._C.TensorBase.data

    def given(tensor: object) -> Any:
        return data.__get__(tensor)

    def put(tensor: Any, value: Any) -> None:
        if not isinstance(value, fake) and isinstance(tensor, fake):
            value = tensor.fake_mode.from_tensor(value)
        if isinstance(tensor, fake):
            data.__set__(tensor, value)
            tensor.fake_device = value.fake_device
        elif isinstance(value, fake) and type(tensor) in (torch.Tensor, torch.nn.Parameter):
            _become(tensor, value)
        else:
            data.__set__(tensor, value)

    def _become(tensor: Any, value: Any) -> None:
        own, needs = vars(tensor).copy(), tensor.requires_grad
        other = value.detach()
        if isinstance(tensor, torch.nn.Parameter):
            other = torch.nn.Parameter(other, requires_grad=needs)
        torch.utils.swap_tensors(tensor, other)
        vars(tensor).update(own)

    address, start = torch.Tensor.data_ptr, torch.UntypedStorage.data_ptr

    def storage_address(storage: Any) -> int:
        if storage.device.type not in _WITHOUT_DATA:
            return int(start(storage))
        return int(storage._cdata) if storage.nbytes() else 0

    def tensor_address(tensor: object) -> int:
        if not isinstance(tensor, fake):
            return int(address(tensor))
        first = storage_address(tensor.untyped_storage())
        return first and first + tensor.storage_offset() * tensor.element_size()

    return [
        (torch.Tensor, "data", property(given, put)),
        (torch.Tensor, "data_ptr", tensor_address),
        (torch.UntypedStorage, "data_ptr", storage_address),
    ]


_WITHOUT_DATA: Final = ("meta", "cuda")
