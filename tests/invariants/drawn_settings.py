"""Values of every setting of a scenario's tables, in groups that make sense together."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from vramwise.scenario import names

Table = dict[str, st.SearchStrategy[Any]]


def one(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


STEP = {
    "framework": one(*names.FRAMEWORKS),
    "method": one("full", "lora", "qlora"),
    "precision": one(*names.PRECISIONS),
    "optimizer": one(*names.OPTIMIZERS),
    "optimizer_impl": one(*names.OPTIMIZER_IMPLS),
    "micro_batch_size": one(1, 2, 3, 8, 32),
    "sequence_length": one(1, 100, 512, 2048, 4096, 16384),
    "gradient_accumulation_steps": one(1, 4),
    "checkpointing": one(*names.CHECKPOINTING),
    "attention": one(*names.ATTENTION),
    "loss": one(*names.LOSSES),
    "kernels": st.lists(one(*names.KERNELS), min_size=1, max_size=1),
    "head": one(*names.HEADS),
    "packing": st.booleans(),
    "compile": st.booleans(),
    "gradient_release": st.booleans(),
    "set_to_none": st.booleans(),
    "expandable_segments": st.booleans(),
    "offload_optimizer": one("none", "cpu"),
    "offload_params": one("none", "cpu"),
    "offload_activations": one("none", "cpu"),
    "padding": one(0.0, 0.25),
}
STEP_DETAILS = {
    "framework_version": one("transformers 4.48.1", "transformers 5.0", "4.57", "trl 1.16", "0.16.1"),
    "param_dtype": one(*names.DTYPES),
    "grad_dtype": one(*names.DTYPES),
    "master_dtype": one(*names.DTYPES),
    "optimizer_state_dtype": one(*names.STATE_DTYPES),
    "compute_dtype": one("fp32", "bf16", "fp16"),
    "attention": one("flex"),
    "decoder_sequence_length": one(1, 64, 1024),
    "images_per_sequence": one(1, 3),
    "sample_lengths": one({"fixed": 100}, {"mean": 300, "spread": 200, "maximum": 1000}),
    "padding_free": st.booleans(),
    "document_mask": st.booleans(),
    "recompute": one(["core_attn"], ["mlp"], ["op"], ["layer:2"], ["block:4"]),
    "keeps_outputs": st.booleans(),
    "loss_upcast": st.booleans(),
    "kbit_preparation": st.booleans(),
    "compiled": one(["layers"], ["model"], ["layers", "loss"]),
    "clip_grad_norm": st.booleans(),
    "eval_batch_size": one(1, 8, 64),
    "trainable": one(["lm_head"], ["norm"], ["embed_tokens", "lm_head"]),
    "extra_models": one(["reference"], ["reference", "critic"], ["rollout:vllm"]),
}
ROLLOUT = {"rollout_gpu_memory_utilization": one(0.1, 0.4, 0.9), "rollout_sleep": st.booleans()}
IMAGES = {"images_per_sequence": one(1, 2), "image_size": one("224x224", "640x480", "1024x1024")}
FP8 = {
    "precision": one("fp8-mixed"),
    "fp8_recipe": one(*names.FP8_RECIPES),
    "fp8_transposes": st.booleans(),
    "fp8_operands": one(*names.FP8_OPERANDS),
    "fp8_all_gather": st.booleans(),
}
ADAPTERS = {
    "lora_rank": one(1, 8, 64, 512),
    "lora_dropout": one(0.0, 0.1),
    "lora_dtype": one("fp32", "bf16"),
    "dora": st.booleans(),
    "quantization": one(*names.BASE_QUANTIZATION),
    "lora_targets": one("all-linear", ["q_proj", "v_proj"], ["q_proj", "k_proj", "v_proj", "o_proj", "lm_head"]),
    "quantize_experts": st.booleans(),
    "kbit_preparation": st.booleans(),
}
LAYOUT = {
    "zero_stage": one(1, 2, 3),
    "fsdp": one(*names.FSDP),
    "fsdp_version": one(1, 2),
    "reshard_after_forward": st.booleans(),
    "tensor_parallel_size": one(2, 4, 8),
    "sequence_parallel": st.booleans(),
    "pipeline_parallel_size": one(2, 4),
    "pipeline_schedule": one(*names.PIPELINE_SCHEDULES),
    "num_microbatches": one(4, 8),
    "context_parallel_size": one(2, 4),
    "distributed_optimizer": st.booleans(),
}
LAYOUT_DETAILS = {
    "context_parallel_kind": one(*names.CONTEXT_PARALLEL_KINDS),
    "expert_tensor_parallel_size": one(1, 2),
    "fsdp_units": one(["layer"], ["module"], ["root"], ["layer", "root"]),
    "cpu_ram_efficient_loading": st.booleans(),
    "precision_aware_optimizer": st.booleans(),
    "reduce_bucket_size": one(1_000, 5_000_000, 500_000_000),
    "overlap_comm": st.booleans(),
    "contiguous_gradients": st.booleans(),
    "reduce_scatter": st.booleans(),
    "offload_pin_memory": st.booleans(),
}
EXPERTS = {
    "expert_parallel_size": one(2, 4),
    "expert_tensor_parallel_size": one(1, 2),
    "moe_overload_factor": one(1.0, 1.2),
    "moe_capacity_factor": one(1.0, 2.0),
}
STAGES = {"virtual_pipeline_parallel_size": one(2, 4), "pipeline_layers": one([20, 12], [17, 15], [8, 8, 8, 8])}
ZERO_3 = {
    "sub_group_size": one(1_000_000, 1_000_000_000),
    "communication_data_type": one("fp32", "bf16", "fp16"),
    "stage3_prefetch_bucket_size": one(0, 5_000_000, 50_000_000),
    "stage3_param_persistence_threshold": one(0, 10_000, 1_000_000),
    "stage3_model_persistence_threshold": one(0, 1_000_000),
    "stage3_max_live_parameters": one(0, 100_000_000, 1_000_000_000),
    "stage3_max_reuse_distance": one(0, 1_000_000_000),
    "zero_init": st.booleans(),
    "zero_hpz_partition_size": one(1, 2, 8),
    "zero_quantized_weights": st.booleans(),
    "offload_optimizer": one("none", "cpu", "nvme"),
    "offload_params": one("none", "cpu", "nvme"),
    "offload_pin_memory": st.booleans(),
    "offload_optimizer_fraction": one(0.0, 0.4, 1.0),
    "offload_optimizer_buffer_count": one(0, 4, 8),
    "offload_params_buffer_count": one(0, 5),
    "offload_params_buffer_size": one(1_000_000, 100_000_000),
    "offload_params_max_in_cpu": one(0, 1_000_000_000),
}
POOL = {
    "dtype": one(*names.SERVE_DTYPES),
    "quantization": one(*(name for name in names.SERVE_QUANTIZATION if name != "gguf")),
    "kv_cache_dtype": one(*names.KV_CACHE_DTYPES),
    "max_model_len": one(512, 4096, 32768, 131_072, 1_000_000),
    "max_num_seqs": one(1, 16, 256, 1024),
    "max_num_batched_tokens": one(512, 2048, 8192, 65536),
    "enforce_eager": st.booleans(),
    "tensor_parallel_size": one(1, 2, 4, 8),
    "pipeline_parallel_size": one(1, 2),
    "data_parallel_size": one(1, 2),
    "quantization_group_size": one(32, 64, 128),
    "enable_prefix_caching": st.booleans(),
    "block_size": one(1, 16, 64),
    "max_loras": one(1, 4),
    "max_lora_rank": one(8, 64),
    "lora_targets": one("all-linear", ["q_proj", "v_proj"]),
    "expert_parallel": st.booleans(),
    "gpu_memory_utilization": one(0.3, 0.9),
    "gguf_quant": one("Q4_K_M", "Q8_0", "F16"),
}
VLLM = POOL | {
    "engine_version": one("0.6.3", "0.8.5", "0.10.2", "0.11.2", "0.17.0", "0.19.1", "0.20.0", "0.25.1", "0.33.0"),
    "gpu_memory_utilization": one(0.05, 0.5, 0.9, 0.95, 1.0),
    "block_size": one(16, 32, 128),
    "kv_cache_memory_bytes": one(2**28, 2**32, 2**35),
    "expert_parallel": st.booleans(),
    "decode_context_parallel_size": one(1, 2),
    "max_loras": one(1, 4),
    "max_lora_rank": one(8, 64, 320),
    "speculative": one(
        {"method": "ngram", "num_tokens": 3}, {"method": "eagle", "num_tokens": 3}, {"method": "mtp", "num_tokens": 1},
        {"method": "draft_model", "num_tokens": 4, "model": "qwen2.5-0.5b"},
    ),
    "mamba_ssm_cache_dtype": one(*names.RECURRENT_STATE_DTYPES),
    "cudagraph_capture_sizes": one([1], [1, 2, 4, 8], [512]),
    "sleep_level": one(1, 2),
    "cpu_offload_gb": one(1, 4.5, 100),
    "limit_mm_per_prompt": one({"image": 0}, {"image": 2}, {"image": 1, "video": 1}),
    "language_model_only": st.booleans(),
    "skip_mm_profiling": st.booleans(),
    "pooling": st.booleans(),
    "pipeline_layer_partition": one([20, 12], [14, 14]),
    "use_v1": st.booleans(),
    "flashinfer_sampler": st.booleans(),
    "disable_hybrid_kv_cache_manager": st.booleans(),
}  # fmt: skip
SGLANG = POOL | {
    "mem_fraction_static": one(0.3, 0.7, 0.88, 0.97),
    "chunked_prefill_size": one(512, 8192),
    "cuda_graph_max_bs": one(1, 160),
    "expert_parallel": st.booleans(),
    "engine_version": one("0.3.0", "0.4.6", "0.5.0", "0.5.5"),
    "mamba_ssm_cache_dtype": one(*names.RECURRENT_STATE_DTYPES),
    "cudagraph_capture_sizes": one([1, 2, 4], [256]),
    "cpu_offload_gb": one(1, 20),
    "max_total_tokens": one(1, 4096, 1_000_000),
    "swa_full_tokens_ratio": one(0.1, 0.8, 1.0),
    "pipeline_layer_partition": one([20, 12], [14, 14]),
}
TRANSFORMERS = {
    key: POOL[key] for key in ("dtype", "quantization", "quantization_group_size", "max_model_len", "max_num_seqs")
}
MLX = {
    "dtype": one(*names.SERVE_DTYPES),
    "quantization": one(*(name for name in names.SERVE_QUANTIZATION if name.startswith("mlx"))),
    "quantization_group_size": one(32, 64, 128),
    "max_model_len": one(512, 4096, 131_072),
    "max_num_seqs": one(1, 8),
    "kv_bits": one(2, 4, 8),
    "kv_group_size": one(32, 64),
    "quantized_kv_start": one(0, 5000),
    "max_kv_size": one(128, 4096),
    "prefill_step_size": one(64, 2048),
}
LLAMA_CPP = {
    "gguf_quant": one(*(name for name in names.GGUF_QUANTS if name != "custom")),
    "n_ctx": one(512, 4096, 32768, 131_072),
    "n_batch": one(512, 2048),
    "n_ubatch": one(128, 512, 2048),
    "flash_attn": st.booleans(),
    "cache_type_k": one("f16", "q8_0", "q4_0"),
    "cache_type_v": one("f16", "q8_0", "q4_0"),
    "n_gpu_layers": one(0, 1, 20, 99),
    "n_parallel": one(1, 4),
    "kv_unified": st.booleans(),
    "n_cpu_moe": one(0, 5, 99),
    "no_kv_offload": st.booleans(),
    "logits_all": st.booleans(),
    "cpu_moe": st.booleans(),
    "tensor_split": one([1.0, 1.0], [3.0, 1.0], [0.0, 1.0]),
    "split_mode": one("layer", "row", "none"),
    "main_gpu": one(0, 1),
    "fit": st.booleans(),
    "mmproj": one("auto"),
    "mmproj_offload": st.booleans(),
    "override_tensor": one(["exps=CPU"], [r"blk\.[0-9]\.ffn_.*=CPU"], ["output=CUDA0"]),
    "swa_full": st.booleans(),
    "imatrix": st.booleans(),
    "max_loras": one(1, 3),
    "max_lora_rank": one(16, 128),
    "speculative": one(
        {"model": "qwen2.5-0.5b", "gguf_quant": "Q8_0"}, {"model": "llama-3.2-1b", "num_tokens": 8, "n_gpu_layers": 0}
    ),
    "tensor_parallel_size": one(1, 2),
}  # fmt: skip
IK_LLAMA_CPP = {
    "variant": one("ik_llama.cpp"),
    "cache_type_k": one(*names.LLAMA_CPP_CACHE_TYPES),
    "mla_attn": one(0, 1, 2, 3),
    "attn_max_b": one(0, 256, 2048),
    "run_time_repack": st.booleans(),
    "fused_moe": one(0, 1),
    "split_mode": one(*names.LLAMA_CPP_SPLIT_MODES),
}
GENERATION = {
    "dtype": one(*names.SERVE_DTYPES),
    "quantization": one("bitsandbytes-nf4", "bitsandbytes-int8", "awq", "gptq", "fp8", "w4a16"),
    "batch_size": one(1, 2, 32, 100),
    "prompt_tokens": one(1, 10, 1000, 8192),
    "new_tokens": one(1, 100, 2048),
    "attention": one(*names.ATTENTION),
    "num_beams": one(1, 4),
    "cache_implementation": one(*names.CACHE_IMPLEMENTATIONS),
    "kv_cache_dtype": one("auto", "int4", "int8", "bf16"),
    "quantization_group_size": one(32, 64, 128),
    "engine_version": one("4.41.0", "4.57.1", "5.0.0"),
}
PICTURES = {
    "dtype": one(*names.SERVE_DTYPES),
    "quantization": one("bitsandbytes-nf4", "bitsandbytes-int8", "fp8"),
    "batch_size": one(1, 2, 7),
    "prompt_tokens": one(1, 77, 512),
    "image_size": one("512x512", "1024x1024", "832x480", "1280x720", "64x2048"),
    "num_frames": one(1, 17, 81),
    "vae_tiling": st.booleans(),
    "vae_slicing": st.booleans(),
    "offload": one(*names.OFFLOADS),
    "guidance_scale": one(0.0, 1.0, 3.5, 7.5),
}
ROOM = {
    "reserve_bytes": one(0, 2**30, 2**34, 2**37, "1%", "10%", "50%", "99%"),
    "gpu_free_bytes": one(2**20, 2**30, 10 * 2**30, 39 * 2**30, 2**37),
    "gpu_total_bytes": one(2**30, 12 * 2**30, 16_945_709_056, 84_987_740_160),
}
"""What of a card is there, and what of it must stay free."""
MACHINE = {
    "gpus_per_node": one(1, 4, 8),
    "network_gbit_s": one(1, 100, 3200),
    "driver": one("470.57", "535.104.05", "580.65.06"),
    "source": one("catalog", "auto"),
    "library": one("auto", "transformers"),
}
