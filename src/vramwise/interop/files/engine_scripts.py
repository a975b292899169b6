"""Scripts and notebooks that run an engine themselves: vLLM's `LLM` and engine arguments, SGLang's `Engine`,
llama-cpp-python's `Llama`, mlx-lm's `load`.

Read in vLLM 0.10 to 0.33 entrypoints/llm.py (LLM: usage context LLM_CLASS, whose batches of tokens are larger),
engine/arg_utils.py, and SGLang 0.5.23 srt/entrypoints/engine.py: their arguments are the servers' flags by another
spelling.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.errors import clipped
from vramwise.interop.files.given import Given
from vramwise.interop.files.programs import MOST_PROGRAMS, Program
from vramwise.interop.files.python_code import Call, assigned, calls_in, code_of, tree_of
from vramwise.interop.files.ray import flag_words, plain_table
from vramwise.interop.launch.llama_cpp_python import command_of

_OFFLINE = ("LLM",)
_SERVING = ("EngineArgs", "AsyncEngineArgs")
_SGLANG = ("Engine", "Runtime")
_NAMED_SO = frozenset({"vllm", "sglang", "sgl"})
_TRAINING = ("Trainer(", "TrainingArguments(", "SFTConfig(", "get_peft_model(", "FastLanguageModel")
_SPELLED = {"spec_method": None, "spec_model": None, "spec_tokens": None}
_LISTED = 8


def is_engine_script(given: Given) -> bool:
    """Whether a Python text, or a notebook, runs an engine and trains nothing."""
    text = given.text
    runs = ("vllm" in text and any(f"{name}(" in text for name in (*_OFFLINE, *_SERVING))) or (
        "sglang" in text and any(f"{name}(" in text for name in _SGLANG)
    )
    runs = runs or ("llama_cpp" in text and "Llama" in text) or ("mlx_lm" in text and "load(" in text)
    return runs and not any(word in text for word in _TRAINING)


def engine_script_programs(given: Given) -> list[Program]:
    """The engines that a Python text runs, as the commands that would start them as servers.

    One whose model is not written out names none.
    """
    tree = tree_of(code_of(given), given.path)
    found = [_program(call, engine) for call, engine in _engines(calls_in(tree, assigned(tree)))]
    return found[:MOST_PROGRAMS]


def _engines(calls: list[Call]) -> Iterator[tuple[Call, str]]:
    for call in calls:
        owner = call.name.partition(".")[0]
        if call.name.removeprefix("llama_cpp.") in ("Llama", "Llama.from_pretrained"):
            yield call, "llama.cpp"
            continue
        if call.name in ("load", "mlx_lm.load") and call.positional:
            yield call, "mlx"
            continue
        if owner != call.last and owner not in _NAMED_SO:
            continue
        if call.last in (*_OFFLINE, *_SERVING):
            yield call, "vllm"
        elif call.last in _SGLANG and ("model_path" in call.named or call.name.startswith(("sgl.", "sglang."))):
            yield call, "sglang"


def _program(call: Call, engine: str) -> Program:
    key = "model_path" if engine == "sglang" else "model"
    unknown: list[str] = []
    table = plain_table(call.named, "", unknown)
    if engine == "mlx":
        loaded = call.positional[0]
        return Program("", ("mlx_lm.generate", *(("--model", loaded) if isinstance(loaded, str) else ())))
    if engine == "llama.cpp":
        names = ("repo_id", "filename") if call.last == "from_pretrained" else ("model_path",)
        table |= {name: value for name, value in zip(names, call.positional, strict=False) if isinstance(value, str)}
        return Program("", tuple(command_of(table)), _left(unknown))
    named = table.pop(key, None) or (call.positional[0] if call.positional else None)
    model = (named,) if isinstance(named, str) else ()
    drafts = {name.removeprefix("spec_"): table.pop(name) for name in _SPELLED if name in table}
    if drafts:
        tokens = drafts.pop("tokens", None)
        table["speculative_config"] = {**drafts, **({"num_speculative_tokens": tokens} if tokens else {})}
    words = [word for pair in table.items() for word in flag_words(*pair)]
    if engine == "sglang":
        start: tuple[str, ...] = ("sglang", "serve", *(("--model-path", *model) if model else ()))
    else:
        start = ("vllm", "serve", *model)
    serve = {"offline_inference": True} if call.last in _OFFLINE else {}
    return Program("".join(model), (*start, *words), _left([name for name in unknown if name != key]), serve=serve)


def _left(unread: list[str]) -> tuple[str, ...]:
    named = ", ".join(clipped(one, 40) for one in unread[:_LISTED])
    return (f"only a run would tell, left out: {named}",) if unread else ()
