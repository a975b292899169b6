"""`vllm serve MODEL …` and `python -m vllm.entrypoints.openai.api_server --model MODEL …`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vramwise.errors import UsageError, clipped, nearest
from vramwise.interop.launch.command import (
    Launch,
    Start,
    notes_of,
    one_model,
    settings_of,
    stages_of,
    understood_of,
    whole_numbers,
    words_for,
)
from vramwise.interop.launch.flags import Words
from vramwise.interop.launch.overrides import WHOLE, config_overrides
from vramwise.interop.launch.values import Meaning, fraction, switch, table, whole, word
from vramwise.scenario.names import SERVE_QUANTIZATION, SERVE_QUANTIZATION_SPELLINGS

_GENERATING = ("generate", "transcription", "draft")
_COMPILATION = ("--compilation-config", "-cc", "-O")
_LEVEL = "--optimization-level"
_ITEMS = 999
"""Items of a kind that may come where only their sizes are said (config/multimodal.py BaseDummyOptions)."""

_LONGEST_SIZE = 9
"""Digits of a batch that a graph is captured for."""

_SIZED = "--limit-mm-per-prompt: sizes of its items are not counted, the largest that the model takes are"


def _pooling(text: str) -> bool | None:
    """Whether a runner, a task (up to 0.10) or what a model is converted to means embeddings, scores or classes."""
    return None if word(text) is None else text not in _GENERATING


MEANINGS = {
    "--dtype": Meaning("dtype", word),
    "--max-model-len": Meaning("max_model_len", whole),
    "--gpu-memory-utilization": Meaning("gpu_memory_utilization", fraction),
    "--device-memory-utilization": Meaning("gpu_memory_utilization", fraction),
    "--max-num-seqs": Meaning("max_num_seqs", whole),
    "--max-num-batched-tokens": Meaning("max_num_batched_tokens", whole),
    "--enforce-eager": Meaning("enforce_eager", switch),
    "--enable-prefix-caching": Meaning("enable_prefix_caching", switch),
    "--block-size": Meaning("block_size", whole),
    "--kv-cache-dtype": Meaning("kv_cache_dtype", word),
    "--kv-cache-memory-bytes": Meaning("kv_cache_memory_bytes", whole),
    "--limit-mm-per-prompt": Meaning("limit_mm_per_prompt", lambda text: _counts(table(text))),
    "--language-model-only": Meaning("language_model_only", switch),
    "--skip-mm-profiling": Meaning("skip_mm_profiling", switch),
    "--runner": Meaning("pooling", _pooling),
    "--convert": Meaning("pooling", _pooling),
    "--task": Meaning("pooling", _pooling),
    "--moe-backend": Meaning("moe_backend", word),
    "--mamba-ssm-cache-dtype": Meaning("mamba_ssm_cache_dtype", word),
    "--cpu-offload-gb": Meaning("cpu_offload_gb", fraction),
    "--tensor-parallel-size": Meaning("tensor_parallel_size", whole),
    "-tp": Meaning("tensor_parallel_size", whole),
    "--pipeline-parallel-size": Meaning("pipeline_parallel_size", whole),
    "-pp": Meaning("pipeline_parallel_size", whole),
    "--data-parallel-size": Meaning("data_parallel_size", whole),
    "-dp": Meaning("data_parallel_size", whole),
    "--decode-context-parallel-size": Meaning("decode_context_parallel_size", whole),
    "-dcp": Meaning("decode_context_parallel_size", whole),
    "--enable-expert-parallel": Meaning("expert_parallel", switch),
    "-ep": Meaning("expert_parallel", switch),
    "--enable-sleep-mode": Meaning("sleep_level", lambda text: 1 if switch(text) else None),  # /sleep's own default
    "--disable-hybrid-kv-cache-manager": Meaning("disable_hybrid_kv_cache_manager", switch),
}
SWITCHES = {"VLLM_USE_FLASHINFER_SAMPLER": "flashinfer_sampler", "VLLM_USE_V2_MODEL_RUNNER": "use_v2_runner"}
UNCOUNTED = {
    "--kv-transfer-config": "connectors keep buffers of their own",
    "--num-gpu-blocks-override": "the number of blocks is worked out",
    "--disable-sliding-window": "windowed layers keep their windows here",
    "--enable-dbo": "its second batch of activations",
    "--prefill-context-parallel-size": "it is taken as 1",
    **dict.fromkeys(_COMPILATION, "of it only cudagraph_capture_sizes is read"),
    "--max-cudagraph-capture-size": "the default graph sizes are used",
}
OVERRIDES = {"--hf-overrides": WHOLE, "--rope-scaling": "rope_scaling"}
CAPTURED = ("--cudagraph-capture-sizes", "--cuda-graph-sizes")
_READ_APART = frozenset({
    "--model", "--quantization", "-q", "--enable-lora", "--max-loras", "--max-lora-rank", "--speculative-config", "-sc",
    "--speculative-model", "--num-speculative-tokens", "--spec-method", "--spec-model", "--spec-tokens",
    "--calculate-kv-scales", "--config", _LEVEL, *CAPTURED, *OVERRIDES,
})  # fmt: skip
_DEFAULT_LORA_RANK = 16
_BENCHES = frozenset({"throughput", "latency", "startup", "mm-processor", "forward"})
_ASKING = frozenset({"serve", "sweep"})
_COMMANDS = ("serve", "bench", "chat", "complete", "run-batch", "collect-env")
_NO_ENGINE = ("complete", "collect-env", "download-kernels")


def read(start: Start) -> Launch:
    """The scenario of a vLLM command line."""
    own, in_a_program = _after_command(start)
    start = replace(start, words=_spelled(own))
    words = words_for("vllm", start)
    settings: dict[str, object] = {"engine": "vllm", **settings_of(words, MEANINGS)}
    if start.version:
        settings["engine_version"] = start.version
    if start.environment.get("VLLM_USE_V1") == "0":
        settings["use_v1"] = False
    for name, key in SWITCHES.items():
        if start.environment.get(name) in ("0", "1"):
            settings[key] = start.environment[name] == "1"
    if in_a_program and "--async-engine" not in (*words.given, *words.unknown):
        settings["offline_inference"] = True
    notes = [_SIZED] if any("{" in text[1:] for text in words.given.get("--limit-mm-per-prompt", ())) else []
    notes += _other_device(start.image)
    _quantization(words, settings, notes)
    _adapters(words, settings)
    speculative = _speculative(words)
    if speculative:
        settings["speculative"] = speculative
    _captured(words, settings)
    if words.given.get(_LEVEL, [""])[-1] == "0" and settings.get("use_v1", True):
        settings["enforce_eager"] = True  # config/vllm.py OPTIMIZATION_LEVEL_00; before 0.12 the same by mode 0
    settings |= stages_of(start, "VLLM_PP_LAYER_PARTITION")
    loose = list(words.loose)
    model = words.given.get("--model", [None])[-1] or (loose.pop(0) if loose and not in_a_program else None)
    if loose and model is not None and "--model" not in words.given:
        _refuse_a_misspelt_command(start, model)
    model = one_model("vLLM", model, "--model MODEL" if in_a_program else "vllm serve MODEL")
    read_flags = frozenset(MEANINGS) | _READ_APART
    notes.extend(notes_of("vLLM", words, read_flags, UNCOUNTED, loose))
    scenario: dict[str, object] = {"model": model, "task": "serve", "serve": settings}
    scenario |= config_overrides(words, OVERRIDES)
    return Launch("vllm", scenario, tuple(notes), understood_of(words, read_flags))


def _refuse_a_misspelt_command(start: Start, model: str) -> None:
    """Raises UsageError for `vllm serv MODEL`: a word before the model that is nearly one of vLLM's own."""
    near = nearest(model, _COMMANDS, 1) if start.program == "vllm" and "/" not in model else []
    if near:
        raise UsageError(f'vllm: unknown command "{clipped(model)}": did you mean vllm {near[0]}?')


