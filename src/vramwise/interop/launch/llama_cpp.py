"""`llama-server -m FILE …` of llama.cpp and ik_llama.cpp."""

from __future__ import annotations

import os
from typing import Any

from vramwise.interop.launch.command import Launch, Start, notes_of, one_model, settings_of, words_for
from vramwise.interop.launch.flags import Words
from vramwise.interop.launch.gguf_names import model_of_file, model_of_repository
from vramwise.interop.launch.values import Meaning, maybe_switch, switch, whole


def _mode(text: str) -> str:
    return text.lower()


_LONG = {
    ("-b", "--batch-size"): Meaning("n_batch", whole),
    ("-ub", "--ubatch-size"): Meaning("n_ubatch", whole),
    ("-fa", "--flash-attn"): Meaning("flash_attn", maybe_switch),
    ("-ctk", "--cache-type-k"): Meaning("cache_type_k", _mode),
    ("-ctv", "--cache-type-v"): Meaning("cache_type_v", _mode),
    ("-np", "--parallel"): Meaning("n_parallel", whole),
    ("-kvu", "--kv-unified"): Meaning("kv_unified", switch),
    ("-ncmoe", "--n-cpu-moe"): Meaning("n_cpu_moe", whole),
    ("-cmoe", "--cpu-moe"): Meaning("cpu_moe", switch),
    ("--swa-full",): Meaning("swa_full", switch),
    ("-mla", "--mla-use"): Meaning("mla_attn", whole),
    ("-amb", "--attention-max-batch"): Meaning("attn_max_b", whole),
    ("-fmoe", "--fused-moe"): Meaning("fused_moe", lambda text: int(switch(text))),
}
MEANINGS = {flag: meaning for flags, meaning in _LONG.items() for flag in flags}
_IK_ALONE = frozenset({"-mla", "--mla-use", "-amb", "--attention-max-batch", "-fmoe", "--fused-moe", "-rtr", "-ser",
                       "-ger", "-khad", "-no-fug", "-no-mmad", "-muge", "-mqkv", "-smgs"})  # fmt: skip
_MODEL = ("-m", "--model")
_REPOSITORY = ("-hf", "-hfr", "--hf-repo")
_CONTEXT = ("-c", "--ctx-size")
_LAYERS = ("-ngl", "--gpu-layers", "--n-gpu-layers")
_APART = frozenset((*_MODEL, *_REPOSITORY, *_CONTEXT, *_LAYERS, "-hff", "--hf-file", "-mu", "--model-url", "-ot",
                    "--override-tensor", "-ts", "--tensor-split", "-sm", "--split-mode", "-dev", "--device",
                    "-nkvu", "--no-kv-unified", "-no-fa", "--no-fa", "--no-flash-attn", "-no-fmoe",
                    "--no-fmoe"))  # fmt: skip
UNCOUNTED = {
    "--mmproj": "the vision projector's file",
    "-mm": "the vision projector's file",
    "-md": "the draft model's weights and cache",
    "--model-draft": "the draft model's weights and cache",
    "--spec-draft-model": "the draft model's weights and cache",
    "--lora": "the adapter's own tensors",
    "--control-vector": "its tensors",
    "-nkvo": "the KV cache is charged to the GPU here",
    "--no-kv-offload": "the KV cache is charged to the GPU here",
    "-cram": "the prompt cache in host memory",
    "--cache-ram": "the prompt cache in host memory",
    "--rpc": "other machines' devices",
    "--moe-cache-mib": "the cache of experts",
    "-ncffn": "MLPs that it keeps on the host are charged to the GPU here",
    "--n-cpu-ffn": "MLPs that it keeps on the host are charged to the GPU here",
}
_MOST_LAYERS = 100_000


def read(start: Start) -> Launch:
    """The scenario of a llama.cpp command line."""
    words = words_for("llama.cpp", start)
    settings: dict[str, Any] = {"engine": "llama.cpp", **settings_of("llama.cpp", words, MEANINGS)}
    if start.version:
        settings["engine_version"] = start.version
    if any(flag in _IK_ALONE for flag in words.given):
        settings["variant"] = "ik_llama.cpp"
    if any(flag in words.given for flag in ("-nkvu", "--no-kv-unified")):
        settings["kv_unified"] = False
    if any(flag in words.given for flag in ("-no-fa", "--no-fa", "--no-flash-attn")):
        settings["flash_attn"] = False
    context = whole(_last(words, _CONTEXT) or "0")
    if context:
        settings["n_ctx"] = context
    _layers(words, settings)
    rules = [
        rule for flag in ("-ot", "--override-tensor") for text in words.given.get(flag, ()) for rule in _rules(text)
    ]
    if rules:
        settings["override_tensor"] = rules
    scenario: dict[str, Any] = {"model": _model(words, settings), "task": "serve", "serve": settings}
    devices = _devices(words)
    if devices is not None:
        scenario["num_gpus"] = devices
    notes = notes_of("llama.cpp", words, frozenset(MEANINGS) | _APART, UNCOUNTED, words.loose)
    return Launch("llama.cpp", scenario, notes)


def _last(words: Words, flags: tuple[str, ...]) -> str | None:
    found = [values[-1] for flag in flags if (values := words.given.get(flag))]
    return found[-1] if found else None


def _model(words: Words, settings: dict[str, Any]) -> str:
    """The file where it can be read, else the model that its name or repository tells."""
    path = _last(words, _MODEL)
    if path is not None and os.path.exists(path):
        return path
    file = path or _last(words, ("-hff", "--hf-file")) or _last(words, ("-mu", "--model-url"))
    repository = _last(words, _REPOSITORY)
    kind: str | None
    if file is not None:
        model, kind = model_of_file(file)
        if repository is not None:
            model = model_of_repository(repository)[0]
    else:
        model, kind = model_of_repository(one_model("llama.cpp", repository, "-m FILE or -hf USER/MODEL[:TYPE]"))
    if kind is not None:
        settings["gguf_quant"] = kind
    return model


def _layers(words: Words, settings: dict[str, Any]) -> None:
    text = _last(words, _LAYERS)
    if text is None or text.lower() in ("auto", "all", "-1"):
        return
    settings["n_gpu_layers"] = min(whole(text) or 0, _MOST_LAYERS)


def _rules(text: str) -> list[str]:
    """`A=CPU,B=CUDA0` is two rules; a comma inside a pattern belongs to it."""
    rules: list[str] = []
    for piece in text.split(","):
        if rules and "=" not in rules[-1]:
            rules[-1] += f",{piece}"
        else:
            rules.append(piece)
    return [rule for rule in rules if rule]


def _devices(words: Words) -> int | None:
    named = _last(words, ("-dev", "--device"))
    if named is not None:
        return 0 if named.lower() == "none" else len(named.split(","))
    if (_last(words, ("-sm", "--split-mode")) or "").lower() == "none":
        return 1
    split = _last(words, ("-ts", "--tensor-split"))
    if split is None:
        return None
    return sum(share.strip() not in ("", "0") for share in split.replace("/", ",").split(",")) or None
