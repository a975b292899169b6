"""`uv run examples/run_grpo.py --config FILE key=value …` of NeMo-RL and its run_ppo, run_dpo, run_sft, run_rm.

Read in NeMo-RL 7ea279abf: examples/configs/*.yaml, models/automodel/setup.py (weights are loaded in fp32 under
DTensor; packed sequences take flash_attention_2), models/policy/workers/dtensor_policy_worker.py (autocast; the
reference's weights are on the host), algorithms/distillation.py (the teacher leaves the GPU while the student trains).
A colocated engine sleeps then.
"""

from __future__ import annotations

from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import Launcher
from vramwise.interop.launch.nested import read_nested
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.rl import Beside, accumulated, parallel_sizes
from vramwise.interop.launch.values import fraction, whole_in

_DTENSOR, _MEGATRON, _GENERATION = "policy.dtensor_cfg", "policy.megatron_cfg", "policy.generation"
_LENGTH, _MICRO, _SHARE = 512, 4, "0.6"  # examples/configs/grpo_math_1B.yaml, which the recipes build on
_PAIRS = ("dpo", "rm")


def read(start: Start) -> Launch:
    """The scenario of a NeMo-RL command. Raises UsageError or SourceError for what cannot be read."""
    options = Options(("nemo-rl",), "NeMo-RL")
    words = list(start.words)
    files = [words.pop(place + 1) for place in reversed(range(len(words) - 1)) if words[place] == "--config"]
    files += [word.partition("=")[2] for word in words if word.startswith("--config=")]
    notes = read_nested(options, [word for word in words if not word.startswith("--config")], files)
    hint = "; ".join(("policy.model_name=MODEL", *(note for note in notes if note.startswith("it builds on"))))
    model = one_model("NeMo-RL", options.first("policy.model_name"), hint)
    algorithm = _algorithm(options, start.program)
    each = options.number("cluster.gpus_per_node") or 1
    gpus = each * (options.number("cluster.num_nodes") or 1)
    apart = _gpus_apart(options, each)
    megatron = options.is_on(f"{_MEGATRON}.enabled") and not options.is_on(f"{_DTENSOR}.enabled")
    train: dict[str, object] = {
        "sequence_length": options.number("policy.max_total_sequence_length") or _LENGTH,
        "micro_batch_size": options.number("policy.train_micro_batch_size") or _MICRO,
        **(_on_megatron(options, notes) if megatron else _on_dtensor(options)),
    }  # fmt: skip
    if options.is_on("policy.sequence_packing.enabled"):
        train["packing"] = True
    if algorithm in _PAIRS:
        train["micro_batch_size"] = 2 * whole_in(train, "micro_batch_size")
        notes.append("a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it")
    if algorithm == "rm":
        train["head"] = "sequence-classification"
    beside = _beside(options, algorithm, apart)
    trained = max(1, gpus - apart)
    replicas = trained // max(1, whole_in(train, "context_parallel_size") * whole_in(train, "tensor_parallel_size")
                              * whole_in(train, "pipeline_parallel_size"))  # fmt: skip
    samples = options.number("policy.train_global_batch_size")
    train |= accumulated(samples, options.number("policy.train_micro_batch_size") or _MICRO, replicas)
    train |= beside.table()
    scenario = {"model": model, "task": "train", **Launcher(trained, min(each, trained)).table(), "train": train}
    return launched("nemo-rl", scenario, (*beside.notes, *notes, *options.notes()), options)


def _algorithm(options: Options, program: str) -> str:
    named = program.rpartition("run_")[2].removesuffix(".py").removeprefix("vlm_").partition("_")[0]
    if named and named != "grpo":
        return named
    tables = {name.partition(".")[0] for name in options.values}
    return next((name for name in ("ppo", "dpo", "sft", "rm", "distillation") if name in tables), "grpo")


def _gpus_apart(options: Options, each: int) -> int:
    """Cards that the engine has for itself."""
    colocated = f"{_GENERATION}.colocated"
    if options.is_on(f"{colocated}.enabled", default=True):
        return 0
    nodes = options.number(f"{colocated}.resources.num_nodes")
    own = options.number(f"{colocated}.resources.gpus_per_node")
    return (nodes or 1) * (own or each) if nodes or own else 0


def _on_dtensor(options: Options) -> dict[str, object]:
    train: dict[str, object] = {
        "framework": "pytorch", "fsdp": "full-shard", "fsdp_version": 2,
        "checkpointing": "full" if options.is_on(f"{_DTENSOR}.activation_checkpointing") else "none",
        **_precision(options),
    }  # fmt: skip
    for name in ("tensor", "context"):
        count = options.number(f"{_DTENSOR}.{name}_parallel_size")
        if count and count > 1:
            train[f"{name}_parallel_size"] = count
    if options.is_on(f"{_DTENSOR}.sequence_parallel") and "tensor_parallel_size" in train:
        train["sequence_parallel"] = True
    if options.is_on(f"{_DTENSOR}.cpu_offload"):
        train |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    if options.is_on("policy.sequence_packing.enabled") and "context_parallel_size" not in train:
        train["attention"] = "flash"
    return train | _adapters(options, f"{_DTENSOR}.lora_cfg", whole=options.is_on(
        f"{_DTENSOR}.lora_cfg.match_all_linear", default=True))  # fmt: skip


