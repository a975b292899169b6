"""`mlx_lm.generate --model MODEL …`, `mlx_lm.server …`, `python -m mlx_lm server …`."""

from __future__ import annotations

from vramwise.interop.launch.command import Launch, Start, notes_of, settings_of, understood_of, words_for
from vramwise.interop.launch.values import Meaning, whole

DEFAULT_MODEL = "mlx-community/Llama-3.2-3B-Instruct-4bit"  # mlx-lm 0.32.2 generate.py DEFAULT_MODEL
_SUBCOMMANDS = frozenset({"generate", "server", "chat"})

MEANINGS = {
    "--max-kv-size": Meaning("max_kv_size", whole),
    "--kv-bits": Meaning("kv_bits", whole),
    "--kv-group-size": Meaning("kv_group_size", whole),
    "--quantized-kv-start": Meaning("quantized_kv_start", whole),
    "--prefill-step-size": Meaning("prefill_step_size", whole),
}
UNCOUNTED = {
    "--draft-model": "a draft model with a cache of its own",
    "--adapter-path": "adapters beside the model",
    "--prompt-cache-file": "the caches in a file",
    "--decode-concurrency": "one request at a time is taken: max_num_seqs says more",
    "--prompt-concurrency": "one request at a time is taken: max_num_seqs says more",
    "--prompt-cache-size": "caches of earlier requests that the server keeps",
    "--prompt-cache-bytes": "caches of earlier requests that the server keeps",
    "--image": "mlx-lm runs text alone",
    "--pipeline": "one machine is taken",
    "--quantize-activations": "activations in 8 bits",
}


def read(start: Start) -> Launch:
    """The scenario of an mlx-lm command line; a prompt's length is not known, so that the model's own stands for it."""
    words = words_for("mlx", start)
    settings: dict[str, object] = {"engine": "mlx", **settings_of(words, MEANINGS)}
    named = words.given.get("--model", [""])[-1]
    notes = [] if named else [f"no --model: {DEFAULT_MODEL} is mlx-lm's own"]
    loose = [word for i, word in enumerate(words.loose) if i or word not in _SUBCOMMANDS]
    apart = frozenset(MEANINGS) | {"--model"}
    notes += notes_of("MLX", words, apart, UNCOUNTED, loose)
    scenario: dict[str, object] = {"model": named or DEFAULT_MODEL, "task": "serve", "serve": settings}
    return Launch("mlx", scenario, tuple(notes), understood_of(words, apart))
