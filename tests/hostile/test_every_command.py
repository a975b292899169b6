"""Every command with hostile files and words: an exit code of the contract and at most one line of complaint.

Each command's inputs run in one process that measures the CPU time and the memory of each (many_inputs.py). A normal run
gives each command a fifth of what it has, the next command another fifth, so that every input and every word that a reader
looks for are met somewhere; hypothesis' profile `thorough` all of it, VRAMWISE_THOROUGH=1 more of it besides.
"""
# ruff: noqa: E501 - a table of samples

from __future__ import annotations

import base64
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

from vramwise.cli import flag
from vramwise.scenario.definition import KINDS, TABLES

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))
from hostile_content import ESCAPE, WORDS, WORDS_OF_SETTINGS, contents, gguf_sample, safetensors_sample  # noqa: E402

THOROUGH = os.environ.get("VRAMWISE_THOROUGH") == "1" or settings.default.max_examples >= 200
MANY = 40 if THOROUGH else 2
EVERY = 1 if THOROUGH or settings.get_current_profile_name() == "thorough" else 5
SEED = int.from_bytes(os.urandom(4)) if THOROUGH else 0
MOST_GROWN_BYTES = 400 * 2**20
MOST_PRINTED = 2_000_000
LONGEST_COMPLAINT = 1000
SECRET = "secret"


def _texts(path: str) -> dict[str, str]:
    """The sample texts of another test module."""
    spec = importlib.util.spec_from_file_location(f"samples_{Path(path).stem}", TESTS / path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str((TESTS / path).parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


LOGS = _texts("interop/sample_logs.py")
PASTED = {
    name: text
    for path in ("hardware/machine/test_pasted_text.py", "hardware/machine/test_more_tools.py")
    for name, text in _texts(path).items()
    if "\n" in text
}
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 1000,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
}  # fmt: skip
SCENARIO = {"model": CONFIG, "task": "train", "gpu": "rtx-4090", "train": {"micro_batch_size": 2, "zero_stage": 1}}
TOML = 'model = "gpt2"\ntask = "serve"\ngpu = "rtx-4090"\n[serve]\nengine = "vllm"\nmax_model_len = 512\n'
YAML = "model: gpt2\ntask: train\ngpu: rtx-4090\ntrain: &a\n  micro_batch_size: 2\n  optimizer: adamw\n"
CASE = {"id": "a", "scenario": {"model": "gpt2", "task": "load"}, "measured": {"weights": 250_000_000}, "source": "a"}
OOM = (
    'Traceback (most recent call last):\n  File "/a/torch/nn/linear.py", line 125, in forward\n    return x\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 4.12 GiB is free. Process 77 has 1.00 GiB memory in use. Including non-PyTorch memory, this process has "
    "74.98 GiB memory in use. Of the allocated memory 72.01 GiB is allocated by PyTorch, and 2.18 GiB is reserved by "
    "PyTorch but unallocated.\nfailed to allocate CUDA0 buffer of size 7\nestimated maximum model length is 42640\n"
)
KILLED = (
    "CPU Virtual Memory:  used = 28.43 GB, percent = 22.6%\nexitcode  : -9 (pid: 8)\nExit Code:    137\n"
    "Memory cgroup out of memory: Killed process 4182 (python3) total-vm:812044kB, anon-rss:518420kB, shmem-rss:4kB\n"
    "ggml_cuda_host_malloc: failed to allocate 1900,00 MiB of pinned memory: invalid argument\n"
    "insufficient shared memory (shm)\nSome modules are dispatched on the CPU or the disk.\n"
)
MORE_OOM = (
    "Load weight end. avail mem=21.73 GB, mem usage=166.59 GB.\nNot enough memory. Please try to increase "
    "--mem-fraction-static.\nFailed to allocate request for 2.99GiB (3206250496B) on device ordinal 0\n total allocation: "
    "14.44GiB\nMPS backend out of memory (MPS allocated: 8.94 GB, other allocations: 384.00 KB, max allowed: 9.07 GB). Tried "
    "to allocate 250.00 MB\nOOM when allocating tensor with shape[32,12] and type float on device:GPU:0\nCUDA runtime error "
    "in ::cudaMallocAsync(a): out of memory\nggml_vulkan: Device memory allocation of size 2147483648 failed.\nRan out of "
    "memory in memory space hbm. Used 54.36G of 31.25G hbm.\n"
)
FRAME = {"filename": "/a/model.py", "line": 7, "name": "forward"}
EVENT = {"action": "alloc", "addr": 512, "size": 512, "stream": 0, "time_us": 1, "frames": [FRAME]}
BLOCK = {"address": 512, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": [FRAME]}
SEGMENT = {"device": 0, "address": 512, "total_size": 2**21, "stream": 0, "blocks": [BLOCK]}
SNAPSHOT = pickle.dumps({"segments": [SEGMENT], "device_traces": [[EVENT, {**EVENT, "action": "oom"}]]}, protocol=4)
KERNEL = {"ph": "X", "cat": "kernel", "name": "ampere_sgemm", "ts": 1, "dur": 5, "args": {"stream": 7, "device": 0}}
TRACE = json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [KERNEL] * 4}).encode()
FLOPS = (
    "world size:                  1\nparams per gpu:              1.1 B\nfwd MACs per GPU:            2.2 TMACs\n"
    "[2024-01-01] [INFO] fwd flops per GPU: 4.4 T\nfwd latency:                 99.7 ms\n"
)
DEEPSPEED = {"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}, "bf16": {"enabled": True},
             "optimizer": {"type": "AdamW"}, "train_micro_batch_size_per_gpu": 2}  # fmt: skip
