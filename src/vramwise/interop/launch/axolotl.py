"""`axolotl train FILE`, `accelerate launch -m axolotl.cli.train FILE`: axolotl's configuration with its own defaults.

Read in axolotl 0.19: utils/schemas/*.py, utils/config (weights are loaded in the dtype of computation),
loaders/model.py (nf4 with double quantization; what k-bit preparation widens, norms, embeddings and the output layer,
goes back to the dtype of computation beside adapters: _configure_embedding_dtypes, `should_convert`),
monkeypatch/accelerate/fsdp2.py (whose preparation leaves 16-bit weights as they are, unlike accelerate's for FSDP 1).
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import VramwiseError
from vramwise.hardware import find_gpu
from vramwise.interop.beside import file_table
from vramwise.interop.launch.adapters import beside_adapters, targets_of
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import Launcher, accelerated, launcher_of, torchrun_gpus
from vramwise.interop.launch.model_parts import full_but
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.sharding import Sharding, is_no, read_fsdp, sharding_of
from vramwise.interop.launch.trainer_settings import attention_of, optimizer_settings
from vramwise.interop.launch.trl import rollout_settings
from vramwise.interop.launch.values import fraction, whole_in

_LENGTH = 512
_PAIRS = ("dpo", "ipo", "orpo", "simpo")
_WITH_REFERENCE = ("dpo", "ipo", "kto")
_LIGER = ("liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_swiglu")
_ADAPTER_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")


def read(start: Start) -> Launch:
    """The scenario of an axolotl command. Raises UsageError or SourceError for what cannot be read."""
    options = Options(("axolotl",), "axolotl")
    words = list(start.words if start.is_script else start.words[1:])
    place = words.index("--") if "--" in words else len(words)
    options.read_words(words[:place])
    for file in [word for word in options.loose if word.endswith((".yaml", ".yml", ".json"))]:
        options.loose.remove(file)
        options.read_table(file_table(file))
    launcher = _launcher(start, options, tuple(words[place + 1 :]))
    card = _cloud(options, launcher)
    sharding = _sharding(options, launcher)
    model = one_model("axolotl", options.first("base_model"), "base_model: MODEL")
    train: dict[str, object] = {"framework": "axolotl", "micro_batch_size": 1, "sequence_length": _LENGTH,
                             **options.settings(), **sharding.settings}  # fmt: skip
    notes = list(sharding.notes)
    for found, said in (
        optimizer_settings(options.first("optimizer") or "adamw_torch_fused", sharding),
        _attention(options),
        _checkpointing(options, sharding),
        _kernels(options, in_kernels=_adapters_in_kernels(options, launcher, sharding)),
        _method(options, model),
        _preferences(options, train),
    ):
        train |= found
        notes += said
    _precision(options, train, sharding)
    scenario = {"model": model, "task": "train", **card, **launcher.table(), "train": train}
    if options.values.get("overrides_of_model_config"):
        scenario["hf_overrides"] = options.values["overrides_of_model_config"]
    return launched("axolotl", scenario, (*notes, *options.notes(), *launcher.said()), options)


def _launcher(start: Start, options: Options, after: tuple[str, ...]) -> Launcher:
    """accelerate before the module, `--launcher` with its own words after a second `--`, or Ray's workers.

    A worker of Ray has one GPU where `resources_per_worker` says nothing else (0.19 cli/train.py).
    """
    if options.is_on("use_ray"):
        return Launcher(options.number("ray_num_workers") or 1)
    if start.is_script:
        return launcher_of(start)
    if (options.first("launcher") or "accelerate") == "torchrun":
        each, nodes = torchrun_gpus(after, start.environment)
        return Launcher(each * nodes or None, each or None)
    own = Options(("accelerate",), "accelerate")
    own.read_words(after)
    if options.number("num_processes"):
        own.give("num_processes", options.values["num_processes"])
    return accelerated(own, start.environment)


def _cloud(options: Options, launcher: Launcher) -> dict[str, object]:
    """The card that `--cloud FILE` rents; the launcher gets its GPUs where it was told of none.

    0.19 cli/cloud: Modal's cards by name (an A100 has 40 GB; unstated an L40S), Baseten's (an H100), one GPU each.
    """
    file = options.first("cloud")
    if not file:
        return {}
    table = file_table(file)
    is_baseten = table.get("provider") == "baseten"
    named = str(table.get("gpu") or ("h100" if is_baseten else "l40s")).lower()
    stated = {
        key: value for key in ("gpu_count", "node_count") if isinstance(value := table.get(key), int) and value > 0
    }
    each = stated.get("gpu_count", 1)
    if not launcher.gpus:
        launcher.gpus, launcher.per_node = each * (stated.get("node_count", 1) if is_baseten else 1), each
    try:
        found = find_gpu("a100-sxm-40gb" if named == "a100" and not is_baseten else named)
    except VramwiseError as problem:
        launcher.notes.append(f"{file}: {problem}")
        return {}
    launcher.notes += [f"{file}: {found.note}"] if found.note else []
    return {"gpu": found.gpu.id}


def _sharding(options: Options, launcher: Launcher) -> Sharding:
    """DeepSpeed's file, or FSDP 1 unless `fsdp_version` says otherwise."""
    config = options.values.get("fsdp_config")
    given = options.values.get("fsdp")
    if is_no(config) and is_no(given):
        return sharding_of(options, launcher)
    found = Sharding()
    table = (
        {str(key).removeprefix("fsdp_"): value for key, value in config.items()} if isinstance(config, Mapping) else {}
    )
    words = given if isinstance(given, list) else str(given or "").split()
    strategies = [word for word in words if word in ("full_shard", "shard_grad_op", "hybrid_shard", "no_shard")]
    if strategies:
        table.setdefault("sharding_strategy", strategies[0])
    if "offload" in words:
        table["offload_params"] = True
    read_fsdp(found, table, version=options.number("fsdp_version") or 1)
    return found


