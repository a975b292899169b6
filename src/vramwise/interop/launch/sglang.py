"""`python -m sglang.launch_server --model-path MODEL …`."""

from __future__ import annotations

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
from vramwise.interop.launch.values import Meaning, fraction, positive, switch, whole, word
from vramwise.scenario.names import SERVE_QUANTIZATION, SERVE_QUANTIZATION_SPELLINGS

MEANINGS = {
    "--dtype": Meaning("dtype", word),
    "--context-length": Meaning("max_model_len", whole),
    "--mem-fraction-static": Meaning("mem_fraction_static", fraction),
    "--chunked-prefill-size": Meaning("chunked_prefill_size", positive),
    "--cuda-graph-max-bs": Meaning("cuda_graph_max_bs", whole),
    "--cuda-graph-max-bs-decode": Meaning("cuda_graph_max_bs", whole),
    "--max-running-requests": Meaning("max_num_seqs", whole),
    "--max-prefill-tokens": Meaning("max_num_batched_tokens", whole),
    "--max-total-tokens": Meaning("max_total_tokens", whole),
    "--page-size": Meaning("block_size", whole),
    "--kv-cache-dtype": Meaning("kv_cache_dtype", word),
    "--swa-full-tokens-ratio": Meaning("swa_full_tokens_ratio", fraction),
    "--mamba-ssm-dtype": Meaning("mamba_ssm_cache_dtype", word),
    "--cpu-offload-gb": Meaning("cpu_offload_gb", fraction),
    "--disable-cuda-graph": Meaning("enforce_eager", switch),
    "--disable-radix-cache": Meaning("enable_prefix_caching", lambda text: not switch(text)),
    **{name: Meaning("tensor_parallel_size", whole) for name in ("--tp", "--tp-size", "--tensor-parallel-size")},
    **{name: Meaning("pipeline_parallel_size", whole) for name in ("--pp", "--pp-size", "--pipeline-parallel-size")},
}
UNCOUNTED = {
    "--enable-hierarchical-cache": "its second level is in host memory",
    "--enable-dp-attention": "attention is taken as split over the ranks",
    "--attn-dp-size": "attention is taken as split over the ranks",
    "--disaggregation-mode": "transfer buffers",
}
_DATA_PARALLEL = ("--dp", "--dp-size", "--data-parallel-size")
_EXPERT_PARALLEL = ("--ep", "--ep-size", "--expert-parallel-size")
_SPECULATIVE = {
    "--speculative-algorithm": "method",
    "--speculative-draft-model-path": "model",
    "--speculative-draft-model": "model",
    "--speculative-num-draft-tokens": "num_tokens",
}
OVERRIDES = {"--json-model-override-args": WHOLE}
CAPTURED = ("--cuda-graph-bs", "--cuda-graph-bs-decode")
_LORA = ("--enable-lora", "--lora-paths", "--max-loras-per-batch", "--max-lora-rank", "--lora-target-modules")
_APART = frozenset(
    (
        *CAPTURED,
        *_DATA_PARALLEL,
        *_EXPERT_PARALLEL,
        *_SPECULATIVE,
        *_LORA,
        *OVERRIDES,
        "--config",
        "--model-path",
        "--model",
        "--quantization",
    )
)


def read(start: Start) -> Launch:
    """The scenario of an SGLang command line."""
    words = words_for("sglang", start)
    settings: dict[str, object] = {"engine": "sglang", **settings_of(words, MEANINGS)}
    if start.version:
        settings["engine_version"] = start.version
    notes: list[str] = []
    if sizes := whole_numbers(words, CAPTURED):
        settings["cudagraph_capture_sizes"] = sizes
    settings |= stages_of(start, "SGLANG_PP_LAYER_PARTITION")
    _splits(words, settings)
    _speculative(words, settings)
    if words.given.get("--lora-paths") or words.given.get("--enable-lora"):
        settings["max_loras"] = whole(_last(words, "--max-loras-per-batch") or "8")
        settings["max_lora_rank"] = whole(_last(words, "--max-lora-rank") or "16")
        targets = [
            name for text in words.given.get("--lora-target-modules", ()) for name in text.replace(",", " ").split()
        ]
        if targets and "all" not in targets:
            settings["lora_targets"] = targets
    quantization = _last(words, "--quantization")
    if quantization and word(quantization):
        name = quantization.replace("_", "-").lower()
        if name in SERVE_QUANTIZATION or name in SERVE_QUANTIZATION_SPELLINGS:
            settings["quantization"] = name
        else:
            notes.append(f"--quantization {quantization}: the format that the model's own config states is used")
    model = one_model("SGLang", _last(words, "--model-path") or _last(words, "--model"), "--model-path MODEL")
    read_flags = frozenset(MEANINGS) | _APART
    notes.extend(notes_of("SGLang", words, read_flags, UNCOUNTED, words.loose))
    scenario: dict[str, object] = {"model": model, "task": "serve", "serve": settings}
    scenario |= config_overrides(words, OVERRIDES)
    return Launch("sglang", scenario, tuple(notes), understood_of(words, read_flags))


def _last(words: Words, flag: str) -> str | None:
    values = words.given.get(flag)
    return values[-1] if values else None


def _splits(words: Words, settings: dict[str, object]) -> None:
    copies = next((_last(words, flag) for flag in _DATA_PARALLEL if flag in words.given), None)
    attention = words.given.get("--enable-dp-attention", ["false"])[-1] == "true"
    if copies and not attention:
        settings["data_parallel_size"] = whole(copies)
    experts = next((_last(words, flag) for flag in _EXPERT_PARALLEL if flag in words.given), None)
    if experts and (whole(experts) or 1) > 1:
        settings["expert_parallel"] = True


def _speculative(words: Words, settings: dict[str, object]) -> None:
    found: dict[str, object] = {}
    for flag, key in _SPECULATIVE.items():
        value = _last(words, flag)
        if value:
            found[key] = whole(value) if key == "num_tokens" else value
    if found:
        found["method"] = str(found.get("method", "eagle")).lower()
        settings["speculative"] = found
