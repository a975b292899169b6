"""A scenario read off a user's own objects: the model, its adapters, the optimizer, the trainer's arguments.

Every value comes with where it was found, so that a callback can say what it took from where.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vramwise.errors import UsageError
from vramwise.interop.deepspeed import read_deepspeed

_DTYPES: Final = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}
_ATTENTION: Final = {
    "sdpa": "sdpa", "eager": "eager", "flash_attention_2": "flash", "flash_attention_3": "flash",
    "flex_attention": "flex",
}  # fmt: skip
_HEADS: Final = {
    "ForCausalLM": "causal-lm", "LMHeadModel": "causal-lm", "ForMaskedLM": "masked-lm",
    "ForSequenceClassification": "sequence-classification",
}  # fmt: skip
_SAID_BY_TRAINER: Final = frozenset({
    "micro_batch_size", "gradient_accumulation_steps", "clip_grad_norm", "precision", "optimizer", "optimizer_impl",
})  # fmt: skip
_LENGTHS: Final = ("max_length", "max_seq_length")
"""TRL's SFTConfig: every example is cut at this length."""


@dataclass(slots=True)
class Taken:
    """Keys of a `train` table and where each was found; `top` holds the scenario's own keys.

    `called` has the names that another trainer than transformers' gives to its arguments.
    """

    train: dict[str, object] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)

    def take(self, key: str, value: object, origin: str, *, top: bool = False) -> None:
        (self.top if top else self.train)[key] = value
        self.origins[key] = self.called.get(origin, origin)

    def scenario(self) -> dict[str, object]:
        return {"task": "train", **self.top, "train": self.train}

    def sentences(self) -> list[str]:
        """`micro_batch_size 4 from per_device_train_batch_size`, a line a key."""
        found = []
        for key, origin in self.origins.items():
            value = self.train.get(key, self.top.get(key))
            if key == "model":
                found.append(f"model from {origin}")
            else:
                shown = ", ".join(map(str, value)) if isinstance(value, list) else value
                found.append(f"{key} {str(shown).lower() if isinstance(shown, bool) else shown} from {origin}")
        return found


def read_training(
    model: object,
    optimizer: object,
    arguments: Mapping[str, object],
    sizes: tuple[int, int],
    *,
    framework: str = "transformers",
    called: Mapping[str, str] | None = None,
) -> Taken:
    """The scenario of a training that is about to run its first batch of `sizes` (batch, sequence).

    `arguments` are transformers' TrainingArguments by name, or those of them that another trainer has. Raises
    UsageError for a model without transformers' config and for an optimizer that no scenario names.
    """
    taken = Taken(called=called or {})
    taken.take("framework", framework, "the callback")
    _read_sizes(taken, arguments, sizes)
    _read_model(taken, model, _autocast(arguments))
    _read_optimizer(taken, optimizer)
    _read_arguments(taken, arguments)
    return taken


def settings_of_model(model: object) -> dict[str, object]:
    """The scenario's keys that a transformers model shows by itself: `attention` and `checkpointing`."""
    found: dict[str, object] = {}
    attention = _ATTENTION.get(str(getattr(getattr(model, "config", None), "_attn_implementation", "")))
    if attention is not None:
        found["attention"] = attention
    new_name = "is_activation_checkpointing"  # transformers 5; the old name warns there
    checkpointing = getattr(model, new_name if hasattr(type(model), new_name) else "is_gradient_checkpointing", None)
    if checkpointing is not None:
        found["checkpointing"] = "full" if checkpointing else "none"
    return found


def transformers_model_in(module: Any) -> Any | None:
    """The outermost transformers model (with peft's wrapper, if any) inside a module, or None."""
    for candidate in module.modules():
        if hasattr(getattr(candidate, "config", None), "model_type"):
            return candidate
    return None


def _read_sizes(taken: Taken, arguments: Mapping[str, Any], sizes: tuple[int, int]) -> None:
    batch, length = sizes
    stated = arguments.get("per_device_train_batch_size")
    if stated and stated >= batch:
        taken.take("micro_batch_size", int(stated), "per_device_train_batch_size")
    else:
        taken.take("micro_batch_size", batch, "the first batch")
    limit = next(((name, arguments[name]) for name in _LENGTHS if arguments.get(name)), None)
    if limit is not None and limit[1] >= length:
        taken.take("sequence_length", int(limit[1]), limit[0])
    else:
        taken.take("sequence_length", length, "the first batch")


