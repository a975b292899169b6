"""`tune run [--nproc_per_node N] RECIPE --config NAME|FILE [key=value …] [~key …]`: torchtune's recipes.

torchtune.csv holds what the configurations that torchtune 0.6.1 ships (recipes/configs) say about memory; a file is
read as it is. Recipes load weights in `dtype` and compute in it; distributed ones share them under FSDP 2.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from vramwise.errors import SourceError, UsageError, clipped, nearest
from vramwise.interop.beside import file_table
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import Launcher, torchrun_gpus
from vramwise.interop.launch.llamafactory import read_overrides
from vramwise.interop.launch.model_facts import model_type
from vramwise.interop.launch.omegaconf import filled_in
from vramwise.interop.launch.options import Options, flattened
from vramwise.interop.launch.sharding import is_no
from vramwise.interop.launch.torchtune_inference import RECIPES as OTHERS
from vramwise.interop.launch.torchtune_inference import other_than_training
from vramwise.interop.launch.values import fraction, whole_in
from vramwise.models.type_facts import fact_value
from vramwise.sources import is_elsewhere, model_elsewhere
from vramwise.tables import table

_RECIPES = ("full_finetune", "lora_finetune", "full_dpo", "lora_dpo", "knowledge_distillation", "qat",
            "ppo_full_finetune", "grpo_full_finetune")  # fmt: skip
OPTIMIZERS = {
    "AdamW": "adamw", "Adam": "adamw", "PagedAdamW": "paged-adamw", "AdamW8bit": "adamw-8bit", "Adam8bit": "adamw-8bit",
    "PagedAdamW8bit": "paged-adamw-8bit", "SGD": "sgd", "Adafactor": "adafactor", "Lion": "lion",
    "AdamW4bit": "torchao-adamw-4bit",
}  # fmt: skip
MODULES = {"output_proj": "o_proj", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_QKV, _GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")

_MLP = ("gate_proj", "down_proj", "up_proj")
_OPTION = "torchtune"


def read(start: Start) -> Launch:
    """The scenario of a torchtune command. Raises UsageError for a recipe that is not known, or SourceError."""
    words = list(start.words[1:])
    recipe, place = _recipe(words)
    options = Options((_OPTION,), _OPTION)
    options.read_words([word for word in words[place + 1 :] if not word.startswith("--config=")])
    read_overrides(options)
    taken_away = {word[1:] for word in options.loose if word.startswith("~")}
    options.loose = [word for word in options.loose if not word.startswith("~")]
    for name in [name for name in ("model", "optimizer", "loss") if name in options.values]:
        options.give(f"{name}._component_", options.values.pop(name), name)
    named = next((word.partition("=")[2] for word in words if word.startswith("--config=")), None)
    if named is None and "--config" in words[:-1]:
        named = words[words.index("--config") + 1]
    options.unknown = [name for name in options.unknown if name != "--config"]
    if named is None:
        raise UsageError("tune run: expected --config NAME or a file")
    config = filled_in(_config(named) | options.values, start.environment)
    options.read_table({key: value for key, value in config.items() if key not in taken_away})
    model, said = _model(options)
    other = other_than_training(recipe, options, model, said)
    if other is not None:
        return other
    each, nodes = torchrun_gpus(tuple(words[:place]), start.environment)
    launcher = Launcher(1, 1) if recipe.endswith("single_device") else Launcher(each * nodes or None, each or None)
    train: dict[str, object] = {"framework": _OPTION, **options.settings()}
    train |= {
        "precision": options.first("dtype") or "bf16",
        "clip_grad_norm": not is_no(options.first("clip_grad_norm")),
        "checkpointing": "full" if options.is_on("enable_activation_checkpointing") else "none",
    }
    if options.is_on("enable_activation_offloading"):
        train["offload_activations"] = "cpu"
    notes = (
        said
        + _optimizer(options, train)
        + _adapters(options, recipe, model, train)
        + _recipes_own(recipe, options, train)
    )
    if not recipe.endswith("single_device"):
        train |= {"fsdp": "full-shard", "fsdp_version": 2}
        if options.is_on("fsdp_cpu_offload", "fsdp.cpu_offload"):
            train |= {"offload_params": "cpu", "offload_optimizer": "cpu"}
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return launched(_OPTION, scenario, (*notes, *options.notes(), *launcher.said()), options)


@cache
def shipped() -> dict[str, dict[str, str]]:
    """What torchtune's own configurations say, by name."""
    return {
        row["config"]: {key: value for key, value in row.items() if value and key != "config"}
        for row in table(__file__)
    }


def _recipe(words: list[str]) -> tuple[str, int]:
    for place, word in enumerate(words):
        name = Path(word).name.removesuffix(".py")
        if name.startswith((*_RECIPES, *OTHERS)):
            return name, place
    raise UsageError(f"tune run: expected a recipe such as lora_finetune_single_device ({', '.join(_RECIPES)})")


def _config(name: str) -> dict[str, object]:
    """A shipped configuration or a file's. Raises SourceError with the nearest names."""
    if name in shipped():
        known = shipped()[name]
        modules = known.get("model.lora_attn_modules")
        return {**known, **({} if modules is None else {"model.lora_attn_modules": modules.split()})}
    if not name.endswith((".yaml", ".yml")):
        close = ", ".join(nearest(name, shipped())) or "a file"
        raise SourceError(f"torchtune's configuration {clipped(name)} is not known here: did you mean {close}?")
    return dict(flattened(file_table(name)))


