"""`koboldcpp --model FILE.gguf --gpulayers N …`, and its settings in a .kcpps file, as llama.cpp's own command line.

Read in KoboldCpp 1.117.1, koboldcpp.py (the parser, load_model, set_backend_props) and gpttype_adapter.cpp: a context
of 12,288 tokens unless told otherwise and 128 more, batches of 512 in one piece, one KV buffer for all slots, flash
attention unless it is off (then only keys can be quantized), room for the logits of a whole batch; -1 layers are
llama.cpp's own fitting. A number behind --usecuda is the one card that it sees, where no --tensor_split lists several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.errors import UsageError, clipped
from vramwise.interop.beside import file_table
from vramwise.interop.launch.command import Start
from vramwise.interop.launch.flags import Words, cut, flags_of
from vramwise.interop.launch.values import whole

PROGRAM = "koboldcpp"
IMAGE = "koboldai/koboldcpp"
_CONTEXT, _MORE, _BATCH, _DRAFTED, _ALL = 12288, 128, 512, 4, "999"
_SETTINGS = (".kcpps", ".kcppt")
_TYPES = {"0": "f16", "1": "q8_0", "2": "q4_0", "3": "bf16"}
_QUANTKV = ("f16", "bf16", "q8_0", "q5_1", "q4_0")
_CUDA = ("--usecuda", "--usecublas", "--usehipblas")
_MODEL = ("--model", "-m")
_LENGTH = ("--contextsize", "--ctx-size", "-c")
_LAYERS = ("--gpulayers", "--gpu-layers", "--n-gpu-layers", "-ngl")
_SPLIT = ("--tensor-split", "--tensorsplit", "-ts")
_BATCHES = ("--batchsize", "--blasbatchsize", "--batch-size", "-b")
_FIT = ("--autofit", "--fit", "-fit")
_NO_FLASH = ("--noflashattention", "--no-flash-attn", "-nofa")
_ON_HOST = ("--lowvram", "-nkvo", "--no-kv-offload")
_SLOTS = ("--parallelrequests", "--continuous-batching", "--contbatch")
_EXPERTS = ("--moecpu", "--n-cpu-moe", "-ncmoe")
_RULES = ("--overridetensors", "--override-tensor", "-ot")
_MAIN = ("--maingpu", "--main-gpu", "-mg")
_MODE = ("--splitmode", "--split-mode", "-sm")
_DRAFT = ("--draftmodel", "--model-draft", "-md")
_DRAFT_LAYERS = ("--draftgpulayers", "--gpu-layers-draft", "--n-gpu-layers-draft", "-ngld")
_DRAFTS = ("--draftamount", "--draft-max", "--draft-n", "--spec-draft-n-max")
_FULL = ("--noswa", "--swa-full")
_DEVICES = ("--device", "-dev")
_PROJECTOR_ON_HOST = ("--mmprojcpu", "--no-mmproj-offload")
READ = frozenset((
    *_CUDA, *_MODEL, *_LENGTH, *_LAYERS, *_SPLIT, *_BATCHES, *_FIT, *_NO_FLASH, *_ON_HOST, *_SLOTS, *_EXPERTS, *_RULES,
    *_MAIN, *_MODE, *_DRAFT, *_DRAFT_LAYERS, *_DRAFTS, *_FULL, *_DEVICES, *_PROJECTOR_ON_HOST, "--usevulkan",
    "--usecpu", "--noblas", "--useclblast", "--quantkv", "--mmproj", "--lora", "--usemtp", "--config",
))  # fmt: skip
UNCOUNTED = {
    "--sdmodel": "the image model beside it",
    "--whispermodel": "the speech model beside it",
    "--ttsmodel": "the speech model beside it",
    "--embeddingsmodel": "the embedding model beside it",
    "--musicllm": "the music models beside it",
    "--musicdiffusion": "the music models beside it",
    "--enableguidance": "a second context with a KV cache of its own",
    "--rpctargets": "other machines' devices",
    "--smartcache": "snapshots of the KV cache in host memory",
    "--moeexperts": "the model's own number of experts is taken",
    "--draftgpusplit": "the draft model is shared out as the model is",
    "--autofitpadding": "1,024 MiB stay free",
    "--swapadding": "cells that a windowed cache has more",
}
_OFF = frozenset({"", "0", "-1", "false", "none", "disabled"})


def as_server(start: Start) -> tuple[Start, Words]:
    """The command line of llama.cpp's server, and KoboldCpp's own words as they were cut.

    Raises UsageError for a value that KoboldCpp refuses, SourceError for a file that cannot be read.
    """
    words = _words_of(start)
    return replace(start, words=tuple(_server_words(words)), program="koboldcpp as a server", image=""), words


def uncounted(words: Words) -> dict[str, str]:
    """Flags whose effect is not counted, of those that are on."""
    return {flag: what for flag, what in UNCOUNTED.items() if _last(words, (flag,)).lower() not in _OFF}


def _words_of(start: Start) -> Words:
    """Its words, those of its container's variables, or those of the settings that it loads, which stand alone but for
    a model named beside them."""
    given = list(start.words)
    if IMAGE in start.image:
        given += start.environment.get("KCPP_ARGS", "").split()
        model = start.environment.get("KCPP_MODEL", "")
        given += ["--model", *model.split(",")] if model else []
    words = cut(PROGRAM, given)
    named = words.given.get("--config", []) or [one for one in words.loose if one.lower().endswith(_SETTINGS)]
    if not named:
        return words
    models = [one for flag in _MODEL for one in words.given.get(flag, ())]
    return cut(PROGRAM, [*(["--model", *models] if models else []), *_words_of_settings(named[0])])


def _words_of_settings(path: str) -> list[str]:
    words: list[str] = []
    table = file_table(path)
    for key, value in table.items():
        flag = f"--{str(key).replace('_', '-')}"
        if key in ("model_param", "port_param"):
            words += ["--model", str(value)] if key == "model_param" and value and not table.get("model") else []
        elif isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, list):
            words += [flag, *map(str, value)] if value or flag in (*_CUDA, "--usevulkan") else []
        elif value is not None and value != "" and not isinstance(value, Mapping):
            words.append(f"{flag}={value}" if flag in flags_of(PROGRAM) else flag)
    return words


def _server_words(words: Words) -> list[str]:
    flags = ["-m", _model(words), "-c", str(_number(words, _LENGTH, _CONTEXT) + _MORE)]
    batch = max(1, _number(words, _BATCHES, _BATCH))
    flags += ["-b", str(batch), "-ub", str(batch), *_cache(words), *_placed(words)]
    slots = _number(words, _SLOTS, 1)
    flags += ["-np", str(slots + 1 if slots > 1 else 1), "-kvu"]
    for name in (*words.given.get("--mmproj", [])[-1:],):
        flags += ["--mmproj", name, *(["--no-mmproj-offload"] if _has(words, _PROJECTOR_ON_HOST) else [])]
    flags += [word for one in words.given.get("--lora", []) for word in ("--lora", one)]
    draft = _last(words, _DRAFT)
    if draft:
        flags += ["-md", draft, "-ngld", _last(words, _DRAFT_LAYERS) or _ALL]
    elif _has(words, ("--usemtp",)):
        flags += ["--spec-type", "draft-mtp", "--draft-max", _last(words, _DRAFTS) or str(_DRAFTED)]
    return flags


def _model(words: Words) -> str:
    """The file, or the first part of an address of several; a number behind it is the port."""
    given = [one for flag in _MODEL for one in words.given.get(flag, ())]
    named = [one for one in given or words.loose if not one.isdecimal()]
    if not named:
        raise UsageError("the command line of KoboldCpp names no model: expected --model FILE.gguf")
    return named[0].partition("?")[0]


def _cache(words: Words) -> list[str]:
    """Flash attention, and the cache's types: without it values stay in 16 bit."""
    given = (_last(words, ("--quantkv",)) or "f16").lower()
    kind = _TYPES.get(given, given)
    if kind not in _QUANTKV:
        raise UsageError(f'--quantkv: expected {", ".join(_QUANTKV)} or 0 to 3, got "{clipped(given)}"')
    flash = not _has(words, _NO_FLASH)
    values = kind if flash or kind == "bf16" else "f16"
    on_host = _has(words, _ON_HOST) or "lowvram" in _of_cuda(words)
    return ["-fa", "on" if flash else "off", "-ctk", kind, "-ctv", values, *(["-nkvo"] if on_host else []),
            *(["--swa-full"] if _has(words, _FULL) else [])]  # fmt: skip