def _autocast(arguments: Mapping[str, Any]) -> str | None:
    return "bf16" if arguments.get("bf16") else "fp16" if arguments.get("fp16") else None


def _read_model(taken: Taken, model: object, autocast: str | None) -> None:
    config: object = getattr(model, "config", None)
    if not hasattr(config, "to_json_string") or not hasattr(config, "model_type"):
        raise UsageError(f"{type(model).__name__} has no transformers config: give watch() the scenario")
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    read = json.loads(config.to_json_string(use_diff=False))
    values = {key: value for key, value in read.items() if value is not None}
    quantization = values.pop("quantization_config", None)
    taken.take("model", values, f"the config of {type(base).__name__}", top=True)
    head = next((head for ending, head in _HEADS.items() if type(base).__name__.endswith(ending)), "none")
    taken.take("head", head, type(base).__name__)
    _read_precision(taken, base, autocast, is_quantized=quantization is not None)
    _read_method(taken, model, base, quantization)
    for key, value in settings_of_model(base).items():
        taken.take(key, value, "the model")


def _read_precision(taken: Taken, base: Any, autocast: str | None, *, is_quantized: bool) -> None:
    sizes: dict[str, int] = {}
    for parameter in base.parameters():
        name = _DTYPES.get(str(parameter.dtype))
        if name is not None:
            sizes[name] = sizes.get(name, 0) + parameter.numel()
    stored = max(sizes, key=lambda name: sizes[name], default="fp32")
    if autocast is not None:
        taken.take("precision", f"{autocast}-mixed", f"the trainer's {autocast}")
        if stored != "fp32" and not is_quantized:
            taken.take("param_dtype", stored, "the model's parameters")
    else:
        taken.take("precision", stored, "the model's parameters")


def _read_method(taken: Taken, model: Any, base: Any, quantization: object) -> None:
    adapters = getattr(model, "peft_config", None)
    if adapters:
        lora = next(iter(adapters.values()))
        if not hasattr(lora, "r"):
            raise UsageError(f"adapters of {type(lora).__name__} are not described: give watch() the scenario")
        taken.take("method", "qlora" if quantization else "lora", "peft_config")
        taken.take("lora_rank", int(lora.r), "peft_config")
        targets = lora.target_modules
        taken.take("lora_targets", targets if isinstance(targets, str) else sorted(targets or ()), "peft_config")
        taken.take("lora_dropout", float(lora.lora_dropout), "peft_config")
        taken.take("dora", bool(lora.use_dora), "peft_config")
        trained = next((_DTYPES.get(str(p.dtype)) for p in model.parameters() if p.requires_grad), None)
        if trained is not None:
            taken.take("lora_dtype", trained, "the adapters' parameters")
        _read_quantization(taken, quantization)
        return
    trainable = [name for name, parameter in base.named_parameters() if parameter.requires_grad]
    if len(trainable) < sum(1 for _ in base.parameters()):
        taken.take("method", "freeze", "the parameters' requires_grad")
        taken.take("trainable", trainable, "the parameters' requires_grad")
    else:
        taken.take("method", "full", "the parameters' requires_grad")


def _read_quantization(taken: Taken, quantization: object) -> None:
    if not isinstance(quantization, Mapping):
        return
    if quantization.get("load_in_4bit"):
        kind = str(quantization.get("bnb_4bit_quant_type", "fp4"))
        doubled = kind == "nf4" and quantization.get("bnb_4bit_use_double_quant")
        taken.take("quantization", f"{kind}-dq" if doubled else kind, "quantization_config")
    elif quantization.get("load_in_8bit"):
        taken.take("quantization", "int8", "quantization_config")


