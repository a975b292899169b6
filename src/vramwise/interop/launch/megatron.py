"""`torchrun … pretrain_gpt.py …`: Megatron-LM's arguments (megatron/training/arguments.py, core 0.8 to 0.18).

The model is what the arguments describe. GPUs are processes per node times nodes of `torchrun`; without it, the ranks
that the layout needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import lcm, prod
from typing import Any

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.command import Launch, Start, notes_of, settings_of, understood_of
from vramwise.interop.launch.flags import Words, cut
from vramwise.interop.launch.megatron_model import READ_FOR_THE_MODEL, model_of, vocabulary_note
from vramwise.interop.launch.values import Meaning, at_least_one, fraction, switch, whole, whole_in, word

MEANINGS = {
    "--micro-batch-size": Meaning("micro_batch_size", whole),
    "--seq-length": Meaning("sequence_length", whole),
    "--tensor-model-parallel-size": Meaning("tensor_parallel_size", whole),
    "--model-parallel-size": Meaning("tensor_parallel_size", whole),
    "--pipeline-model-parallel-size": Meaning("pipeline_parallel_size", whole),
    "--context-parallel-size": Meaning("context_parallel_size", whole),
    "--expert-model-parallel-size": Meaning("expert_parallel_size", whole),
    "--expert-tensor-parallel-size": Meaning("expert_tensor_parallel_size", whole),
    "--moe-expert-capacity-factor": Meaning("moe_capacity_factor", at_least_one),
    "--sequence-parallel": Meaning("sequence_parallel", switch),
    "--use-distributed-optimizer": Meaning("distributed_optimizer", switch),
    "--use-precision-aware-optimizer": Meaning("precision_aware_optimizer", switch),
    "--main-params-dtype": Meaning("master_dtype", word),
    "--exp-avg-dtype": Meaning("optimizer_state_dtype", word),
    "--num-virtual-stages-per-pipeline-rank": Meaning("virtual_pipeline_parallel_size", whole),
}
UNCOUNTED = {
    "--first-last-layers-bf16": "all layers' weights are taken as 8-bit",
    "--fine-grained-activation-offloading": "the modules' activations are charged to the GPU here",
    "--mtp-num-layers": "layers that predict further tokens",
    "--enable-cuda-graph": "graphs' pools",
    "--external-cuda-graph": "graphs' pools",
    "--cuda-graph-impl": "graphs' pools",
    "--overlap-moe-expert-parallel-comm": "a second micro-batch in flight",
    "--defer-embedding-wgrad-compute": "inputs and gradients of the output layer that wait",
    "--reuse-grad-buf-for-mxfp8-param-ag": "it is taken as set",
    "--pipeline-model-parallel-layout": "layers are shared out evenly",
    "--spec": "the arguments' own layers are used",
}
READ_APART = frozenset({
    "--bf16", "--fp16", "--fp8-format", "--fp8-recipe", "--fp8-param-gather", "--grad-reduce-in-bf16",
    "--accumulate-allreduce-grads-in-fp32", "--main-grads-dtype", "--exp-avg-sq-dtype", "--optimizer", "--clip-grad",
    "--recompute-activations", "--recompute-granularity", "--recompute-modules", "--recompute-method",
    "--recompute-num-layers", "--checkpoint-activations", "--moe-layer-recompute", "--optimizer-cpu-offload",
    "--global-batch-size", "--num-layers-per-virtual-pipeline-stage", "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers", "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split", "--use-torch-fsdp2", "--use-megatron-fsdp",
    "--data-parallel-sharding-strategy", "--transformer-impl", "--use-flash-attn", "--attention-backend",
    "--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl", "--optimizer-offload-fraction",
})  # fmt: skip
_OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "sgd": "sgd-momentum", "muon": "muon", "dist_muon": "muon",
               "lion": "lion"}  # fmt: skip
_SHARDING = {"optim_grads_params": "full-shard", "optim_grads": "shard-grad-op"}


def read(start: Start) -> Launch:
    """The scenario of a Megatron-LM command line. Raises UsageError for what the arguments leave open."""
    words = cut("megatron", start.words)
    model = model_of(words)
    layers = whole_in(model, "num_hidden_layers", 0) or whole_in(model, "n_layer", 0)
    settings, notes = step_of(words, layers)
    gpus, per_node = _gpus(start, settings)
    count_micro_batches(words, settings, gpus)
    read_flags = frozenset(MEANINGS) | READ_APART | READ_FOR_THE_MODEL
    notes.extend(notes_of("Megatron", words, read_flags, UNCOUNTED, words.loose))
    notes.extend(vocabulary_note(words))
    if expands(start):
        settings["expandable_segments"] = True
    scenario = {"model": model, "task": "train", "num_gpus": gpus, "gpus_per_node": per_node, "train": settings}
    return Launch("megatron", scenario, tuple(notes), understood_of(words, read_flags))


def step_of(words: Words, layers: int) -> tuple[dict[str, object], list[str]]:
    """The keys that Megatron's arguments set for a model of so many layers, and notes.

    Raises UsageError for a value that its flag does not take, and for layers that make no such stages.
    """
    settings: dict[str, Any] = {"framework": "megatron", **settings_of(words, MEANINGS)}
    notes: list[str] = []
    for apply in (_precision, _optimizer, _recomputation, _attention_and_loss, _sharding):
        apply(words, settings, notes)
    if (settings.get("expert_parallel_size") or 1) > 1:
        settings.setdefault("expert_tensor_parallel_size", settings.get("tensor_parallel_size") or 1)
    _pipeline(words, settings, layers)
    return settings, notes


def least_gpus(settings: Mapping[str, Any]) -> int:
    """The ranks that the layout needs: each pipeline stage divides by its cut of attention and by that of experts."""
    tensor, pipeline, context, expert, inside = (
        int(settings.get(f"{name}_parallel_size") or 1)
        for name in ("tensor", "pipeline", "context", "expert", "expert_tensor")
    )
    return pipeline * lcm(tensor * context, expert * (inside if expert > 1 else 1))


def expands(start: Start) -> bool:
    """Whether the variable before the program asks the allocator for segments that grow."""
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    return any("expandable_segments:True" in start.environment.get(name, "") for name in names)


def given(words: Words, flag: str) -> str | None:
    """A flag's last value; `true` for one that takes none."""
    values = words.given.get(flag)
    return values[-1] if values else None