def _precision(options: Options) -> dict[str, object]:
    if options.first("policy.precision") == "float32":
        return {"precision": "fp32"}
    half = "fp16" if options.first("policy.precision") == "float16" else "bf16"
    return {"precision": f"{half}-mixed", "param_dtype": "fp32"}


def _adapters(options: Options, prefix: str, *, whole: bool) -> dict[str, object]:
    if not options.is_on(f"{prefix}.enabled"):
        return {}
    targets = [] if whole else [name.strip("*.[]'\" ") for name in options.several(f"{prefix}.target_modules")]
    return {"method": "lora", "lora_rank": options.number(f"{prefix}.dim") or 8,
            "lora_dropout": fraction(options.first(f"{prefix}.dropout") or "0"),
            "lora_targets": targets or "all-linear"}  # fmt: skip


def _on_megatron(options: Options, notes: list[str]) -> dict[str, object]:
    optimizer, exchange = f"{_MEGATRON}.optimizer", f"{_MEGATRON}.distributed_data_parallel_config"
    train: dict[str, object] = {
        "framework": "megatron", "precision": "bf16-master", "attention": "flash",
        "grad_dtype": "fp32" if options.is_on(f"{exchange}.grad_reduce_in_fp32") else "bf16",
        "distributed_optimizer": options.is_on(f"{optimizer}.use_distributed_optimizer", default=True),
        "precision_aware_optimizer": options.is_on(f"{optimizer}.use_precision_aware_optimizer", default=True),
        "checkpointing": "full" if options.is_on(f"{_MEGATRON}.activation_checkpointing") else "none",
    }  # fmt: skip
    if options.first(f"{_MEGATRON}.recompute_granularity") == "selective" and train["checkpointing"] == "full":
        train |= {"checkpointing": "selective",
                  "recompute": options.several(f"{_MEGATRON}.recompute_modules") or ["core_attn"]}  # fmt: skip
    train |= parallel_sizes(options, _MEGATRON)
    if options.is_on(f"{_MEGATRON}.sequence_parallel") and "tensor_parallel_size" in train:
        train["sequence_parallel"] = True
    if options.is_on(f"{optimizer}.optimizer_cpu_offload"):
        train["offload_optimizer"] = "cpu"
        share = options.first(f"{optimizer}.optimizer_offload_fraction")
        if share is not None:
            train["offload_optimizer_fraction"] = fraction(share)
    if options.is_on(f"{_MEGATRON}.fp8_cfg.enabled"):
        train |= {"precision": "fp8-mixed", "fp8_recipe": options.first(f"{_MEGATRON}.fp8_cfg.fp8_recipe") or "delayed",
                  "param_dtype": "fp8_e4m3" if options.is_on(f"{_MEGATRON}.fp8_cfg.fp8_param") else "bf16"}  # fmt: skip
    ends = [options.number(f"{_MEGATRON}.num_layers_in_{end}_pipeline_stage") for end in ("first", "last")]
    if any(ends):
        notes.append("num_layers_in_first_pipeline_stage, _last_: layers are shared out evenly here")
    return train | _adapters(
        options, f"{_MEGATRON}.peft", whole=not options.several(f"{_MEGATRON}.peft.target_modules")
    )


def _beside(options: Options, algorithm: str, apart: int) -> Beside:
    """Who else is on the policy's cards while it trains."""
    found = Beside()
    if algorithm in ("grpo", "dpo", "ppo"):
        found.notes.append("reference: its weights are on the host while the policy trains")
    teacher = options.first("teacher.model_name")
    if teacher:
        found.notes.append(f"teacher {teacher}: it leaves the GPU while the student trains")
    if algorithm == "ppo":
        found.models.append(f"critic:{options.first('value.model_name') or options.first('policy.model_name')}")
    if algorithm in ("dpo", "sft", "rm"):
        return found
    if apart:
        found.notes.append(f"the rollout engine has {apart} GPUs of its own, which are not counted here")
    elif options.is_on(f"{_GENERATION}.colocated.enabled", default=True):
        engine = options.first(f"{_GENERATION}.backend") or "vllm"
        share = options.first(f"{_GENERATION}.vllm_cfg.gpu_memory_utilization",
                              f"{_GENERATION}.sglang_cfg.mem_fraction_static") or _SHARE  # fmt: skip
        if engine == "megatron":
            found.notes.append("the rollout engine is Megatron's own: its cache is not counted")
        else:
            found.rollout(engine, share, sleeps=True)
    return found
