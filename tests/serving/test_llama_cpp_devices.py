"""llama.cpp on several devices: layers by device against logs, and what fits where.

Figures of "0c1e57098" are those of llama-fit-params of that llama.cpp over two RPC devices, with files that hold
metadata and shapes alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.serving.llama_cpp.devices import split_points
from vramwise.units import MIB

CASES = Path(__file__).parents[2] / "benchmarks" / "cases" / "llamacpp.jsonl"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"


def serve(model: Any, num_gpus: int | None = None, gpu: str | None = None, **settings: Any) -> Result:
    scenario: dict[str, Any] = {"model": model, "task": "serve", "serve": {"engine": "llama.cpp", **settings}}
    scenario |= {key: value for key, value in (("num_gpus", num_gpus), ("gpu", gpu)) if value is not None}
    return estimate(scenario)


def by_device(result: Result, name: str) -> list[float]:
    node = next(phase for phase in result.phases if phase.name == "context").components.find(name)
    assert node is not None
    return [round(child.bytes / MIB, 2) for child in node.children]


def test_layers_of_a_log_with_two_devices() -> None:
    """b6209, Llama 3.1 70B Q4_0 on two RPC devices: 41 layers on the first, 39 and the output on the second."""
    result = serve(LLAMA_70B, 2, engine_version="b6209", gguf_quant="Q4_0", n_ctx=4096, n_parallel=1, flash_attn=False)
    assert by_device(result, "weights") == [18821.56, 18725.42]
    assert by_device(result, "KV cache") == [656.0, 624.0]


def test_ik_llama_cpp_deals_bytes_out_not_layers() -> None:
    """b4502 of ik_llama.cpp, Qwen3.5-122B BF16: 16 layers each, and the output on the last."""
    result = serve("Qwen/Qwen3.5-122B-A10B", 3, variant="ik_llama.cpp", engine_version="b4502", gguf_quant="BF16",
                   n_ctx=512, n_parallel=1, n_gpu_layers=49)  # fmt: skip
    assert by_device(result, "weights") == pytest.approx([76691.83, 76691.83, 78146.84], abs=0.1)
    assert by_device(result, "KV cache") == [4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    ("split", "weights", "cache"),
    [([], [3757, 3847], [544, 480]), ([3.0, 1.0], [5525, 2079], [800, 224])],
)
def test_the_tensor_split_of_0c1e57098(split: list[float], weights: list[int], cache: list[int]) -> None:
    result = serve(LLAMA, 2, gguf_quant="Q8_0", n_ctx=8192, n_parallel=1, flash_attn=True, tensor_split=split)
    assert [int(size) for size in by_device(result, "weights")] == weights
    assert by_device(result, "KV cache") == cache


def test_shares_count_the_gpus_and_a_share_of_nothing_holds_nothing() -> None:
    result = serve(LLAMA, gguf_quant="Q8_0", n_ctx=8192, tensor_split=[0, 1, 1])
    assert result.scenario["num_gpus"] == 3
    assert by_device(result, "weights")[0] == by_device(result, "compute buffer")[0] == 0
    fewer = serve(LLAMA, 1, gguf_quant="Q8_0", n_ctx=8192, tensor_split=[1, 3])
    assert any("first 1 of 2 shares" in note for note in fewer.notes)


def test_split_points_are_those_of_32_bit_floats() -> None:
    assert split_points((1.0, 1.0, 1.0))[0] == 0.3333333432674408
    assert split_points((3.0, 1.0)) == (0.75, 1.0)


def test_split_modes() -> None:
    one = serve(LLAMA, 2, gguf_quant="Q8_0", n_ctx=8192, split_mode="none")
    alone = serve(LLAMA, 1, gguf_quant="Q8_0", n_ctx=8192)
    assert one.quantities["total_needed"] == alone.quantities["total_needed"]
    rows = serve(LLAMA, 2, gguf_quant="Q8_0", n_ctx=8192, split_mode="row")
    first, second = by_device(rows, "weights")
    assert first == pytest.approx(second, rel=0.001)
    assert sum((first, second)) == pytest.approx(alone.quantities["weights_gpu"].expected / MIB, abs=0.01)


def test_the_fullest_device_decides() -> None:
    """48 GiB over two cards hold a 70B file, but not with three quarters of it on one of them."""
    fits = serve("meta-llama/Llama-3.3-70B-Instruct", 2, "rtx-3090", gguf_quant="Q4_K_M", n_ctx=8192)
    assert fits.verdict is not None
    assert fits.verdict.fits
    uneven = serve("meta-llama/Llama-3.3-70B-Instruct", 2, "rtx-3090", gguf_quant="Q4_K_M", n_ctx=8192,
                   tensor_split=[3, 1])  # fmt: skip
    assert uneven.verdict is not None
    assert not uneven.verdict.fits
    split = next(reason for reason in uneven.verdict.reasons if reason.startswith("set tensor_split to "))
    shares = [float(share) for share in split.split()[-1].split(",")]
    better = serve("meta-llama/Llama-3.3-70B-Instruct", 2, "rtx-3090", gguf_quant="Q4_K_M", n_ctx=8192,
                   tensor_split=shares)  # fmt: skip
    assert better.verdict is not None
    assert better.verdict.fits
    assert max(rank.bytes for rank in better.ranks) == max(
        rank.bytes for rank in better.ranks if rank.name.startswith("GPU ")
    )


LLAMA_2 = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 6,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
GEMMA = "google/gemma-3-27b-it"


@pytest.mark.parametrize(
    ("model", "settings", "compute", "host"),
    [
        (LLAMA, {"n_ctx": 8192, "flash_attn": True}, 258.50, 24.01),
        (LLAMA, {"n_ctx": 131072, "n_ubatch": 2048, "flash_attn": True}, 1034.0, 576.05),
        (LLAMA, {"n_ctx": 4096, "flash_attn": False}, 300.01, 28.01),
        (LLAMA, {"n_ctx": 16384, "flash_attn": False}, 1092.01, 52.01),
        (LLAMA, {"n_ctx": 16384, "n_ubatch": 256, "flash_attn": False}, 546.0, 26.0),
        (LLAMA, {"n_ctx": 16384, "flash_attn": True, "n_parallel": 4, "kv_unified": False}, 258.50, 20.01),
        (GEMMA, {"n_ctx": 32768, "flash_attn": True}, 522.62, 54.52),
        (GEMMA, {"n_ctx": 32768, "flash_attn": True, "n_parallel": 4, "kv_unified": False}, 522.62, 30.52),
        (LLAMA_2, {"n_ctx": 4096, "flash_attn": True}, 92.51, 20.01),
        (LLAMA_2, {"n_ctx": 4096, "flash_attn": False}, 312.01, 40.01),
        (DEEPSEEK, {"n_ctx": 16384, "flash_attn": True}, 394.01, 44.01),
        (DEEPSEEK, {"n_ctx": 65536, "flash_attn": True}, 442.01, 92.01),
        (DEEPSEEK, {"n_ctx": 32768, "n_ubatch": 1024, "flash_attn": True}, 820.02, 120.02),
        (DEEPSEEK, {"n_ctx": 4096, "flash_attn": False}, 1410.01, 36.01),
        (DEEPSEEK, {"n_ctx": 16384, "flash_attn": False}, 4506.01, 60.01),
    ],
)
def test_buffers_of_one_device_at_0c1e57098(model: Any, settings: dict[str, Any], compute: float, host: float) -> None:
    result = serve(model, 1, gguf_quant="Q8_0", ggml_backend="other", **{"n_parallel": 1, **settings})
    assert result.quantities["compute_buffer"].expected / MIB == pytest.approx(compute, abs=0.05)
    assert result.quantities["host_buffer"].expected / MIB == pytest.approx(host, abs=0.05)


def test_windows_of_gemma_3_at_0c1e57098() -> None:
    """10 layers of the whole context, 52 of 1,024 + 512 cells a slot; the host holds masks and indices of both."""
    one = serve(GEMMA, 1, gguf_quant="Q8_0", n_ctx=32768, n_parallel=1, flash_attn=False)
    four = serve(GEMMA, 1, gguf_quant="Q8_0", n_ctx=32768, n_parallel=4, kv_unified=False)
    full = serve(GEMMA, 1, gguf_quant="Q8_0", n_ctx=32768, n_parallel=1, swa_full=True)
    caches = [result.quantities["kv_cache_bytes"].expected / MIB for result in (one, four, full)]
    assert caches == [2560 + 624, 2560 + 2496, 2560 + 13312]
    assert one.quantities["host_buffer"].expected / MIB == pytest.approx(104.01, abs=0.02)
    assert one.quantities["weights_gpu"].expected // MIB == 27371


@pytest.mark.parametrize(
    ("settings", "compute", "host"),
    [
        ({"n_ctx": 8192, "flash_attn": True}, [172.04, 322.55], 72.05),
        ({"n_ctx": 65536, "n_ubatch": 2048, "flash_attn": True}, [1584.16, 2186.19], 1184.22),
        ({"n_ctx": 8192, "flash_attn": False}, [656.02, 656.03], 120.04),
        ({"n_ctx": 8192, "flash_attn": True, "split_mode": "none"}, [258.50], 24.01),
    ],
)
def test_pipelined_devices_keep_four_copies_of_their_inputs(
    settings: dict[str, Any], compute: list[float], host: float
) -> None:
    result = serve(LLAMA, 2, "rtx-4090", gguf_quant="Q8_0", n_parallel=1, **settings)
    printed = by_device(result, "compute buffer") or [result.quantities["compute_buffer"].expected / MIB]
    assert printed == pytest.approx(compute, abs=0.2)
    assert result.quantities["host_buffer"].expected / MIB == pytest.approx(host, abs=0.2)


def test_copies_are_given_up_where_they_find_no_room() -> None:
    settings: dict[str, Any] = {
        "gguf_quant": "Q4_K_M", "n_ctx": 24576, "n_ubatch": 2048, "flash_attn": True, "fit": False,
    }  # fmt: skip
    result = serve("meta-llama/Llama-3.3-70B-Instruct", 2, "rtx-3090", **settings)
    assert any("no room for pipeline parallelism" in note for note in result.notes)


def test_unpacked_latents_of_ik_llama_cpp() -> None:
    """b3668: DeepSeek-V3, -mla 2 -amb 512, 503.00 MiB; b3808: Kimi K2 on two cards, 263.00 and 334.00 MiB."""
    shared = {"variant": "ik_llama.cpp", "gguf_quant": "custom", "n_ctx": 2048, "flash_attn": True, "attn_max_b": 512,
              "cache_type_k": "q8_0", "fused_moe": 1, "cpu_moe": True}  # fmt: skip
    deepseek = serve(DEEPSEEK, 1, engine_version="b3668", mla_attn=2, **shared)
    assert round(deepseek.quantities["compute_buffer"].expected / MIB, 2) == 503.0
    config = next(row["scenario"]["model"] for row in map(json.loads, CASES.read_text().splitlines())
                  if row["id"].startswith("ik217-kimi-k2"))  # fmt: skip
    kimi = serve(config, 2, engine_version="b3808", mla_attn=3, **shared)
    assert by_device(kimi, "compute buffer") == [263.0, 334.0]


def test_the_cache_may_stay_on_the_host() -> None:
    result = serve(LLAMA, 1, gguf_quant="Q8_0", n_ctx=8192, n_parallel=1, no_kv_offload=True)
    node = result.phases[1].components.find("KV cache")
    assert node is not None
    assert node.bytes == 0
    assert result.quantities["kv_cache_bytes"].expected == 1024 * MIB


def test_a_draft_model_has_weights_cache_and_buffer_of_its_own() -> None:
    plain = serve(LLAMA, 1, gguf_quant="Q8_0", n_ctx=8192, n_parallel=1)
    draft = {"method": "draft_model", "model": "meta-llama/Llama-3.2-1B-Instruct", "gguf_quant": "Q8_0"}
    both = serve(LLAMA, 1, gguf_quant="Q8_0", n_ctx=8192, n_parallel=1, speculative=draft)
    node = both.phases[-1].components.find("draft model")
    assert node is not None
    alone = serve("meta-llama/Llama-3.2-1B-Instruct", 1, gguf_quant="Q8_0", n_ctx=8192, n_parallel=1)
    own = sum(alone.quantities[name].expected for name in ("weights_gpu", "kv_cache_bytes", "compute_buffer"))
    assert node.bytes == own
    assert both.quantities["total_needed"].expected == plain.quantities["total_needed"].expected + own
    on_host = serve(LLAMA, 1, gguf_quant="Q8_0", n_ctx=8192, speculative={**draft, "n_gpu_layers": 0})
    assert on_host.quantities["total_needed"].expected < both.quantities["total_needed"].expected
    two = serve(LLAMA, 2, gguf_quant="Q8_0", n_ctx=8192, speculative=draft)
    assert len(by_device(two, "draft model")) == 2


HYBRID = "Qwen/Qwen3.8-27B"


def test_predicting_layers_have_a_context_of_their_own() -> None:
    """common/speculative.cpp: a second context on the loaded model, its cache f16 whatever the model's own is."""
    settings: dict[str, object] = {
        "gguf_quant": "Q4_K_M", "n_ctx": 131072, "n_parallel": 1, "flash_attn": True, "cache_type_k": "q4_0",
        "cache_type_v": "q4_0", "engine_version": "b10473",
    }  # fmt: skip
    plain = serve(HYBRID, 1, **settings)
    both = serve(HYBRID, 1, **settings, speculative={"method": "mtp", "num_tokens": 2})
    node = both.phases[-1].components.find("predicting layers")
    assert node is not None
    assert plain.phases[-1].components.find("predicting layers") is None
    one_layer = 131072 * 2 * 4 * 256 * 2  # cells × (keys and values) × heads × width × f16
    assert node.find("KV cache").bytes == one_layer  # type: ignore[union-attr]
    states = both.quantities["recurrent_state_bytes"].expected - plain.quantities["recurrent_state_bytes"].expected
    more = both.quantities["total_needed"].expected - plain.quantities["total_needed"].expected
    assert more == node.bytes + states
    # 20,134 - 18,842 MiB on a 3090 Ti, 20,152 - 18,864 on a GA100 (sudoingX/qwen38-mtp, c7bc415)
    assert more == pytest.approx(1290 * MIB, rel=0.06)