def _read_optimizer(taken: Taken, optimizer: object) -> None:
    inner = getattr(optimizer, "optimizer", optimizer)
    origin = type(inner).__name__
    defaults = getattr(inner, "defaults", {})
    name = origin.lower()
    arguments = getattr(inner, "args", None)
    bits = 8 if name.endswith("8bit") else getattr(arguments, "optim_bits", 32)
    is_paged = name.startswith("paged") or bool(getattr(inner, "is_paged", False))
    plain = name.removeprefix("paged").removesuffix("8bit").removesuffix("32bit")
    if plain in ("adamw", "adam"):
        found = f"{'paged-' if is_paged else ''}adamw{'-8bit' if bits == 8 else ''}"
    elif plain == "lion":
        found = "lion-8bit" if bits == 8 else "lion"
    elif plain == "sgd":
        found = "sgd-momentum" if defaults.get("momentum") else "sgd"
    elif plain in ("adafactor", "muon"):
        found = plain
    elif plain == "galoreadamw":
        found = "galore-adamw"
    elif plain in ("apolloadamw", "apollo"):
        found = "apollo"
    elif plain == "lomo":
        found = "lomo"
    else:
        raise UsageError(f"optimizer {origin} is not one that a scenario names: give watch() the scenario")
    taken.take("optimizer", found, f"the optimizer {origin}")
    if type(inner).__module__.startswith("torch.optim") and plain in ("adamw", "adam", "sgd"):
        implementation = (
            "fused" if defaults.get("fused") else "for-loop" if defaults.get("foreach") is False else "foreach"
        )
        taken.take("optimizer_impl", implementation, f"the optimizer {origin}")


def _read_arguments(taken: Taken, arguments: Mapping[str, Any]) -> None:
    steps = arguments.get("gradient_accumulation_steps")
    if steps:
        taken.take("gradient_accumulation_steps", int(steps), "gradient_accumulation_steps")
    if "max_grad_norm" in arguments:
        taken.take("clip_grad_norm", bool(arguments["max_grad_norm"]), "max_grad_norm")
    if arguments.get("torch_compile"):
        taken.take("compile", True, "torch_compile")
    if arguments.get("use_liger_kernel"):
        taken.take("kernels", ["liger"], "use_liger_kernel")
    processes = int(arguments.get("world_size") or 1)
    if processes > 1:
        taken.take("num_gpus", processes, "world_size", top=True)
    _read_fsdp(taken, arguments)
    _read_deepspeed(taken, getattr(arguments.get("hf_deepspeed_config"), "config", None))


def _read_fsdp(taken: Taken, arguments: Mapping[str, Any]) -> None:
    """transformers 5 has fsdp=True and all else in fsdp_config, FSDP 2 unless told otherwise; before, words in fsdp."""
    given = arguments.get("fsdp")
    if not given:
        return
    config = arguments.get("fsdp_config")
    config = {str(key).removeprefix("fsdp_"): value for key, value in config.items()} if config else {}
    words = [str(getattr(item, "value", item)) for item in (given if isinstance(given, list) else [given])]
    strategy = " ".join([*words, str(config.get("sharding_strategy", ""))]).lower()
    if "no_shard" in strategy:
        return
    keeps_gathered = "shard_grad_op" in strategy or config.get("reshard_after_forward") is False
    kind = "hybrid-shard" if "hybrid" in strategy else "shard-grad-op" if keeps_gathered else "full-shard"
    taken.take("fsdp", kind, "fsdp_config" if config else "fsdp")
    taken.take("fsdp_version", int(config.get("version", 2 if given is True else 1)), "fsdp_config")
    if config.get("activation_checkpointing"):
        taken.take("checkpointing", "full", "fsdp_config")
    if config.get("cpu_offload") or "offload" in words:
        taken.take("offload_params", "cpu", "fsdp_config")
        taken.take("offload_optimizer", "cpu", "fsdp_config")


def _read_deepspeed(taken: Taken, config: object) -> None:
    """The engine casts the weights and keeps fp32 master copies, whatever the model was loaded in.

    What Trainer says itself (batch, optimizer, clipping) is taken from Trainer.
    """
    if not isinstance(config, Mapping):
        return
    model = taken.top["model"]
    hidden_size = model.get("hidden_size") or (model.get("text_config") or {}).get("hidden_size")
    found = read_deepspeed(config, hidden_size).train
    taken.take("framework", found.pop("framework"), "deepspeed")
    precision = str(taken.train.get("precision", ""))
    if precision.endswith("-mixed"):
        taken.take("precision", precision.replace("-mixed", "-master"), taken.origins["precision"])
        taken.train.pop("param_dtype", None)
        taken.origins.pop("param_dtype", None)
    for key in _SAID_BY_TRAINER & found.keys():
        del found[key]
    for key, value in found.items():
        taken.take(key, value, f"deepspeed's {'zero_optimization.stage' if key == 'zero_stage' else 'configuration'}")
