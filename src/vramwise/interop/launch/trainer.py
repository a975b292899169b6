"""Scripts around Hugging Face's Trainer and TRL, as accelerate, torchrun, deepspeed, python or `trl` start them.

Whatever a script does with its own arguments is not seen: options count by the names that TrainingArguments, TRL's
configs and published scripts give them. Defaults are those of transformers 5.23 and, where TRL's own scripts run
(`trl sft`, sft.py, grpo_vlm.py …), of trl 1.16.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from os.path import isfile

from vramwise.errors import UsageError, clipped
from vramwise.interop.beside import file_table
from vramwise.interop.launch.adapters import adapter_settings
from vramwise.interop.launch.command import Launch, Start, launched, one_model
from vramwise.interop.launch.launchers import accelerated, launcher_of
from vramwise.interop.launch.options import Options, options_of
from vramwise.interop.launch.sharding import json_or_file, sharding_of
from vramwise.interop.launch.trainer_settings import BATCH, half_of, set_precision, trainer_settings
from vramwise.interop.launch.trl import STAGES, stage_settings
from vramwise.interop.launch.values import whole_in

_MODEL_NAMES = (
    "model_name_or_path", "model_name", "model_id", "pretrained_model_name_or_path", "base_model", "model_path",
    "model", "sft_model_path",
)  # fmt: skip

_OF_SLIME = frozenset({"--hf-checkpoint", "--rollout-batch-size"})
_TRL = "trl 1.16"
_OF_LLAMAFACTORY = ("--finetuning_type", "--finetuning-type")
_BY_KEY = (("finetuning_type", "llamafactory"), ("actor_rollout_ref", "verl"), ("policy", "nemo_rl"))
"""Keys of a script's configuration that another program's reader understands."""


def read(start: Start) -> Launch:
    """The scenario of a training script. Raises UsageError where no option names a model."""
    other = _reader_of_another(start)
    if other is not None:
        read_other: Callable[[Start], Launch] = import_module(f"vramwise.interop.launch.{other}").read
        return read_other(start)
    stage = stage_of(start.program)
    programs = ("trl", "trainer") if start.is_script else ("trl", "trainer", "accelerate")
    options = Options(programs, "TRL" if stage else "Trainer")
    options.read_words(start.words if start.is_script else start.words[1:])
    _read_files(options)
    _read_loading(options)
    if start.is_script and not stage:
        _refuse_another_purpose(start, options)
    launcher = launcher_of(start) if start.is_script else accelerated(_accelerates(options), start.environment)
    sharding = sharding_of(options, launcher)
    hint = "--model_name_or_path MODEL"
    model = one_model("a training script", options.first(*_MODEL_NAMES), hint)
    defaults: dict[str, object] = {"bf16": True, "gradient_checkpointing": True, "dtype": "float32"} if stage else {}
    train: dict[str, object] = {"framework": "transformers", "micro_batch_size": BATCH}
    if stage:
        train["framework_version"] = _TRL
    notes = _of_ones_own(start, options) if start.is_script and not stage else []
    for found, said in (
        (options.settings(), []),
        (sharding.settings, sharding.notes),
        trainer_settings(options, sharding, defaults),
        adapter_settings(options, model, rank=16 if stage else 8, dropout=0.05 if stage else 0.0, gated=bool(stage)),
        stage_settings(stage, options) if stage else _preferences(options),
    ):
        notes.extend(said)
        train.update(found)
    if stage and train["method"] == "qlora" and not train.get("dora"):
        train["lora_dtype"] = "bf16"  # trl 1.16 trainer/sft_trainer.py: adapters on a quantized base
    if train.pop("pairs", False):
        train["micro_batch_size"] = 2 * whole_in(train, "micro_batch_size")
    weights = options.first("dtype", "torch_dtype") or str(defaults.get("dtype") or "auto")
    notes.extend(set_precision(train, sharding, half_of(options, sharding, bf16=bool(stage)), weights, model))
    if "expandable_segments:True" in start.environment.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        train["expandable_segments"] = True
    scenario = {"model": model, "task": "train", **launcher.table(), "train": train}
    return launched("transformers", scenario, (*notes, *options.notes(), *launcher.said()), options)


_TRAINS = re.compile(r"train|tun|sft|dpo|ppo|grpo|rloo|kto|orpo|rlhf|lora|adapt|reward|distill|align|clm|mlm|run_|main")
_A_SCRIPTS_BATCH = "batch_size"


def _refuse_another_purpose(start: Start, options: Options) -> None:
    """Raises UsageError for a script that nothing says to train: neither a launcher of several processes, its name nor
    an option but the model's (`python create_dataset.py --model NAME`)."""
    script = re.split(r"[\\/]", start.program)[-1]
    if any(_names_a_launcher(word) for word in start.before) or _TRAINS.search(script.lower()):
        return
    if all(name.lstrip("-").replace("-", "_") in _MODEL_NAMES for name in options.understood()):
        named = f"{clipped(script, 40)} is told nothing but a model that a training has"
        raise UsageError(
            f"{named}: vramwise dry-run -- python {clipped(script, 40)} runs its first steps without a GPU"
        )


