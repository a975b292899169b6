"""`tune run RECIPE --config NAME key=value …`: what torchtune 0.6.1 ships for the model, and what is other than there.

Only a configuration that it ships names the builder, tokenizer and files of a model (recipes/configs, whose rows the
reader has); any recipe takes any of them (_cli/run.py `_get_config`). `~key` takes a key away (config/_utils.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import SequenceMatcher

from vramwise.errors import UsageError, nearest
from vramwise.interop.export.draft import Asked, Draft
from vramwise.interop.export.trainer_options import is_adapters
from vramwise.interop.launch.torchtune import MODULES, OPTIMIZERS, module_of, shipped
from vramwise.scenario import Scenario
from vramwise.sources import resolve

_OTHER_RECIPES = ("dpo", "qat", "KD", "experimental", "dataset")
_SINGLE = ("single_device", "low_memory")
_SAME = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "vocab_size", "tie_word_embeddings",
)  # fmt: skip
"""Keys of a config that a builder has built in; a context that is stretched otherwise is another builder's too."""
_LOSSES = {
    "chunked": "torchtune.modules.loss.CEWithChunkedOutputLoss",
    "standard": "torch.nn.CrossEntropyLoss",
}
_ATTENTION, _MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
_PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def write(asked: Asked) -> Draft:
    """The command. Raises UsageError for a model that torchtune ships no configuration for."""
    settings, scenario = asked.settings, asked.scenario
    adapters, single = is_adapters(settings), scenario.num_gpus <= 1
    name = _configuration(asked.model, adapters, single)
    row = shipped()[name]
    wanted = {**_loop(settings, row, single), **(_adapters(settings, row) if adapters else {})}
    words = [word for key, value in wanted.items() for word in _override(key, value, row)]
    folder = f"/tmp/{asked.model.rstrip('/').rpartition('/')[2]}"
    said = [f"model: tune download {asked.model} --output-dir {folder} comes first"]
    if row["checkpointer.checkpoint_dir"] != folder.rpartition("/")[2]:
        words.append(f"checkpointer.checkpoint_dir={folder}")
        said.append(
            f"tokenizer: {name} names files of {row['checkpointer.checkpoint_dir']}: give those of your folder by "
            "tokenizer.path=… and checkpointer.checkpoint_files=…"
        )
    each = min(scenario.num_gpus, scenario.gpus_per_node)
    nodes = max(1, scenario.num_gpus // scenario.gpus_per_node)
    launcher = [] if single else [*(("--nnodes", str(nodes)) if nodes > 1 else ()), "--nproc_per_node", str(each)]
    recipe = f"{'lora' if adapters else 'full'}_finetune_{'single_device' if single else 'distributed'}"
    return Draft(("tune", "run", *launcher, recipe, "--config", name, *words), unsaid=tuple(said))


def as_torchtune_does(scenario: Scenario) -> Scenario:
    """Every linear module by its name, as torchtune's configurations list them; several GPUs share under FSDP 2."""
    train = scenario.train
    own: dict[str, object] = {}
    if train.lora_targets == "all-linear" and "lora_targets" in train.explicit:
        named = dict.fromkeys(module_of(name, str(scenario.model)) for name in (*_ATTENTION, *_MLP))
        own["lora_targets"] = tuple(named)
    if scenario.num_gpus > 1 and not {"fsdp", "zero_stage"} & train.explicit:
        own |= {"fsdp": "full-shard", "fsdp_version": 2}
    return scenario.replace(train=train.replace(**own)) if own else scenario


def _configuration(model: str, adapters: bool, single: bool) -> str:
    """The shipped configuration of a model, of the same architecture at least, for as many GPUs where there is one."""
    rows = {name: row["checkpointer.checkpoint_dir"] for name, row in shipped().items() if _is_plain(name, adapters)}
    named, folders = model.rstrip("/").rpartition("/")[2], dict.fromkeys(rows.values())
    folder = named if named in folders else _alike(model, folders)
    if folder is None:
        close = ", ".join(nearest(named, folders)) or ", ".join(list(folders)[:3])
        raise UsageError(
            f"--export torchtune: torchtune 0.6.1 ships no {'LoRA' if adapters else 'full'} configuration for {named} "
            f"(it has {close}, …): expected axolotl, llamafactory or trl"
        )
    same = [name for name, of in rows.items() if of == folder]
    return min(same, key=lambda name: (name.endswith(_SINGLE) != single, "qlora" in name, "dora" in name, len(name)))


def _is_plain(name: str, adapters: bool) -> bool:
    words = name.rpartition("/")[2].split("_")
    is_lora = any(word.endswith(("lora", "dora")) for word in words)
    return is_lora == adapters and not any(word in words for word in _OTHER_RECIPES)


def _alike(model: str, folders: Collection[str]) -> str | None:
    """The folder of the model itself under another name, else of the most alike name with the same sizes."""
    own = resolve(model)
    found = {folder: resolve(folder) for folder in folders}
    same = [folder for folder, other in found.items() if other.id == own.id or _is_like(own.config, other.config)]
    return max(same, key=lambda folder: (found[folder].id == own.id, _alikeness(folder, model)), default=None)


def _is_like(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    stretched = (one.get("rope_scaling") is None) != (other.get("rope_scaling") is None)
    keys = (*_SAME, "max_position_embeddings") if stretched else _SAME
    return all(one.get(key) == other.get(key) for key in keys)


def _alikeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one.lower(), other.rpartition("/")[2].lower()).ratio()


def _loop(settings: Mapping[str, object], row: Mapping[str, str], single: bool) -> dict[str, object]:
    """Keys of every recipe."""
    found: dict[str, object] = {
        "batch_size": settings.get("micro_batch_size"),
        "gradient_accumulation_steps": settings.get("gradient_accumulation_steps"),
        "tokenizer.max_seq_len": settings.get("sequence_length"),
        "dtype": str(settings.get("precision")).partition("-")[0],
        "enable_activation_checkpointing": settings.get("checkpointing") == "full",
        "enable_activation_offloading": settings.get("offload_activations") == "cpu",
        "dataset.packed": bool(settings.get("packing")),
        "compile": bool(settings.get("compile")),
        "clip_grad_norm": 1.0 if settings.get("clip_grad_norm") else None,
    }
    # full_finetune_*.py: steps in the backward pass go neither with clipping nor with accumulation
    steps_inside = settings.get("gradient_release") and found["clip_grad_norm"] is None
    found["optimizer_in_bwd"] = bool(steps_inside and found["gradient_accumulation_steps"] == 1)
    loss = _LOSSES.get(str(settings.get("loss")))
    if loss is not None:
        found["loss"] = loss
    if not single:
        found["fsdp_cpu_offload"] = settings.get("offload_params") == "cpu"
        if settings.get("reshard_after_forward") is False:
            found["fsdp_reshard_after_forward"] = False
    return {**found, **_optimizer(settings, row)}


def _optimizer(settings: Mapping[str, object], row: Mapping[str, str]) -> dict[str, object]:
    kinds = {kind: name for name, kind in reversed(OPTIMIZERS.items()) if not name.startswith("Paged")}
    kinds |= {"paged-adamw": "PagedAdamW", "paged-adamw-8bit": "PagedAdamW8bit"}
    optimizer = str(settings.get("optimizer"))
    torchao = optimizer.startswith("torchao-")
    name = kinds.get(optimizer, "AdamW8bit" if torchao else None)
    if name is None:
        return {}
    of_torch = not torchao and not optimizer.endswith("8bit") and optimizer in ("adamw", "sgd", "adafactor")
    package = "torch.optim" if of_torch else "torchao.optim" if torchao else "bitsandbytes.optim"
    found: dict[str, object] = {"optimizer": f"{package}.{name}"}
    if of_torch and optimizer == "adamw":
        found["optimizer.fused"] = settings.get("optimizer_impl") == "fused"
    elif row.get("optimizer.fused"):
        found["~optimizer.fused"] = None
    return found


def _adapters(settings: Mapping[str, object], row: Mapping[str, str]) -> dict[str, object]:
    """Keys of the model's builder: `quantize_base` is what the builders named qlora_ set, which some models lack."""
    targets = _modules(settings.get("lora_targets"))
    attention = [name for name in _ATTENTION if name in targets]
    return {
        "model": row["model._component_"].replace(".qlora_", ".lora_"),
        "model.quantize_base": settings.get("method") == "qlora",
        "model.lora_rank": settings.get("lora_rank"),
        "model.lora_dropout": settings.get("lora_dropout") or 0.0,
        "model.lora_attn_modules": " ".join({ours: theirs for theirs, ours in MODULES.items()}.get(name, name)
                                            for name in attention),
        "model.apply_lora_to_mlp": any(name in targets for name in _MLP),
        "model.apply_lora_to_output": "lm_head" in targets,
        "model.use_dora": bool(settings.get("dora")),
    }  # fmt: skip


def _modules(targets: object) -> frozenset[str]:
    if not isinstance(targets, list | tuple):
        return frozenset((*_ATTENTION, *_MLP))
    return frozenset(part for name in targets for part in _PARTS.get(str(name), (str(name),)))


def _override(key: str, value: object, row: Mapping[str, str]) -> list[str]:
    """One word where the configuration says something else."""
    if key.startswith("~"):
        return [key]
    there = row.get(f"{key}._component_", row.get(key, ""))
    if isinstance(value, bool):
        return [] if value is (there.lower() == "true") else [f"{key}={value}"]
    if value is None:
        return [] if there in ("", "null", "false") else [f"{key}=None"]
    if key == "model.lora_attn_modules":
        return [] if there == value else [f"{key}=[{','.join(str(value).split())}]"]
    same = there == str(value) or (isinstance(value, float) and there not in ("", "false") and float(there) == value)
    return [] if same else [f"{key}={value}"]