def is_on(words: Words, flag: str) -> bool:
    """Whether a flag without a value is there."""
    return given(words, flag) == "true"


def number(words: Words, flag: str) -> int | None:
    """A flag's whole number. Raises UsageError that names the flag."""
    text = given(words, flag)
    try:
        return None if text is None else whole(text)
    except UsageError as problem:
        raise UsageError(f"{flag}: {problem}") from None


def _precision(words: Words, settings: dict[str, object], notes: list[str]) -> None:
    """bf16 adds gradients up in fp32 unless told otherwise, fp16 in fp16 (arguments.py validate_args)."""
    half = "bf16" if is_on(words, "--bf16") else "fp16" if is_on(words, "--fp16") else None
    settings["precision"] = f"{half}-master" if half else "fp32"
    narrow = is_on(words, "--grad-reduce-in-bf16") or given(words, "--main-grads-dtype") == "bf16"
    if half:
        wide = not narrow if half == "bf16" else is_on(words, "--accumulate-allreduce-grads-in-fp32")
        settings["grad_dtype"] = "fp32" if wide else half
    if given(words, "--fp8-format"):
        settings["precision"] = "fp8-mixed"
        settings["param_dtype"] = "fp8_e4m3" if is_on(words, "--fp8-param-gather") else half or "bf16"
        settings["fp8_recipe"] = given(words, "--fp8-recipe") or "delayed"


def _optimizer(words: Words, settings: dict[str, Any], notes: list[str]) -> None:
    name = given(words, "--optimizer") or "adam"
    if name not in _OPTIMIZERS:
        raise UsageError(f'--optimizer: expected {", ".join(_OPTIMIZERS)}, got "{clipped(name)}"')
    settings["optimizer"] = _OPTIMIZERS[name]
    if name == "muon":  # it is not cut over ranks (core 0.16 optimizer/muon.py; ms-swift 4.6 `_check_muon`)
        settings.pop("distributed_optimizer", None)
    elif name == "dist_muon":  # whole matrices are dealt out to the ranks (optimizer/layer_wise_optimizer.py)
        settings["distributed_optimizer"] = True
    first, second = (given(words, flag) or "fp32" for flag in ("--exp-avg-dtype", "--exp-avg-sq-dtype"))
    if first != second:
        notes.append(f"--exp-avg-sq-dtype {second} is not counted: both moments are taken as {first}")
    if settings.get("optimizer_state_dtype") == "fp8":
        settings["optimizer_state_dtype"] = "fp8_e4m3"
    if is_on(words, "--optimizer-cpu-offload"):
        settings["offload_optimizer"] = "cpu"
        share = given(words, "--optimizer-offload-fraction")
        if share is not None:
            settings["offload_optimizer_fraction"] = fraction(share)
    if given(words, "--clip-grad") in ("0", "0.0"):
        settings["clip_grad_norm"] = False


