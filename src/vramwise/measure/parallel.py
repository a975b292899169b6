"""Several GPUs: the same run on every rank under torchrun, with DDP, FSDP 2 or tensor parallelism by DTensor.

Ranks form a mesh of data parallel × tensor parallel. FSDP 2 wraps every layer, what the framework wraps beside them,
and then the root; tensor parallelism cuts layers and vocabulary. With gloo all of it also runs on CPUs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any

from vramwise.errors import UsageError
from vramwise.frameworks import framework_of
from vramwise.measure.building import build, torch_dtype
from vramwise.measure.job import Job, Report
from vramwise.measure.libraries import library
from vramwise.measure.local_run import LocalRun
from vramwise.measure.recorder import Recorder
from vramwise.scenario import Scenario

BUCKETS = "gradient buckets"
GLOO_LETS_GO_S = 0.01
GLOO_IS_IDLE_S = 0.1
INITIAL_SPREAD = 0.02
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")


def on_every_rank(job: Job, progress: object) -> Report:
    """Run this rank's part of a job and report it."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    is_cuda = job.device.startswith("cuda")
    device = f"cuda:{local}" if is_cuda else "cpu"
    distributed = library("torch.distributed")
    if is_cuda:
        library("torch").cuda.set_device(local)
    distributed.init_process_group("nccl" if is_cuda else "gloo")
    if not is_cuda:
        _let_go_in_this_thread()
    try:
        return ParallelRun(replace(job, device=device), progress).report()
    finally:
        distributed.destroy_process_group()


def _let_go_in_this_thread() -> None:
    """Wait in this thread until gloo's have let go of a collective's tensors: frees there escape torch's profiler."""
    distributed = library("torch.distributed")
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
        setattr(distributed, name, _waited_for(getattr(distributed, name)))
    functional = library("torch.distributed._functional_collectives")
    functional.wait_tensor = _waited_for(functional.wait_tensor)


def _waited_for(collective: Callable[..., object]) -> Callable[..., object]:
    tensor_type = library("torch").Tensor

    def waited(*args: object, **kwargs: object) -> object:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, tensor_type)]
        before = [tensor._use_count() for tensor in tensors]
        result = collective(*args, **kwargs)
        until = time.monotonic() + GLOO_LETS_GO_S
        while time.monotonic() < until and any(
            tensor._use_count() > count for tensor, count in zip(tensors, before, strict=True)
        ):
            time.sleep(0.0005)
        time.sleep(0.0005)
        return result

    return waited


class ParallelRun(LocalRun):
    """One rank's run."""

    _data_parallel = False

    def prepared(self) -> tuple[object, bool]:
        """Sharded models are made without data and filled shard by shard, so that no rank ever holds the whole."""
        settings = self.job.settings
        tensor = int(settings.get("tensor_parallel_size", 1))
        mesh = self._mesh(tensor)
        is_sharded = settings.get("fsdp") == "full-shard"
        is_cut = is_sharded or tensor > 1
        without_data = library("accelerate").init_empty_weights(include_buffers=False)
        with without_data if is_cut else nullcontext():
            model = build(self.job)
        if tensor > 1:
            cut(model, mesh["tensor"])
        if is_sharded:
            sharded(model, mesh["data"], settings)
        else:
            self._data_parallel = mesh["data"].size() > 1
        if is_cut:
            fill(model, self.job.device)
        return model, is_sharded

    def wrapped(self, model: object) -> object:
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
    # Its first broadcast is let go of by gloo's threads, unseen by the profiler; weights are alike by their seed.
    wrapped = library("torch.nn.parallel").DistributedDataParallel(model, device_ids=ids, init_sync=ids is not None)
    wrapped.get_input_embeddings = model.get_input_embeddings
    wrapped.loss_function = getattr(model, "loss_function", None)
    wrapped.get_base_model = lambda: getattr(model, "get_base_model", lambda: model)()
    rebuilding = ExitStack()

    def before(*_: object) -> None:
        if device == "cpu":
            time.sleep(GLOO_IS_IDLE_S)
        rebuilding.enter_context(recorder.owning(BUCKETS))

    wrapped.register_forward_pre_hook(before)
    model.register_forward_pre_hook(lambda *_: rebuilding.close())
    return wrapped


