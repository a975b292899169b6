"""Where a pipeline's weights wait, as the libraries have it; what of them needs real parameters is stood in for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from vramwise.dryrun.fake_cuda import replaced
from vramwise.measure.libraries import library

_GROUPS: Final = {"offload_type": "leaf_level", "use_stream": True}


@contextmanager
def offloaded(pipeline: Any, kind: str) -> Iterator[None]:
    """A pipeline as the flags of `estimate` say it (docs/diffusion.md) inside the block."""
    torch = library("torch")
    if kind == "sequential":
        with replaced([_places()]):
            pipeline.enable_sequential_cpu_offload()
            yield
        return
    if kind == "model":
        pipeline.enable_model_cpu_offload()
    elif kind == "group":
        pipeline.enable_group_offload(torch.device("cuda"), torch.device("cpu"), **_GROUPS)
    else:
        pipeline.to("cuda")
    yield


@contextmanager
def model_offloaded(model: Any, kind: str) -> Iterator[None]:
    """A model without its pipeline, as the same flags leave it in one (Diffusers 0.42 pipelines/pipeline_utils.py)."""
    torch = library("torch")
    if kind == "sequential":
        with replaced([_places()]):
            library("accelerate").cpu_offload(model, torch.device("cuda"), offload_buffers=bool(model._parameters))
            yield
        return
    if kind == "model":
        library("accelerate").cpu_offload_with_hook(model, torch.device("cuda"))
    elif kind == "group":
        model.enable_group_offload(torch.device("cuda"), torch.device("cpu"), **_GROUPS)
    yield


def _places() -> tuple[object, str, object]:
    """What accelerate's hooks of single layers move tensors with, replaced."""
    return library("accelerate.hooks"), "set_module_tensor_to_device", _placed


def _placed(module: Any, tensor_name: str, device: Any, value: Any = None, **_: object) -> None:
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
