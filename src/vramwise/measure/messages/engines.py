"""What engines that serve models print; why and what to change stands in their records (`vramwise.engines`).

| engine | wording |
|---|---|
| llama.cpp | allocating A MiB on device N: cudaMalloc failed; failed to allocate CUDA0 buffer of size B |
| | ggml_vulkan: Device memory allocation of size B failed. |
| vLLM | S GiB KV cache is needed; Free memory on device (F/T GiB); No available memory for the cache blocks |
| SGLang | Not enough memory. Please try to increase --mem-fraction-static |
| | Prefill out of memory. Try to lower your batch size. Try to allocate N tokens. Available tokens: M |
| TensorRT-LLM | CUDA runtime error in ::cudaMallocAsync(…): out of memory |
| | Executor creation failed due to insufficient GPU memory. The following component could not be created: KV cache |
| ollama | model requires more system memory (A GiB) than is available (F GiB) |
| MLX | [metal::malloc] Attempting to allocate N bytes … maximum allowed buffer size of M bytes |
"""

from __future__ import annotations

import re
from typing import Final

from vramwise.measure.messages.message import (
    SIZE,
    OomMessage,
    Reading,
    Wording,
    bytes_of,
    last_size_found,
    size_found,
)

_CARD_OF_BUFFER: Final = re.compile(r"\b(?:CUDA|ROCm|Vulkan|SYCL|MUSA|CANN|HIP)([0-9]{1,3})\b|on device ([0-9]{1,3}):")
_OF_GGML: Final = "llama.cpp"  # title of its record; ollama and others print through the same back ends
_NUMBER: Final = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"


def _llama_cpp(reading: Reading) -> OomMessage:
    """Which buffer it was say the lines that follow; the memory stands first, where the record's signs look for it."""
    line = reading.line
    sized = re.search(r"of size ([0-9]{1,18})", line)
    tried = int(sized.group(1)) if sized else size_found(r"allocating " + SIZE, line)
    card = _CARD_OF_BUFFER.search(line)
    number = (card.group(1) or card.group(2)) if card else None
    memory, device = "device", f"GPU {number}" if number else ""
    if re.search(r"\bCPU\S{0,20} buffer|_cpu_buffer_type", line):
        memory, device = "host", ""
    elif re.search(r"\w_Host buffer", line):
        memory, device = "pinned host", ""
    return OomMessage(
        _OF_GGML, device, reading.position, tried, text=f"[{memory}] {line} {reading.around(0, 600)}", memory=memory
    )


def _vllm(reading: Reading) -> OomMessage:
    text = reading.around(400, 600)
    device = re.search(
        rf"Free memory on device (?:cuda:([0-9]{{1,3}}) )?\({_NUMBER}/{_NUMBER} GiB\)",
        text,
    )
    wanted = size_found(r"desired GPU memory utilization \([0-9.]{1,9}, " + SIZE, text)
    free = size_found(r"available KV cache memory \(" + SIZE, text)
    return OomMessage(
        "vLLM",
        f"GPU {device.group(1) or 0}" if device else "",
        reading.position,
        tried=wanted or size_found(SIZE + r" KV cache is needed", text),
        total=bytes_of(device.group(3), "GiB") if device else None,
        free=bytes_of(device.group(2), "GiB") if device else free,
        text=text,
    )


def _sglang(reading: Reading) -> OomMessage:
    """Its `GB` are GiB (utils/common.py get_available_gpu_memory)."""
    weights = last_size_found(r"Load weight end\.[^\n]{0,300}mem usage=" + SIZE, reading.before)
    return OomMessage(
        "SGLang",
        "",
        reading.position,
        free=last_size_found(r"Load weight end\.[^\n]{0,300}avail mem=" + SIZE, reading.before),
        held=(("weights", weights),) if weights is not None else (),
        text=reading.around(0, 300),
    )


