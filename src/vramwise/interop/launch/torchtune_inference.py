"""torchtune's recipes that train nothing: generate, eleuther_eval and quantize.

Read in torchtune bd2a0fc7c (as in 0.6.1): recipes/generate.py, dev/generate_v2.py, dev/generate_v2_distributed.py,
eleuther_eval.py, quantize.py; modules/transformer.py, whose logits are of every token and in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.interop.launch.command import Launch, launched_by
from vramwise.interop.launch.options import Options

RECIPES = ("generate", "eleuther_eval", "quantize")
_COMMON = ("model._component_", "checkpointer.checkpoint_dir", "dtype")
_LENGTH, _BATCH, _NEW_TOKENS = 4096, 8, 300  # recipes/configs; eleuther_eval.py's own are the same
_SEES = "_vision."


def other_than_training(recipe: str, options: Options, model: str, notes: Sequence[str]) -> Launch | None:
    """The scenario of a recipe that trains nothing, None for one that trains."""
    if recipe.startswith("generate"):
        return _generate(recipe, options, model, notes)
    if recipe.startswith("eleuther_eval"):
        return _evaluate(options, model, notes)
    return _quantize(options, model, notes) if recipe.startswith("quantize") else None


def _generate(recipe: str, options: Options, model: str, notes: Sequence[str]) -> Launch:
    """One prompt; keys and values have room for it and all new tokens from the start, or are made anew each time."""
    said = list(notes)
    found: dict[str, object] = {
        "batch_size": 1, "dtype": options.first("dtype") or "bf16",
        "new_tokens": options.number("max_new_tokens") or _NEW_TOKENS,
        "cache_implementation": "static" if "_v2" in recipe or options.is_on("enable_kv_cache") else "none",
    }  # fmt: skip
    texts = [options.values.get(f"prompt.{part}") for part in ("system", "user", "user.text")]
    size = sum(len(text.encode("utf-8", "replace")) for text in texts if isinstance(text, str))
    if size:
        found["prompt_tokens"] = size
        said.append(f"the prompt has {size:,} bytes, and no more tokens: --prompt-tokens says how many")
    if recipe.endswith("distributed"):
        said.append("tensor_parallel_plan is not counted: what all GPUs hold together is shown as one's")
    said += _quantizer(options)
    read = ("max_new_tokens", "enable_kv_cache", "prompt.system", "prompt.user", "prompt.user.text")
    return _launched({"model": model, "task": "generate", "generate": found}, options, read, said)


def _evaluate(options: Options, model: str, notes: Sequence[str]) -> Launch:
    """Batches of the harness, cut at `max_seq_length`; models with images generate, one question at a time."""
    length = options.number("max_seq_length") or _LENGTH
    found: dict[str, object] = {
        "batch_size": options.number("batch_size") or _BATCH, "dtype": options.first("dtype") or "bf16",
        "prompt_tokens": length, "new_tokens": 1,
    }  # fmt: skip
    said = [*notes, f"the longest batch of the tasks has {length:,} tokens a row, most have less"]
    if _SEES in (options.first("model._component_") or ""):
        found["cache_implementation"] = "static"
    else:
        found |= {"prompt_logits": True, "cache_implementation": "none"}
        said.append("tasks that score are counted; those that generate keep max_seq_length tokens of each row beside")
    said += _quantizer(options)
    read = ("batch_size", "max_seq_length", "enable_kv_cache", "tasks")
    return _launched({"model": model, "task": "generate", "generate": found}, options, read, said)


def _quantize(options: Options, model: str, notes: Sequence[str]) -> Launch:
    """The weights in `dtype`, whose layers are quantized in place one after another."""
    said = [*notes, "quantize loads the weights in dtype, and makes each layer's new ones beside its old ones"]
    scenario: dict[str, object] = {"model": model, "task": "load", "serve": {"dtype": options.first("dtype") or "bf16"}}
    if options.first("device") == "cpu":
        scenario["num_gpus"] = 0
    return _launched(scenario, options, ("quantizer._component_", "device"), said)


def _quantizer(options: Options) -> list[str]:
    named = options.first("quantizer._component_")
    return [] if named is None else [f"quantizer {named.rpartition('.')[2]} is not described: weights are in dtype"]


def _launched(scenario: dict[str, object], options: Options, read: Sequence[str], notes: Sequence[str]) -> Launch:
    return launched_by("torchtune", scenario, options, (*_COMMON, *read), notes)
