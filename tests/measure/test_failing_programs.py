"""Texts that people paste: whose they are, which memory, the sizes in them, the cause and what to change."""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from vramwise.errors import UsageError
from vramwise.measure import diagnose_text
from vramwise.measure.messages import messages_in
from vramwise.units import parse_bytes


def the_one(text):
    (found,) = diagnose_text(text)
    return found


def said(found):
    return " | ".join([found.cause, *(change.what for change in found.changes)])


# -- torch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 44.99 GiB total capacity; 6.15 GiB already allocated; "
        "37.32 GiB free; 6.15 GiB reserved in total by PyTorch)",
        "HIP out of memory. Tried to allocate 2.00 MiB. GPU 7 has a total capacity of 287.98 GiB of which 203.49 GiB is "
        "free. Of the allocated memory 68.63 GiB is allocated by PyTorch, and 14.93 GiB is reserved by PyTorch but "
        "unallocated.",
        "CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already allocated; "
        "9.28 GiB free; 4.68 MiB cached)",
    ],
)
def test_a_request_smaller_than_what_was_free_was_refused_by_the_driver(text):
    found = the_one(text)
    assert found.cause.startswith("the driver refused")
    assert "WSL" in found.cause
    assert "MIG" in found.cause
    assert all("batch" not in change.what for change in found.changes)


def test_a_limit_of_the_process_comes_before_fragmentation():
    found = the_one(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 255.98 GiB "
        "of which 244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated by PyTorch, with "
        "17.00 MiB allocated in private pools (e.g., HIP Graphs), and 54.99 MiB is reserved by PyTorch but unallocated."
    )
    assert found.cause == "the process may take only 1.05 GiB of the card"
    assert "set_per_process_memory_fraction" in found.changes[0].what
    assert found.limit == parse_bytes("1.05 GiB")


def test_old_wordings_tell_what_is_outside_this_process():
    found = the_one(
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.54 GiB already allocated; "
        "5.06 MiB free; 6.6 GiB reserved in total by PyTorch)"
    )
    assert found.elsewhere == pytest.approx(parse_bytes("1.325 GiB"), abs=parse_bytes("1 MiB"))
    assert "other processes hold" not in found.cause  # a context of its own may be that large
    found = the_one(
        "CUDA out of memory. Tried to allocate 1.69 GiB (GPU 0; 14.56 GiB total capacity; 649.97 MiB already allocated; "
        "1.31 GiB free; 1.01 GiB reserved in total by PyTorch)"
    )
    assert found.cause.startswith("other processes hold 12.24 GiB")
    assert found.changes[0].frees == found.elsewhere


def test_what_torch_1_3_calls_cached_is_beside_what_is_allocated():
    """CUDACachingAllocator.cpp of torch 1.1: amount_cached - amount_allocated."""
    found = the_one(
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.92 GiB total capacity; 3.00 GiB already allocated; "
        "0.50 GiB free; 1.00 GiB cached)"
    )
    assert found.reserved == parse_bytes("4 GiB")
    assert found.elsewhere == parse_bytes("10.92 GiB") - parse_bytes("4.5 GiB")


def test_mps_tells_other_allocations_and_its_limit():
    found = the_one(
        "MPS backend out of memory (MPS allocated: 8.94 GB, other allocations: 384.00 KB, max allowed: 9.07 GB). Tried to "
        "allocate 250.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit"
    )
    assert dict(found.holdings) == {
        "MPS tensors": parse_bytes("8.94 GiB"),
        "other Metal allocations": parse_bytes("384 KiB"),
    }
    assert found.limit == parse_bytes("9.07 GiB")
    assert found.memory == "unified"
    assert "of the 9.07 GiB that it is allowed" in found.cause
    assert "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0" in found.changes[1].what
    outside = the_one("MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max allowed: "
                      "27.20 GiB). Tried to allocate 292.50 MiB on private pool.")  # fmt: skip
    assert "most of it outside torch's allocator" in outside.cause
    refused = the_one("MPS backend out of memory (MPS allocated: 1.00 GiB, other allocations: 1.00 GiB, max allowed: "
                      "27.20 GiB). Tried to allocate 1.00 GiB on private pool.")  # fmt: skip
    assert refused.cause.startswith("Metal refused although")


FRAGMENTED = (
    "{who} out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 63.98 GiB of which 0 bytes is free. Of "
    "the allocated memory 60.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved by PyTorch but unallocated. {advice}"
)


