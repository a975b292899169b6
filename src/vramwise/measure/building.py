"""The real module of a scenario: random weights on the device, adapters, quantized base, checkpointing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vramwise.measure.classes import fills_masks, loader_of
from vramwise.measure.job import Job
from vramwise.measure.libraries import library
from vramwise.models.meta_device import without_code
from vramwise.sources.adapters import ALL_LINEAR

_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_TURNS: Final = ("rope_parameters", "rope_scaling")
_LEFT_OUT: Final = ("transformers_version", "torch_dtype", "dtype")


def torch_dtype(name: str) -> object:
    """torch's dtype of a scenario's (`bf16`)."""
    return getattr(library("torch"), _DTYPES[name])


def config_of(values: Mapping[str, object]) -> Any:
    """transformers' configuration of a config.json's values, without what runs code; nothing is downloaded.

    Nor with what its class works out itself (Falcon's `head_dim`), which cannot be set.
    """
    kept = _with_whole_turns({key: value for key, value in without_code(values).items() if key not in _LEFT_OUT})
    transformers, kind = library("transformers"), str(kept.pop("model_type"))
    known = transformers.CONFIG_MAPPING  # whose get knows no class before it was asked for
    own = known[kind] if kind in known else None  # noqa: SIM401
    derived = {key for key in kept if getattr(getattr(own, key, None), "fset", kept) is None}
    return transformers.AutoConfig.for_model(kind, **{key: value for key, value in kept.items() if key not in derived})


def _with_whole_turns(values: dict[str, Any]) -> dict[str, Any]:
    """Tables of rotary positions with what their class has besides: a catalog has of them what decides sizes alone."""
    known = library("transformers").CONFIG_MAPPING
    kind = values.get("model_type")
    tables = {key: value for key, value in values.items() if key in _TURNS and isinstance(value, dict)}
    filled = {key: _with_whole_turns(value) for key, value in values.items() if isinstance(value, dict)}
    usual = known[kind]() if tables and kind in known else None
    for key, table in tables.items():
        filled[key] = _filled(table, getattr(usual, key, None))
        if usual is not None and table.get("rope_type") == "longrope":
            filled[key] = _factors({**usual.to_dict(), **values}, table) | filled[key]
    return values | filled


def _factors(values: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, list[float]]:
    """longrope's factors for each pair of a head's dimensions that turns."""
    width = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
    share = table.get("partial_rotary_factor") or values.get("partial_rotary_factor") or 1.0
    return dict.fromkeys(("short_factor", "long_factor"), [1.0] * (int(width * share) // 2))


def _filled(table: dict[str, Any], usual: object) -> dict[str, Any]:
    """A table with the keys that it lacks of a usual one, also where there is one for every type of layer."""
    if not isinstance(usual, dict):
        return table
    parts = {key: _filled(value, usual.get(key)) for key, value in table.items() if isinstance(value, dict)}
    return usual | table | parts if parts or table.get("rope_type") == usual.get("rope_type") else table


def build(job: Job) -> object:
    """The module with random weights on the device, as the scenario's method, precision and attention have it."""
    model = built(job, job.device)
    return prepared(model, job) if job.task == "train" else model.eval()


def built(job: Job, device: str) -> Any:
    """The class of a job's model as its config makes it, in the scenario's precision and with its attention."""
    torch = library("torch")
    settings = job.settings
    dtype = weight_dtype(job)
    attention = _attention(settings)
    config = config_of(job.config)
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0  # by which labels become the decoder's input; which one changes no size
    loader = loader_of(config, str(settings.get("head", "causal-lm")))
    with torch.device(device):
        try:
            return loader.from_config(config, attn_implementation=attention, dtype=dtype)
        except TypeError:  # transformers before 4.56 calls it torch_dtype
            return loader.from_config(config, attn_implementation=attention, torch_dtype=dtype)


def trains(model: Any) -> list[Any]:
    """Parameters that get a gradient."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def weight_dtype(job: Job) -> object:
    """torch's dtype in which a job's weights are loaded."""
    settings = job.settings
    if job.task == "train":
        precision = str(settings.get("precision", "bf16-mixed"))
        return torch_dtype(str(settings.get("param_dtype") or ("fp32" if "-mixed" in precision else precision)))
    wanted = settings.get("dtype", "auto")
    if wanted == "auto":
        stated = str(job.config.get("dtype") or job.config.get("torch_dtype") or "bfloat16").removeprefix("torch.")
        return getattr(library("torch"), stated)
    return torch_dtype(str(wanted))


def _attention(settings: Mapping[str, object]) -> str | None:
    """transformers' name; None leaves it the choice, which is SDPA unless the class (Gemma 2, Mamba) has none."""
    from vramwise.measure.libraries import is_installed

    wanted = str(settings.get("attention", "sdpa"))
    if wanted == "flash":
        return "flash_attention_2" if is_installed("flash_attn") else "sdpa"
    return {"sdpa": None, "auto": None, "flex": "flex_attention"}.get(wanted, wanted)


def prepared(model: Any, job: Job) -> Any:
    """Adapters, frozen parts, quantized base and checkpointing, in the order in which a fine-tuning script has them."""
    settings = job.settings
    method = settings.get("method", "full")
    model.train()
    if method == "qlora":
        model = quantized(model, str(settings.get("quantization") or "nf4"), torch_dtype(_compute(settings)))
        if settings.get("kbit_preparation"):
            model = library("peft").prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if settings.get("checkpointing") == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if method in ("lora", "qlora"):
            model.enable_input_require_grads()
    if method in ("lora", "qlora"):
        return adapted(model, settings)
    return freeze(model, settings)


def freeze(model: Any, settings: Mapping[str, Any]) -> Any:
    """The model, of which `freeze` trains the named parts alone."""
    if settings.get("method") == "freeze":
        wanted = tuple(settings.get("trainable", ()))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(any(part in name for part in wanted))
    return model


def _compute(settings: Mapping[str, object]) -> str:
    return str(settings.get("compute_dtype") or "bf16")


def adapted(model: Any, settings: Mapping[str, Any]) -> Any:
    """The model in peft's LoRA layers; adapters in fp32 as peft makes them, or in the base's dtype."""
    peft = library("peft")
    named = settings.get("lora_targets", ALL_LINEAR)
    targets = ALL_LINEAR if list(named) == [ALL_LINEAR] else named  # peft takes the word by itself alone
    kind: str | None = "SEQ_2_SEQ_LM" if getattr(model.config, "is_encoder_decoder", False) else "CAUSAL_LM"
    generates = model.main_input_name == "input_ids" and hasattr(model, "prepare_inputs_for_generation")
    if fills_masks(model) or not generates:
        kind = None  # peft has no kind of its own for masked tokens, for images and for what has no head
    lora = peft.LoraConfig(
        r=settings.get("lora_rank", 8), lora_dropout=settings.get("lora_dropout", 0.0),
        use_dora=settings.get("dora", False), target_modules=targets, task_type=kind,
    )  # fmt: skip
    return peft.get_peft_model(model, lora, autocast_adapter_dtype=settings.get("lora_dtype", "fp32") == "fp32")


def quantized(model: Any, form: str, compute_dtype: object) -> Any:
    """Every linear layer but the head as bitsandbytes' 4-bit layer, its random weight quantized on the device."""
    torch, bnb = library("torch"), library("bitsandbytes")
    quant_type = form.partition("-")[0]
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is not torch.nn.Linear or name == "lm_head":
                continue
            new = bnb.nn.Linear4bit(
                layer.in_features, layer.out_features, bias=layer.bias is not None, compute_dtype=compute_dtype,
                compress_statistics=form.endswith("-dq"), quant_type=quant_type,
            )  # fmt: skip
            device = layer.weight.device
            new.weight = bnb.nn.Params4bit(
                layer.weight.data, requires_grad=False, compress_statistics=form.endswith("-dq"), quant_type=quant_type
            ).to(device)
            if layer.bias is not None:
                new.bias = layer.bias
            setattr(parent, name, new)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.is_loaded_in_4bit = True
    return model
