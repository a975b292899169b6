"""`composer [-n GPUS] train.py FILE key=value …`: llm-foundry's configurations for pretraining and fine-tuning.

Read in llm-foundry 0.22 (utils/config_utils.py TrainConfig, models/hf/hf_causal_lm.py, models/mpt/configuration_mpt.py,
scripts/train/yamls) and composer 0.32 (cli/launcher.py; trainer: fp32 weights under autocast for amp_*, FSDP 1).
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.adapters import targets_of
from vramwise.interop.launch.command import Launch, Start, launched
from vramwise.interop.launch.launchers import Launcher
from vramwise.interop.launch.nested import read_nested
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.sharding import Sharding, is_no, read_fsdp
from vramwise.interop.launch.values import fraction

_PRECISIONS = {"amp_bf16": "bf16-mixed", "amp_fp16": "fp16-mixed", "fp32": "fp32", "amp_fp8": "fp8-mixed",
               "bf16": "bf16"}  # fmt: skip
_OPTIMIZERS = {"decoupled_adamw": "adamw", "adamw": "adamw", "adam": "adamw", "decoupled_lionw": "lion",
               "decoupled_lionw_8b": "lion-8bit", "adalr_lion": "lion", "clip_lion": "lion",
               "decoupled_sgdw": "sgd-momentum", "no_op": "none"}  # fmt: skip
_MPT = {"d_model": 2048, "n_heads": 16, "n_layers": 24, "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50368}
"""configuration_mpt.py MPTConfig's own sizes."""
_LENGTH = 2048


def read(start: Start) -> Launch:
    """The scenario of an llm-foundry command. Raises UsageError or SourceError for what cannot be read."""
    options = Options(("llm-foundry",), "llm-foundry")
    words = [word for word in start.words if not word.endswith(".py")]
    launcher = Options(("composer",), "composer")
    launcher.read_words(words)
    rest, launcher.loose = launcher.loose, []
    files = [word for word in rest if word.endswith((".yaml", ".yml", ".json")) and "=" not in word]
    notes = read_nested(options, [word for word in rest if word not in files], files)
    model, said = _model(options)
    notes += said
    train: dict[str, object] = {"framework": "llm-foundry", "sequence_length": options.number("max_seq_len") or _LENGTH,
                                "checkpointing": "none", **_sharding(options)}  # fmt: skip
    gpus = launcher.number("nproc", "n", "world_size")
    for found, more in (_batch(options, gpus), _optimizer(options), _precision(options), _adapters(options, model)):
        train |= found
        notes += more
    attention = options.first("model.attn_config.attn_impl", "model.config_overrides.attn_config.attn_impl")
    if options.is_on("model.use_flash_attention_2"):
        train["attention"] = "flash"
    elif attention in ("flash", "flex"):
        train["attention"] = attention
    elif attention == "torch":
        train["attention"] = "eager"
    if options.first("model.loss_fn") == "torch_crossentropy":
        train["loss"] = "standard"
    train["clip_grad_norm"] = options.first("algorithms.gradient_clipping.clipping_threshold") is not None
    if not is_no(options.values.get("compile_config")) or any(name.startswith("compile_config.") for name in
                                                              options.values):  # fmt: skip
        train["compile"] = True
    place = Launcher(gpus, min(gpus, 8) if gpus else None)
    scenario = {"model": model, "task": "train", **place.table(), "train": train}
    return launched("llm-foundry", scenario, (*notes, *options.notes(), *launcher.notes(), *place.said()),
                  options)  # fmt: skip


def _model(options: Options) -> tuple[object, list[str]]:
    """A pretrained model's name, or an MPT by its sizes."""
    named = options.first("model.pretrained_model_name_or_path")
    if named:
        return named, []
    kind = options.first("model.name") or ""
    if not kind.startswith("mpt"):
        raise UsageError(
            f'model.name: expected mpt_causal_lm or a pretrained_model_name_or_path, got "{clipped(kind)}"'
        )
    sizes = {key: options.number(f"model.{key}") or default for key, default in _MPT.items() if key != "max_seq_len"}
    sizes["max_seq_len"] = options.number("model.max_seq_len", "max_seq_len") or _MPT["max_seq_len"]
    attention = {key: options.values[f"model.attn_config.{key}"] for key in
                 ("alibi", "rope", "attn_type", "kv_n_heads", "qk_ln", "clip_qkv")
                 if f"model.attn_config.{key}" in options.values}  # fmt: skip
    tied = options.is_on("model.tie_word_embeddings", default=True)
    config: dict[str, object] = {"model_type": "mpt", **sizes, "attn_config": attention, "tie_word_embeddings": tied,
                                 "no_bias": options.is_on("model.no_bias")}  # fmt: skip
    ffn = options.first("model.ffn_config.ffn_type")
    notes = [f"model.ffn_config.ffn_type {clipped(ffn)} is not described: MPT's own MLP is taken"] if ffn not in (
        None, "mptmlp") else []  # fmt: skip
    return config, notes


def _sharding(options: Options) -> dict[str, object]:
    """Composer's FSDP; DDP where the file has no fsdp_config."""
    table = {name.partition(".")[2]: value for name, value in options.values.items() if name.startswith("fsdp_config.")}
    if not table:
        return {}
    found = Sharding()
    read_fsdp(found, {key: table[key] for key in ("sharding_strategy", "activation_checkpointing") if key in table}, 1)
    if options.is_on("fsdp_config.activation_cpu_offload"):
        found.settings["offload_activations"] = "cpu"
    return dict(found.settings)


def _batch(options: Options, gpus: int | None) -> tuple[dict[str, object], list[str]]:
    """The micro-batch of a GPU; `auto` is found by trying."""
    written = options.first("device_train_microbatch_size", "device_train_grad_accum") or "auto"
    samples = options.number("global_train_batch_size")
    if written.isdecimal():
        micro = int(written)
        steps = {"gradient_accumulation_steps": max(1, samples // ((gpus or 1) * micro))} if samples else {}
        return {"micro_batch_size": micro, **steps}, []
    return {"micro_batch_size": 1}, ["device_train_microbatch_size auto: composer tries what fits; 1 is taken "
                                     "(--micro-batch-size)"]  # fmt: skip


def _optimizer(options: Options) -> tuple[dict[str, object], list[str]]:
    name = (options.first("optimizer.name") or "decoupled_adamw").lower()
    if name not in _OPTIMIZERS:
        return {"optimizer": "adamw"}, [f"optimizer {clipped(name)} is not described: adamw is taken"]
    return {"optimizer": _OPTIMIZERS[name]}, []


def _precision(options: Options) -> tuple[dict[str, object], list[str]]:
    given = options.first("precision") or "amp_bf16"
    if given not in _PRECISIONS:
        raise UsageError(f'precision: expected {", ".join(_PRECISIONS)}, got "{clipped(given)}"')
    found: dict[str, object] = {"precision": _PRECISIONS[given]}
    if given.startswith("amp_"):
        found["param_dtype"] = "fp32"
    return found, []


def _adapters(options: Options, model: object) -> tuple[dict[str, object], list[str]]:
    rank = options.number("model.peft_config.r")
    if rank is None:
        return {}, []
    targets, notes = targets_of(options.several("model.peft_config.target_modules"), str(model) if not isinstance(
        model, Mapping) else "")  # fmt: skip
    return {"method": "lora", "lora_rank": rank, "lora_targets": targets,
            "lora_dropout": fraction(options.first("model.peft_config.lora_dropout") or "0")}, notes  # fmt: skip