def sharded(model: Any, mesh: object, settings: Any) -> None:
    """FSDP 2 over the mesh: each layer its own unit, embedding and output layer where the framework has them so, then
    what is left."""
    fsdp = library("torch.distributed.fsdp")
    dtype = torch_dtype(str(settings.get("compute_dtype") or "bf16"))
    policy = fsdp.MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    reshard = bool(settings.get("reshard_after_forward", True))
    for layer in layers_of(model):
        fsdp.fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is not None and head.weight is not embedding.weight and _has_outer_units(settings):
        last = [module for module in (_final_norm(model), head) if module is not None]
        fsdp.fully_shard(embedding, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
        fsdp.fully_shard(last, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fsdp.fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)


def _has_outer_units(settings: Mapping[str, object]) -> bool:
    train = Scenario.from_dict({"model": "measured", "task": "train", "train": settings}).train
    return framework_of(train).sharding.outer_units(train)


def _final_norm(model: Any) -> Any:
    """The last norm beside the layers (accelerate 1.15 utils/fsdp_utils.py _find_final_norm)."""
    base = getattr(model, model.base_model_prefix, model)
    norms = [module for module in base.children() if "Norm" in type(module).__name__]
    return norms[-1] if norms else None


def layers_of(model: Any) -> list[Any]:
    """The members of the longest list of modules: a transformer's layers."""
    torch = library("torch")
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return list(max(lists, key=len, default=[]))


def cut(model: Any, mesh: object) -> None:
    """Tensor parallelism: q, k, v, gate, up by columns, o and down by rows, embedding and head by vocabulary.

    What is left (norms) is replicated, so that clipping and the optimizer meet one kind of tensor. Raises UsageError
    for a model whose layers have other names.
    """
    parallel = library("torch.distributed.tensor.parallel")
    names = {name.rsplit(".", 1)[-1] for layer in layers_of(model) for name, _ in layer.named_modules()}
    if not {*COLUMNS[:3], ROWS[0]} <= names:
        raise UsageError("tensor parallelism is measured for layers with q_proj, k_proj, v_proj and o_proj")
    replicate = library("torch.distributed.tensor").Replicate()
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    styles = {
        **dict.fromkeys(COLUMNS, parallel.ColwiseParallel),
        **dict.fromkeys(ROWS, parallel.RowwiseParallel),
    }
    for name, module in list(model.named_modules()):
        style = styles.get(name.rsplit(".", 1)[-1])
        if module is embedding:
            parallel.parallelize_module(module, mesh, parallel.RowwiseParallel(input_layouts=replicate))
        elif module is head:
            parallel.parallelize_module(module, mesh, parallel.ColwiseParallel(output_layouts=replicate))
        elif style is not None:
            parallel.parallelize_module(module, mesh, style())
        elif list(module.parameters(recurse=False)):
            _replicated_module(module, mesh)
    model.tie_weights()


def _replicated_module(module: object, mesh: object) -> None:
    """The same weight on every rank, as a distributed tensor; inputs and outputs are plain ones."""
    tensor, torch = library("torch.distributed.tensor"), library("torch")

    def distributed(_: object, inputs: Any, mesh: object) -> Any:
        return tuple(
            tensor.DTensor.from_local(value, mesh, [tensor.Replicate()], run_check=False)
            if isinstance(value, torch.Tensor)
            else value
            for value in inputs
        )

    def local_again(_: object, output: Any, mesh: object) -> Any:
        return output.to_local()

    tensor.distribute_module(module, mesh, input_fn=distributed, output_fn=local_again)


def fill(model: Any, device: str) -> None:
    """Memory with random weights in it for the parts of a model without data that this rank holds."""
    torch = library("torch")
    model._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor)
    model.tie_weights()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=INITIAL_SPREAD)