@pytest.mark.parametrize(
    ("who", "advice", "change"),
    [
        ("HIP", "try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True", "PYTORCH_HIP_ALLOC_CONF="),
        ("HIP", "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "PYTORCH_HIP_ALLOC_CONF="),
        ("HIP", "try setting PYTORCH_ALLOC_CONF=expandable_segments:True", "PYTORCH_ALLOC_CONF="),
        ("CUDA", "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF="),
        ("NPU", "", "PYTORCH_NPU_ALLOC_CONF="),
    ],
)
def test_the_allocators_variable_is_that_of_device_and_version(who, advice, change):
    found = the_one(FRAGMENTED.format(who=who, advice=advice))
    assert found.changes[0].what.startswith(change)


def test_the_hosts_memory_is_not_the_cards():
    found = the_one(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 67108864000 bytes. Error code 12 (Cannot allocate memory)"
    )
    assert (found.memory, found.asked) == ("host", 67108864000)
    assert all(change.cost != "none" for change in found.changes)


# -- engines --------------------------------------------------------------------------------------------------


def test_vllm_without_room_for_any_block_needs_a_larger_share_or_smaller_weights():
    found = the_one("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.")
    assert "--gpu-memory-utilization" in found.changes[0].what
    assert "--max-model-len" not in said(found)
    assert "--max-num-batched-tokens" in said(found)


def test_vllm_says_the_length_for_which_its_cache_is_large_enough():
    found = the_one(
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV "
        "cache (7344). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`"
    )
    assert found.changes[0].what == "--max-model-len 7344"


SAMPLER = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
    "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
)


@pytest.mark.parametrize("is_whole", [False, True])
def test_vllms_sampler_is_its_own_and_one_failure_with_torchs_numbers(is_whole):
    torchs = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of 23.54 GiB "
        "of which 401.94 MiB is free.\n\nThe above exception was the direct cause of the following exception:\n\n"
    )
    found = the_one((torchs if is_whole else "") + SAMPLER)
    assert found.program == "vLLM"
    assert "1024 requests" in found.cause
    assert found.changes[0].what == "a lower --max-num-seqs"
    assert found.asked == (parse_bytes("594 MiB") if is_whole else None)


WEIGHTS = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144817.04 MiB on device 0: cudaMalloc failed: out of memory\n"
    "alloc_tensor_range: failed to allocate CUDA0 buffer of size 151851674624\n"
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer\n"
)


def test_two_lines_of_llama_cpp_are_one_failure():
    found = the_one(WEIGHTS)
    assert (found.device, found.asked) == ("GPU 0", 151851674624)
    assert found.cause == "the weights do not fit on the card"


def test_two_failures_of_llama_cpp_stay_two():
    assert (
        len(diagnose_text(WEIGHTS + WEIGHTS.replace("144817.04", "100.00").replace("151851674624", "104857600"))) == 2
    )


@pytest.mark.parametrize(
    ("text", "device", "memory", "cause"),
    [
        ("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 437944320\n"
         "alloc_tensor_range: failed to allocate CPU buffer of size 437944320\n", "", "host", "host's memory"),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 14136.04 MiB on device 0: cudaMalloc failed: out of memory"
         "\nggml_gallocr_reserve_n: failed to allocate ROCm0 buffer of size 14822711296\n", "GPU 0", "device",
         "compute buffer"),
        ("ggml_vulkan: Device memory allocation of size 2147483648 failed.\nggml_vulkan: vk::Device::allocateMemory: "
         "ErrorOutOfDeviceMemory\nllama_kv_cache_init: failed to allocate buffer for kv cache", "", "device", "KV cache"),
        ("ggml_vulkan: Device memory allocation of size 2166360064 failed.\nggml_vulkan: Requested buffer size exceeds "
         "device memory allocation limit: ErrorOutOfDeviceMemory\nggml_gallocr_reserve_n: failed to allocate Vulkan0 "
         "buffer of size 2166360064", "GPU 0", "device", "larger than the Vulkan device lets any be"),
        ("CUDA error: out of memory\n  current device: 0, in function ggml_cuda_pool_malloc_vmm at ggml-cuda.cu:8583", "",
         "device", "temporary"),
        ("ggml_metal_graph_compute: command buffer 6 failed with status 5\nerror: Insufficient Memory "
         "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)", "", "unified", "iogpu.wired_limit_mb"),
    ],
)  # fmt: skip
def test_llama_cpp_says_which_memory_and_which_buffer(text, device, memory, cause):
    found = the_one(text)
    assert (found.program, found.device, found.memory) == ("llama.cpp", device, memory)
    assert cause in found.cause


