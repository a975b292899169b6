"""`text-generation-launcher --model-id MODEL …`."""

from __future__ import annotations

from vramwise.interop.launch.adapters import RANK_ASSUMED
from vramwise.interop.launch.command import Launch, Start, notes_of, one_model, settings_of, understood_of, words_for
from vramwise.interop.launch.flags import flags_of
from vramwise.interop.launch.values import Meaning, fraction, whole, word
from vramwise.interop.launch.variables import switched
from vramwise.scenario.names import SERVE_QUANTIZATION, SERVE_QUANTIZATION_SPELLINGS
from vramwise.serving.common.versions import version_of
from vramwise.serving.tgi.estimate import V2_PREFILL_MARGIN

MEANINGS = {
    "--dtype": Meaning("dtype", word),
    "--kv-cache-dtype": Meaning("kv_cache_dtype", lambda text: text.removesuffix("fn")),
    "--num-shard": Meaning("tensor_parallel_size", whole),
    "--max-total-tokens": Meaning("max_model_len", whole),
    "--max-batch-prefill-tokens": Meaning("max_num_batched_tokens", whole),
    "--max-batch-size": Meaning("max_num_seqs", whole),
    "--cuda-memory-fraction": Meaning("gpu_memory_utilization", fraction),
    "--cuda-graphs": Meaning("enforce_eager", lambda text: text.strip() == "0"),
}
UNCOUNTED = {
    "--max-batch-total-tokens": "the tokens that fit are worked out",
    "--speculate": "heads that draft tokens",
}


def _words_of_variable(name: str, value: str) -> list[str]:
    """Every flag but `--env` has a variable of its own name (launcher/src/main.rs)."""
    flag = "--" + name.lower().replace("_", "-")
    takes = flags_of("tgi").get(flag)
    if takes is None or flag == "--env" or name != name.upper():
        return []
    return switched(name, flag, value, False) if takes == "0" else [f"{flag}={value}"]


def read(start: Start) -> Launch:
    """The scenario of a text-generation-inference command line."""
    words = words_for("tgi", start, _words_of_variable)
    settings: dict[str, object] = {"engine": "tgi", **settings_of(words, MEANINGS)}
    version = start.version.replace("-", ".") if start.version else None
    if version:
        settings["engine_version"] = version
    # up to 2.x a prefill takes what one prompt may (launcher/src/main.rs)
    longest = whole((words.given.get("--max-input-tokens") or words.given.get("--max-input-length") or ["0"])[-1])
    if longest and "max_num_batched_tokens" not in settings and (2,) <= version_of(version) < (3,):
        settings["max_num_batched_tokens"] = longest + V2_PREFILL_MARGIN
    notes: list[str] = []
    quantization = words.given.get("--quantize", [""])[-1].replace("_", "-").lower()
    if quantization in SERVE_QUANTIZATION or quantization in SERVE_QUANTIZATION_SPELLINGS:
        settings["quantization"] = "bitsandbytes-int8" if quantization == "bitsandbytes" else quantization
    elif quantization:
        notes.append(f"--quantize {quantization}: the format that the model's own config states is used")
    named = words.given.get("--model-id", [""])[-1]
    model = one_model("text-generation-inference", named, "--model-id MODEL")
    adapters = [name for text in words.given.get("--lora-adapters", ()) for name in text.split(",") if name.strip()]
    if adapters:
        settings["max_loras"] = len(adapters)
        notes.append(f"--lora-adapters: {len(adapters)} {RANK_ASSUMED}")
    apart = frozenset(MEANINGS) | {"--model-id", "--quantize", "--lora-adapters"}
    notes.extend(notes_of("text-generation-inference", words, apart, UNCOUNTED, words.loose))
    scenario: dict[str, object] = {"model": model, "task": "serve", "serve": settings}
    return Launch("tgi", scenario, tuple(notes), understood_of(words, apart))
