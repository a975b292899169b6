"""Several GPUs: the same run on every rank under torchrun, with DDP, FSDP 2 or tensor parallelism by DTensor.

Ranks form a mesh of data parallel × tensor parallel. FSDP 2 wraps every layer and then the root; tensor parallelism
cuts q, k, v, gate and up by columns, o and down by rows. With gloo all of it also runs on CPUs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from vramwise.errors import UsageError
from vramwise.measure.building import build, torch_dtype
from vramwise.measure.job import Job, Report
from vramwise.measure.libraries import library
from vramwise.measure.recorder import Recorder
from vramwise.measure.worker import Session

BUCKETS = "gradient buckets"
GLOO_LETS_GO_S = 0.002
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")


def on_every_rank(job: Job, progress: Any) -> Report:
    """Run this rank's part of a job and report it."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    is_cuda = job.device.startswith("cuda")
    device = f"cuda:{local}" if is_cuda else "cpu"
    distributed = library("torch.distributed")
    if is_cuda:
        library("torch").cuda.set_device(local)
    distributed.init_process_group("nccl" if is_cuda else "gloo")
    if not is_cuda:
        _let_go_in_this_thread(distributed)
    try:
        return ParallelSession(replace(job, device=device), progress).report()
    finally:
        distributed.destroy_process_group()


def _let_go_in_this_thread(distributed: Any) -> None:
    """gloo's threads hold a collective's tensors a little beyond its end; frees there escape torch's profiler."""
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"):
        setattr(distributed, name, _waited_for(getattr(distributed, name)))


def _waited_for(collective: Callable[..., Any]) -> Callable[..., Any]:
    def waited(*args: Any, **kwargs: Any) -> Any:
        work = collective(*args, **kwargs)
        time.sleep(GLOO_LETS_GO_S)
        return work

    return waited


class ParallelSession(Session):
    """One rank's run."""

    _data_parallel = False

    def prepared(self) -> tuple[Any, bool]:
        settings = self.job.settings
        tensor = int(settings.get("tensor_parallel_size", 1))
        mesh = self._mesh(tensor)
        model = build(self.job)
        if tensor > 1:
            model = cut(model, mesh["tensor"], tensor)
        if settings.get("fsdp") == "full-shard":
            return sharded(model, mesh["data"], settings), True
        self._data_parallel = mesh["data"].size() > 1
        return model, False

    def wrapped(self, model: Any) -> Any:
        """DDP round a loaded model: its constructor makes the gradient buckets."""
        if not self._data_parallel:
            return model
        with self.recorder.owning(BUCKETS):
            return replicated(model, self.job.device, self.recorder)

    def _mesh(self, tensor: int) -> Any:
        world = int(os.environ["WORLD_SIZE"])
        if world % tensor:
            raise UsageError(f"--tensor-parallel-size {tensor} does not divide {world} GPUs")
        kind = "cuda" if self.job.device.startswith("cuda") else "cpu"
        mesh_of = library("torch.distributed.device_mesh").init_device_mesh
        return mesh_of(kind, (world // tensor, tensor), mesh_dim_names=("data", "tensor"))


def replicated(model: Any, device: str, recorder: Recorder) -> Any:
    """DDP, reached through the model's own attributes as Trainer does.

    Its reducer makes the buckets anew at the start of the second forward, in the order in which gradients came.
    """
    ids = [int(device.partition(":")[2])] if device.startswith("cuda") else None
    wrapped = library("torch.nn.parallel").DistributedDataParallel(model, device_ids=ids)
    wrapped.get_input_embeddings = model.get_input_embeddings
    wrapped.loss_function = getattr(model, "loss_function", None)
    wrapped.get_base_model = lambda: getattr(model, "get_base_model", lambda: model)()
    rebuilding = ExitStack()

    def before(*_: Any) -> None:
        rebuilding.enter_context(recorder.owning(BUCKETS))

    wrapped.register_forward_pre_hook(before)
    model.register_forward_pre_hook(lambda *_: rebuilding.close())
    return wrapped


def sharded(model: Any, mesh: Any, settings: Any) -> Any:
    """FSDP 2 over the mesh: each layer its own unit, then what is left."""
    fsdp = library("torch.distributed.fsdp")
    dtype = torch_dtype(str(settings.get("compute_dtype") or "bf16"))
    policy = fsdp.MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    reshard = bool(settings.get("reshard_after_forward", True))
    for layer in layers_of(model):
        fsdp.fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fsdp.fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    return model


def layers_of(model: Any) -> list[Any]:
    """The members of the longest list of modules: a transformer's layers."""
    torch = library("torch")
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return list(max(lists, key=len, default=[]))


def cut(model: Any, mesh: Any, ways: int) -> Any:
    """Tensor parallelism of every layer. Raises UsageError for a model whose layers have other names."""
    parallel = library("torch.distributed.tensor.parallel")
    names = {name.rsplit(".", 1)[-1] for layer in layers_of(model) for name, _ in layer.named_modules()}
    if not {*COLUMNS[:3], ROWS[0]} <= names:
        raise UsageError("tensor parallelism is measured for layers with q_proj, k_proj, v_proj and o_proj")
    for layer in layers_of(model):
        plan = {}
        for name, _ in layer.named_modules():
            last = name.rsplit(".", 1)[-1]
            if last in COLUMNS:
                plan[name] = parallel.ColwiseParallel()
            elif last in ROWS:
                plan[name] = parallel.RowwiseParallel()
        parallel.parallelize_module(layer, mesh, plan)
    return model