_CPU, _TPU = "cpu", "tpu"


def _other_device(image: str) -> list[str]:
    """What is said of an image that runs on no GPU (vllm/vllm-openai-cpu, vllm/vllm-tpu)."""
    parts = re.split(r"[^a-z]+", image.lower())
    if _CPU in parts:
        return ["the image runs on the CPU: the numbers are those of a GPU"]
    return ["the image runs on a TPU: the numbers are those of a GPU"] if _TPU in parts else []


def _after_command(start: Start) -> tuple[tuple[str, ...], bool]:
    """The words behind `bench throughput` and the like, and whether that starts the engine in a program of its own.

    vLLM 0.33 entrypoints/cli. Raises UsageError for what only asks a server, or starts no engine.
    """
    command = start.words[0] if start.program == "vllm" and start.words else ""
    if command == "run-batch":
        return start.words[1:], False
    if command not in ("bench", *_NO_ENGINE):
        return start.words, False
    place, kind = next(((i, one) for i, one in enumerate(start.words) if one in _BENCHES | _ASKING), (0, ""))
    if command == "bench" and kind in _BENCHES:
        return (*start.words[1:place], *start.words[place + 1 :]), True
    if command == "complete" or kind in _ASKING:
        named = f"{command} {kind}".strip()
        raise UsageError(f"vllm {named} asks a server, which holds the memory: give the command that starts it")
    raise UsageError(f"vllm {command} starts no engine: expected vllm serve MODEL")


