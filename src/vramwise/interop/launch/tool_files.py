"""Whose configuration a file is, by the keys that only that tool has, and the command that reads it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BY_KEY = (
    ("base_model", "axolotl", "axolotl train {}"),  # axolotl 0.19 utils/schemas/config.py: required
    ("finetuning_type", "LLaMA-Factory", "llamafactory-cli train {}"),  # 0.9.5 hparams/finetuning_args.py
    ("checkpoint_dir", "litgpt", "litgpt finetune --config {}"),  # 0.5 config_hub/finetune/*.yaml
)
_TORCHTUNE = "_component_"
_TRL = "model_name_or_path"


def tool_and_command(table: Mapping[str, Any], file: str) -> tuple[str, str] | None:
    """The tool whose configuration the table is, and its command for the `file`; None for what none of them wrote."""
    for key, tool, command in _BY_KEY:
        if key in table:
            return tool, command.format(file)
    model = table.get("model")
    if isinstance(model, Mapping) and _TORCHTUNE in model:
        return "torchtune", f"tune run RECIPE --config {file}"
    if _TRL in table:
        return "TRL", f"trl sft --config {file}"
    return None
