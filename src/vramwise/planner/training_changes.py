"""Single changes of a training scenario that save memory, each with its cost and the most that it can save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.frameworks import Framework, framework_of
from vramwise.planner.changes import FLASH, SDPA, Asked, Change, Cost, rows_of_a_sample, runs
from vramwise.training.recipe.framework_defaults import ADAPTERS

_STATES = frozenset({"weights", "8-bit weights", "adapters", "gradients", "optimizer states", "master weights"})
_OPTIMIZER = frozenset({"optimizer states", "master weights", "optimizer temporaries", "gradients"})
_OUTSIDE = frozenset({"library workspace", "CUDA context", "NCCL", "rollout engine"})
_WHOLE = frozenset({"whole weights"})
_SHARED = _STATES | {"optimizer temporaries"}
_FLOW = frozenset({"activations", "logits and loss"})
_CHECKPOINTED: dict[str, object] = {"checkpointing": "full", "recompute": ()}
_LOSSES_WITH_LOGITS = frozenset({"standard", "fused", "chunked"})
_MOST_GPUS = 512
_SHORTEST_SEQUENCE = 256
_METHODS = {
    "full": (("lora", "adapters train, the model does not"), ("qlora", "adapters on a 4-bit base")),
    "lora": (("qlora", "adapters on a 4-bit base"),),
}


def training_changes(asked: Asked) -> Iterator[Change]:
    """Every change that may help; what touches nothing of the peak is left out."""
    yield from _of_attention(asked)
    yield from _of_the_allocator(asked)
    yield from _of_the_optimizer(asked)
    yield from _of_precision(asked)
    yield from _of_activations(asked)
    yield from _of_rollouts(asked)
    yield from _of_sharding(asked)
    yield from _of_offloading(asked)
    yield from _of_the_method(asked)
    yield from _of_more_gpus(asked)


def with_kernels_of_the_card(asked: Asked) -> Change | None:
    """What runs instead of a kernel that was asked for and that the card does not have; None where it has all."""
    settings = asked.settings
    if asked.scenario.task != "train":
        return None
    if settings.get("attention") == "flash" and not runs(asked, "flash_attention_2"):
        return SDPA
    if settings.get("precision") == "fp8-mixed" and not runs(asked, "fp8_gemm"):
        half = "bf16" if runs(asked, "bf16") else "fp16"
        usual = f"{half}-master" if _framework(asked).own_optimizer else f"{half}-mixed"
        return Change(f"precision {usual}", {"precision": usual}, "none", Cost.NOTHING)
    adapters_in_bf16 = settings.get("method") in ADAPTERS and settings.get("lora_dtype") == "bf16"
    if settings.get("precision") == "fp16-mixed" and adapters_in_bf16:
        return Change("precision bf16-mixed", {"precision": "bf16-mixed"}, "none", Cost.NOTHING)
    return None


def training_combinations(asked: Asked) -> Iterator[Change]:
    """Several changes at once that people make together, mildest first, for where no single one is enough."""
    yield from _leaner_steps(asked)
    share = _sharding(asked) if _divides_layers(asked) else {}
    shared = f", {_named(share)}" if share and not _is_sharded(asked) else ""
    keeps = asked.settings.get("checkpointing") != "full"
    again: dict[str, object] = _CHECKPOINTED if keeps else {}
    said, slower = (", checkpointing full", "; slower steps") if keeps else ("", "")
    least = {**again, **_leanest(asked)}
    if shared and keeps:
        yield Change(f"checkpointing full{shared}", {**again, **share}, "slower steps", Cost.TIME)
    for method, _ in _METHODS.get(asked.scenario.train.method, ()):
        values = _with_method(method) | share
        words = f"method {method}{said}{shared}"
        if said or shared:  # else it is a change of its own
            yield Change(words, {**values, **again}, f"adapters{slower}", Cost.ANOTHER_METHOD)
        if method == "qlora" and _has_experts(asked):
            words, values = f"{words}, quantize_experts", {**values, "quantize_experts": True}
            cost = f"adapters; experts in 4 bit too{slower}"
            yield Change(words, {**values, **again}, cost, Cost.ANOTHER_METHOD)
        if method == "qlora":
            words, liger = f"{words}, {_named(_leanest(asked))}", "; Liger" if "loss" in least else ""
            yield Change(words, {**values, **least}, f"adapters{slower}{liger}", Cost.ANOTHER_METHOD)
    yield from _leanest_on_more_gpus(asked, least)


def _leanest(asked: Asked) -> dict[str, object]:
    """The smallest micro batch, without logits; a loss that compares answers stays what it is."""
    train = asked.scenario.train
    sizes: dict[str, object] = {"micro_batch_size": rows_of_a_sample(train)}
    return sizes if train.loss == "preference" else {**sizes, "loss": "fused-linear"}


def _leaner_steps(asked: Asked) -> Iterator[Change]:
    """What keeps the method and the GPUs: less is saved for backward, no logits, then the smallest micro batch, and
    with all of these half and a quarter of the sequence."""
    settings, flow = asked.settings, _touched(asked, None)
    parts: list[tuple[str, dict[str, object], str]] = []
    if settings.get("checkpointing") != "full":
        parts.append(("checkpointing full", _CHECKPOINTED, "slower steps"))
    if settings.get("loss") in _LOSSES_WITH_LOGITS:
        parts.append(("loss fused-linear", {"loss": "fused-linear"}, "Liger or cut cross-entropy"))
    fewest = rows_of_a_sample(asked.scenario.train)
    if asked.scenario.train.micro_batch_size > fewest:
        parts.append((f"micro_batch_size {fewest}", {"micro_batch_size": fewest}, "accumulate gradients"))
    for many in range(2, len(parts) + 1):
        together = parts[:many]
        values = {key: value for _, more, _ in together for key, value in more.items()}
        rank = Cost.SMALLER_STEPS if "micro_batch_size" in values else Cost.TIME
        words, cost = ", ".join(one[0] for one in together), "; ".join(one[2] for one in together)
        yield Change(words, values, cost, rank, flow)
    values = {key: value for _, more, _ in parts for key, value in more.items()}
    length = settings.get("sequence_length")
    for part in (2, 4):
        shorter = length // part if isinstance(length, int) else 0
        if shorter >= _SHORTEST_SEQUENCE and (parts or part > 2):  # half of it alone is a change of its own
            words = ", ".join((*(one[0] for one in parts), f"sequence_length {shorter:,}"))
            cost = "; ".join((*(one[2] for one in parts), "shorter texts"))
            yield Change(words, {**values, "sequence_length": shorter}, cost, Cost.SHORTER, flow)


def _touched(asked: Asked, names: frozenset[str] | None) -> int | None:
    """Bytes that a change can save at most: those of its terms at the peak, which is there afterwards too.

    `names` None: everything that is neither states nor outside of torch, and what the allocator lacks in one piece.
    """
    peak = asked.peak
    if peak is None:
        return None
    if names is not None:
        return sum(child.bytes for child in peak.children if child.name in names)
    own = sum(child.bytes for child in peak.children if child.name not in _STATES | _OUTSIDE)
    return own + max(0, asked.need - peak.bytes)


def _of_attention(asked: Asked) -> Iterator[Change]:
    settings, flow = asked.settings, _touched(asked, None)
    kernel = settings.get("attention")
    if kernel == "eager":
        yield replace(SDPA, saves_at_most=flow)
    masked = settings.get("document_mask") or settings.get("padding") or kernel == "eager"
    computes = settings.get("precision") != "fp32" and runs(asked, "flash_attention_2")  # in 16 bits alone
    if masked and kernel != "flash" and computes:
        yield replace(FLASH, saves_at_most=flow)


def _of_the_allocator(asked: Asked) -> Iterator[Change]:
    if asked.is_short and not asked.settings.get("expandable_segments"):
        cost = "none: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        peak = asked.peak
        most = max(0, asked.need - peak.bytes) if peak is not None else None
        yield Change("expandable_segments", {"expandable_segments": True}, cost, Cost.NOTHING, most)


def _of_the_optimizer(asked: Asked) -> Iterator[Change]:
    settings, most = asked.settings, _touched(asked, _OPTIMIZER)
    if _framework(asked).own_optimizer or settings.get("optimizer") not in ("adamw", "lion"):
        return
    if settings.get("optimizer_impl") != "fused":
        yield Change("optimizer_impl fused", {"optimizer_impl": "fused"}, "none", Cost.NOTHING, most)
    if settings.get("optimizer") == "adamw":
        words, cost = "optimizer adamw-8bit", "needs bitsandbytes or torchao"
        yield Change(words, {"optimizer": "adamw-8bit"}, cost, Cost.A_PACKAGE, most)
    for name in ("lion-8bit", "adafactor"):
        words, cost, rank = f"optimizer {name}", "another learning rate", Cost.ANOTHER_OPTIMIZER
        yield Change(words, {"optimizer": name}, cost, rank, most, family="optimizer")


def _of_precision(asked: Asked) -> Iterator[Change]:
    settings, train = asked.settings, asked.scenario.train
    if settings.get("method") == "qlora" and settings.get("quantize_experts") is not True and _has_experts(asked):
        cost = "experts in 4 bit too (axolotl's quantize_moe_experts)"
        yield Change("quantize_experts", {"quantize_experts": True}, cost, Cost.PRECISION)
    if settings.get("param_dtype") != "fp32" or _framework(asked).own_optimizer:
        return
    frozen = settings.get("method") in ("lora", "qlora", "freeze")
    half = "bf16" if runs(asked, "bf16") else "fp16"
    if half == "fp16" and not frozen:
        return
    flag = " (--dtype bfloat16)" if train.param_dtype is not None and half == "bf16" else ""
    cost = f"frozen weights in 16 bit{flag}" if frozen else f"no fp32 copy of the weights{flag}"
    key = "precision" if train.param_dtype is None else "param_dtype"
    yield Change(f"{key} {half}", {key: half}, cost, Cost.PRECISION)


def _of_activations(asked: Asked) -> Iterator[Change]:
    settings, flow = asked.settings, _touched(asked, None)
    if settings.get("loss") in _LOSSES_WITH_LOGITS:
        words, cost = "loss fused-linear", "needs Liger or cut cross-entropy"
        yield Change(words, {"loss": "fused-linear"}, cost, Cost.A_PACKAGE, flow)
    if settings.get("checkpointing") != "full":
        words, cost = "checkpointing full", "about 30 % more compute"
        yield Change(words, _CHECKPOINTED, cost, Cost.TIME, flow)
    batch, fewest = asked.scenario.train.micro_batch_size, rows_of_a_sample(asked.scenario.train)
    if batch > fewest:
        most = asked.at_least("max_batch") if asked.is_short else None
        smaller = most // fewest * fewest if most is not None and fewest <= most < batch else fewest
        words, cost = f"micro_batch_size {smaller}", "fewer tokens a step; accumulate gradients"
        yield Change(words, {"micro_batch_size": smaller}, cost, Cost.SMALLER_STEPS, flow)
    if asked.result.peak_phase == "evaluation" and settings.get("eval_batch_size") != fewest:
        words, cost = f"eval_batch_size {fewest}", "slower evaluation"
        yield Change(words, {"eval_batch_size": fewest}, cost, Cost.SMALLER_STEPS, flow)
    length = settings.get("sequence_length")
    if isinstance(length, int) and length > 1:
        half = length // 2
        yield Change(f"sequence_length {half:,}", {"sequence_length": half}, "shorter texts", Cost.SHORTER, flow)


def _of_rollouts(asked: Asked) -> Iterator[Change]:
    train = asked.scenario.train
    if train.rollout_gpu_memory_utilization is not None and not train.rollout_sleep:
        cost = "the engine wakes up for every generation"
        yield Change("rollout_sleep", {"rollout_sleep": True}, cost, Cost.TIME)


def _of_sharding(asked: Asked) -> Iterator[Change]:
    """What the GPUs that are there can share."""
    train = asked.scenario.train
    if train.zero_stage == 3:
        values: dict[str, object] = {
            "stage3_max_live_parameters": 100_000_000,
            "stage3_max_reuse_distance": 100_000_000,
        }
        if train.zero_init is False and (most := _touched(asked, _WHOLE)):
            cost = "none: the model is made after TrainingArguments"
            yield Change("zero_init", {"zero_init": True}, cost, Cost.NOTHING, most)
        if train.stage3_max_live_parameters != 100_000_000:
            cost = "weights are gathered later, and again"
            yield Change("stage3_max_live_parameters 100,000,000", values, cost, Cost.TIME)
        return
    if train.cpu_ram_efficient_loading is False and (most := _touched(asked, _WHOLE)):
        cost = "none: accelerate's fsdp_cpu_ram_efficient_loading"
        yield Change("cpu_ram_efficient_loading", {"cpu_ram_efficient_loading": True}, cost, Cost.NOTHING, most)
    if _is_sharded(asked) or not _divides_layers(asked):
        return
    shards = _sharding(asked)
    yield Change(_named(shards), shards, "weights are gathered layer by layer", Cost.TIME)


def _of_offloading(asked: Asked) -> Iterator[Change]:
    train, cost = asked.scenario.train, "slower steps; host memory"
    if not _framework(asked).sharding.offloads:
        return
    if asked.settings.get("fsdp", "none") != "none":
        if train.offload_params == "none":
            yield Change("offload_params cpu", {"offload_params": "cpu"}, cost, Cost.HOST_MEMORY)
        return
    if train.offload_optimizer == "none":
        words = "offload_optimizer cpu"
        most = _touched(asked, _OPTIMIZER)
        yield Change(words, {"offload_optimizer": "cpu"}, cost, Cost.HOST_MEMORY, most, family="offload")
    if train.offload_params == "none" and _framework(asked).sharding.takes_zero and train.method == "full":
        values: dict[str, object] = {"zero_stage": 3, "offload_optimizer": "cpu", "offload_params": "cpu"}
        words = "zero_stage 3, states offloaded"
        yield Change(words, values, f"DeepSpeed; {cost}", Cost.HOST_MEMORY, family="offload")


def _of_the_method(asked: Asked) -> Iterator[Change]:
    for method, cost in _METHODS.get(asked.scenario.train.method, ()):
        yield Change(f"method {method}", _with_method(method), cost, Cost.ANOTHER_METHOD, family="method")


def _with_method(method: str) -> dict[str, object]:
    return {"method": method, "quantization": "nf4"} if method == "qlora" else {"method": method}


def _of_more_gpus(asked: Asked) -> Iterator[Change]:
    """The fewest GPUs that may hold their shares of the states: as it is, and with checkpointing, which may take less.

    `least`: what is no share and stays with checkpointing.
    """
    parts = _shares(asked)
    if parts is None:
        return
    shared, rest, usable = parts
    is_checkpointed = asked.scenario.train.checkpointing == "full"
    least = rest - (0 if is_checkpointed else _touched(asked, _FLOW) or 0)
    present = asked.scenario.num_gpus
    fewest = _fewest_gpus(2 * present, shared, least, usable)
    tried: list[tuple[int, dict[str, object]]] = [
        (fewest * times, {} if is_checkpointed else _CHECKPOINTED) for times in (1, 2, 4)
    ]
    if not is_checkpointed:
        tried.append((_fewest_gpus(2 * present, shared, rest, usable), {}))
    for many, more in sorted(tried, key=lambda one: (one[0], len(one[1]))):
        if many <= _MOST_GPUS:
            yield _on_more_gpus(asked, many, more, ", checkpointing" if more else "", "more GPUs")


def _leanest_on_more_gpus(asked: Asked, least: dict[str, object]) -> Iterator[Change]:
    """More GPUs whose steps are the leanest, for where the step alone is too large for any number of them."""
    parts = _shares(asked)
    if parts is None:
        return
    shared, _, usable = parts
    fewest = _fewest_gpus(2 * asked.scenario.num_gpus, shared, 0, usable)
    keeps = "checkpointing" in least
    words = f"{', checkpointing' if keeps else ''}, {_named(_leanest(asked))}"
    cost = f"more GPUs{'; slower steps' if keeps else ''}{'; Liger' if 'loss' in least else ''}"
    for many in (fewest, 2 * fewest):
        if many <= _MOST_GPUS:
            yield _on_more_gpus(asked, many, least, words, cost)


def _on_more_gpus(asked: Asked, many: int, more: dict[str, object], words: str, cost: str) -> Change:
    sharding = _sharding(asked, many)
    values = {**sharding, "num_gpus": many, **more}
    return Change(f"{many:,} GPUs, {_named(sharding)}{words}", values, cost, Cost.MORE_GPUS, family="more GPUs")


def _shares(asked: Asked) -> tuple[int, int, int] | None:
    """Bytes of the states that more GPUs would share, of the rest at the peak, and of a card; None where none may."""
    peak, usable, shared = asked.peak, asked.usable, _touched(asked, _SHARED)
    if _framework(asked).sharding.shares == "nothing" or peak is None or usable is None or not asked.is_short:
        return None
    assert shared is not None
    return shared * (asked.scenario.num_gpus if _is_sharded(asked) else 1), peak.bytes - shared, usable


def _fewest_gpus(count: int, shared: int, rest: int, usable: int) -> int:
    """The least power of two times `count` that may do, or the first above _MOST_GPUS."""
    while count <= _MOST_GPUS and shared // count + rest > usable:
        count *= 2
    return count


def _sharding(asked: Asked, num_gpus: int = 0) -> dict[str, object]:
    """The settings with which this framework shares the states out."""
    train, shares = asked.scenario.train, _framework(asked).sharding.shares
    if shares == "tensors":
        ranks = min(8, train.tensor_parallel_size * max(1, num_gpus // asked.scenario.num_gpus))
        return {"tensor_parallel_size": ranks, "distributed_optimizer": True}
    if shares == "zero" or train.zero_stage:
        return {"zero_stage": 3}
    kind = asked.settings.get("fsdp", "none")
    return {"fsdp": "full-shard" if kind == "none" else kind}


def _framework(asked: Asked) -> Framework:
    return framework_of(asked.scenario.train)


def _divides_layers(asked: Asked) -> bool:
    """Whether several GPUs are there, and the framework has them gather shared weights layer by layer."""
    return asked.scenario.num_gpus > 1 and _framework(asked).sharding.shares in ("fsdp", "zero")


def _named(values: dict[str, object]) -> str:
    return ", ".join(key if value is True else f"{key} {value}" for key, value in values.items())


def _is_sharded(asked: Asked) -> bool:
    return asked.settings.get("fsdp") in ("full-shard", "hybrid-shard") or asked.settings.get("zero_stage") == 3


def _has_experts(asked: Asked) -> bool:
    return asked.result.model.num_active_parameters < asked.result.model.num_parameters
