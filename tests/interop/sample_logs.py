"""Start-up logs in the engines' line formats, written for the tests; the numbers are plausible, not measured."""

from __future__ import annotations

VLLM = """\
INFO 08-01 10:00:01 [entrypoints/utils.py:253] non-default args: {'model_tag': 'meta-llama/Llama-3.1-8B-Instruct', 'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 32768, 'gpu_memory_utilization': 0.9}
(EngineCore_DP0 pid=77) INFO 08-01 10:00:09 [core.py:93] Initializing a V1 LLM engine (v0.11.2) with config: model='meta-llama/Llama-3.1-8B-Instruct', speculative_config=None, tokenizer='meta-llama/Llama-3.1-8B-Instruct', dtype=torch.bfloat16, max_seq_len=32768, download_dir=None, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto, seed=0
(EngineCore_DP0 pid=77) INFO 08-01 10:00:20 [gpu_model_runner.py:3338] Model loading took 14.9889 GiB memory and 5.123456 seconds
(EngineCore_DP0 pid=77) INFO 08-01 10:00:40 [gpu_worker.py:359] Available KV cache memory: 51.40 GiB
(EngineCore_DP0 pid=77) INFO 08-01 10:00:41 [kv_cache_utils.py:1229] GPU KV cache size: 421,056 tokens
(EngineCore_DP0 pid=77) INFO 08-01 10:00:41 [kv_cache_utils.py:1234] Maximum concurrency for 32,768 tokens per request: 12.85x
(EngineCore_DP0 pid=77) INFO 08-01 10:00:50 [gpu_model_runner.py:4244] Graph capturing finished in 9 secs, took 0.55 GiB
(EngineCore_DP0 pid=77) DEBUG 08-01 10:00:51 [gpu_worker.py:464] Free memory on device (78.57/79.18 GiB) on startup. Desired GPU memory utilization is (0.9, 71.26 GiB). Actual usage is 14.99 GiB for weight, 4.76 GiB for peak activation, 0.11 GiB for non-torch memory, and 0.55 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=54000000000` (50.29 GiB) to fit into requested memory.
"""  # noqa: E501

VLLM_V0 = """\
INFO 02-01 10:00:01 api_server.py:840] vLLM API server version 0.7.3
INFO 02-01 10:00:01 api_server.py:841] args: Namespace(host=None, port=8000, model='Qwen/Qwen2.5-7B-Instruct', dtype='auto', max_model_len=8192, tensor_parallel_size=1, gpu_memory_utilization=0.9, enforce_eager=False, max_num_seqs=None)
INFO 02-01 10:00:30 model_runner.py:1115] Loading model weights took 14.2487 GB
INFO 02-01 10:00:40 worker.py:267] Memory profiling takes 5.10 seconds
INFO 02-01 10:00:40 worker.py:267] the current vLLM instance can use total_gpu_memory (44.40GiB) x gpu_memory_utilization (0.90) = 39.96GiB
INFO 02-01 10:00:40 worker.py:267] model weights take 14.25GiB; non_torch_memory takes 0.08GiB; PyTorch activation peak memory takes 1.40GiB; the rest of the memory reserved for KV Cache is 24.23GiB.
INFO 02-01 10:00:41 executor_base.py:111] # cuda blocks: 28355, # CPU blocks: 4681
INFO 02-01 10:00:41 executor_base.py:116] Maximum concurrency for 8192 tokens per request: 55.38x
"""  # noqa: E501

VLLM_REFUSED = """\
INFO 08-01 10:00:09 [core.py:93] Initializing a V1 LLM engine (v0.11.2) with config: model='meta-llama/Llama-3.1-8B-Instruct', dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size=1
ERROR 08-01 10:00:40 [core.py:700] ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (4.52 GiB). Based on the available memory, the estimated maximum model length is 37008. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.
"""  # noqa: E501

SGLANG = """\
[2025-08-01 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen2.5-7B-Instruct', tokenizer_path='Qwen/Qwen2.5-7B-Instruct', dtype='auto', quantization=None, context_length=32768, mem_fraction_static=0.85, max_running_requests=None, max_total_tokens=None, chunked_prefill_size=8192, page_size=1, tp_size=1, cuda_graph_max_bs=256, disable_cuda_graph=False)
[2025-08-01 10:00:10] Load weight begin. avail mem=78.61 GB
[2025-08-01 10:00:20] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=64.25 GB, mem usage=14.36 GB.
[2025-08-01 10:00:21] KV Cache is allocated. #tokens: 983478, K size: 26.26 GB, V size: 26.26 GB
[2025-08-01 10:00:21] Memory pool end. avail mem=11.24 GB
[2025-08-01 10:00:40] Capture cuda graph end. Time elapsed: 18.20 s. mem usage=0.68 GB. avail mem=10.54 GB.
[2025-08-01 10:00:41] max_total_num_tokens=983478, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=4096, context_len=32768, available_gpu_mem=10.54 GB
"""  # noqa: E501

LLAMA_CPP = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
build: 5863 (a4575513) with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu
llama_model_loader: loaded meta data with 33 key-value pairs and 292 tensors from /models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf (version GGUF V3 (latest))
llama_model_loader: - kv   2:                               general.name str              = Meta Llama 3.1 8B Instruct
print_info: file format = GGUF V3 (latest)
print_info: file type   = Q4_K - Medium
print_info: file size   = 4.58 GiB (4.89 BPW)
load_tensors: offloading 32 repeating layers to GPU
load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
llama_context: n_seq_max     = 1
llama_context: n_ctx         = 8192
llama_context: n_ctx_per_seq = 8192
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
llama_context: flash_attn    = 1
llama_context:  CUDA_Host  output buffer size =     0.49 MiB
llama_kv_cache_unified:      CUDA0 KV buffer size =  1024.00 MiB
llama_kv_cache_unified: size = 1024.00 MiB (  8192 cells,  32 layers,  1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
llama_context:      CUDA0 compute buffer size =   258.50 MiB
llama_context:  CUDA_Host compute buffer size =    24.01 MiB
"""  # noqa: E501