def _recomputation(words: Words, settings: dict[str, object], notes: list[str]) -> None:
    granularity = given(words, "--recompute-granularity")
    if is_on(words, "--recompute-activations"):
        granularity = "selective"
    if is_on(words, "--checkpoint-activations"):  # before core 0.2
        granularity = "full"
    modules = words.given.get("--recompute-modules") or ["core_attn"]
    if granularity == "selective":
        settings["checkpointing"], settings["recompute"] = "selective", modules
    elif granularity == "full":
        settings["checkpointing"] = "full"
        layers, method = number(words, "--recompute-num-layers") or 1, given(words, "--recompute-method")
        if method == "block":
            settings["checkpointing"], settings["recompute"] = "selective", [f"block:{layers}"]
        elif layers > 1:
            notes.append(f"--recompute-num-layers {layers}: every layer's input is taken as kept")
    elif is_on(words, "--moe-layer-recompute"):
        settings["checkpointing"], settings["recompute"] = "selective", ["moe"]


def _attention_and_loss(words: Words, settings: dict[str, object], notes: list[str]) -> None:
    """Flash attention but for local layers without it; the loss is parallel over the vocabulary."""
    is_local = given(words, "--transformer-impl") == "local" or given(words, "--attention-backend") in (
        "local",
        "unfused",
    )
    settings["attention"] = "eager" if is_local and not is_on(words, "--use-flash-attn") else "flash"
    fused = is_on(words, "--cross-entropy-loss-fusion")
    by_kernel = fused and given(words, "--cross-entropy-fusion-impl") == "te"
    settings["loss"] = "fused" if by_kernel else "vocab-parallel"
    if fused and not by_kernel:  # core/fusions/fused_cross_entropy.py: functions that torch compiles
        settings["compile"], settings["compiled"] = True, ["loss"]


def _sharding(words: Words, settings: dict[str, object], notes: list[str]) -> None:
    if is_on(words, "--use-torch-fsdp2"):
        settings["fsdp"] = "full-shard"
    elif is_on(words, "--use-megatron-fsdp"):
        settings["fsdp"] = _SHARDING.get(given(words, "--data-parallel-sharding-strategy") or "", "none")
        settings.setdefault("distributed_optimizer", True)


def _pipeline(words: Words, settings: dict[str, Any], layers: int) -> None:
    """Stages and virtual stages; embedding and loss may each stand for a layer, or the ends have their own numbers."""
    stages = settings.get("pipeline_parallel_size") or 1
    chunk = number(words, "--num-layers-per-virtual-pipeline-stage")
    ends = (is_on(words, "--account-for-embedding-in-pipeline-split"),
            is_on(words, "--account-for-loss-in-pipeline-split"))  # fmt: skip
    first, last = (number(words, f"--decoder-{end}-pipeline-num-layers") for end in ("first", "last"))
    if chunk:
        settings["virtual_pipeline_parallel_size"] = max(1, (layers + sum(ends)) // stages // chunk)
    if (settings.get("virtual_pipeline_parallel_size") or 1) > 1:
        settings["pipeline_schedule"] = "interleaved-1f1b"
    if stages == 1 or not (any(ends) or first or last):
        return
    if any(ends):
        even = (layers + sum(ends)) // stages
        first, last = even - ends[0], even - ends[1]
    between = stages - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    if rest < 0 or (between == 0 and rest) or (between and rest % between):
        raise UsageError(f"{layers} layers do not make {stages} stages of which the first has {first or 'as many'} "
                         f"and the last {last or 'as many'}")  # fmt: skip
    middle = [rest // between] * between if between else []
    settings["pipeline_layers"] = [
        *([first] if first is not None else []),
        *middle,
        *([last] if last is not None else []),
    ]


def _gpus(start: Start, settings: Mapping[str, object]) -> tuple[int, int]:
    """GPUs in all and on a node."""
    launcher = cut("torchrun", start.before)
    per_node = number(launcher, "--nproc-per-node") or number(launcher, "--nproc") or 0
    nodes = number(launcher, "--nnodes") or 1
    gpus = per_node * nodes or _variable(start, "WORLD_SIZE") or least_gpus(settings)
    return gpus, per_node or min(gpus, 8)


def _variable(start: Start, name: str) -> int:
    text = start.environment.get(name, "")
    return int(text) if text.isdecimal() else 0


def count_micro_batches(words: Words, settings: dict[str, Any], gpus: int) -> None:
    """Micro-batches of a step: the global batch over the replicas' micro-batches."""
    whole_batch = number(words, "--global-batch-size")
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
    replicas = max(1, gpus // prod(settings.get(key) or 1 for key in sizes))
    each = replicas * (settings.get("micro_batch_size") or 1)
    if whole_batch and whole_batch >= each:
        settings["gradient_accumulation_steps"] = whole_batch // each
        if (settings.get("pipeline_parallel_size") or 1) > 1:
            settings["num_microbatches"] = whole_batch // each
