"""Whose file it is that was given for a model or a scenario, and how vramwise reads what is in it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import PurePath

from vramwise.errors import VramwiseError, clipped
from vramwise.files import open_to_read
from vramwise.scenario import read_table_file

_LARGEST_BYTES = 2**16
_TABLES = frozenset({".yaml", ".yml", ".toml", ".json"})
_SCRIPTS = frozenset({".sh", ".bash", ".sbatch", ".slurm", ".bat", ".ps1"})
_SCRIPT = "a script", "-- COMMAND, with the command line in it"
_BY_KEY = (
    ("base_model", "a configuration of axolotl", "-- axolotl train {}"),  # 0.19 utils/schemas/config.py: required
    ("finetuning_type", "a configuration of LLaMA-Factory", "-- llamafactory-cli train {}"),  # 0.9.5 finetuning_args.py
    ("checkpoint_dir", "a configuration of litgpt", "-- litgpt finetune --config {}"),  # 0.5 config_hub/finetune
    ("distributed_type", "a configuration of accelerate",
     "-- accelerate launch --config_file {} train.py --model_name_or_path MODEL"),  # commands/config/config_args.py
    ("zero_optimization", "a configuration of DeepSpeed", "MODEL --task train --deepspeed {}"),  # runtime/config.py
    ("train_micro_batch_size_per_gpu", "a configuration of DeepSpeed", "MODEL --task train --deepspeed {}"),
    ("services", "a file of Docker Compose", "-- docker run IMAGE ARGUMENTS, as a service has them"),
    ("apiVersion", "a manifest of Kubernetes", "-- COMMAND, with its container's command and arguments"),
)  # fmt: skip
_TORCHTUNE = "_component_"
_TRL = "model_name_or_path"


def file_and_words(file: str) -> tuple[str, str] | None:
    """What a file is, where it is neither a model nor readable as a scenario, and the words behind `vramwise estimate`
    for what is in it; None for everything else, and for what cannot be read."""
    path = PurePath(file)
    try:
        if not os.path.isfile(file) or os.path.getsize(file) > _LARGEST_BYTES:
            return None
        if path.suffix.lower() in _TABLES:
            return _of_table(read_table_file(file), shlex.quote(file))
        if path.suffix.lower() in _SCRIPTS:
            return _SCRIPT
        with open_to_read(file) as opened:
            text = opened.read(_LARGEST_BYTES).decode("utf-8", "replace")
    except (OSError, VramwiseError):
        return None
    if text.startswith("#!"):
        return _SCRIPT
    return _of_modelfile(text) if "modelfile" in path.name.lower() else None


def _of_table(table: Mapping[str, object], file: str) -> tuple[str, str] | None:
    if "model_type" in table or "architectures" in table:
        return None
    for key, what, words in _BY_KEY:
        if key in table:
            return what, words.format(file)
    model = table.get("model")
    if isinstance(model, Mapping) and _TORCHTUNE in model:
        return "a configuration of torchtune", f"-- tune run RECIPE --config {file}"
    if _TRL in table:
        return "a configuration of TRL", f"-- trl sft --config {file}"
    return None


def _of_modelfile(text: str) -> tuple[str, str] | None:
    """ollama's: `FROM` is a name of its library or a file (docs/modelfile.mdx)."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0].upper() == "FROM":
            base = shlex.quote(clipped(words[1], 200))
            program = "llama-server -m" if words[1].endswith(".gguf") else "ollama run"
            return "a Modelfile of ollama", f"-- {program} {base}"
    return None