def _tensorrt_llm(reading: Reading) -> OomMessage:
    """Its list of components has the free memory before and after each (_torch/pyexecutor/py_executor_creator.py)."""
    text = reading.after(900)
    made = re.findall(rf"(\w[\w ]{{1,40}}?)(?: \([^)]{{1,80}}\))?: {_NUMBER} / {_NUMBER}", text)
    held = tuple(
        (name.lower(), bytes_of(before, "GiB") - bytes_of(after, "GiB"))
        for name, before, after in made
        if float(before) > float(after)
    )
    return OomMessage(
        "TensorRT-LLM",
        "",
        reading.position,
        total=_gib(r"Total GPU memory \(GiB\): ", text),
        free=_gib(r"creation attempt \(GiB\): ", text),
        held=held,
        text=text,
    )


def _gib(before: str, text: str) -> int | None:
    found = re.search(before + _NUMBER, text)
    return bytes_of(found[1], "GiB") if found else None


def _ollama(reading: Reading) -> OomMessage:
    text = reading.after(200)
    return OomMessage(
        "ollama",
        "",
        reading.position,
        tried=size_found(r"system memory \(" + SIZE, text),
        free=size_found(r"than is available \(" + SIZE, text),
        text=text,
        memory="host",
    )


def _mlx(reading: Reading) -> OomMessage:
    text = reading.after(300)
    return OomMessage(
        "MLX",
        "",
        reading.position,
        tried=size_found(r"allocate " + SIZE, text),
        allowed=size_found(r"maximum allowed buffer size of " + SIZE, text),
        text=text,
        memory="unified",
    )


def one_of(first: OomMessage, second: OomMessage) -> OomMessage | None:
    """Two lines of llama.cpp as the one failure that they tell of, None where these are two.

    The back end prints its size in MiB with two decimals, what asked for it the same in bytes.
    """
    is_near = first.program == second.program == _OF_GGML and second.position - first.position < _NEAR
    if is_near and second.is_vague and not first.is_vague:
        return first
    same = first.tried is not None and second.tried is not None and abs(first.tried - second.tried) < _ROUNDED
    is_one_card = first.device == second.device or not (first.device and second.device)
    if not (is_near and same and is_one_card):
        return None
    whole = first if second.device == "" else second
    memory = first.memory if first.memory != "device" else second.memory
    return OomMessage(
        _OF_GGML,
        whole.device,
        first.position,
        second.tried,
        text=f"[{memory}] {first.text} {second.text}"[:_LONGEST_KEPT],
        memory=memory,
    )


_ROUNDED: Final = bytes_of("0.01", "MiB")
_NEAR: Final = 2000
_LONGEST_KEPT: Final = 4000

WORDINGS: Final = (
    Wording(
        "llama_cpp",
        ("alloc failed: out of memory", "buffer of size ", "ggml_vulkan: Device memory allocation"),
        r"(?:cudaMalloc|hipMalloc|musaMalloc) failed: out of memory"
        r"|failed to allocate (?:\S{1,60} )?buffer of size [0-9]"
        r"|ggml_vulkan: Device memory allocation of size [0-9]",
        _llama_cpp,
    ),
    Wording(
        "vllm",
        (
            "occurred when warming up",
            "KV cache is needed",
            "No available memory for the cache blocks",
            "that can be stored in KV cache",
            "on startup is less than desired",
        ),
        r"CUDA out of memory occurred when warming up|KV cache is needed, which is larger than"
        r"|No available memory for the cache blocks|maximum number of tokens that can be stored in KV cache"
        r"|on startup is less than desired",
        _vllm,
    ),
    Wording(
        "sglang",
        ("Not enough memory. Please try to increase", " out of memory. Try to lower your batch size"),
        r"Not enough memory\. Please try to increase --mem-fraction-static"
        r"|(?:Prefill|Decode) out of memory\. Try to lower your batch size",
        _sglang,
    ),
    Wording(
        "tensorrt_llm",
        ("CUDA runtime error in ", "Executor creation failed due to insufficient GPU memory"),
        r"CUDA runtime error in (?:::)?cuda\w{1,40}\([^\n]{0,200}?\): out of memory"
        r"|Executor creation failed due to insufficient GPU memory",
        _tensorrt_llm,
    ),
    Wording("ollama", ("model requires more system memory",), r"model requires more system memory \(", _ollama),
    Wording(
        "mlx",
        ("[metal::malloc] ", "[malloc] Unable to allocate "),
        r"\[metal::malloc\] (?:Attempting to allocate [0-9]|Resource limit)|\[malloc\] Unable to allocate [0-9]",
        _mlx,
    ),
)