AXOLOTL = "base_model: NousResearch/Llama-3.2-1B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 2\nsequence_len: 512\n"
FACTORY = (
    "model_name_or_path: gpt2\nfinetuning_type: lora\nlora_rank: 8\nper_device_train_batch_size: 1\ncutoff_len: 512\n"
)
ACCELERATE = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
TRAINER = ["--", "accelerate", "launch", "--config_file", "{}", "train.py", "--model_name_or_path", "gpt2"]
DEEPSPEED_RUN = ["--", "deepspeed", "train.py", "--model_name_or_path", "gpt2", "--deepspeed", "{}"]

# what takes a file: words ({} is the file), its ending, a good sample, and the words that its readers look for
Place = tuple[list[str], str, bytes, list[str]]
PLACES: dict[str, list[Place]] = {
    "estimate": [
        (["estimate", "--scenario", "{}"], ".json", json.dumps(SCENARIO).encode(), []),
        (["estimate", "--scenario", "{}", "--json"], ".toml", TOML.encode(), ["a.", "[a.", '"a".', "a={"]),
        (["estimate", "--scenario", "{}"], ".yaml", YAML.encode(), ["&a [*a]", "<<: ", "? ", "!!a "]),
        (["estimate", "{}", "--task", "serve"], ".json", json.dumps(CONFIG).encode(), ['"a":', "0,"]),
        (["estimate", "{}"], ".json", json.dumps(CONFIG).encode(), []),
        (["estimate", "{}", "--task", "load"], ".gguf", gguf_sample(), []),
        (["estimate", "{}", "--task", "load"], ".safetensors", safetensors_sample(), []),
        (["estimate", "{}", "--task", "load"], ".safetensors.index.json", b'{"weight_map": {"a": "b.safetensors"}}', []),
        (["estimate", "gpt2", "--task", "train", "--deepspeed", "{}"], ".json", json.dumps(DEEPSPEED).encode(), []),
    ],
    "estimate of a command line": [
        (["estimate", "--", "axolotl", "train", "{}"], ".yml", AXOLOTL.encode(), []),
        (["estimate", "--", "llamafactory-cli", "train", "{}"], ".yaml", FACTORY.encode(), []),
        (["estimate", *TRAINER], ".yaml", ACCELERATE.encode(), []),
        (["estimate", *DEEPSPEED_RUN], ".json", json.dumps(DEEPSPEED).encode(), []),
        (["estimate", "--", "llama-server", "-m", "{}"], ".gguf", gguf_sample(), []),
    ],
    "sweep": [
        (["estimate", "--scenario", "{}", "--sweep", "micro_batch_size=1,2"], ".json", json.dumps(SCENARIO).encode(), [])
    ],
    "check": [
        (["check", "{}", "--gpu", "h100"], ".json", json.dumps(SCENARIO).encode(), []),
        (["check", "{}", "--gpu", "h100", "--json"], ".sbatch", b"#!/bin/sh\nvllm serve gpt2 --max-model-len 512\n", []),
        (["estimate", "{}", "{}", "--together", "--gpu", "h100"], ".toml", TOML.encode(), ["a.", "[a."]),
    ],
    "batch": [
        (["batch", "{}"], ".jsonl", json.dumps({"model": "gpt2", "task": "load"}).encode() + b"\n", ['{"id":']),
        (["batch", "-"], "-", json.dumps(CASE).encode() + b"\n", []),
        (["batch", "{}", "-o", "out.jsonl"], ".jsonl", json.dumps(SCENARIO).encode() + b"\n", []),
    ],
    "accuracy": [(["accuracy", "{}"], ".jsonl", json.dumps(CASE).encode() + b"\n", ['{"id":'])],
    "compare": [
        (["compare", "{}"], ".log", text.encode(), words)
        for text, words in (
            (LOGS["VLLM"], ["LLM engine (v0", "non-default args: {'a': ", "max seq len (", "Graph capturing finished in "]),
            (LOGS["VLLM_REFUSED"], ["max seq len (1), (1 GiB KV cache is needed", "with config: a="]),
            (LOGS["SGLANG"], ["server_args=a=", "Load weight end.", "Capture graph end.", "#tokens: "]),
            (LOGS["LLAMA_CPP"], ["load_tensors: ", "loaded meta data with ", " tensors from ", "a buffer size = ",
                                 "general.name = ", ": n_ctx = ", "K ("]),
        )
    ] + [(["compare", "{}", "--json"], ".log", b"Model loading took 9 GiB\n", ["Model loading took ", "9"])],
    "oom": [
        (["oom", "{}"], ".log", OOM.encode(), ["CUDA out of memory. ", "Tried to allocate 1 ", "Process 1 has 1 GiB ",
                                               "failed to allocate a buffer of size 1 ", 'File "a", line 1, in a']),
        (["oom", "{}"], ".log", KILLED.encode(), [
            "Failed to allocate request for 1", "(GPU_0_bfc) ran out of memory trying to allocate 1GiB (rounded to ",
            "CUDA runtime error in ::cudaMalloc(", "Out of memory: Killed process 1 (", "anon-rss:1kB ", "exit code ",
            "Attempting to reserve 1G ", "OOM when allocating tensor with shape[1,", "failed to allocate 1 MiB of pinned memory",
            "creating shared memory segment /dev/shm", "exitcode: -9 ", "max allowed: 1 GB ",
        ]),
        (["oom", "{}", "--json"], ".log", MORE_OOM.encode(), ["Load weight end. mem usage=1 GB\n", "total allocation: 1GiB "]),
        (["oom", "-", "--json"], "-", OOM.encode(), ["Traceback (most recent call last)\n"]),
        (["oom", "{}", "--plot", "out.svg"], ".pickle", SNAPSHOT, ["\x80\x04]", "\x80\x04}", "\x80\x04N\x94", "\x80\x04("]),
        (["oom", "{}", "--json"], ".pickle", SNAPSHOT, []),
        (["oom", OOM, "--scenario", "{}"], ".json", json.dumps(SCENARIO).encode(), []),
    ],
    "doctor": [
        (["doctor", "{}"], ".txt", text.encode(), words)
        for text, words in (
            (PASTED["SMI"], ["Driver Version: 1 ", "CUDA Version: ", "|   0  N", "| 0 N Off | "]),
            (PASTED["QUERY"], ["x : ", "GPU 0", "x"]),
            (PASTED["CSV"], ["name, memory.total [", "["]),
            (PASTED["AMD_SMI"], ["| 0000:00:00.0 a", "|"]),
            (PASTED["AMD_SECTIONS"], ["A: x", "GPU: 0\n"]),
            (PASTED["ROCM_FACTS"], ["GPU[0] : ", "GPU[0] : a : ", "1.W"]),
            (PASTED["TOPOLOGY"], ["GPU0 ", "GPU0\tX\t"]),
            (PASTED["PEERS"], ["GPU0 ", " OK"]),
            (PASTED["NVLINKS"], ["GPU 0: a (UUID:", "\t Link 0: "]),
            (PASTED["ROCM_TOPOLOGY"], ["Link Type between two GPUs\n", "GPU0 "]),
            (PASTED["AMD_TOPOLOGY"], ["LINK TYPE TABLE\n"]),
            (PASTED["DS_REPORT"], ["a(", "a .... ", "w. ..."]),
            (PASTED["COLLECT_ENV"], ["PyTorch version:", "[pip3] a", "GPU 0: a\n"]),
            (PASTED["NCCL"], ["# Rank ", "Avg bus bandwidth : ", "1 1 float sum -1 0 0 0 0 "]),
            (PASTED["EXPORTER"], ["DCGM_FI_DEV_GPU_UTIL{", 'DCGM_FI_DEV_GPU_UTIL{a="', "DCGM_FI_DEV_GPU_UTIL{} "]),
        )
    ] + [(["doctor", "-", "--json"], "-", PASTED["QUERY"].encode(), [])],
    "watch": [
        (["watch", "--count", "1", "--interval", "0.01", "--exporter", "{}"], ".txt", PASTED["EXPORTER"].encode(),
         ["DCGM_FI_DEV_GPU_UTIL{a", 'DCGM_FI_DEV_GPU_UTIL{gpu="'])
    ],
    "mfu": [
        (["mfu", "--gpu", "a100-80gb", "--deepspeed-output", "{}"], ".log", FLOPS.encode(),
         ["[a]", "[", "fwd flops per GPU:", "> "]),
        (["mfu", "{}", "--gpu", "a100-80gb", "--tokens-per-second", "1000"], ".json", json.dumps(CONFIG).encode(), []),
    ],
    "profile": [
        (["profile", "{}"], ".json", TRACE, ['"traceEvents":[', '{"traceEvents": [', '{"a": "', '{"traceEvents": [{"ph":']),
        (["profile", "{}", "--json"], ".json", TRACE, []),
        (["profile", "{}", "--partial"], ".json", TRACE, []),
    ],
    "measure": [(["measure", "--scenario", "{}"], ".json", json.dumps(SCENARIO).encode(), [])],
}  # fmt: skip
WORDED = [
    ["estimate", "{}"], ["estimate", "gpt2", "--task", "{}"], ["estimate", "gpt2", "--gpu", "{}"],
    ["estimate", "gpt2", "--task", "train", "--sweep", "{}"], ["estimate", "gpt2", "--task", "train", "--lora-targets", "{}"],
    ["estimate", "gpt2", "--task", "serve", "--gpu", "4090", "--explain", "{}"], ["estimate", "--", "vllm", "serve", "{}"],
    ["estimate", "--", "{}"], ["estimate", "--scenario", "{}"], ["batch", "{}"], ["batch", "-", "-o", "{}"], ["accuracy", "{}"],
    ["check", "{}"], ["check", "--gpu", "{}", "--", "vllm", "serve", "gpt2"], ["estimate", "--together", "{}", "{}"],
    ["estimate", "gpt2", "--task", "load", "--gpu", "h100", "--reserve-bytes", "{}"],
    ["estimate", "gpt2", "--task", "load", "--gpus", "{}"], ["estimate", "gpt2", "--task", "load", "--gpu", "here:{}"],
    ["compare", "{}"], ["compare", "log", "--set", "{}"], ["measure", "{}", "--task", "load"], ["oom", "{}"],
    ["oom", "-", "--top", "{}"], ["doctor", "{}"], ["gpus", "{}"], ["models", "{}"], ["dtypes", "{}"], ["schema", "{}"],
    ["mfu", "{}", "--gpu", "{}"], ["profile", "{}"], ["watch", "--count", "1", "--exporter", "{}"],
    ["watch", "--count", "1", "-o", "{}"], ["{}"],
    ["calibrate", "--site", "{}"], ["calibrate", "{}"], ["calibrate", "prune", "--run", "{}", "--site", "log"],
    ["estimate", "gpt2", "--task", "load", "--site", "{}"],
]  # fmt: skip
SPECIAL = ("pipe", "folder", "loop", "dangling", "gone", "/dev/zero", "", *(["closed"] if os.geteuid() else []))


