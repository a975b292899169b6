"""How many layers' weights lie freed on a card that has not come to their end: the host runs ahead of it.

ZeRO stage 3 frees a layer's gathered weights when the host has left the layer, and marks them for the stream that
computes (`record_stream` in DeepSpeed 0.14 to 0.19 runtime/zero/partition_parameters.py `free_param`): they stay active
until the card is past it. Nothing holds the host back but the stream's queue, which takes about 1,000 commands (NVIDIA
developer forum 68937: launches up to there take 4 to 5 microseconds, each further one as long as a kernel runs). Of a
layer that are its kernels, a wait for the gathering stream in each of its modules (`fetch_sub_module` of
partitioned_param_coordinator.py), and an event for each weight that is freed.

Where gathers take longer than the layers, or the host is slower than the card, the queue is empty; so it is where each
layer's attention reads a value from the card, as transformers' around flash-attn's kernels do for padded batches and
for single rows (4.44 to 5.23 modeling_flash_attention_utils.py: `_get_unpad_data`, `_is_packed_sequence`), in whatever
loop.
"""

from __future__ import annotations

from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.training.exchange.offload import offloaded
from vramwise.training.job import Job
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.trained import width
from vramwise.training.recipe.settings import execution, pads
from vramwise.training.recipe.zero import keeps_views, zero_settings
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.speed.kernels import KernelWork, block_seconds, block_work
from vramwise.training.speed.links import links_of
from vramwise.training.speed.rates import rates_of
from vramwise.training.zero3 import NO_LAG, Lag
from vramwise.training.zero3.module_calls import Module, Weight, module_tree

QUEUE = 1024


def lag_of_card(job: Job, rank: Placement) -> Lag:
    """How far the host runs ahead in forward passes under ZeRO stage 3 whose weights are gathered from other cards."""
    train = job.train
    if train.zero_stage != 3 or rank.data_parallel == 1 or offloaded(train).weights:
        return NO_LAG
    if _reads_values(train):
        return NO_LAG
    if keeps_views(train) and train.checkpointing != "full":  # autograd keeps what was freed
        return NO_LAG
    least = zero_settings(train, job.model.hidden_size).limits.param_persistence_threshold
    sizes = _gathered_sizes(job.model, job.structure, rank, least)
    layer = next((run for run in job.shape(rank).recorded.runs if run.layer is not None), None)
    if layer is None or not sizes:
        return NO_LAG
    kernels = block_work(layer, frozenset(), job.step_axes)
    commands = len(kernels) + _modules_of_layer(job.model) + len(sizes)
    most = min(QUEUE // commands, job.model.num_layers)
    return Lag(most, most // 2 if _card_is_busy(job, rank, kernels, sum(sizes)) else 0, tuple(sizes))


def _reads_values(train: ResolvedTrain) -> bool:
    """Whether the host waits for the card in every layer's attention."""
    own = framework_of(train).own_layers
    return not own and train.attention == "flash" and (train.micro_batch_size == 1 or pads(train))


def _gathered_sizes(model: Model, train: ResolvedTrain, rank: Placement, least: int) -> list[int]:
    """Bytes of each weight of the first layer that is gathered and freed."""
    compute = execution(train, model)
    item = width(compute.autocast or compute.param_dtype)
    layer = next(iter(model.layers()), None)
    held = [] if layer is None else [p for p in layer.parameters if p.tied_to is None and rank.holds(p)]
    return [rank.local_numel(p, p.numel) * item for p in held if rank.local_numel(p, p.numel) > least]


def _card_is_busy(job: Job, rank: Placement, kernels: tuple[KernelWork, ...], layer_bytes: int) -> bool:
    """Whether a layer computes for longer than its weights are gathered, and than the host orders its kernels."""
    if job.gpu is None or not job.gpu.has_rates:
        return False
    rates = rates_of(job.gpu, job.train.compute_dtype)
    computed = block_seconds(kernels, rates, fp8=False, attended=float(job.train.context_parallel_size)).forward
    links = links_of(job.gpu, job.scenario.gpus_per_node, job.scenario.network_gbit_s)
    gathered = links.gather_s(layer_bytes, rank.data_parallel, job.train.tensor_parallel_size)
    return computed > gathered and computed > len(kernels) * rates.kernel_s


def _modules_of_layer(model: Model) -> int:
    """Modules that are called in a layer, itself included: each waits once."""
    root = module_tree(model, lambda p: Weight(p.name, p.numel, 1))
    open_modules: list[Module] = [root]
    while open_modules:
        module = open_modules.pop()
        if module.layer:
            return _count(module)
        open_modules += module.children
    return 0


def _count(module: Module) -> int:
    return 1 + sum(map(_count, module.children))