def _attention(options: Options) -> tuple[dict[str, object], list[str]]:
    if options.is_on("flash_attention"):
        return {"attention": "flash"}, []
    if options.is_on("xformers_attention"):
        return {"attention": "flash"}, ["xformers_attention is taken as flash: neither keeps scores"]
    if options.is_on("flex_attention"):
        return {"attention": "flex"}, []
    if options.is_on("eager_attention"):
        return {"attention": "eager"}, []
    return attention_of(options)


def _checkpointing(options: Options, sharding: Sharding) -> tuple[dict[str, object], list[str]]:
    given = (options.first("gradient_checkpointing") or "false").lower()
    if given.startswith("offload"):
        return {"checkpointing": "full", "offload_activations": "nvme" if given == "offload_disk" else "cpu"}, []
    found: dict[str, object] = {}
    if options.is_on("gradient_checkpointing"):
        found["checkpointing"] = "full"
    elif "checkpointing" not in sharding.settings:
        found["checkpointing"] = "none"
    if not is_no(options.values.get("activation_offloading")):
        found["offload_activations"] = "cpu"
    if (options.first("max_grad_norm") or "1") in ("0", "0.0"):
        found["clip_grad_norm"] = False
    return found, []


def _adapters_in_kernels(options: Options, launcher: Launcher, sharding: Sharding) -> bool | None:
    """Whether adapters run in kernels of its own; None where there are none.

    0.18 utils/schemas/config.py check_auto_enable_lora_kernels: where none is named, on one GPU or without FSDP 1.
    """
    if options.first("adapter") not in ("lora", "qlora"):
        return None
    if any(options.first(name) is not None for name in (*_ADAPTER_KERNELS, "lora_embedding_kernel")):
        return any(options.is_on(name) for name in _ADAPTER_KERNELS)
    leaves_them = options.first("rl") or options.is_on("load_in_8bit") or options.is_on("trust_remote_code")
    in_fsdp_1 = "fsdp" in sharding.settings and sharding.settings.get("fsdp_version") != 2
    return not leaves_them and (not in_fsdp_1 or launcher.gpus in (None, 1))


def _kernels(options: Options, *, in_kernels: bool | None) -> tuple[dict[str, object], list[str]]:
    """Liger's kernels one by one, those for adapters, and the way to the loss."""
    plugins = " ".join(options.several("plugins"))
    found: dict[str, object] = {}
    notes = []
    on = [name for name in _LIGER if options.is_on(name)]
    if on or in_kernels is not None:
        found["kernels"] = [*["liger"] * bool(on), *["axolotl"] * bool(in_kernels)]
    if on and len(on) < len(_LIGER) - 1:
        notes.append(f"{', '.join(on)}: all of Liger's kernels are taken")
    named = [name for name in _ADAPTER_KERNELS if options.is_on(name)]
    if in_kernels and 0 < len(named) < len(_ADAPTER_KERNELS):
        notes.append(f"{', '.join(named)}: all of axolotl's kernels for adapters are taken")
    cut = "cut_cross_entropy" in plugins and options.is_on("cut_cross_entropy", default=True)
    if options.is_on("liger_fused_linear_cross_entropy") or cut:
        found["loss"] = "fused-linear"
    elif options.is_on("liger_cross_entropy") or options.is_on("flash_attn_cross_entropy"):
        found["loss"] = "fused"
    elif options.is_on("chunked_cross_entropy"):
        found["loss"] = "chunked"
    return found, notes