def _cases(places: list[Place], folder: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for at, (words, ending, sample, keywords) in enumerate(places):
        turn = at + crc32(" ".join(words).encode())
        for number, (name, content) in enumerate(contents(sample, keywords, MANY, SEED + at)):
            if number and (number + turn) % EVERY:  # the first is the sample itself
                continue
            label = f"{' '.join(words)[:80]} {ending}: {name[:80]}"
            if ending == "-":
                yield label, {"argv": words, "stdin": base64.b64encode(content).decode()}
                continue
            path = folder / f"{at}-{number}{ending}"
            path.write_bytes(content)
            yield label, {"argv": [word.replace("{}", path.name) for word in words]}
        for name in SPECIAL if ending != "-" else ():
            yield f"{' '.join(words)[:80]} of {name}", {"argv": [word.replace("{}", name) for word in words]}


def _specials(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "closed").write_text("{}")
    (folder / "closed").chmod(0)


def _run(cases: list[dict[str, object]], folder: Path) -> list[dict[str, object]]:
    """What each case did; one that ended the whole process has `died`, and the rest is run in another."""
    results: list[dict[str, object]] = []
    environment = {**os.environ, "HF_HUB_CACHE": str(folder / "no cache"), "PATH": "/usr/bin:/bin", "COLUMNS": "100"}
    while len(results) < len(cases):
        (folder / "cases").write_text(json.dumps(cases[len(results) :]), "utf-8")
        command = [sys.executable, str(Path(__file__).parent / "many_inputs.py"), "cases", "results"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in (folder / "results").read_text("utf-8").splitlines()]
        results += [line for line in lines if "number" in line]
        if len(results) < len(cases):
            assert len(lines) % 2, done.stderr[-2000:]  # it died inside a case, not between two
            results.append({"died": done.returncode, "err": done.stderr[-500:]})
    return results


def _complaints(result: dict[str, object], case: dict[str, object]) -> Iterator[str]:
    """What is wrong with how a case ended."""
    if "died" in result:
        yield f"the process died: {result['died']} {result['err']}"
        return
    code, said = result["code"], str(result["err"])
    if code not in (0, 1, 2, 3, 4):
        yield f"ended with {code}"
    if "internal error" in said or "Traceback" in said or "InternalError" in str(result["out"]):
        yield f"a bug: {said[:300]} {str(result['out'])[:300] if 'InternalError' in str(result['out']) else ''}"
    if said.count("\n") > 1 or len(said) > LONGEST_COMPLAINT:
        yield f"more than one line of complaint: {said[:300]!r}"
    if SECRET in said:
        yield "a password is printed"
    is_json = "--json" in case["argv"] or case["argv"][0] in ("batch", "schema")
    if result["steers"] and not is_json:
        yield f"characters that steer a terminal: {result['steers']}"
    if code == 0 and is_json and not result["is_json"] and result["out_length"]:
        yield f"no JSON: {str(result['out'])[:200]!r}"
    if result["out_length"] > MOST_PRINTED:
        yield f"{result['out_length']} characters printed"
    if result["grown_bytes"] > MOST_GROWN_BYTES:
        yield f"{result['grown_bytes'] / 2**20:.0f} MiB more memory"


def _judge(named: list[tuple[str, dict[str, object]]], folder: Path) -> None:
    results = _run([case for _, case in named], folder)
    slowest = sorted(zip(results, named, strict=True), key=lambda pair: -pair[0].get("cpu_s", 0.0))[:5]
    total = sum(result.get("cpu_s", 0.0) for result in results)
    print(f"{len(results)} inputs, {total:.1f} s of CPU; slowest:")
    for result, (label, _) in slowest:
        print(f"  {result.get('cpu_s', 0.0):.2f} s {label}")
    wrong = [
        f"{label}: {complaint}"
        for result, (label, case) in zip(results, named, strict=True)
        for complaint in _complaints(result, case)
    ]
    assert not wrong, f"seed {SEED}, {len(wrong)} of {len(named)}:\n" + "\n".join(wrong[:40])
    assert not [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]
    if (folder / "out.svg").exists():
        assert (folder / "out.svg").read_text("utf-8").rstrip().endswith("</svg>")
    if (folder / "out.jsonl").exists():
        assert all(json.loads(line) for line in (folder / "out.jsonl").read_text("utf-8").splitlines())


@pytest.mark.parametrize("command", PLACES)
def test_hostile_files(command, tmp_path):
    _specials(tmp_path)
    _judge(list(_cases(PLACES[command], tmp_path)), tmp_path)


def _settings() -> Iterator[tuple[str, dict[str, object]]]:
    """Every flag of every task with words that are no value of it, or a strange one.

    In a normal run each flag gets a fifth of the words, the next flag another fifth.
    """
    words = WORDS if THOROUGH else (*WORDS_OF_SETTINGS, f"a{ESCAPE}b", "a" * 20_000, "9" * 5000)
    for task, table in TABLES.items():
        for at, key in enumerate(KINDS[table]):
            for word in words[at % EVERY :: EVERY]:
                argv = ["estimate", "gpt2", "--task", task, "--gpu", "4090", f"{flag(key)}={word}", "--json"]
                yield f"{task} {flag(key)} {word[:20]!r}", {"argv": argv}


def test_hostile_settings(tmp_path):
    _judge(list(_settings()), tmp_path)


def test_hostile_words(tmp_path):
    _specials(tmp_path)
    (tmp_path / "log").write_text(LOGS["VLLM"])
    named = [
        (f"{' '.join(command)[:60]} with {word[:20]!r}", {"argv": [part.replace("{}", word) for part in command]})
        for at, command in enumerate(WORDED)
        for word in WORDS[at % EVERY :: EVERY]
    ]
    _judge(named, tmp_path)