def _model(options: Options) -> tuple[str, list[str]]:
    """The model of the checkpoint's folder; where that says nothing known here, the one that its builder makes."""
    folder = options.first("checkpointer.checkpoint_dir")
    path = folder.rstrip("/").removesuffix("/original") if folder else None
    built = _by_builder().get(_builder(options.first("model._component_", "policy_model._component_") or ""))
    if built is None or (path is not None and (not is_elsewhere(path) or model_elsewhere(path) is not None)):
        return one_model(_OPTION, path, "checkpointer.checkpoint_dir=FOLDER"), []
    where = f"{clipped(path, 80)} is not on this machine" if path else "no checkpoint_dir"
    return built, [f"{where}: the model is the one that its builder makes, {built}"]


def _builder(component: str) -> str:
    """A builder without the adapters that it adds: `llama3_1.lora_llama3_1_8b` is `llama3_1.llama3_1_8b`."""
    package, _, name = component.removeprefix("torchtune.models.").rpartition(".")
    return f"{package}.{name.removeprefix('q').removeprefix('lora_') if 'lora_' in name[:6] else name}"


@cache
def _by_builder() -> dict[str, str]:
    """The models that torchtune's own configurations load into each builder, the first of several."""
    found: dict[str, str] = {}
    for row in shipped().values():
        component, folder = row.get("model._component_"), row.get("checkpointer.checkpoint_dir")
        if component and folder:
            found.setdefault(_builder(component), folder)
    return found


def _optimizer(options: Options, train: dict[str, object]) -> list[str]:
    written = options.first("optimizer._component_") or "torch.optim.AdamW"
    name = written.rpartition(".")[2]
    notes = []
    if "torchao" in written and name == "AdamW8bit":
        train["optimizer"] = "torchao-adamw-8bit"
    else:
        train["optimizer"] = OPTIMIZERS.get(name, "adamw")
        if name not in OPTIMIZERS:
            notes.append(f"optimizer {clipped(written)} is not described: adamw is taken")
    if written.startswith("torch.optim"):
        train["optimizer_impl"] = "fused" if options.is_on("optimizer.fused") else "foreach"
    if name == "PagedAdamW":
        notes.append("optimizer PagedAdamW: its states can leave the GPU; they are charged to it here")
    loss = options.first("loss._component_") or ""
    if loss.endswith("nn.CrossEntropyLoss"):
        train["loss"] = "standard"
    return notes


def _adapters(options: Options, recipe: str, model: str, train: dict[str, object]) -> list[str]:
    """Adapters in the recipe's dtype; a `qlora_` model has a base of torchao's nf4 with quantized scales."""
    component = options.first("model._component_") or ""
    if "lora" not in recipe and "lora" not in component:
        train["method"] = "full"
        return []
    train |= {"method": "lora", "lora_rank": options.number("model.lora_rank") or 8, "lora_dtype": train["precision"],
              "lora_dropout": fraction(options.first("model.lora_dropout") or "0")}  # fmt: skip
    if ".qlora_" in component or options.is_on("model.quantize_base"):
        train |= {"method": "qlora", "quantization": "nf4-dq"}
    if options.is_on("model.use_dora"):
        train["dora"] = True
    targets = [MODULES.get(name, name) for name in options.several("model.lora_attn_modules")]
    targets += _MLP if options.is_on("model.apply_lora_to_mlp") else ()
    targets += ["lm_head"] if options.is_on("model.apply_lora_to_output") else []
    if targets:
        train["lora_targets"] = list(dict.fromkeys(module_of(name, model) for name in targets))
    return []


def module_of(name: str, model: str) -> str:
    """The module of transformers' class that a module of torchtune's is part of, where that has several in one."""
    found = fact_value("transformers", "joined_modules", model_type(model))
    if found is None:
        return name
    qkv, _, gate_up, _ = found.split()
    return qkv if name in _QKV else gate_up if name in _GATE_UP else name


def _recipes_own(recipe: str, options: Options, train: dict[str, object]) -> list[str]:
    """Pairs of DPO, models beside the trained one, and what a recipe does that is not counted.

    A step of PPO has `ppo_batch_size` prompts with their answers, one of GRPO every answer to each prompt of the batch.
    """
    notes = []
    if "_dpo" in recipe:
        train["micro_batch_size"] = 2 * whole_in(train, "micro_batch_size")
        train["extra_models"] = ["reference"]
        notes.append("a batch holds the chosen and the rejected answer of each sample: micro_batch_size is twice it")
    if recipe.startswith("ppo"):
        each = options.number("gradient_accumulation_steps") or 1
        train["micro_batch_size"] = max(1, (options.number("ppo_batch_size") or 1) // each)
        train["extra_models"] = ["reference", "critic", "reward"]
        notes.append("value, reference and reward model are taken as large as the policy")
    if recipe.startswith("grpo"):
        train["micro_batch_size"] = whole_in(train, "micro_batch_size") * (options.number("grpo_samples") or 1)
        train["extra_models"] = ["reference"]
    written, answer = options.number("tokenizer.max_seq_len"), options.number("max_generated_tokens")
    if "extra_models" in train and written and answer:
        train["sequence_length"] = written + answer
    teacher = options.first("teacher_checkpointer.checkpoint_dir")
    if recipe.startswith("knowledge_distillation") and teacher:
        train["extra_models"] = [f"teacher:{Path(teacher).name}"]
    if recipe.startswith("qat"):
        notes.append("qat: fake quantization is not counted")
    if "sequence_length" not in train:
        notes.append("samples are as long as they are in the data: --sequence-length says how long")
    return notes