def test_what_llama_cpp_did_without_is_no_failure_of_a_log():
    text = (
        "allocating 51748.72 MiB on device 1: cudaMalloc failed: out of memory\n"
        "W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\nI srv load_model: ok\n"
    )
    assert messages_in(text) == []
    assert "went on without it" in the_one(text).cause


def test_sglang_tells_its_weights_and_what_was_free_after_loading():
    found = the_one(
        "[2025-07-02 07:41:58 TP0] Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, avail mem=21.73 GB, "
        "mem usage=166.59 GB.\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    )
    assert found.free == parse_bytes("21.73 GiB")
    assert dict(found.holdings) == {"weights": parse_bytes("166.59 GiB")}
    assert "--mem-fraction-static" in found.changes[0].what


# -- all the others -------------------------------------------------------------------------------------------

# text, then: program, memory, bytes asked for, words of cause and changes
STRONG = [
    ("RESOURCE_EXHAUSTED: Failed to allocate request for 2.99GiB (3206250496B) on device ordinal 0", "XLA", "device",
     3206250496, ["XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"]),
    ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.\nBufferAssignment OOM Debugging.\n"
     "BufferAssignment stats:\n             parameter allocation:  372.76MiB\n              constant allocation:    48.5KiB"
     "\n        maybe_live_out allocation:    9.64GiB\n     preallocated temp allocation:    4.44GiB\n"
     "                 total allocation:   14.44GiB\n", "XLA", "device", 4770354232, ["14.44 GiB", "outputs", "donate_argnums"]),
    ("total_region_allocated_bytes_: 4928097280 memory_limit_: 4928097484 available bytes: 204\nStats:\nLimit:       "
     "               4928097484\nInUse:                      4248542720\n\nRESOURCE_EXHAUSTED: Out of memory while trying "
     "to allocate 58982400 bytes.", "XLA", "device", 58982400, ["the pool is 4.59 GiB, 3.96 GiB of it in use"]),
    ("XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 54.36G of 31.25G hbm. Exceeded hbm "
     "capacity by 23.11G.", "XLA", "device", parse_bytes("54.36 GiB"), ["compiled program"]),
    ("Error loading program: Attempting to reserve 7.04G at the bottom of memory. That was not possible. There are 6.90G "
     "free, 0B reserved", "XLA", "device", parse_bytes("7.04 GiB"), ["remat"]),
    ("ResourceExhaustedError: OOM when allocating tensor with shape[32,12,512,512] and type float on /job:localhost/"
     "replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:BatchMatMulV2]", "TensorFlow", "device",
     32 * 12 * 512 * 512 * 4, ["batch_size", "TF_GPU_ALLOCATOR"]),
    ("OOM when allocating tensor with shape[8,4] and type half on /device:CPU:0 by allocator cpu", "TensorFlow", "host", 64,
     ["host's memory"]),
    ("bfc_arena.cc:330 onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size "
     "285081600", "ONNX Runtime", None, 285081600, ["arena_extend_strategy"]),
    ("BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 4585490524328388608",
     "ONNX Runtime", None, 4585490524328388608, ["than any machine has"]),
    ("BFCArena::AllocateRawInternal Available memory of 0 is smaller than requested bytes of 2048", "ONNX Runtime", None,
     2048, ["gpu_mem_limit"]),
    ("[metal::malloc] Attempting to allocate 48736917632 bytes which is greater than the maximum allowed buffer size of "
     "30150672384 bytes.", "MLX", "unified", 48736917632, ["lets any buffer be", "--prefill-step-size"]),
    ("[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
     "MLX", "unified", None, ["iogpu.wired_limit_mb"]),
    ("kIOGPUCommandBufferCallbackErrorOutOfMemory", "Metal", "unified", None, ["wired"]),
    ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", "Vulkan", "device", None, ["maxMemoryAllocationSize"]),
    ("Error 2: out of memory at line 380 in file /src/csrc/ops.cu", "bitsandbytes", "device", None, ["micro_batch_size"]),
    ("Error out of memory at line 88 in file D:\\a\\csrc\\ops.cu", "bitsandbytes", "device", None, ["paged"]),
    ("ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 2 'out of memory'", "NCCL", "device",
     None, ["NCCL_BUFFSIZE"]),
    ("NCCL WARN Failed to CUDA calloc async 10485760 bytes", "NCCL", "device", 10485760, ["two ranks"]),
    ("[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mMemPool->getPool(), mCudaStream->get()): out "
     "of memory", "TensorRT-LLM", "device", None, ["--kv_cache_free_gpu_memory_fraction"]),
    ("Error: model requires more system memory (5.6 GiB) than is available (3.1 GiB)", "ollama", "host",
     parse_bytes("5.6 GiB"), ["num_ctx"]),
    ("Error: llama runner process has terminated: CUDA error: out of memory", "ollama", "device", None, ["num_gpu"]),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuBLAS", "device", None,
     ["workspace"]),
    ("Caught RuntimeError in pin memory thread for device 0.\nRuntimeError: CUDA error: out of memory", "CUDA",
     "pinned host", None, ["pin_memory=False"]),
]  # fmt: skip

