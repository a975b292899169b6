"""`llama-server -m FILE …` of llama.cpp and ik_llama.cpp."""

from __future__ import annotations

import re
from dataclasses import replace

from vramwise.engines.llama_cpp import KOBOLDCPP
from vramwise.errors import clipped
from vramwise.files import is_there
from vramwise.interop.launch import koboldcpp
from vramwise.interop.launch.adapters import RANK_ASSUMED
from vramwise.interop.launch.command import (
    Launch,
    Start,
    notes_of,
    one_model,
    settings_of,
    understood_of,
    words_for,
)
from vramwise.interop.launch.flags import Words
from vramwise.interop.launch.llama_bench import as_server
from vramwise.interop.launch.llama_cpp_python import MODULE
from vramwise.interop.launch.llama_cpp_python import as_server as python_server
from vramwise.interop.launch.llama_cpp_variables import words_of_variable
from vramwise.interop.launch.values import Meaning, fraction, maybe_switch, switch, whole
from vramwise.sources.gguf_names import mix_named, model_of_file, model_of_repository
from vramwise.sources.quantized_names import nearest_type


def _mode(text: str) -> str:
    return text.lower()


def _shares(text: str) -> list[float]:
    """`3,1` or `3/1`."""
    return [fraction(share.strip() or "0") for share in text.replace("/", ",").split(",")]


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
    ("-ts", "--tensor-split"): Meaning("tensor_split", _shares),
    ("-sm", "--split-mode"): Meaning("split_mode", _mode),
    ("-mg", "--main-gpu"): Meaning("main_gpu", whole),
    ("-nkvo", "--no-kv-offload"): Meaning("no_kv_offload", switch),
    ("-mm", "--mmproj"): Meaning("mmproj", str),
    ("--mmproj-offload",): Meaning("mmproj_offload", switch),
    ("-fit", "--fit"): Meaning("fit", maybe_switch),
    ("--swa-full",): Meaning("swa_full", switch),
    ("-mla", "--mla-use"): Meaning("mla_attn", whole),
    ("-amb", "--attention-max-batch"): Meaning("attn_max_b", whole),
    ("-wgt", "--worst-graph-tokens"): Meaning("logits_all", lambda text: False if whole(text) else None),
    ("-rtr", "--run-time-repack"): Meaning("run_time_repack", switch),
    ("-fmoe", "--fused-moe"): Meaning("fused_moe", lambda text: int(switch(text))),
}
MEANINGS = {flag: meaning for flags, meaning in _LONG.items() for flag in flags}
_IK_ALONE = frozenset({
    "-mla", "--mla-use", "-wgt", "--worst-graph-tokens", "-amb", "--attention-max-batch", "-fmoe", "--fused-moe",
    "-rtr", "--run-time-repack", "-ser", "-ger", "-khad", "-no-fug", "-no-mmad", "-muge", "-mqkv", "-smgs",
})  # fmt: skip
_MODEL = ("-m", "--model")
_REPOSITORY = ("-hf", "-hfr", "--hf-repo")
_CONTEXT = ("-c", "--ctx-size")
_DRAFT = ("-md", "--model-draft", "--spec-draft-model", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf")
_DRAFTING = ("--spec-type",)
_DRAFTED = ("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft")
_DRAFTED_UNASKED = 3  # common/common.h common_params_speculative_draft n_max
_ADAPTERS = ("--lora", "--lora-scaled")
_DRAFT_LAYERS = ("-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl")
_DRAFT_CACHES = {
    "cache_type_k": ("-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"),
    "cache_type_v": ("-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"),
}
_LAYERS = ("-ngl", "--gpu-layers", "--n-gpu-layers")
_APART = frozenset((*_MODEL, *_REPOSITORY, *_CONTEXT, *_LAYERS, "-hff", "--hf-file", "-mu", "--model-url", "-ot",
                    "--override-tensor", "-dev", "--device", "-nkvu", "--no-kv-unified", "-no-fa", "--no-fa",
                    "--no-flash-attn", "-no-fmoe", "--no-fmoe", "--kv-offload", "-kvo", "--no-mmproj-offload",
                    "--no-mmproj", "--no-mmproj-auto", *_ADAPTERS, *_DRAFT, *_DRAFT_LAYERS,
                    *_DRAFTING, *_DRAFTED, *_DRAFT_CACHES["cache_type_k"], *_DRAFT_CACHES["cache_type_v"]))  # fmt: skip
UNCOUNTED = {
    "--control-vector": "its tensors",
    "-cram": "the prompt cache in host memory",
    "--cache-ram": "the prompt cache in host memory",
    "--rpc": "other machines' devices",
    "--moe-cache-mib": "the cache of experts",
    "--swa-compress": "caches of windowed layers are charged at their full length",
    "-mtp": "layers that predict further tokens",
    "--multi-token-prediction": "layers that predict further tokens",
    "-dsa": "the indexer's keys",
    "--dsa": "the indexer's keys",
    "-ncffn": "MLPs that it keeps on the host are charged to the GPU here",
    "--n-cpu-ffn": "MLPs that it keeps on the host are charged to the GPU here",
}
# docs/docker.md: full, light and server without a backend's name behind it are built for the CPU alone
_IK_IMAGE = "ikawrakow/ik-llama-cpp"  # its packages: cu12-server, cu13-full, cpu-swap and so on
_ON_CPU = re.compile(r"llama\.cpp:(?:full|light|server)(?:-b\d+)?(?:@sha256:[0-9a-f]+)?$|ik-llama-cpp:cpu-")
_CHAT_PROGRAMS = frozenset({"", "llama-server", "server", "llama-cli"})  # "": in a container
_MOST_LAYERS = 100_000


def read(start: Start) -> Launch:
    """The scenario of a llama.cpp command line."""
    if start.program == "llama-bench":
        served, said = as_server(start)
        launch = read(served)
        return replace(launch, notes=(said, *launch.notes))
    if start.program == MODULE:
        return read(python_server(start))
    if start.program in KOBOLDCPP or koboldcpp.IMAGE in start.image:
        return _of_koboldcpp(start)
    words = words_for("llama.cpp", start, words_of_variable)
    settings: dict[str, object] = {"engine": "llama.cpp", **settings_of(words, MEANINGS)}
    if start.version:
        settings["engine_version"] = start.version
    if _IK_IMAGE in start.image or any(flag in _IK_ALONE for flag in words.given):
        settings["variant"] = "ik_llama.cpp"
    if any(flag in words.given for flag in ("-nkvu", "--no-kv-unified")):
        settings["kv_unified"] = False
    if any(flag in words.given for flag in ("-no-fa", "--no-fa", "--no-flash-attn")):
        settings["flash_attn"] = False
    if start.version is None and "variant" not in settings and _answers_chats(start, words):
        settings["logits_all"] = False  # the newest is assumed of a program that starts now
    context = whole(_last(words, _CONTEXT) or "0")
    if context:
        settings["n_ctx"] = context
    _layers(words, settings)
    rules = [
        rule for flag in ("-ot", "--override-tensor") for text in words.given.get(flag, ()) for rule in _rules(text)
    ]
    if rules:
        settings["override_tensor"] = rules
    if "--no-mmproj-offload" in words.given:
        settings["mmproj_offload"] = False
    scenario: dict[str, object] = {"model": _model(words, settings), "task": "serve", "serve": settings}
    devices = _devices(words)
    if devices is not None:
        scenario["num_gpus"] = devices
    if "vulkan" in f"{_last(words, _DEVICE_FLAGS)} {start.image}".lower():  # -dev Vulkan0, server-vulkan
        settings["ggml_backend"] = "vulkan"
    on_cpu = _ON_CPU.search(start.image) is not None
    if on_cpu:
        scenario["num_gpus"] = 0
    _beside(words, settings)
    adapters = [name for flag in _ADAPTERS for text in words.given.get(flag, ()) for name in text.split(",") if name]
    if adapters:
        settings["max_loras"] = len(adapters)
    read_flags = frozenset(MEANINGS) | _APART
    notes = notes_of("llama.cpp", words, read_flags, UNCOUNTED, words.loose)
    mix = _mix(words) if settings.get("gguf_quant") == "custom" else None
    near = nearest_type(mix) if mix is not None else None
    if mix is not None and near is not None:
        notes = (*notes, f"{clipped(mix)} is a mix of its maker's own: --gguf-quant {near} before -- answers with the "
                         "weights of the nearest of llama.cpp's own, the file on disk with its own")  # fmt: skip
    if on_cpu:
        backends = "those for a GPU are server-cuda, -rocm, -vulkan, -musa and -intel"
        if _IK_IMAGE in start.image:
            backends = "those for a GPU are cu12-server and cu13-server"
        notes = (*notes, f"the image {clipped(start.image)} runs on the CPU: {backends}")
    if adapters:
        notes = (*notes, f"--lora: {len(adapters)} {RANK_ASSUMED}")
    return Launch("llama.cpp", scenario, notes, understood_of(words, read_flags))


def _of_koboldcpp(start: Start) -> Launch:
    """KoboldCpp's words as llama.cpp's, with notes on its own flags; it limits no logits as llama-server does."""
    served, words = koboldcpp.as_server(start)
    launch = read(served)
    settings = launch.scenario.get("serve")
    if isinstance(settings, dict):
        settings["logits_all"] = True
    said = notes_of("KoboldCpp", words, koboldcpp.READ, koboldcpp.uncounted(words))
    taken = f"KoboldCpp 1.117 runs llama.cpp: read as llama-server {clipped(' '.join(served.words), 200)}"
    return replace(launch, notes=(taken, *launch.notes, *said), understood=understood_of(words, koboldcpp.READ))


def _answers_chats(start: Start, words: Words) -> bool:
    """Whether the program asks for the logits of one token a slot: the server, unless it embeds or ranks."""
    embeds = any(
        flag in words.given for flag in ("--embedding", "--embeddings", "--rerank", "--reranking", "--pooling")
    )
    return start.program in _CHAT_PROGRAMS and not embeds


def _last(words: Words, flags: tuple[str, ...]) -> str | None:
    """What the flag that comes last says, by any of its names."""
    found = [values[-1] for flag, values in words.given.items() if flag in flags and values]
    return found[-1] if found else None


def _model(words: Words, settings: dict[str, object]) -> str:
    """The file where it can be read, else the model that its name or repository tells."""
    path = _last(words, _MODEL)
    if path is not None and is_there(path):
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


def _mix(words: Words) -> str | None:
    named = (_last(words, flags) for flags in (_MODEL, ("-hff", "--hf-file"), ("-mu", "--model-url"), _REPOSITORY))
    return next((mix for one in named if one is not None and (mix := mix_named(one.replace("\\", "/")))), None)


def _layers(words: Words, settings: dict[str, object]) -> None:
    layers = _number_of_layers(_last(words, _LAYERS))
    if layers is not None:
        settings["n_gpu_layers"] = layers


def _number_of_layers(text: str | None) -> int | None:
    """None for all of them and for the engine's choice."""
    if text is None or text.lower() in ("auto", "all") or text.startswith("-"):
        return None
    return min(whole(text) or 0, _MOST_LAYERS)


def _rules(text: str) -> list[str]:
    """`A=CPU,B=CUDA0` is two rules; a comma inside a pattern belongs to it."""
    rules: list[str] = []
    for piece in text.split(","):
        if rules and "=" not in rules[-1]:
            rules[-1] += f",{piece}"
        else:
            rules.append(piece)
    return [rule for rule in rules if rule]


def _beside(words: Words, settings: dict[str, object]) -> None:
    """A draft model or the model's own predicting layers, and the projector that comes with a repository."""
    if _last(words, _REPOSITORY) and not any(flag in words.given for flag in ("--no-mmproj", "--no-mmproj-auto")):
        settings.setdefault("mmproj", "auto")
    if "mmproj" in settings and not is_there(str(settings["mmproj"])):
        settings["mmproj"] = "auto"
    name = _last(words, _DRAFT)
    if name is None:
        if any(kind.startswith("draft-mtp") for kind in (_last(words, _DRAFTING) or "").split(",")):
            drafted = whole(_last(words, _DRAFTED) or "0") or _DRAFTED_UNASKED
            settings["speculative"] = {"method": "mtp", "num_tokens": drafted, **_caches_of_drafts(words)}
        return
    model, kind = (name, None) if is_there(name) else (
        model_of_file(name) if name.lower().endswith(".gguf") else model_of_repository(name)
    )  # fmt: skip
    draft: dict[str, object] = {"method": "draft_model", "model": model}
    if kind is not None:
        draft["gguf_quant"] = kind
    layers = _number_of_layers(_last(words, _DRAFT_LAYERS))
    if layers is not None:
        draft["n_gpu_layers"] = layers
    settings["speculative"] = draft | _caches_of_drafts(words)


def _caches_of_drafts(words: Words) -> dict[str, object]:
    """Types of the drafting context's cache, which that of the model says nothing of."""
    told = ((key, _last(words, flags)) for key, flags in _DRAFT_CACHES.items())
    return {key: _mode(kind) for key, kind in told if kind}


_DEVICE_FLAGS = ("-dev", "--device")


def _devices(words: Words) -> int | None:
    """GPUs that are named, one by one or by their shares; shares of 0 count."""
    named = _last(words, _DEVICE_FLAGS)
    if named is not None:
        return 0 if named.lower() == "none" else len(named.split(","))
    split = _last(words, ("-ts", "--tensor-split"))
    return None if split is None else len(_shares(split))
