"""llama.cpp's and ik_llama.cpp's start-up log.

Line formats read in llama.cpp's src/llama-model.cpp, llama-model-loader.cpp, llama-context.cpp, llama-kv-cache.cpp and
llama-memory-recurrent.cpp (as llama-cpp-python 0.3.36 ships them) and in public logs of older builds. A log may load
several models (drafts, restarts): the largest is read, and its first context.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from vramwise.interop.logs.reading import Collector, Printed, Reading
from vramwise.sources.gguf_names import file_type_named, model_of_file
from vramwise.units import GIB, MIB

# digits of what an engine can print; a longer number is no match, and no search is as long as the line
_N = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
_NAME = re.compile(r"general\.name\s*(?:str\s*)?= (.{1,200})")
_SIZE = re.compile(rf"(?:model|file) size\s*= {_N} ([MG])iB")
_TYPE = re.compile(r"(?:model ftype|file type)\s*= (.{1,80})")
_BUFFER = re.compile(
    rf"(?<!\w)([A-Za-z]\w*+(?:\[[^\]]{{1,40}}\])?)\s+(KV |RS |compute |output |model |)buffer size\s*=\s*{_N} MiB"
)
_KV_SELF = re.compile(rf"KV self size\s*=\s*{_N} MiB")
_K_TYPE, _V_TYPE = re.compile(r"(?:K|c\^KV) \((\w+)\):"), re.compile(r"V \((\w+)\):")
_SETTING = re.compile(
    r":\s*(n_ctx|n_batch|n_ubatch|n_seq_max|flash_attn|kv_unified|fused_moe|mla_attn|attn_max_b)\s*=\s*(\w+)"
)
_OFFLOADED = re.compile(r"offloaded ([0-9]{1,6})/([0-9]{1,6}) layers")
_DEVICE = re.compile(r"Device ([0-9]{1,4}): ([^,]{1,80}), compute capability")
_BUILD = re.compile(r"build(?:\s*=|:)\s*([0-9]{1,5}) \(([0-9a-f]{6,12})\)")
_HOST = re.compile(r"^(?:CPU|\w+_Host|AMX|BLAS)", re.I)
_COUNT = re.compile(r"[0-9]{1,15}")
_IK = frozenset({"fused_moe", "mla_attn", "attn_max_b"})
_SUFFIX = {"small": "_S", "medium": "_M", "large": "_L"}
_LABELS = {
    "weights": "size of the file's tensors", "weights_gpu": "model buffers on devices",
    "weights_host": "model buffers on the host", "kv_cache_bytes": "KV cache",
    "compute_buffer": "compute buffers of devices", "host_buffer": "compute buffer of the host",
    "output_buffer": "output buffer",
}  # fmt: skip


@dataclass(slots=True)
class _Load:
    """What was printed from one `loaded meta data` to the next."""

    path: str | None = None
    name: str | None = None
    file_type: str | None = None
    size: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    offloaded: int | None = None
    devices: set[str] = field(default_factory=set)
    self_size: float | None = None
    contexts: int = 0


def read(lines: Sequence[str]) -> Reading:
    """Buffers and settings of the largest model that was loaded."""
    reading = Reading("llama.cpp")
    loads = [_Load()]
    cards: dict[str, str] = {}
    for line in lines:
        if path := _loaded(line):
            loads.append(_Load(path=path))
        elif match := _DEVICE.search(line):
            cards[match.group(1)] = match.group(2).strip()
        elif (match := _BUILD.search(line)) and reading.version is None:
            reading.version = f"b{match.group(1)} ({match.group(2)})"
        else:
            _line(loads[-1], line)
    filled = [load for load in loads if load.sums or load.size]
    chosen = max(reversed(filled), key=lambda load: load.size or sum(load.sums.values()), default=loads[-1])
    if len(filled) > 1:
        reading.note(f"{len(filled)} models are loaded in the log: the largest is read")
    _finish(reading, chosen, cards)
    return reading


def _loaded(line: str) -> str | None:
    """The file of `loaded meta data with 29 key-value pairs and 292 tensors from FILE (version GGUF V3 (latest))`."""
    _, found, rest = line.partition("loaded meta data with ")
    path, version, _ = rest.partition(" tensors from ")[2].partition(" (version GGUF")
    return path if found and version else None


def _line(load: _Load, line: str) -> None:
    if match := _SETTING.search(line):
        name, value = match.groups()
        if name == "n_ctx":
            load.contexts += 1
        if load.contexts <= 1:
            load.settings.setdefault(name, value)
        return
    if match := _NAME.search(line):
        load.name = load.name or match.group(1).strip()
    if match := _TYPE.search(line):
        load.file_type = load.file_type or match.group(1).strip()
    if (match := _SIZE.search(line)) and not load.size:
        load.size = round(float(match.group(1)) * (GIB if match.group(2) == "G" else MIB))
        load.texts["weights"] = match.group(1)
    if match := _OFFLOADED.search(line):
        load.offloaded = int(match.group(1))
    if "auto, set to enabled" in line:
        load.settings["flash_attn"] = "enabled"
    if match := _BUFFER.search(line):
        _buffer(load, *match.groups())
    elif (match := _KV_SELF.search(line)) and load.self_size is None:
        load.self_size = float(match.group(1)) * MIB
    if "K (" in line or "c^KV (" in line:
        for key, pattern in (("type_k", _K_TYPE), ("type_v", _V_TYPE)):
            if found := pattern.search(line):
                load.settings.setdefault(key, found.group(1).lower())


def _buffer(load: _Load, device: str, kind: str, size: str) -> None:
    host = _HOST.match(device) is not None
    if load.contexts > 1:
        return
    word = kind.strip()
    quantity = {
        "KV": "kv_cache_bytes", "RS": "recurrent_state_bytes", "output": "output_buffer",
        "compute": "host_buffer" if host else "compute_buffer",
    }.get(word, "weights_host" if host else "weights_gpu")  # fmt: skip
    if not host:
        load.devices.add(device)
    load.sums[quantity] = load.sums.get(quantity, 0.0) + float(size) * MIB


def _finish(reading: Reading, load: _Load, cards: dict[str, str]) -> None:
    found = Collector()
    if load.size:
        digits = len(load.texts["weights"].partition(".")[2])
        unit = GIB if load.size >= GIB else MIB
        found.values["weights"] = [Printed("weights", load.size, unit * 0.5 * 10.0**-digits, "model size")]
    if load.self_size is not None and "kv_cache_bytes" not in load.sums:
        load.sums["kv_cache_bytes"] = load.self_size
    for quantity, size in load.sums.items():
        found.values[quantity] = [Printed(quantity, size, 0.005 * MIB, f"sum of {quantity} lines")]
    reading.printed = {name: values[0] for name, values in found.values.items()}
    _model(reading, load)
    _settings(reading, load)
    if load.devices:
        reading.scenario["num_gpus"] = len(load.devices)
    elif "weights_host" in load.sums:
        reading.scenario["num_gpus"] = 0
    if cards:
        reading.scenario["gpu"] = cards[min(cards)]
    wanted = dict(_LABELS)
    if not load.devices:
        wanted.pop("weights_gpu")
        wanted.pop("compute_buffer")
    reading.missing = [label for quantity, label in wanted.items() if quantity not in reading.printed]


def _model(reading: Reading, load: _Load) -> None:
    kind = _file_type(load.file_type) if load.file_type else None
    if load.path:
        model, named = model_of_file(load.path)
        reading.model = model
        kind = "custom" if named == "custom" else kind or named
    reading.model = reading.model or load.name
    if load.name and reading.model != load.name:
        reading.note(f"the file calls its model {load.name}")
    if kind is not None:
        reading.settings["gguf_quant"] = kind


def _file_type(text: str) -> str | None:
    """`Q4_K - Medium` is Q4_K_M, `IQ3_S mix - 3.66 bpw` IQ3_M, `all F32` F32."""
    words = text.replace("(guessed)", "").strip().removeprefix("all ").split()
    if not words:
        return None
    name = words[0].upper()
    if words[1:2] == ["mix"]:
        return {"IQ3_S": "IQ3_M"}.get(name)
    if name in ("Q3_K", "Q4_K", "Q5_K", "Q2_K") and len(words) > 2:
        suffix = _SUFFIX.get(words[2].lower(), "")
        return file_type_named(name if (name, suffix) == ("Q2_K", "_M") else f"{name}{suffix}")
    return file_type_named(name)


def _settings(reading: Reading, load: _Load) -> None:
    settings, printed = reading.settings, load.settings
    if reading.version:
        settings["engine_version"] = reading.version
    if _IK & printed.keys():
        settings["variant"] = "ik_llama.cpp"
    names = {
        "n_ctx": "n_ctx",
        "n_batch": "n_batch",
        "n_ubatch": "n_ubatch",
        "n_seq_max": "n_parallel",
        "attn_max_b": "attn_max_b",
    }
    for name, key in names.items():
        if _COUNT.fullmatch(str(printed.get(name, ""))) and (int(str(printed[name])) or key == "attn_max_b"):
            settings[key] = int(str(printed[name]))
    for name, key in (("fused_moe", "fused_moe"), ("mla_attn", "mla_attn")):
        if str(printed.get(name, "")) in ("0", "1", "2", "3"):
            settings[key] = int(str(printed[name]))
    on, off = ("1", "enabled", "true"), ("0", "disabled", "false")
    for name in ("flash_attn", "kv_unified"):
        if printed.get(name) in (*on, *off):
            settings[name] = printed[name] in on
    settings["cache_type_k"] = printed.get("type_k", "f16")
    settings["cache_type_v"] = printed.get("type_v", "f16")
    if load.offloaded is not None:
        settings["n_gpu_layers"] = load.offloaded
