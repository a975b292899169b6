"""`trl sft --config FILE`: keys of TRL 1.16 (trainer/sft_config.py, trainer/model_config.py) over TrainingArguments."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.interop.export.draft import Asked, Draft, File
from vramwise.interop.export.trainer_options import (
    DATA,
    DATA_UNSAID,
    is_adapters,
    targets,
    trainer_options,
    yaml_text,
)
from vramwise.scenario import Scenario
from vramwise.training.recipe.precision import without_bf16

_ATTENTION = {"flash": "flash_attention_2", "sdpa": "sdpa", "eager": "eager", "flex": "flex_attention"}
VERSION = "trl 1.16"
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def as_trl_does(scenario: Scenario) -> Scenario:
    """What TRL does where the scenario says nothing: the loss a tile at a time, 16-bit adapters on a quantized base.

    A base that only adapters change is loaded in 16 bit, as everybody else does it: TRL would read it in fp32.
    """
    train = scenario.train
    own: dict[str, object] = {"framework_version": VERSION, "loss": "fused-linear"}
    if train.method == "qlora" and not train.dora:
        own["lora_dtype"] = "bf16"
    if train.method == "lora" and str(train.precision).startswith("bf16") and not without_bf16(scenario):
        own["param_dtype"] = "bf16"
    open_ = {key: value for key, value in own.items() if key not in train.explicit}
    return scenario.replace(train=train.replace(**open_)) if open_ else scenario


def write(asked: Asked) -> Draft:
    """The file and its command."""
    settings = asked.settings
    table: dict[str, object] = {
        "model_name_or_path": asked.model,
        "dtype": weights_dtype(settings),
        **attention_option(settings),
        "dataset_name": DATA,
        "output_dir": asked.output,
        "max_length": settings.get("sequence_length"),
        **trainer_options(asked),
        **adapter_options(settings),
    }
    for key in ("packing", "padding_free"):
        if settings.get(key):
            table[key] = True
    if settings.get("offload_activations") == "cpu":
        table["activation_offloading"] = True
    file = File(asked.path, yaml_text(table), "TRL's configuration")
    gpus, each = asked.scenario.num_gpus, asked.scenario.gpus_per_node
    machines = ("--num_machines", str(gpus // each)) if gpus > each else ()
    words = ("trl", "sft", "--config", asked.path, "--num_processes", str(gpus), *machines)
    return Draft(words, (file,), unsaid=(DATA_UNSAID,))


def weights_dtype(settings: Mapping[str, object]) -> str:
    """The dtype in which weights are loaded: a stated one, else what the precision implies."""
    name, _, kind = str(settings.get("precision")).partition("-")
    own = settings.get("param_dtype") or ("fp32" if kind == "mixed" or name not in _DTYPES else name)
    return _DTYPES.get(str(own), "float32")


def attention_option(settings: Mapping[str, object]) -> dict[str, object]:
    """transformers' option for the attention; none where each class within the model chooses."""
    named = _ATTENTION.get(str(settings.get("attention")))
    return {} if named is None else {"attn_implementation": named}


def adapter_options(settings: Mapping[str, object]) -> dict[str, object]:
    """Keys of TRL's ModelConfig for adapters and a quantized base."""
    if not is_adapters(settings):
        return {}
    found: dict[str, object] = {
        "use_peft": True, "lora_r": settings.get("lora_rank"), "lora_dropout": settings.get("lora_dropout"),
        "lora_target_modules": targets(settings, "all-linear"),
    }  # fmt: skip
    if settings.get("dora"):
        found["use_dora"] = True
    kind = str(settings.get("quantization"))
    if settings.get("method") == "qlora":
        if kind == "int8":
            found["load_in_8bit"] = True
        else:
            name, _, doubled = kind.partition("-")
            found |= {"load_in_4bit": True, "bnb_4bit_quant_type": name, "use_bnb_nested_quant": doubled == "dq"}
    return found
