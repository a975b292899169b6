"""vLLM's budget against closed start-up logs, its defaults by version, and its verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.result import Quantity, Result
from vramwise.serving.vllm.profile import capture_sizes, profile_of, release
from vramwise.sources import resolve
from vramwise.units import GIB, MIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def serve(
    model: Any = LLAMA, gpu: str | None = "h100-sxm-80gb", total: float = 0, gpus: int = 1, **serve: Any
) -> Result:
    scenario: dict[str, Any] = {"model": model, "task": "serve", "num_gpus": gpus, "serve": serve}
    if gpu:
        scenario["gpu"] = gpu
    if total:
        scenario["gpu_total_bytes"] = round(total * GIB)
    return estimate(scenario)


def gib(result: Result, name: str) -> float:
    return result.quantities[name].expected / GIB


@pytest.mark.parametrize(
    ("model", "tp", "weights", "peak", "cache"),
    [
        (LLAMA, 1, 14.99, 4.76, 51.38),
        ("Qwen/Qwen3-0.6B", 1, 1.12, 5.56, 64.45),
        ("Qwen/Qwen3-32B", 1, 61.03, 5.64, 4.45),
        ("Qwen/Qwen3-32B", 2, 30.59, 5.64, 34.49),
    ],
)
def test_budget_lines_of_0_11_on_h100(model: str, tp: int, weights: float, peak: float, cache: float) -> None:
    """Four closed budgets (llm-d planner's table of vLLM 0.11.0, 79.18 GiB cards)."""
    result = serve(model, total=79.18, gpus=tp, engine_version="0.11.0", max_model_len=16000, tensor_parallel_size=tp)
    assert gib(result, "weights") == pytest.approx(weights, rel=2e-3)
    assert gib(result, "activation_peak") == pytest.approx(peak, rel=2e-3)
    assert gib(result, "kv_cache_bytes") == pytest.approx(cache, abs=0.06)


def test_terms_add_up_to_the_share_of_the_card() -> None:
    result = serve(total=79.18, engine_version="0.11.0")
    charged = sum(result.quantities[name].expected for name in ("weights", "activation_peak", "non_torch"))
    assert charged + result.quantities["kv_cache_bytes"].expected == pytest.approx(0.9 * 79.18 * GIB, abs=2)


def test_graphs_are_charged_since_0_20_and_the_share_is_larger() -> None:
    old, new = (serve(total=79.18, engine_version=version) for version in ("0.19.1", "0.20.0"))
    difference = new.quantities["kv_cache_bytes"].expected - old.quantities["kv_cache_bytes"].expected
    graphs = new.quantities["cuda_graph_estimate"].expected
    assert graphs < new.quantities["cuda_graph"].expected
    assert difference == pytest.approx(0.02 * 79.18 * GIB - graphs, abs=3)
    assert new.scenario["serve"]["gpu_memory_utilization"] == 0.92


@pytest.mark.parametrize(
    ("version", "gpu", "tokens", "seqs"),
    [
        ("0.11.2", "h100-sxm-80gb", 8192, 1024),
        ("0.11.2", "a100-sxm-80gb", 2048, 256),
        ("0.8.5", "a100-sxm-80gb", 8192, 1024),
        ("0.28.0", "b200", 16384, 1024),
        ("0.27.1", "b200", 8192, 1024),
        ("0.11.2", "rtx-4090", 2048, 256),
        ("0.10.2", "jetson-agx-thor-128gb", 2048, 256),  # a log of each: NVML has no memory information of them
        ("0.25.1", "gb10-128gb", 2048, 256),
        ("0.11.2", "mi300x", 8192, 1024),
    ],
)
def test_defaults_follow_version_and_card(version: str, gpu: str, tokens: int, seqs: int) -> None:
    table = serve("Qwen/Qwen3-0.6B", gpu, engine_version=version).scenario["serve"]
    assert (table["max_num_batched_tokens"], table["max_num_seqs"]) == (tokens, seqs)


def test_v0_shrinks_the_cache_with_the_length_until_chunked_prefill() -> None:
    """vllm-project/vllm issue 10517: 20,000 -> 29,000 tokens cost cache, 35,000 give it back."""
    caches = [
        gib(
            serve(gpu="rtx-3090", total=23.58, engine_version="0.6.4", max_model_len=n, max_num_seqs=4),
            "kv_cache_bytes",
        )
        for n in (20000, 29000, 35000)
    ]
    assert caches[0] == pytest.approx(3.81, rel=0.02)
    assert caches[1] == pytest.approx(2.89, rel=0.02)
    assert caches[2] > caches[0]


def test_captured_graph_sizes() -> None:
    assert capture_sizes(profile_of((0, 7), False), 256) == 35
    assert capture_sizes(profile_of((0, 11, 0), False), 1024) == 67
    assert capture_sizes(profile_of((0, 12), False), 1024) == 51
    assert capture_sizes(profile_of((0, 28), False), 1024) == 51
    assert capture_sizes(profile_of((0, 28), False), 1024, most_tokens=1024) == 83


def test_eager_mode_has_no_graphs() -> None:
    assert serve(enforce_eager=True).quantities["cuda_graph"].expected == 0


def test_cache_size_given_in_bytes_replaces_the_budget() -> None:
    result = serve(kv_cache_memory_bytes=10 * GIB, engine_version="0.11.2", max_model_len=65536)
    assert result.quantities["kv_cache_bytes"].expected == 10 * GIB
    assert result.quantities["kv_cache_tokens"].expected == 10 * GIB // 131072


def test_weights_that_do_not_fit_name_the_number_of_gpus() -> None:
    result = serve("Qwen/Qwen3-32B", "rtx-4090", engine_version="0.11.2")
    assert result.verdict is not None
    assert not result.verdict.fits
    assert result.quantities["oom"].expected is True
    assert "weights of 61.03 GiB do not fit" in result.verdict.reasons[0]
    assert result.verdict.reasons[-1] == "set tensor_parallel_size to 4"


def test_a_length_beyond_the_cache_is_answered_with_the_longest_that_fits() -> None:
    result = serve(gpu="rtx-3090", engine_version="0.11.2", max_model_len=131072)
    assert result.verdict is not None
    longest = int(result.quantities["max_seq"].expected)
    assert f"set max_model_len to {longest:,} at most" in result.verdict.reasons
    shorter = serve(gpu="rtx-3090", engine_version="0.11.2", max_model_len=longest)
    assert shorter.quantities["max_concurrency"].expected >= 1


def test_no_cache_blocks_are_named() -> None:
    result = serve(gpu="rtx-3090", total=16.9, engine_version="0.11.2", max_model_len=2048, max_num_seqs=256)
    assert result.verdict is not None
    assert result.verdict.reasons[0].startswith("no KV cache blocks")


def test_without_a_card_only_what_needs_it_is_missing() -> None:
    result = serve(gpu=None)
    assert not {"kv_cache_bytes", "kv_cache_tokens", "max_concurrency", "oom", "max_seq"} & set(result.quantities)
    assert {"weights", "activation_peak", "non_torch", "cuda_graph", "total_needed"} <= set(result.quantities)
    assert result.verdict is None


def test_moments_and_peak() -> None:
    result = serve(total=79.18, engine_version="0.11.0")
    assert [phase.name for phase in result.phases] == ["load", "profile run", "graph capture", "decode"]
    assert result.peak_phase == "decode"
    assert result.phases[-1].components.find("weights/rotary tables") is not None


def test_draft_layers_take_weights_and_cache() -> None:
    plain = serve(engine_version="0.9.1", max_model_len=131072)
    eagle = serve(engine_version="0.9.1", max_model_len=131072, speculative={"method": "eagle", "num_tokens": 3})
    assert eagle.quantities["weights"].expected > plain.quantities["weights"].expected
    # vLLM log of an EAGLE drafter beside Llama-3.1-8B: 135,171 bytes a token = 33 / 32
    tokens = eagle.quantities["kv_cache_tokens"].expected
    assert eagle.quantities["kv_cache_bytes"].expected / tokens == pytest.approx(131072 * 33 / 32, rel=1e-4)


@pytest.mark.parametrize(
    ("model", "version", "gpu", "printed"),
    [
        ("openai/gpt-oss-20b", "0.11.0", "h100-sxm-80gb", 13.47),  # Triton pads the experts' inner size
        ("openai/gpt-oss-120b", "0.11.0", "h100-sxm-80gb", 64.38),
        ("openai/gpt-oss-120b", "0.10.1", "h100-sxm-80gb", 65.97),  # Marlin pads both sizes
        ("openai/gpt-oss-20b", "0.13.0", "gb10", 13.7193),  # Triton's kernels are not for it: Marlin
    ],
)
def test_mxfp4_experts_are_padded_as_the_kernel_wants(model: str, version: str, gpu: str, printed: float) -> None:
    result = serve(model, gpu, engine_version=version, quantization="mxfp4")
    assert gib(result, "weights") == pytest.approx(printed, rel=1.2e-3)


def test_latent_attention_multiplies_projections_in_0_7() -> None:
    """vLLM 0.7.1 log of DeepSeek-Coder-V2-Lite on eight ranks: 3.97 GiB."""
    result = serve("deepseek-ai/DeepSeek-V2-Lite", "a100-sxm-40gb", gpus=8, engine_version="0.7.1", dtype="fp16",
                   tensor_parallel_size=8, max_model_len=8192, max_num_seqs=2)  # fmt: skip
    assert gib(result, "weights") == pytest.approx(3.97, rel=4e-3)
    assert gib(result, "activation_peak") == pytest.approx(0.36, rel=0.01)


def test_limits_of_media_turn_the_encoder_off() -> None:
    seen = serve("google/gemma-3-27b-it", engine_version="0.11.2", max_num_seqs=8)
    blind = serve("google/gemma-3-27b-it", engine_version="0.11.2", max_num_seqs=8, limit_mm_per_prompt={"image": 0})
    assert blind.quantities["activation_peak"].expected < seen.quantities["activation_peak"].expected


def test_lora_slots_grow_with_rank() -> None:
    ranks = [
        serve(max_loras=2, max_lora_rank=rank).phases[0].components.find("weights/LoRA slots") for rank in (16, 32)
    ]
    small, large = (node.low for node in ranks if node is not None)
    assert large == 2 * small


def slot_bytes(**given: Any) -> int:
    """The tensors of one slot of rank 16, without what lies beside them."""
    slots = serve(max_loras=1, **given).phases[0].components.find("weights/LoRA slots")
    assert slots is not None
    return slots.low


HEAD_OF_A_SLOT = 2 * 16 * 128_256


def test_a_slot_has_the_key_value_heads_that_a_rank_has() -> None:
    """Llama 3.1 8B over 16 ranks: 8 key/value heads of 128, each on two ranks."""
    hidden, inner, ranks = 4096, 14_336, 16
    attention = (hidden + hidden // ranks) + 2 * (hidden + 128) + (hidden // ranks + hidden)
    mlp = 2 * (hidden + inner // ranks) + (inner // ranks + hidden)
    by_hand = 2 * 16 * 32 * (attention + mlp) + HEAD_OF_A_SLOT
    assert slot_bytes(tensor_parallel_size=ranks, gpus=ranks) == by_hand


def test_what_every_rank_has_whole_has_whole_adapters() -> None:
    """DeepSeek-V2's compressed queries and keys: 1,536 and 512 + 64 outputs, of 5,120 inputs."""
    latent = {
        "model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 1024, "num_hidden_layers": 1,
        "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 1024, "first_k_dense_replace": 1,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_shared_experts": 1,
    }  # fmt: skip
    ranks = 4
    whole = (5120 + 1536) + (5120 + 576)
    queries, keys_values = 1536 + 128 * 192 // ranks, 512 + 128 * 256 // ranks
    cut = queries + keys_values + (128 * 128 // ranks + 5120) + 2 * (5120 + 1024 // ranks) + (1024 // ranks + 5120)
    by_hand = 2 * 16 * (whole + cut + 1024)
    assert slot_bytes(model=latent, tensor_parallel_size=ranks, gpus=ranks, dtype="bfloat16") == by_hand


def test_a_stage_has_slots_for_its_own_layers() -> None:
    """Of two stages the last has the head, and so has the one that is shown."""
    whole, split = slot_bytes(), slot_bytes(pipeline_parallel_size=2, gpus=2)
    assert split - HEAD_OF_A_SLOT == (whole - HEAD_OF_A_SLOT) // 2


def test_pipeline_stages_share_the_weights() -> None:
    whole, split = serve(engine_version="0.11.2"), serve(engine_version="0.11.2", pipeline_parallel_size=2, gpus=2)
    assert 0.5 < split.quantities["weights"].expected / whole.quantities["weights"].expected < 0.55
    assert [rank.name for rank in split.ranks] == ["stage 0", "stage 1"]
    assert max(rank.bytes for rank in split.ranks) == split.phases[-1].bytes


def test_cards_without_bf16_are_told() -> None:
    assert any("has no bf16" in note for note in serve("Qwen/Qwen3-0.6B", "t4").notes)
    assert not any("has no bf16" in note for note in serve("Qwen/Qwen3-0.6B", "t4", dtype="fp16").notes)


def test_a_gguf_file_is_as_large_as_llama_cpp_says() -> None:
    result = serve(quantization="gguf", gguf_quant="Q4_K_M", engine_version="0.11.2")
    file = estimate({"model": LLAMA, "task": "serve", "serve": {"engine": "llama.cpp", "gguf_quant": "Q4_K_M"}})
    held = result.phases[0].components.find("weights/GGUF tensors")
    assert held is not None
    assert held.bytes == file.quantities["weights"].expected


def test_a_version_of_two_parts_is_the_last_release_of_its_series():
    assert release("0.6") > release("0.6.6")
    assert release("0.6") < release("0.7.0")


@pytest.mark.parametrize("version", ["v0.11.0", "V0.11.0", "0.11.0+cu128"])
def test_a_version_written_like_its_tag_is_that_version(version: str) -> None:
    said, plain = serve(engine_version=version), serve(engine_version="0.11.0")
    assert said.quantities == plain.quantities
    assert said.scenario["serve"] == {**plain.scenario["serve"], "engine_version": version}


def test_a_version_without_a_number_is_said_to_be_the_newest() -> None:
    assert any(note.startswith('"nightly" is no version number') for note in serve(engine_version="nightly").notes)
    assert not any("version number" in note for note in serve(engine_version="0.11.0").notes)


def test_the_older_engine_can_be_named():
    newer, older, told = (
        serve(engine_version=version, max_model_len=32768, **more)
        for version, more in (("0.9.2", {}), ("0.9.2 (V0)", {}), ("0.9.2", {"use_v1": False}))
    )
    assert told.quantities == older.quantities
    assert told.scenario == older.scenario
    assert newer.scenario["serve"]["max_num_batched_tokens"] == 8192
    assert older.scenario["serve"]["max_num_batched_tokens"] == 32768


def test_without_the_hybrid_manager_windows_are_charged_as_full_attention():
    length = {"max_model_len": 32768, "engine_version": "0.11.2"}
    windows = serve("google/gemma-3-27b-it", **length).quantities["max_concurrency"].expected
    whole = serve("google/gemma-3-27b-it", disable_hybrid_kv_cache_manager=True, **length)
    assert whole.quantities["max_concurrency"].expected < 0.6 * windows


def test_experts_of_4_bit_beside_layers_of_8_bit():
    weights = serve("deepseek-ai/DeepSeek-V4-Flash", gpus=4, tensor_parallel_size=4).quantities["weights"].expected
    assert 145 * GIB < 4 * weights < 155 * GIB  # the files of the repository: 160 GB


@pytest.mark.parametrize(
    ("speculative", "layers"),
    [({"method": "ngram"}, 32), ({"method": "eagle"}, 33), ({"method": "eagle3"}, 33)],
)
def test_a_drafting_layer_takes_a_share_of_the_cache(speculative: dict[str, Any], layers: int) -> None:
    result = serve(max_model_len=8192, speculative={**speculative, "num_tokens": 3}, kv_cache_memory_bytes=8 * GIB)
    assert result.quantities["kv_cache_blocks"].expected == 8 * GIB // (16 * layers * 4096)


def test_an_eagle_3_head_is_its_layer_its_join_and_its_own_vocabulary() -> None:
    plain, eagle = (serve(speculative=spec) for spec in (None, {"method": "eagle3", "num_tokens": 3}))
    added = eagle.quantities["weights"].expected - plain.quantities["weights"].expected
    h, kv, inner, vocabulary = 4096, 1024, 14336, 32000
    parts = 3 * h * h + 2 * h * (h + 2 * kv) + h * h + 3 * h * inner + vocabulary * h  # join, q k v, o, MLP, head
    assert added == pytest.approx(2 * parts, rel=1e-3)


def test_hidden_states_that_a_drafter_reads_stay_alive_beside_its_pass() -> None:
    """Starts of 0.24.0 in eager mode with 8,192 tokens (SpecDecoding-Study-vLLM-SGLang, Llama 3.1 8B on an A100):
    17.60 GiB are left for the cache without a drafter, 16.50 with EAGLE-3's, whose weights take 0.80 of the 1.10."""
    table = {"engine_version": "0.24.0", "max_num_batched_tokens": 8192, "max_model_len": 8192, "enforce_eager": True}
    peaks = [
        serve(**table, speculative=spec).quantities["activation_peak"].expected
        for spec in (None, {"method": "eagle", "num_tokens": 5}, {"method": "eagle3", "num_tokens": 5})
    ]
    state = 2 * 8192 * 4096
    assert peaks[1] == peaks[0]  # reads the last layer alone
    assert peaks[2] - peaks[0] == 6 * state  # three layers', their join, two of embeddings, the last; less a residual
    assert (peaks[2] - peaks[0]) / GIB == pytest.approx(1.10 - 0.80, abs=0.1)  # four roundings to 0.01 or 0.1


def test_beside_experts_the_states_of_three_layers_alone_are_counted_for_a_drafter() -> None:
    """Its own layer is dense and has less than the experts' layers that ran before it."""
    plain, eagle = (
        serve("Qwen/Qwen3-30B-A3B", engine_version="0.19.0", speculative=spec, max_num_batched_tokens=16384,
              max_num_seqs=64)
        .quantities["activation_peak"].expected
        for spec in (None, {"method": "eagle3", "num_tokens": 3})
    )  # fmt: skip
    assert eagle - plain == 3 * 2 * 16384 * 2048


def test_a_draft_model_is_counted_with_its_cache() -> None:
    speculative = {"method": "draft_model", "model": "meta-llama/Llama-3.2-1B", "num_tokens": 3}
    plain, drafted = (serve(max_model_len=8192, speculative=spec) for spec in (None, speculative))
    added = drafted.quantities["weights"].expected - plain.quantities["weights"].expected
    assert added == pytest.approx(2 * 1_235_814_400, rel=1e-3)
    assert drafted.quantities["kv_cache_tokens"].expected < plain.quantities["kv_cache_tokens"].expected


def test_a_cache_of_a_given_size_is_not_held_against_the_utilization():
    with pytest.raises(ScenarioError, match=f"vLLM refuses it: set it to {16 * GIB}, or max_model_len to 65,536"):
        serve(total=79.18, kv_cache_memory_bytes=8 * GIB, max_model_len=131072)
    assert serve(total=79.18, kv_cache_memory_bytes=16 * GIB, max_model_len=131072).verdict.fits  # type: ignore[union-attr]
    large = serve(total=24, kv_cache_memory_bytes=20 * GIB, max_model_len=131072)
    assert large.verdict is not None
    (both,) = (one for one in large.verdict.reasons if one.startswith("set kv_cache_memory_bytes to"))
    cache, length = (int(word.replace(",", "")) for word in both.split() if word[0].isdigit())
    cut = serve(total=24, kv_cache_memory_bytes=cache, max_model_len=length)
    assert cut.verdict is not None
    assert cut.verdict.fits, cut.verdict.reasons
    assert large.quantities["total_needed"].expected == large.phases[-1].bytes


@pytest.mark.parametrize(
    ("gpu", "cache", "version", "megabytes"),
    [
        ("b200", "auto", "0.33.0", 394),
        ("h100-sxm-80gb", "fp8_e4m3", "0.33.0", 0),
        ("rtx-5090", "auto", "0.33.0", 0),
        ("rtx-5090", "fp8_e4m3", "0.22.0", 394),
        ("rtx-5090", "fp8_e4m3", "0.24.0", 0),  # the second runner estimates no graphs before 0.29
        ("rtx-5090", "fp8_e4m3", "0.33.0", 394),
        ("rtx-5090", "fp8_e4m3", "0.19.1", 0),
    ],
)
def test_flashinfers_work_space_is_charged_with_the_graphs(gpu: str, cache: str, version: str, megabytes: int) -> None:
    result = serve(LLAMA, gpu, kv_cache_dtype=cache, engine_version=version, max_model_len=8192)
    found = result.phases[-1].components.find("CUDA graphs/FlashInfer work space")
    assert (found.bytes if found is not None else 0) == megabytes * MIB


@pytest.mark.parametrize(
    ("version", "per_logit", "state"),
    [("0.16.0", 38, 0), ("0.17.1", 14, 0), ("0.22.0", 14, 0), ("0.24.0", 6, 4.125), ("0.29.0", 2, 4.125),
     ("0.33.0", 14, 4.125)],
)  # fmt: skip
def test_the_sampler_holds_what_its_version_makes(version: str, per_logit: float, state: float) -> None:
    """Sorted logits until 0.16, masks after; the second model runner keeps counts of tokens for penalties."""
    result = serve(total=79.18, engine_version=version, max_num_batched_tokens=1024, max_num_seqs=1024)
    components = result.phases[-1].components
    logits = 1024 * 128256
    phase = components.find("profile run: sampler") or components.find("profile run: forward")
    assert phase is not None
    if phase.name.endswith("sampler"):
        drawn = phase.find("logits and probabilities")
        assert drawn is not None
        assert drawn.inputs["bytes_per_logit"] == per_logit
    else:
        assert phase.bytes >= per_logit * logits
    kept = components.find("sampler state")
    assert (kept.bytes if kept is not None else 0) == state * logits


def test_an_old_card_of_32_gb_keeps_no_sorted_logits_in_0_18() -> None:
    """vLLM 0.18.0 log of Qwen2.5-7B on a card before compute capability 8.0, eager: 14.25 + 13.1 GiB of 28.56."""
    result = serve(
        "Qwen/Qwen2.5-7B-Instruct", "v100-sxm2-32gb", engine_version="0.18.0", dtype="fp16", enforce_eager=True,
        max_model_len=32768, max_num_batched_tokens=8192,
    )  # fmt: skip
    assert gib(result, "kv_cache_bytes") == pytest.approx(13.1, rel=0.01)


def test_a_tower_keeps_its_images_and_its_deepstack_levels() -> None:
    """vLLM 0.7.4 log of Qwen2.5-VL-3B at 32,768 tokens: 4.06 GiB at the peak."""
    settings = {"total": 24, "engine_version": "0.7.4", "max_model_len": 32768}
    assert gib(serve("Qwen/Qwen2.5-VL-3B-Instruct", **settings), "activation_peak") == pytest.approx(4.06, rel=0.06)


def test_an_encoder_gets_no_kv_cache() -> None:
    """vLLM v1/engine/core.py _initialize_kv_caches: no memory for caches where no layer has one."""
    result = serve("bert-base-uncased")
    assert result.quantities["kv_cache_bytes"].high == 0
    assert result.quantities["nvidia_smi"].expected < 4 * GIB
    assert result.verdict is not None
    assert result.verdict.fits
    assert result.verdict.reasons[0].startswith("the model keeps no KV cache")


def test_experts_that_data_ranks_share_are_padded_at_the_width_that_is_left() -> None:
    """GPT-OSS's experts over two ranks of tensors or of data: 2,880 / 2 columns each."""
    added = [
        serve("openai/gpt-oss-20b", gpus=2, **{ranks: 2}).phases[0].components.find("weights/expert padding")
        for ranks in ("tensor_parallel_size", "data_parallel_size")
    ]
    of_tensor_ranks, of_data_ranks = (node.bytes for node in added if node is not None)
    assert of_tensor_ranks == of_data_ranks > 0


def test_a_tower_whose_heads_do_not_divide_is_whole_on_every_rank() -> None:
    """InternViT-6B has 25 heads: its attention, and its projector however many heads, are on each of two ranks."""
    config = {**resolve("OpenGVLab/InternVL2-2B").config}
    text, vision = config["llm_config"]["hidden_size"], config["vision_config"]
    held = {}
    for heads in (25, 32):
        tower = {**vision, "hidden_size": 3200, "num_attention_heads": heads, "num_hidden_layers": 45}
        result = serve({**config, "vision_config": tower}, gpus=2, engine_version="0.8.5", tensor_parallel_size=2)
        held[heads] = result.phases[0].components.find("weights/towers kept whole")
    projector = (4 * 3200 + 1) * text + text * text
    assert held[32] is not None
    assert held[32].bytes == projector
    assert held[25] is not None
    assert held[25].bytes == projector + 45 * (4 * 3200 * 3200 + 3 * 3200)


def test_a_longer_prompt_lowers_no_end_of_a_need_that_what_lies_beside_the_share_decides() -> None:
    """The context needs a tenth of the card; the activation, far smaller, grows with the length."""
    tiny = {
        "model_type": "deepseek_v32", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 4, "kv_lora_rank": 4, "q_lora_rank": 8, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8, "v_head_dim": 4, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 2,
        "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 8,
        "first_k_dense_replace": 1,
    }  # fmt: skip

    def need(length: int) -> Quantity:
        serve = {"engine": "vllm", "max_model_len": length, "max_num_batched_tokens": 2048}
        scenario = {"model": tiny, "task": "serve", "gpu": "t4", "serve": serve}
        return estimate(scenario).quantities["total_needed"]

    short, long = need(2048), need(65_536)
    assert long.expected == short.expected
    assert long.low >= short.low
    assert long.high >= short.high


def test_a_dtype_that_only_the_catalog_leaves_out_is_not_said_of_the_config() -> None:
    """Its real config states bfloat16; what the catalog has of it came without."""
    notes = estimate("meta-llama/Llama-3.3-70B-Instruct", task="serve", engine="vllm").notes
    assert "nothing here states the dtype of its files: bf16 is assumed, say dtype to change it" in notes
    assert not any("the config states no dtype" in note for note in notes)


@pytest.mark.parametrize(
    ("gpu", "ranks", "version", "printed"),
    [("w7900", 2, "0.7.2", (0.39, 0.42)), ("mi100", 1, "0.8.5", (0.46,)), ("mi100", 2, "0.8.5", (0.59, 0.72, 0.73))],
)
def test_amd_cards_hold_more_outside_torch(
    gpu: str, ranks: int, version: str, printed: tuple[float, ...]
) -> None:  # the older two were a Radeon Pro VII and two MI50, which the catalog lacks
    serve = {"engine": "vllm", "engine_version": version, "tensor_parallel_size": ranks, "dtype": "fp16"}
    result = estimate({"model": "Qwen/Qwen3-0.6B" if version > "0.8" else "Qwen/Qwen2.5-0.5B-Instruct",
                       "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": serve})  # fmt: skip
    found = result.phases[-1].components.find("non-torch")
    assert found is not None
    assert all(found.low <= one * 2**30 <= found.high for one in printed)