def _placed(words: Words) -> list[str]:
    """Where weights go: cards, layers and rules for single tensors."""
    if _has(words, ("--usecpu", "--noblas")):
        return ["-dev", "none", "-ngl", "0"]
    layers = _last(words, _LAYERS) or "-1"
    layers = "1" if layers == "on" else layers  # const=1
    fits = layers.startswith("-") or _has(words, _FIT)
    found = ["-fit", "on"] if fits else ["-ngl", layers, "-fit", "off"]
    shares = [one for flag in _SPLIT for one in words.given.get(flag, ())]
    mode, devices = _last(words, _MODE).lower(), _last(words, _DEVICES)
    one_card = [name for name in _of_cuda(words) if name.isdecimal()]
    vulkan = words.given.get("--usevulkan", [])
    if "rowsplit" in _of_cuda(words):
        mode = "row"
    if devices:
        found += ["-dev", devices]
    elif shares:
        found += ["-ts", ",".join(shares)]
    elif one_card or vulkan:
        found += ["-dev", ",".join([f"Vulkan{name}" for name in vulkan] or [f"CUDA{name}" for name in one_card[:1]])]
    found += ["-sm", mode] if mode else []
    main = _last(words, _MAIN)
    found += ["-mg", main] if main.isdecimal() else []
    experts = _last(words, _EXPERTS)
    found += ["-ncmoe", _ALL if experts == "on" else experts] if experts not in ("", "0") else []
    rules = _last(words, _RULES)
    return found + (["-ot", rules] if rules else [])


def _of_cuda(words: Words) -> list[str]:
    return [one.lower() for flag in _CUDA for one in words.given.get(flag, ())]


def _has(words: Words, flags: tuple[str, ...]) -> bool:
    return any(flag in words.given and words.given[flag] != ["false"] for flag in flags)


def _number(words: Words, flags: tuple[str, ...], default: int) -> int:
    """A whole number, 1 for -1 (no batches). Raises UsageError that names the flag."""
    text = _last(words, flags)
    try:
        return default if not text else whole(text) or 1
    except UsageError as problem:
        raise UsageError(f"{flags[0]}: {problem}") from None


def _last(words: Words, flags: tuple[str, ...]) -> str:
    found = [values[-1] for flag, values in words.given.items() if flag in flags and values]
    return found[-1] if found else ""
