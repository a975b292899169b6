"""Scripts and notebooks that run an engine themselves, by the classes that its record names: vLLM's `LLM`, SGLang's
`Engine`, llama-cpp-python's `Llama`, mlx-lm's `load`. Each becomes the command that would start it as a server.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.engines import engines
from vramwise.engines.engine import Script
from vramwise.errors import clipped
from vramwise.interop.files.given import Given
from vramwise.interop.files.programs import MOST_PROGRAMS, Program
from vramwise.interop.files.python_code import Call, assigned, calls_in, code_of, left_out, tree_of
from vramwise.interop.files.ray import flag_words, plain_table

_TRAINING = ("Trainer(", "TrainingArguments(", "SFTConfig(", "get_peft_model(", "FastLanguageModel")
_LISTED = 8


def is_engine_script(given: Given) -> bool:
    """Whether a Python text, or a notebook, runs an engine and trains nothing."""
    return any(_imported(given.text)) and not any(word in given.text for word in _TRAINING)


def engine_script_programs(given: Given) -> list[Program]:
    """The engines that a Python text runs, as the commands that would start them as servers.

    One whose model is not written out names none.
    """
    tree = tree_of(code_of(given), given.path)
    calls, scripts = calls_in(tree, assigned(tree)), list(_imported(given.text))
    found = [_program(call, name, script) for call in calls for script in scripts if (name := _class_in(call, script))]
    return found[:MOST_PROGRAMS]


def _imported(text: str) -> Iterator[Script]:
    """Engines whose package the text names, with one of its classes."""
    for engine in engines():
        script = engine.script
        if script is not None and script.package in text and any(f"{name}(" in text for name in script.classes):
            yield script


def _class_in(call: Call, script: Script) -> str:
    """Which of the engine's classes a call makes, by its bare name or behind the package's; empty where none."""
    name = next((call.name.removeprefix(f"{one}.") for one in (script.package, *script.aliases)
                 if call.name.startswith(f"{one}.")), call.name)  # fmt: skip
    return name if name in script.classes else ""


def _program(call: Call, name: str, script: Script) -> Program:
    unknown: list[str] = []
    table = plain_table(call.named, "", unknown)
    for argument, value in zip(script.classes[name], call.positional, strict=False):
        if isinstance(value, str):
            table.setdefault(argument, value)
    known = {script.renamed.get(key, key): value for key, value in (dict(script.defaults) | table).items()}
    words = [word for pair in known.items() for word in flag_words(*pair)]
    return Program(
        str(known.get("model", "")),
        (*script.command, *words),
        left_out(clipped(one, 40) for one in unknown[:_LISTED]),
        serve=script.serve.get(name, {}),
    )
