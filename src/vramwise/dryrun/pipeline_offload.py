"""Where a pipeline's weights wait, as the libraries have it; what of them needs real parameters is stood in for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vramwise.dryrun.fake_cuda import replaced
from vramwise.measure.libraries import library


@contextmanager
def offloaded(pipeline: Any, kind: str) -> Iterator[None]:
    """A pipeline as the flags of `estimate` say it (docs/diffusion.md) inside the block."""
    torch = library("torch")
    if kind == "sequential":
        hooks = library("accelerate.hooks")
        with replaced([(hooks, "set_module_tensor_to_device", _placed)]):
            pipeline.enable_sequential_cpu_offload()
            yield
        return
    if kind == "model":
        pipeline.enable_model_cpu_offload()
    elif kind == "group":
        pipeline.enable_group_offload(
            onload_device=torch.device("cuda"), offload_device=torch.device("cpu"), offload_type="leaf_level",
            use_stream=True,
        )  # fmt: skip
    else:
        pipeline.to("cuda")
    yield


def _placed(module: Any, tensor_name: str, device: Any, value: Any = None, **_: Any) -> None:
    """accelerate 1.15 utils/modeling.py `set_module_tensor_to_device`, which makes a parameter anew by its class: that
    of a fake one takes other arguments."""
    torch = library("torch")
    *path, leaf = tensor_name.split(".")
    for one in path:
        module = getattr(module, one)
    moved = (getattr(module, leaf) if value is None else value).to(device)
    if leaf in module._buffers:
        module._buffers[leaf] = moved
    else:
        module._parameters[leaf] = torch.nn.Parameter(moved, requires_grad=False)
    if moved.device.type == "cuda":
        torch.cuda.empty_cache()