def _spelled(words: Sequence[str]) -> tuple[str, ...]:
    """`-O3`, `-O=3` and `-O 3` as --optimization-level; `-O.mode=3` and `-O {…}` are the older compilation config."""
    found = list(words)
    for place, one in enumerate(found):
        if one.startswith("-O") and one[2:3] not in ("", ".", "{") and one != "-O=":
            found[place] = f"{_LEVEL}={one[2:].removeprefix('=')}"
        elif one == "-O" and found[place + 1 : place + 2] and found[place + 1] in ("0", "1", "2", "3"):
            found[place] = _LEVEL
    return tuple(found)


def _counts(limits: Mapping[str, object]) -> dict[str, object]:
    """Items of each kind in a prompt; `{"count": 2, "width": 512}` states their size too."""
    return {kind: one.get("count", _ITEMS) if isinstance(one, Mapping) else one for kind, one in limits.items()}


_DRAFTS_ALONE = ("ngram", "mtp", "suffix", "dspark", "extract_hidden_states", "custom_class")
_COUNTS_ITSELF = frozenset({"suffix", "dspark"})


def _quantization(words: Words, settings: dict[str, object], notes: list[str]) -> None:
    given = (words.given.get("--quantization") or words.given.get("-q") or [""])[-1]
    if not given or word(given) is None:
        return
    name = given.replace("_", "-").lower()
    if name in SERVE_QUANTIZATION or name in SERVE_QUANTIZATION_SPELLINGS:
        settings["quantization"] = name
    else:
        notes.append(f"--quantization {given}: the format that the model's own config states is used")


def _captured(words: Words, settings: dict[str, object]) -> None:
    sizes = whole_numbers(words, CAPTURED)
    for text in (text for flag in _COMPILATION for text in words.given.get(flag, ()) if text.lstrip().startswith("{")):
        stated = (table(text) or {}).get("cudagraph_capture_sizes")
        sizes = sizes or (_numbers_of(stated) if isinstance(stated, list) else [])
    if sizes:
        settings["cudagraph_capture_sizes"] = sizes


def _numbers_of(stated: Sequence[object]) -> list[int]:
    """Whole numbers, also those that are texts: `sizes+ 1,2` makes texts, and pydantic numbers of them."""
    texts = (str(size) for size in stated if type(size) in (int, str))
    return [int(text) for text in texts if text.isdecimal() and len(text) <= _LONGEST_SIZE]


def _adapters(words: Words, settings: dict[str, object]) -> None:
    if words.given.get("--enable-lora", ["false"])[-1] != "true":
        return
    settings["max_loras"] = whole((words.given.get("--max-loras") or ["1"])[-1])
    settings["max_lora_rank"] = whole((words.given.get("--max-lora-rank") or [str(_DEFAULT_LORA_RANK)])[-1])


def _speculative(words: Words) -> dict[str, object]:
    """`--speculative-config` (merged from its parts) or the flags of older and newer versions."""
    config: dict[str, object] = {}
    for flag in ("--speculative-config", "-sc"):
        for text in words.given.get(flag, ()):
            config |= table(text)
    for flag, key in (("--speculative-model", "model"), ("--spec-model", "model"), ("--spec-method", "method"),
                      ("--num-speculative-tokens", "num_speculative_tokens"),
                      ("--spec-tokens", "num_speculative_tokens")):  # fmt: skip
        if words.given.get(flag):
            config[key] = words.given[flag][-1]
    found: dict[str, object] = {}
    if config.get("method"):
        found["method"] = str(config["method"])
    if config.get("model"):
        found["model"] = str(config["model"])
        found.setdefault("method", "ngram" if "ngram" in str(found["model"]) else "draft_model")
    if config.get("num_speculative_tokens"):
        found["num_tokens"] = whole(str(config["num_speculative_tokens"]))
    _check_drafting(found)
    return found


def _check_drafting(found: dict[str, object]) -> None:
    """vLLM 0.8.5 to 0.33.0 config/speculative.py: what drafts needs a model or brings one, and a number of tokens.

    Some drafts that are named state their number themselves (`n_predict`). Raises UsageError where either is missing.
    """
    if not found:
        return
    method = str(found.get("method", "draft_model"))
    if "model" not in found and not any(name in method for name in _DRAFTS_ALONE):
        raise UsageError(f"vLLM: speculative decoding by {clipped(method)} needs a draft model: name it (model)")
    if "num_tokens" not in found and method not in _COUNTS_ITSELF and ("model" not in found or "eagle" in method):
        raise UsageError(f"vLLM: speculative decoding by {clipped(method)} needs num_speculative_tokens: say how many")
