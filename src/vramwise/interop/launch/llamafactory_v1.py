"""`USE_V1=1 llamafactory-cli sft FILE`: LLaMA-Factory's second version, a loop of torch of its own around transformers'
classes.

Read in LLaMA-Factory ff6d4d12e src/llamafactory/v1: config/*.py, core/model_engine.py (fp32 weights where all train,
else the checkpoint's), core/base_trainer.py (torch's AdamW, fp32 logits, no autocast), plugins/model_plugins/peft.py,
quantization.py, plugins/trainer_plugins/distributed/fsdp2.py (bf16 computation, fp32 reduction).
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UsageError, clipped
from vramwise.interop.beside import file_table
from vramwise.interop.launch.adapters import beside_adapters, targets_of
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import by_environment
from vramwise.interop.launch.model_facts import config_of, last_layers
from vramwise.interop.launch.options import Options, flattened
from vramwise.interop.launch.sharding import Sharding, sharding_of
from vramwise.interop.launch.values import fraction, whole_in

_ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash"}


def read(start: Start, tables: list[Mapping[str, object]]) -> Launch:
    """The scenario of its configuration. Raises UsageError for what it does not have, or nobody counts here."""
    options = Options(("llamafactory-v1",), "LLaMA-Factory v1")
    options.read_words([word for word in start.words if not word.endswith((".yaml", ".yml", ".json"))][1:])
    for table in tables:
        options.read_table({key: value for key, value in flattened(table) if value is not None})
    model = one_model("LLaMA-Factory", options.first("model"), "model: MODEL")
    launcher = by_environment(start)
    sharding = _sharding(options)
    train: dict[str, object] = {
        "framework": "pytorch", "micro_batch_size": 1, "sequence_length": 2048, "optimizer_impl": "foreach",
        "checkpointing": "full" if options.is_on("enable_activation_checkpointing", default=True) else "none",
        "clip_grad_norm": (options.first("max_grad_norm") or "1.0") not in ("0", "0.0"), "loss_upcast": True,
        **options.settings(), **sharding.settings,
    }  # fmt: skip
    notes = list(sharding.notes)
    for found, said in (_method(options, model), _parts(options), _stage(start, options, train)):
        train |= found
        notes += said
    train |= _precision(options, train)
    whole, each = options.number("global_batch_size"), whole_in(train, "micro_batch_size")
    shared = whole_in(train, "context_parallel_size", 1)
    if whole and launcher.gpus:
        pairs = 2 if "pairs" in train else 1
        train["gradient_accumulation_steps"] = max(1, whole * pairs * shared // (each * launcher.gpus))
    train.pop("pairs", None)
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return launched("llamafactory", scenario, (*notes, *options.notes(), *launcher.said()), options)


def _sharding(options: Options) -> Sharding:
    name = options.first("dist_config.name")
    if name is None:
        return Sharding()
    if name not in _BACKENDS:
        raise UsageError(f'dist_config.name "{clipped(name)}" is not counted here: expected {" or ".join(_BACKENDS)}')
    return _BACKENDS[name](options)


def _of_deepspeed(options: Options) -> Sharding:
    from vramwise.interop.launch.launchers import Launcher

    asked = Options(("trainer",), "DeepSpeed")
    asked.give("deepspeed", options.first("dist_config.config_file"))
    found = sharding_of(asked, Launcher())
    found.settings["framework"] = "deepspeed"
    return found


def _of_fsdp(options: Options) -> Sharding:
    found = Sharding()
    replicas = options.number("mp_replicate_size") or 1
    found.settings |= {"fsdp": "hybrid-shard" if replicas > 1 else "full-shard", "fsdp_version": 2}
    if not options.is_on("dist_config.reshard_after_forward", default=True):
        found.settings["reshard_after_forward"] = False
    if options.is_on("dist_config.offload_params"):
        found.settings |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    return found


_BACKENDS = dict((("fsdp2", _of_fsdp), ("deepspeed", _of_deepspeed)))


def _method(options: Options, model: str) -> tuple[dict[str, object], list[str]]:
    name = options.first("peft_config.name")
    if name is None:
        return {"method": "full"}, []
    if name == "freeze":
        asked = options.first("peft_config.freeze_trainable_layers") or "2"
        modules = options.several("peft_config.freeze_trainable_modules")
        layers = last_layers(asked, modules, config_of(model))
        return {"method": "freeze", "trainable": [*layers, *options.several("peft_config.freeze_extra_modules")]}, []
    if name != "lora":
        raise UsageError(f'peft_config.name: expected lora or freeze, got "{clipped(name)}"')
    quantized = options.first("quant_config.name") == "bnb" or options.number("quant_config.quantization_bit")
    targets, notes = targets_of(options.several("peft_config.target_modules") or ["all"], model)
    whole, said = beside_adapters(options.several("peft_config.modules_to_save"), model)
    found: dict[str, object] = {
        "method": "qlora" if quantized else "lora", "lora_rank": options.number("peft_config.r") or 8,
        "lora_dropout": fraction(options.first("peft_config.lora_dropout") or "0.05"), "lora_targets": targets, **whole,
    }  # fmt: skip
    notes += said
    if options.is_on("peft_config.use_dora"):
        found["dora"] = True
    if quantized:
        kind = options.first("quant_config.quantization_type") or "nf4"
        doubled = kind == "nf4" and options.is_on("quant_config.double_quantization", default=True)
        in_8 = options.number("quant_config.quantization_bit") == 8
        found["quantization"] = "int8" if in_8 else f"{kind}-dq" if doubled else kind
    return found, notes


def _parts(options: Options) -> tuple[dict[str, object], list[str]]:
    """Attention, kernels, optimizer, batches, sequences over several GPUs."""
    notes = []
    asked = options.first("flash_attn") or "sdpa"
    if asked not in _ATTENTION:
        raise UsageError(f'flash_attn: expected {", ".join(_ATTENTION)}, got "{clipped(asked)}"')
    found: dict[str, object] = {"attention": _ATTENTION[asked]}
    kernels = options.first("kernel_config.name")
    if kernels == "liger_kernel":
        found["kernels"] = ["liger"]
    elif kernels is not None:
        notes.append(f"kernel_config {clipped(kernels)}: fused experts and other kernels of its own are not counted")
    optimizer = options.first("optim_config.name")
    if optimizer is not None:
        found["optimizer"] = "muon" if optimizer == "muon" else "adamw"
        if optimizer not in ("muon", "adamw"):
            notes.append(f"optim_config {clipped(optimizer)} is not described: AdamW is taken")
    if options.first("batching_strategy") in ("padding_free", "dynamic_padding_free"):
        found["padding_free"] = True
    shared = options.number("cp_size") or 1
    if shared > 1:
        found |= {"context_parallel_size": shared, "context_parallel_kind": options.first("cp_mode") or "ulysses"}
    return found, notes


def _stage(start: Start, options: Options, train: dict[str, object]) -> tuple[dict[str, object], list[str]]:
    """Pairs and a reference of `dpo`, pairs of `rm`."""
    if start.program not in ("dpo", "rm"):
        return {}, []
    found: dict[str, object] = {"micro_batch_size": 2 * whole_in(train, "micro_batch_size"), "pairs": True}
    if start.program == "rm":
        found["head"] = "sequence-classification"
    elif options.first("pref_loss") not in ("orpo", "simpo"):
        found["extra_models"] = ["reference"]
    said = "a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it"
    return found, [said]


def _precision(options: Options, train: dict[str, object]) -> dict[str, object]:
    """Where all train fp32 weights, which FSDP 2 computes with in bf16; beside adapters the checkpoint's own dtype."""
    half = options.is_on("bf16", default=True)
    if "zero_stage" in train:
        return {"precision": "bf16-master" if half else "fp32"}
    if train["method"] in ("lora", "qlora"):
        return {"precision": "bf16", "lora_dtype": "fp32"}
    if train["method"] == "freeze":  # what trains is fp32 beside 16-bit layers: these with a copy, nearly the same
        return {"precision": "bf16", **dict.fromkeys(("grad_dtype", "master_dtype", "optimizer_state_dtype"), "fp32")}
    return {"precision": "bf16-mixed", "param_dtype": "fp32"} if half and "fsdp" in train else {"precision": "fp32"}


def tables_of(words: tuple[str, ...]) -> list[Mapping[str, object]]:
    """The configurations that a command names. Raises SourceError for one that cannot be read."""
    return [file_table(word) for word in words if word.endswith((".yaml", ".yml", ".json"))]