def _method(options: Options, model: str) -> tuple[dict[str, object], list[str]]:
    adapter = options.first("adapter")
    if adapter is None:
        frozen = options.is_on("freeze_mm_modules")
        return full_but(model, towers=not frozen, joins=not frozen), []
    in_4, in_8 = options.is_on("load_in_4bit"), options.is_on("load_in_8bit")
    linear = options.is_on("lora_target_linear")
    modules = ["all-linear"] if linear else options.several("lora_target_modules")
    targets, notes = targets_of(modules, model, options.several("lora_target_parameters"))
    whole, said = beside_adapters(options.several("lora_modules_to_save"), model)
    found: dict[str, object] = {
        "method": "qlora" if in_4 or in_8 or adapter == "qlora" else "lora", "lora_targets": targets,
        "lora_rank": options.number("lora_r") or 8, "lora_dropout": fraction(options.first("lora_dropout") or "0"),
        **whole,
    }  # fmt: skip
    notes += said
    if adapter not in ("lora", "qlora"):
        notes.append(f"adapter {adapter} is not described: LoRA is taken")
    if found["method"] == "qlora":
        found["quantization"] = "int8" if in_8 else "nf4-dq"
    if options.is_on("peft_use_dora"):
        found["dora"] = True
    return found, notes


def _preferences(options: Options, train: dict[str, object]) -> tuple[dict[str, object], list[str]]:
    """`rl:` and reward models."""
    kind = (options.first("rl") or "").lower()
    if options.is_on("reward_model"):
        return {"head": "sequence-classification", "micro_batch_size": 2 * whole_in(train, "micro_batch_size")}, []
    if not kind:
        return {}, []
    if kind == "grpo":
        return rollout_settings("grpo", _trl_options(options))
    found: dict[str, object] = {}
    notes = []
    if kind in _PAIRS:
        found["micro_batch_size"] = 2 * whole_in(train, "micro_batch_size")
        notes.append("a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it")
    if kind in _WITH_REFERENCE and not options.is_on("precompute_ref_log_probs"):
        found["extra_models"] = ["reference"]
    return found, notes


def _trl_options(options: Options) -> Options:
    """The `trl` and `vllm` tables by TRL's own names.

    0.19 utils/schemas/validation.py check_vllm_mode_set: an engine on cards of its own where `vllm_mode` says nothing;
    core/trainers/grpo/__init__.py: the engine's share is handed on to one on the trainer's cards alone.
    """
    found = Options(("trl", "trainer"), "TRL")
    table, engine = options.values.get("trl"), options.values.get("vllm")
    if isinstance(table, Mapping):
        found.read_table(table)
    if found.first("vllm_mode") is None:
        found.give("vllm_mode", "server")
    share = engine.get("gpu_memory_utilization") if isinstance(engine, Mapping) else None
    if share is not None:
        found.give("vllm_gpu_memory_utilization", share)
    return found


def _precision(options: Options, train: dict[str, object], sharding: Sharding) -> None:
    bf16 = str(options.values.get("bf16", "auto")).lower()
    fp16 = options.is_on("fp16") or options.is_on("float16")
    half = "fp16" if fp16 else "bf16" if bf16 in ("auto", "true", "full", "1") or options.is_on("bfloat16") else None
    half = sharding.half if sharding.says_half else half
    if sharding.deepspeed:
        train["precision"] = f"{half}-master" if half else "fp32"
        if half and train["method"] != "full":
            train["lora_dtype"] = half  # the engine casts the whole module
    elif half is None:
        train["precision"] = "fp32"
    else:
        upcast = sharding.fsdp and train["method"] == "full" and train["fsdp_version"] == 1
        train |= {"precision": f"{half}-mixed", "param_dtype": "fp32" if upcast else half}