def _names_a_launcher(word: str) -> bool:
    return re.split(r"[\\/]", word)[-1] in ("accelerate", "torchrun", "deepspeed") or "torch.distributed" in word


def _of_ones_own(start: Start, options: Options) -> list[str]:
    """What is said of a script whose options are not all Trainer's."""
    shown = options.shown.get(_A_SCRIPTS_BATCH)
    notes = [f"{shown} is taken as the batch of one GPU"] if shown else []
    if options.unknown and any(word.startswith("-") for word in start.words):
        script = clipped(re.split(r"[\\/]", start.program)[-1], 40)
        notes.append(f"{script} is taken as a training by Trainer: what it sets itself is not seen "
                     f"(vramwise dry-run -- python {script} … runs its first steps)")  # fmt: skip
    return notes


def _reader_of_another(start: Start) -> str | None:
    """LLaMA-Factory's `src/train.py FILE`, NeMo-RL's `run_sft.py --config FILE`: told by what the file holds."""
    if any(word.partition("=")[0] in _OF_LLAMAFACTORY for word in start.words):
        return "llamafactory"
    if any(word.lstrip("+").startswith("actor_rollout_ref.") for word in start.words):
        return "verl"
    if {word.partition("=")[0] for word in start.words} >= _OF_SLIME:
        return "slime"
    for word in start.words:
        path = word.rpartition("=")[2]
        if path.endswith((".yaml", ".yml", ".json")) and isfile(path):
            table = file_table(path)
            found = next((reader for key, reader in _BY_KEY if key in table), None)
            if found is not None:
                return found
    return None


def _preferences(options: Options) -> tuple[dict[str, object], list[str]]:
    """What a script of one's own does that is told to train on preferences."""
    if (options.first("task_type") or "").lower() != "dpo":
        return {}, []
    said = "task_type dpo: each sample is a chosen and a rejected answer, and a reference model is asked for both"
    return {"pairs": True, "extra_models": ["reference"]}, [said]


def stage_of(program: str) -> str | None:
    """What of TRL a script runs, by its name: `sft` of sft.py, trl.scripts.sft, sft_vlm.py."""
    name = re.split(r"[\\/]", program)[-1].removesuffix(".py").rpartition(".")[2]
    return next((stage for stage in STAGES if name == stage or name.startswith(f"{stage}_")), None)


def _read_files(options: Options) -> None:
    """`--config FILE` of TRL's parser, or one file alone as HfArgumentParser takes it."""
    named = options.first("config")
    if named:
        options.read_table(file_table(named))
    elif len(options.loose) == 1 and options.loose[0].endswith((".json", ".yaml", ".yml")):
        options.read_table(file_table(options.loose.pop()))


def _read_loading(options: Options) -> None:
    """What `model_init_kwargs` says of how the weights are loaded, where nothing else does."""
    given = options.values.get("model_init_kwargs")
    table = json_or_file(given) if isinstance(given, str) and given.lstrip().startswith("{") else given
    for name in ("dtype", "torch_dtype", "attn_implementation", "load_in_4bit", "load_in_8bit"):
        if isinstance(table, Mapping) and table.get(name) is not None and name not in options.values:
            options.give(name, table[name], f"model_init_kwargs.{name}")


def _accelerates(options: Options) -> Options:
    """Those options of a `trl` command that are accelerate's."""
    found = Options(("accelerate",), "accelerate")
    names = [name for name in options.values if name in options_of("accelerate") and name not in options_of("trainer")]
    for name in [*names, "accelerate_config"]:
        if name in options.values:
            found.give(name, options.values[name], options.shown[name])
    for name in names:
        if name not in options_of("trl"):
            del options.values[name]
    return found
