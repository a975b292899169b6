"""torchtitan's config_registry.py: each function that returns a Trainer.Config is a configuration of its own.

Read in torchtitan b5bcd76c6 (models/*/config_registry.py, config/configs.py): `num_tokens_per_microbatch_per_dp_rank`
over `max_context_length` is the batch, `FullAC` and `SelectiveAC` say what is checkpointed; before, `local_batch_size`
and `seq_len` do. The model is what `model_registry` is asked for in the folder that is called after its family.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from vramwise.interop.files.given import Given
from vramwise.interop.files.programs import Program
from vramwise.interop.files.python_code import Call, assigned, calls_in, first, known, tree_of

_TABLES = {"TrainingConfig": "training", "ParallelismConfig": "parallelism", "CompileConfig": "compile"}
_SIGNS = ("Trainer.Config(", "model_registry(")


def is_registry(given: Given) -> bool:
    """Whether a Python text is such a registry."""
    return all(sign in given.text for sign in _SIGNS)


def registry_programs(given: Given) -> list[Program]:
    """The configurations of a registry, by their functions' names."""
    tree = tree_of(given.text, given.path)
    values = assigned(tree)
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.args.args)
    family = Path(given.path).resolve().parent.name
    return [program for node in functions if (program := _program(node.name, calls_in(node, values), family))]


def _program(name: str, calls: list[Call], family: str) -> Program | None:
    """The command line of one configuration; none for a function that changes another's result."""
    asked = first(calls, "model_registry")
    if asked is None or first(calls, "Trainer.Config") is None or not asked.positional:
        return None
    whole = first(calls, "Trainer.Config")
    assets = whole.named.get("hf_assets_path") if whole is not None else None
    words = [f"--model.name={family}", f"--model.flavor={asked.positional[0]}", *_settings(calls)]
    if isinstance(assets, str):
        words.append(f"--model.hf_assets_path={assets}")
    checkpointed = next((call.name for call in calls if "AC.Config" in call.name), "")
    mode = "full" if "FullAC" in checkpointed else "selective" if checkpointed else ""
    words += [f"--activation_checkpoint.mode={mode}"] if mode else []
    words += ["--model.converters=float8"] if any("Float8Linear" in call.name for call in calls) else []
    return Program(name, ("torchrun", "-m", "torchtitan.train", *words))


def _settings(calls: list[Call]) -> Iterator[str]:
    for cls, table in _TABLES.items():
        call = first(calls, cls)
        stated, _ = known(call.named if call is not None else {})
        tokens, length = stated.pop("num_tokens_per_microbatch_per_dp_rank", None), stated.get("max_context_length")
        if isinstance(tokens, int) and isinstance(length, int) and length:
            yield f"--training.local_batch_size={max(1, tokens // length)}"
        for key, value in stated.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            if not isinstance(value, list | dict):
                yield f"--{table}.{key}={shown}"
