"""llama.cpp and its fork ik_llama.cpp: a GGUF file, by layers on GPUs and host; buffers of known sizes beside it."""

from __future__ import annotations

import re

from vramwise.engines.engine import CommandLine, Container, Engine, Log, Script, Shortage

WORDS = {
    "dtype": "gguf_quant",
    "quantization": "gguf_quant",
    "kv_cache_dtype": "cache_type_k and cache_type_v",
    "max_num_seqs": "n_parallel",
    "max_num_batched_tokens": "n_batch",
    "pipeline_parallel_size": "num_gpus",
    "expert_parallel": "cpu_moe or override_tensor",
}

PHASES = ("load", "context", "prompt")

_FEWER_LAYERS = ("fewer layers on the card (-ngl)", "slower")
_SHORTER = ("a shorter context (-c) or an 8-bit cache (-ctk q8_0 -ctv q8_0)", "shorter texts")

# its script, and what the files of its releases are called
KOBOLDCPP = (
    "koboldcpp", "koboldcpp.py", "koboldcpp-launcher", "koboldcpp_cu12", "koboldcpp_cu11", "koboldcpp_nocuda",
    "koboldcpp-nocuda", "koboldcpp-oldpc", "koboldcpp_oldcpu", "koboldcpp_rocm", "koboldcpp-linux-x64",
    "koboldcpp-linux-x64-nocuda", "koboldcpp-linux-x64-oldpc", "koboldcpp-linux-x64-cuda1150",
    "koboldcpp-linux-x64-cuda1210", "koboldcpp-linux-x64-rocm", "koboldcpp-mac-arm64",
)  # fmt: skip

RECORD = Engine(
    name="llama.cpp",
    title="llama.cpp",
    serving="llama_cpp",
    dated=(
        ("b2459", "2024-03-18"),
        ("b4273", "2024-12-05"),
        ("b5130", "2025-04-15"),
        ("b5427", "2025-05-20"),
        ("b6209", "2025-08-20"),
        ("b6895", "2025-10-31"),
        ("b7342", "2025-12-10"),
        ("b9293", "2026-05-22"),
        ("b10615", "2026-08-25"),
        ("b10760", "2026-09-02"),
        ("b10864", "2026-09-08"),
    ),
    phases=PHASES,
    # repositories and files; qwen3 8b q4_k_m, qwen3-8b-gguf
    model_names=re.compile(
        r"(?:.*/)?[^/]*(?:[-_.]gguf(?::[\w.-]+)?|:[^/:]+\.gguf)|[^/:]+[\s-](?:gguf|i?q\d(?:_\w+)?)", re.I
    ),
    reads_gguf=True,
    takes_any_adapter_rank=True,  # src/llama-adapter.cpp: an adapter's own tensors
    divides_by_room=True,
    runs_on_cpu=True,
    words=WORDS,
    variants=("ik_llama.cpp",),
    command_line=CommandLine(
        programs=(
            "llama-server",
            "llama-cli",
            "llama-bench",
            "llama-fit-params",
            "llama-perplexity",
            "server",
            "main",
            *KOBOLDCPP,
        ),
        example="llama-server",
        modules=("llama_cpp.server",),  # llama-cpp-python
        image=r"(?:ggml-org|ggerganov)/llama\.cpp(?::(?:[a-z0-9.]+-)*(b[0-9]+)\b)?|koboldai/koboldcpp"
        r"|ikawrakow/ik-llama-cpp",
        server=("llama-server",),
    ),
    # llama-cpp-python 0.3.36 llama.py, server/settings.py
    script=Script(
        package="llama_cpp",
        classes={"Llama": ("model_path",), "Llama.from_pretrained": ("repo_id", "filename")},
        command=("python3", "-m", "llama_cpp.server"),
        renamed={"model_path": "model", "repo_id": "hf_model_repo_id", "filename": "model"},
        defaults={"n_ctx": "512"},
    ),
    # docs/docker.md
    container=Container(
        image="ghcr.io/ggml-org/llama.cpp",
        tag="server-cuda",
        version_tag="server-cuda-{}",
        versions=r"b\d+",
        port=8080,
        cache="/root/.cache",
        starts_server=True,
        ranks=False,
    ),
    log=Log(
        signs=re.compile(
            r"llm_load_|llama_model_load|load_tensors|llama_context|llama_kv_cache|llama_new_context|print_info:"
            r"|(?:KV|RS|compute|output|model) buffer size ="
        )
    ),
    shortages=(
        Shortage(
            sign="retrying without pipeline parallelism",
            cause="the compute buffers of pipeline parallelism do not fit on the card; llama.cpp went on without it",
            changes=(("a smaller --ubatch-size (-ub)", "slower prompts"), _FEWER_LAYERS),
        ),
        Shortage(
            sign="exceeds device (?:memory allocation|buffer size) limit",
            cause="one buffer is larger than the Vulkan device lets any be, however much memory is free",
            changes=(
                ("a smaller --ubatch-size (-ub), and flash attention (-fa on)", "slower prompts"),
                ("a shorter context (-c)", "shorter texts"),
            ),
        ),
        Shortage(
            sign=r"^\[unified\]",
            cause="the GPU's work needs more than macOS lets it keep wired (iogpu.wired_limit_mb)",
            changes=(
                _SHORTER,
                ("sudo sysctl iogpu.wired_limit_mb=N: a larger share", "less for macOS and other programs"),
            ),
        ),
        Shortage(
            sign=r"^\[host\]",
            cause="a buffer (weights, KV cache or compute) does not fit into the host's memory",
            changes=(
                ("a smaller quantization of the file, or more layers on a card (-ngl)", "some quality"),
                _SHORTER,
            ),
        ),
        Shortage(
            sign=r"^\[pinned host\]",
            cause="the driver could not pin that much of the host's memory",
            changes=(("GGML_CUDA_NO_PINNED=1: pageable memory", "slower copies"), _SHORTER),
        ),
        Shortage(
            sign=r"^\[pool\]",
            cause="the card was full when a batch asked for a temporary (the pool of ggml), after all buffers had room",
            changes=(("a smaller --ubatch-size (-ub)", "slower prompts"), _FEWER_LAYERS),
        ),
        Shortage(
            sign="gallocr|graph_reserve|compute (?:pp )?buffers",
            cause="the compute buffer of a batch does not fit on the card beside weights and KV cache",
            changes=(
                ("a smaller --ubatch-size (-ub), and flash attention (-fa on)", "slower prompts"),
                _FEWER_LAYERS,
            ),
        ),
        Shortage(
            sign="for kv cache|kv_cache|KV cache",
            cause="the KV cache does not fit on the card beside the weights",
            changes=(_SHORTER, _FEWER_LAYERS),
        ),
        Shortage(
            sign="alloc_tensor_range|error loading model|load_tensors",
            cause="the weights do not fit on the card",
            changes=(_FEWER_LAYERS, ("a smaller quantization of the file", "some quality")),
        ),
        Shortage(
            cause="a buffer (weights, KV cache or compute) does not fit on the card", changes=(_FEWER_LAYERS, _SHORTER)
        ),
    ),
)
