"""llama-cpp-python's `python -m llama_cpp.server …` as llama.cpp's own command line.

Read in 0.3.36 server/settings.py: nothing goes to the GPU and no flash attention is used unless asked, batches are of
512 tokens, a context is 2,048 long; types of the cache are ggml's numbers.
"""

from __future__ import annotations

import re
from dataclasses import replace

from vramwise.interop.launch.command import Start

MODULE = "llama_cpp.server"
_LENGTH, _BATCH = "2048", "512"
_FLAGS = {
    "model": "-m", "n_ctx": "-c", "n_batch": "-b", "n_ubatch": "-ub", "n_gpu_layers": "-ngl",
    "main_gpu": "-mg", "tensor_split": "-ts", "hf_model_repo_id": "-hf", "filename": "-hff", "lora_path": "--lora",
}  # fmt: skip
_SPLITS = {"0": "none", "1": "layer", "2": "row"}
_TYPES = {"0": "f32", "1": "f16", "2": "q4_0", "3": "q4_1", "6": "q5_0", "7": "q5_1", "8": "q8_0", "20": "iq4_nl",
          "30": "bf16"}  # fmt: skip
_ON = frozenset({"true", "1", "yes", "on"})


def as_server(start: Start) -> Start:
    """The command line of llama.cpp's server for one of `python -m llama_cpp.server`."""
    given: dict[str, str] = {"n_ctx": _LENGTH, "n_batch": _BATCH, "n_ubatch": _BATCH, "n_gpu_layers": "0",
                             "flash_attn": "false"}  # fmt: skip
    rest = list(start.words)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            text = value if equals else "true" if not rest or rest[0].startswith("--") else rest.pop(0)
            given[name.removeprefix("no_")] = "false" if name.startswith("no_") else text.strip("[]").replace(" ", "")
    return replace(start, words=tuple(_words(given)), program="llama-cpp-python")


def _words(given: dict[str, str]) -> list[str]:
    """Words of `llama-server`; what has no flag there goes in as it is."""
    if "hf_model_repo_id" in given and "model" in given:  # of *q8_0.gguf the type alone is told
        given["filename"] = re.sub(r"\*+[-.]?", "model-", given.pop("model"))
    words: list[str] = []
    for name, text in given.items():
        if name in _FLAGS:
            words += [_FLAGS[name], text]
        elif name == "flash_attn":
            words += ["-fa", "on" if text.lower() in _ON else "off"]
        elif name == "offload_kqv":
            words += [] if text.lower() in _ON else ["-nkvo"]
        elif name == "swa_full":
            words += ["--swa-full"] if text.lower() in _ON else []
        elif name == "split_mode":
            words += ["-sm", _SPLITS.get(text, text)]
        elif name in ("type_k", "type_v"):
            words += [f"-ct{name[-1]}", _TYPES.get(text, text)]
        else:
            words.append(f"--{name.replace('_', '-')}={text}")
    return words