# only where a text is known to tell of a failure
WEAK = [
    ("ggml_cuda_host_malloc: failed to allocate 1900,00 MiB of pinned memory: invalid argument", "llama.cpp", "pinned host",
     parse_bytes("1900 MiB"), ["GGML_CUDA_NO_PINNED"]),
    ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: failed (exitcode: -9) local_rank: 0 (pid: 438)",
     "process", "host", None, ["signal 9", "dmesg"]),
    ("exitcode  : -9 (pid: 8)\n  traceback : Signal 9 (SIGKILL) received by PID 8", "process", "host", None, ["signal 9"]),
    ("CPU Virtual Memory:  used = 28.43 GB, percent = 22.6%\n['python3', 'run_clm.py'] exits with return code = -9",
     "process", "host", None, ["offloading"]),
    ("Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137", "container", "host", None,
     ["resources.limits.memory"]),
    ("command terminated with exit code 137", "process", "host", None, ["docker --memory"]),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", "container", "host", None, ["--mem"]),
    ("[18492.104] Memory cgroup out of memory: Killed process 4182 (python3) total-vm:812044kB, anon-rss:518420kB, "
     "file-rss:1240kB, shmem-rss:4kB", "Linux", "host", None, ["process 4182 (python3)", "limit is reached"]),
    ("[1234.567] Out of memory: Killed process 4567 (pt_main_thread) total-vm:8123456kB, anon-rss:5234567kB", "Linux",
     "host", None, ["process 4567 (pt_main_thread)", "no memory left"]),
    ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
     "DataLoader", "shared", None, ["--shm-size", "num_workers"]),
    ("Error while creating shared memory segment /dev/shm/nccl-abc (size 9637888)", "NCCL", "shared", 9637888,
     ["/dev/shm is full"]),
    ("ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM", "transformers",
     "device", None, ["llm_int8_enable_fp32_cpu_offload"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "program", "memory", "asked", "words"), [*STRONG, *WEAK])
def test_a_pasted_text_is_answered(text, program, memory, asked, words):
    found = the_one(text)
    assert (found.program, found.memory, found.asked) == (program, memory, asked)
    assert len(found.changes) == 2
    for word in words:
        assert word in said(found)


@pytest.mark.parametrize("text", [row[0] for row in STRONG])
def test_what_says_that_memory_ran_out_is_known_in_any_log(text):
    assert len(messages_in(f"step 1 loss 2.3\n{text}\n")) == 1


@pytest.mark.parametrize("text", [row[0] for row in WEAK])
def test_a_killed_process_makes_no_log_a_message(text):
    assert messages_in(f"step 1 loss 2.3\n{text}\n") == []


def test_a_kill_counts_only_where_nothing_else_is_said():
    assert the_one(f"{WEIGHTS}\nSignal 9 (SIGKILL) received by PID 8").program == "llama.cpp"


def test_what_the_kernel_killed_held_is_told():
    found = the_one(WEAK[7][0])
    assert found.holdings == (("process 4182 (python3)", parse_bytes("518424 KiB")),)
    assert not found.is_probable
    assert the_one(WEAK[1][0]).is_probable


def test_a_program_that_asks_again_for_less_is_one_failure():
    lines = [
        f"cuda_driver.cc:802] failed to alloc {size} bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
        for size in (245638656, 221074944, 198967552)
    ]
    assert the_one("\n".join(lines)).memory == "pinned host"


@pytest.mark.parametrize(
    "text",
    [
        "Error invalid configuration argument at line 117 in file /csrc/ops.cu",
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 120.70MiB with freed_by_count=0. The caller indicates "
        "that this is not a failure",
        "exitcode: 1 (pid: 9)",
        "process 19 took 137 s",
        "memory usage 12 GiB, exit code: 0",
        "Some parameters are on the meta device because they were offloaded to the cpu.",
    ],
)
def test_what_is_no_want_of_memory_is_refused(text):
    with pytest.raises(UsageError, match="no out-of-memory message found"):
        diagnose_text(text)