def test_the_drafting_contexts_cache_has_a_type_of_its_own() -> None:
    """`--spec-draft-type-k`, `--spec-draft-type-v` (common/arg.cpp): f16 unless told otherwise."""
    settings: dict[str, object] = {"gguf_quant": "Q4_K_M", "n_ctx": 131072, "n_parallel": 1, "flash_attn": True}
    drafts = {"method": "mtp", "num_tokens": 2}
    q8 = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    wide, narrow = (
        serve(HYBRID, 1, **settings, speculative=told).phases[-1].components.find("predicting layers").find("KV cache")  # type: ignore[union-attr]
        for told in (drafts, {**drafts, **q8})
    )
    assert wide is not None
    assert narrow is not None
    assert narrow.bytes * 32 == wide.bytes * 17  # 34 bytes for 32 values
    draft = {"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "gguf_quant": "Q8_0"}
    plain, quantized = (
        serve("Qwen/Qwen3-8B", 1, **settings, speculative=told).quantities["total_needed"].expected
        for told in (draft, {**draft, **q8})
    )
    assert quantized < plain


def test_predicting_layers_of_a_model_without_states_repeat_every_layers_cache() -> None:
    """ggml-org/llama.cpp issue 28626 (b10820): no filter keeps the second cache to the predicting layers."""
    both = serve("zai-org/GLM-4.5-Air", 1, gguf_quant="Q4_K_M", n_ctx=8192, n_parallel=1,
                 speculative={"method": "mtp", "num_tokens": 1})  # fmt: skip
    node = both.phases[-1].components.find("predicting layers")
    assert node is not None
    kv = node.find("KV cache")
    assert kv is not None
    assert kv.bytes == both.quantities["kv_cache_bytes"].expected
    assert kv.low < kv.bytes // 40
    two = serve("zai-org/GLM-4.5-Air", 2, gguf_quant="Q4_K_M", n_ctx=8192, n_parallel=1,
                speculative={"method": "mtp", "num_tokens": 1})  # fmt: skip
    assert [size > 0 for size in by_device(two, "predicting layers")] == [False, True]


def test_layers_that_predict_have_their_context_in_a_mix_of_its_makers_own_too() -> None:
    drafts = {"n_ctx": 8192, "n_parallel": 1, "speculative": {"method": "mtp", "num_tokens": 1}}
    mixed = serve("zai-org/GLM-4.5-Air", 1, gguf_quant="custom", **drafts)
    assert by_device(mixed, "predicting layers") == by_device(
        serve("zai-org/GLM-4.5-Air", 1, gguf_quant="Q4_K_M", **drafts), "predicting layers"
    )


def test_a_projector_lies_on_the_first_device() -> None:
    model = "google/gemma-3-27b-it"
    plain = serve(model, 2, gguf_quant="Q4_K_M", n_ctx=8192)
    seeing = serve(model, 2, gguf_quant="Q4_K_M", n_ctx=8192, mmproj="auto")
    first, second = by_device(seeing, "projector")
    assert second == 0
    assert 800 < first < 1400  # 430 M parameters of the tower in 16 bit, and its buffer
    assert seeing.quantities["weights_gpu"] == plain.quantities["weights_gpu"]
    beside = serve(model, 2, gguf_quant="Q4_K_M", n_ctx=8192, mmproj="auto", mmproj_offload=False)
    assert beside.quantities["total_needed"] == plain.quantities["total_needed"]
    assert serve(LLAMA, 1, mmproj="auto").quantities["total_needed"] == serve(LLAMA, 1).quantities["total_needed"]


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_more_devices_than_llama_cpp_has_room_for_are_refused(engine: str) -> None:
    assert serve(LLAMA, 16, engine=engine).ranks
    with pytest.raises(ScenarioError, match=r"num_gpus: .* takes at most 16 GPUs, got 9,007,199,254,740,991"):
        serve(LLAMA, 2**53 - 1, engine=engine)


@pytest.mark.parametrize(
    ("ubatch", "context", "bound", "printed_mib", "masks_mib", "hidden_mib"),
    [(256, 32768, None, 4466.00, 32, 14), (1024, 163840, 1024, 5088.02, 640, 56)],
)
def test_ik_without_flash_attention_holds_as_many_heads_scores_as_it_may(
    ubatch: int, context: int, bound: int | None, printed_mib: float, masks_mib: int, hidden_mib: int
) -> None:
    """Pull requests 235 and 237 (DeepSeek-R1, -mla 2): a GPU of 15 with four copies of masks and hidden states."""
    settings = {"variant": "ik_llama.cpp", "engine_version": "b3576", "gguf_quant": "Q4_K_M", "mla_attn": 2}
    sizes = {"n_ctx": context, "n_batch": ubatch, "n_ubatch": ubatch, "flash_attn": False, "attn_max_b": bound}
    found = serve(DEEPSEEK, 1, **settings, **sizes).quantities["compute_buffer"].expected / MIB
    assert found - masks_mib == pytest.approx(printed_mib - 4 * (masks_mib + hidden_mib), abs=3)
