"""llama.cpp's files and buffers against published sizes and start-up logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise.errors import ScenarioError, UnsupportedModelError
from vramwise.estimation import described_model, estimate
from vramwise.models import describe
from vramwise.result import Result
from vramwise.serving.common.gguf.quantizer import typed_tensors
from vramwise.serving.llama_cpp.builds import LATEST_BUILD, build_of
from vramwise.units import MIB

CASES = Path(__file__).parents[2] / "benchmarks" / "cases" / "llamacpp.jsonl"
LLAMA_2_7B = "meta-llama/Llama-2-7b-hf"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def file_bytes(model: str, file_type: str, imatrix: bool = False) -> int:
    return sum(typed.bytes for typed in typed_tensors(described_model(model)[1], file_type, imatrix))


@pytest.mark.parametrize(
    ("model", "file_type", "printed"),
    [
        (LLAMA_2_7B, "Q4_0", 3_825_065_984),  # lhl/strix-halo-testing results.jsonl: bytes of the file's tensors
        (LLAMA_2_7B, "Q4_K_M", 4_080_263_168),
        ("Qwen/Qwen3-32B", "Q8_0", 34_811_744_256),
    ],
)
def test_file_sizes_to_the_byte(model: str, file_type: str, printed: int) -> None:
    assert file_bytes(model, file_type) == printed


def quantize_rows() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [row for row in lines if row["id"].startswith("quantize-")]


@pytest.mark.parametrize("row", quantize_rows(), ids=lambda row: str(row["scenario"]["serve"]["gguf_quant"]))
def test_llama_3_1_8b_in_every_mix(row: dict[str, Any]) -> None:
    """tools/quantize/README.md prints GiB with two digits."""
    expected = estimate(row["scenario"]).quantities["weights"].expected
    assert abs(expected - row["measured"]["weights"]) <= row["precision_bytes"]["weights"]


def serve(model: Any = LLAMA, **serve: Any) -> Result:
    scenario: dict[str, Any] = {"model": model, "task": "serve"}
    for key in ("gpu", "num_gpus", "gpu_total_bytes"):
        if key in serve:
            scenario[key] = serve.pop(key)
    return estimate({**scenario, "serve": {"engine": "llama.cpp", **serve}})


def mib(result: Result, name: str) -> float:
    return round(result.quantities[name].expected / MIB, 2)


def test_a_whole_log_without_flash_attention() -> None:
    """ggml CI log b2459: open-llama 7B F16 on a V100, context 2,048."""
    result = serve(
        "huggyllama/llama-7b", engine_version="b2459", gguf_quant="F16", n_ctx=2048, n_batch=512, n_ubatch=512,
        flash_attn=False, n_gpu_layers=33,
    )  # fmt: skip
    assert mib(result, "weights_gpu") == 12603.02
    assert mib(result, "weights_host") == 250.0
    assert mib(result, "kv_cache_bytes") == 1024.0
    assert mib(result, "compute_buffer") == 164.0
    assert mib(result, "host_buffer") == pytest.approx(12.0, abs=0.02)


def test_a_whole_log_with_flash_attention_and_shared_slots() -> None:
    """Log of b7342: Qwen3-Coder-30B-A3B Q8_0, context 65,536, four slots over one cache."""
    result = serve(
        "Qwen/Qwen3-30B-A3B", engine_version="b7342", gguf_quant="Q8_0", n_ctx=65536, n_parallel=4, kv_unified=True,
        flash_attn=True,
    )  # fmt: skip
    assert mib(result, "weights_gpu") == 30658.12
    assert mib(result, "weights_host") == 315.3
    assert mib(result, "kv_cache_bytes") == 6144.0
    assert mib(result, "compute_buffer") == 300.75
    assert mib(result, "host_buffer") == 132.01
    assert mib(result, "output_buffer") == 2.32


@pytest.mark.parametrize("case", ["ik33-gemma-3-27b-it", "thi27-qwen3-5-122b", "thi29-qwen3-5-27b", "log-gpt-oss-20b"])
def test_a_device_holds_padded_rows_aligned_tensors_and_vectors_in_32_bits(case: str) -> None:
    """Printed buffers of devices, to their last digit: rows of 5,376 and 2,880 padded to 512 and aligned to 128 bytes,
    48 heads' scalars aligned, the gate of a shared expert a vector."""
    lines = (json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines())
    measured = next(line for line in lines if line["id"].startswith(case))
    expected = estimate(measured["scenario"]).quantities["weights_gpu"].expected
    assert abs(expected - measured["measured"]["weights_gpu"]) <= measured["precision_bytes"]["weights_gpu"]


def test_windows_experts_on_the_host_and_their_biases() -> None:
    """Log of gpt-oss-20b: 3,072 MiB of full cache and 18 MiB of 768 cells; experts stay on the host."""
    result = serve(
        "openai/gpt-oss-20b", gguf_quant="MXFP4_MOE", n_ctx=131072, n_parallel=1, n_cpu_moe=24, flash_attn=True
    )
    assert mib(result, "kv_cache_bytes") == 3090.0
    assert mib(result, "weights_gpu") == pytest.approx(1242.03, abs=0.02)
    whole = serve("openai/gpt-oss-20b", gguf_quant="MXFP4_MOE", n_ctx=131072, n_parallel=1, swa_full=True)
    assert mib(whole, "kv_cache_bytes") == 6144.0


def test_tied_embeddings_lie_on_both_sides() -> None:
    result = serve("meta-llama/Llama-3.2-3B-Instruct", gguf_quant="Q4_K_M")
    weights, gpu = (result.quantities[name].expected for name in ("weights", "weights_gpu"))
    assert 0 <= gpu - weights < 64 * 1024  # rows end on 512 weights
    assert result.quantities["weights_host"].expected == 128256 * 3072 * 210 // 256


def test_layers_go_to_the_gpu_from_the_end() -> None:
    """The output counts as a layer and goes first: llama-fit-params of 0c1e57098 prints 240 MiB for -ngl 16."""
    full, half, none = (serve(gguf_quant="Q8_0", n_ctx=4096, n_gpu_layers=n) for n in (33, 16, 0))
    for result in (full, half, none):
        held = result.quantities["weights_gpu"].expected + result.quantities["weights_host"].expected
        assert held == result.quantities["weights"].expected  # 4,096 and 14,336 columns need no padding
    assert [cache_on_gpu(result) for result in (full, half, none)] == [512, 240, 0]
    assert half.quantities["weights_gpu"].expected // MIB == 3847
    assert half.quantities["compute_buffer"].expected == full.quantities["compute_buffer"].expected


def test_before_the_output_counted_as_a_layer_it_left_the_gpu_first() -> None:
    settings = {"gguf_quant": "Q8_0", "n_ctx": 4096, "flash_attn": True, "engine_version": "b6209"}
    old = [serve(n_gpu_layers=n, **settings) for n in (33, 16)]
    assert [cache_on_gpu(result) for result in old] == [512, 256]
    full, half = old
    # the output's weight is copied to the GPU for large batches
    copied = half.quantities["compute_buffer"].expected - full.quantities["compute_buffer"].expected
    assert copied == 128256 * 4096 * 34 // 32


def cache_on_gpu(result: Result) -> float:
    node = result.phases[1].components.find("KV cache")
    assert node is not None
    return node.bytes / MIB


def test_heads_of_latent_attention_are_unpacked_a_part_at_a_time() -> None:
    """ik_llama.cpp b85a2a50d: of each head at hand keys and values in f16 (128 + 64 and 128 wide), and raw in f32."""
    options = {"variant": "ik_llama.cpp", "gguf_quant": "custom", "n_ctx": 32768, "mla_attn": 3, "flash_attn": True}
    one, two = (
        serve("deepseek-ai/DeepSeek-R1", gpu_total_bytes=2**41, engine_version="b4200", attn_max_b=most, **options)
        for most in (512, 1024)
    )
    sixteen_heads = 16 * 32768 * (2 * (128 + 64 + 128) + 4 * (128 + 128)) / MIB
    assert mib(two, "compute_buffer") - mib(one, "compute_buffer") == sixteen_heads


def test_quantized_and_latent_caches() -> None:
    """ik_llama.cpp logs of DeepSeek-R1: 1,166.62 MiB at 32,768 tokens; 4.77 MiB a token with whole heads."""
    latent = serve(
        "deepseek-ai/DeepSeek-R1", variant="ik_llama.cpp", gguf_quant="custom", n_ctx=32768, cache_type_k="q8_0",
        mla_attn=3,
    )  # fmt: skip
    assert mib(latent, "kv_cache_bytes") == 1166.62
    assert "weights" not in latent.quantities
    whole = serve("deepseek-ai/DeepSeek-R1", variant="ik_llama.cpp", gguf_quant="Q8_0", n_ctx=512, mla_attn=0)
    assert mib(whole, "kv_cache_bytes") == 2440.0
    one = {"variant": "ik_llama.cpp", "gguf_quant": "custom", "n_ctx": 32768, "mla_attn": 1}
    flash, not_flash = (serve("deepseek-ai/DeepSeek-R1", flash_attn=on, **one) for on in (True, False))
    assert (
        mib(flash, "kv_cache_bytes") == 32768 * 61 * 576 * 2 / MIB
    )  # no transposed values: flash attention reads keys
    assert mib(not_flash, "kv_cache_bytes") == 32768 * 61 * (576 + 512) * 2 / MIB


def test_cpu_only_reports_its_compute_buffer_as_host_buffer() -> None:
    """ik_llama.cpp log: GLM-Z1-Rumination-32B BF16 on the CPU, context 8,192, no flash attention."""
    result = serve("Qwen/Qwen3-30B-A3B", gguf_quant="Q5_K_M", n_ctx=4096, num_gpus=0, n_parallel=1, flash_attn=False,
                   engine_version="b5273")  # fmt: skip
    assert mib(result, "host_buffer") == 300.75
    assert mib(result, "weights_host") == pytest.approx(20713.44, abs=0.1)
    assert "compute_buffer" not in result.quantities
    assert [phase.name for phase in result.phases] == ["load", "running"]


def test_a_context_that_was_not_asked_for_shrinks_to_fit() -> None:
    result = serve(gpu="rtx-3090", gguf_quant="Q8_0")
    n_ctx = result.scenario["serve"]["n_ctx"]
    assert 4096 <= n_ctx < 131072
    assert n_ctx % 256 == 0
    assert result.verdict is not None
    assert result.verdict.fits
    assert serve(gpu="rtx-3090", gguf_quant="Q8_0", fit=False).scenario["serve"]["n_ctx"] == 131072
    asked = serve(gpu="rtx-3090", gguf_quant="Q8_0", n_ctx=131072, fit=False)
    assert asked.verdict is not None
    assert not asked.verdict.fits
    assert any(reason.startswith("set n_ctx to") for reason in asked.verdict.reasons)


@pytest.mark.parametrize(
    ("version", "gpu", "expected"),
    [
        ("0.6.4", "rtx-3090", (8192, 512, 4, False)),  # envconfig/config.go: 2,048 a slot, four slots where they fit
        ("0.6.7", "rtx-3090", (16384, 512, 4, False)),
        ("0.13.0", "rtx-3090", (4096, 512, 1, False)),
        ("0.15.0", "rtx-3090", (4096, 512, 1, True)),  # llama_context: Flash Attention was auto, set to enabled
        ("0.15.5", "rtx-3090", (32768, 512, 1, True)),  # server/routes.go: 23 GiB and more
        ("0.33.0", "rtx-3090", (32768, 1024, 1, True)),  # server/sched.go: batch by context
        ("0.33.0", "h100-sxm-80gb", (131072, 2048, 1, True)),  # 262,144, but no more than the model's own
        ("0.33.0", "rtx-4060-8gb", (4096, 512, 1, True)),
    ],
)
def test_ollama_takes_its_own_defaults_by_version_and_vram(
    version: str, gpu: str, expected: tuple[int, int, int, bool]
) -> None:
    table = serve(engine="ollama", engine_version=version, gpu=gpu).scenario["serve"]
    assert (table["n_ctx"], table["n_batch"], table["n_parallel"], table["flash_attn"]) == expected
    assert table["gguf_quant"] == "Q4_K_M"


def test_ollama_turns_flash_attention_on_by_architecture() -> None:
    on = [serve("openai/gpt-oss-20b", engine="ollama", engine_version=v).scenario["serve"] for v in ("0.11.7", "0.12")]
    assert [table["flash_attn"] for table in on] == [False, True]


def test_rows_that_do_not_divide_take_the_fallback_type() -> None:
    odd = describe(
        {"model_type": "llama", "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 64}
    )  # fmt: skip
    types = {typed.tensor.name: typed.type.name for typed in typed_tensors(odd, "Q4_K_S", False)}
    assert types["ffn_gate"] == "Q5_0"
    assert types["output"] == "Q8_0"
    assert types["norm" if "norm" in types else "kept"] == "F32"


def test_every_measured_case_is_answered() -> None:
    for line in CASES.read_text().splitlines():
        try:
            result = estimate(json.loads(line)["scenario"])
        except UnsupportedModelError:
            continue
        assert result.phases


def test_recurrent_states() -> None:
    """Log of Mamba-2.8B: 23.75 MiB a sequence."""
    mamba = {
        "model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280, "state_size": 16,
        "conv_kernel": 4, "expand": 2, "intermediate_size": 5120, "time_step_rank": 160,
    }  # fmt: skip
    assert mib(serve(mamba, n_parallel=1, gguf_quant="F16"), "recurrent_state_bytes") == 23.75
    assert mib(serve(mamba, n_parallel=2, gguf_quant="F16"), "recurrent_state_bytes") == 47.5


def test_layers_for_multi_token_prediction_have_a_cache_in_ik() -> None:
    """ik_llama.cpp log of GLM-4.5-Air: 12,032 MiB at 65,536 tokens, 47 layers of 256 MiB."""
    options = {"gguf_quant": "custom", "n_ctx": 65536, "n_parallel": 1}
    assert mib(serve("zai-org/GLM-4.5-Air", variant="ik_llama.cpp", **options), "kv_cache_bytes") == 12032.0
    assert mib(serve("zai-org/GLM-4.5-Air", **options), "kv_cache_bytes") == 11776.0
    newer = {"variant": "ik_llama.cpp", "engine_version": "b4477", **options}  # GLM-4.7: 92 of 93 layers
    assert mib(serve("zai-org/GLM-4.5-Air", **newer), "kv_cache_bytes") == 11776.0
    assert mib(serve("zai-org/GLM-4.5-Air", **newer, speculative={"method": "mtp"}), "kv_cache_bytes") == 12032.0


def test_a_mix_that_only_its_file_tells_has_no_weights_in_any_moment() -> None:
    """UD-IQ1_S of a 671B model is 168 GB; what is needed at least may not hold the 376 GiB of another type."""
    result = serve("deepseek-ai/DeepSeek-R1", gguf_quant="custom", n_ctx=2048)
    [load] = [phase for phase in result.phases if phase.name == "load"]
    assert [node.bytes for node in load.components.children if node.name == "weights"] == [0]
    assert "weights" not in result.quantities


def _fits(**serve):
    scenario = {"model": "meta-llama/Llama-3.3-70B-Instruct", "task": "serve", "gpu": "rtx-4090",
                "serve": {"engine": "llama.cpp", "gguf_quant": "Q4_K_M", "n_ctx": 8192, **serve}}  # fmt: skip
    return estimate(scenario)


def test_the_layers_that_are_said_to_fit_are_the_most_that_do() -> None:
    reasons = _fits(fit=False).verdict.reasons
    layers = next(int(r.split()[3]) for r in reasons if r.startswith("set n_gpu_layers to "))
    assert _fits(n_gpu_layers=layers).verdict.fits
    assert not _fits(n_gpu_layers=layers + 1).verdict.fits


def test_experts_on_the_host_are_offered_where_they_help() -> None:
    scenario = {"model": "Qwen/Qwen3-30B-A3B", "task": "serve", "gpu": "rtx-3060-12gb",
                "serve": {"engine": "llama.cpp", "gguf_quant": "Q4_K_M", "n_ctx": 8192, "fit": False}}  # fmt: skip
    reasons = estimate(scenario).verdict.reasons
    layers = next(int(r.split()[-1]) for r in reasons if r.startswith("set n_cpu_moe to "))
    scenario["serve"]["n_cpu_moe"] = layers
    assert estimate(scenario).verdict.fits
    scenario["serve"]["n_cpu_moe"] = layers - 1
    assert not estimate(scenario).verdict.fits


def test_advice_beside_a_context_that_the_engine_chose_names_that_context() -> None:
    """It is chosen by the sum of the cards (common/fit.cpp), anew with every change, and one card can be short."""
    scenario = {
        "model": "baidu/ERNIE-4.5-300B-A47B-Base-PT", "task": "serve", "gpu": "h100-sxm-80gb", "num_gpus": 2,
        "gpu_total_bytes": 16945709056,
        "serve": {"engine": "llama.cpp", "tensor_split": [1, 1], "flash_attn": False, "n_ubatch": 2048},
    }  # fmt: skip
    reason = next(r for r in estimate(scenario).verdict.reasons if "n_cpu_moe" in r)
    assert reason == "set n_ctx to 4,096 and n_cpu_moe to 52"
    scenario["serve"]["n_cpu_moe"] = 52
    assert not estimate(scenario).verdict.fits
    scenario["serve"]["n_ctx"] = 4096
    assert estimate(scenario).verdict.fits


@pytest.mark.parametrize(("model", "weights"), [("gpt-oss-20b", 13_779_630_336), ("gpt-oss-120b", 65_355_994_368)])
def test_experts_published_in_mxfp4_stay_so_in_every_file(model: str, weights: int) -> None:
    """`model_size` of the F16 files, lhl/strix-halo-testing llm-bench/gpt-oss-*-F16/results.jsonl."""
    assert serve(f"openai/{model}", gguf_quant="F16").quantities["weights"].expected == weights


@pytest.mark.parametrize(
    ("version", "build"),
    [("b9849", 9849), ("9293 (1acee6bf8)", 9293), ("0.3.0 (build 10621, commit c1d0e7a00)", 10621),
     ("2026-05-22", 9293), ("build: 4701 (be3bbd62)", 4701), ("2026-02-31", LATEST_BUILD),
     ("2026-12-01", 12320), (None, LATEST_BUILD)],
)  # fmt: skip
def test_builds_are_read_from_what_programs_print(version: str | None, build: int) -> None:
    assert build_of(version) == build


def test_days_between_two_builds_are_builds_between() -> None:
    days = [build_of(day) for day in ("2025-12-10", "2026-02-01", "2026-05-14", "2026-05-22", "2026-07-01")]
    assert days == sorted(days)
    assert days[2] < 9293 < days[4]


def test_the_newest_server_reserves_logits_for_its_slots_alone() -> None:
    """0c1e57098 reserves 360.06 MiB for Qwen3.5 9B (-c 8192 -ub 2048 -np 4); 2,012.07 MiB with all
    logits. A log of b9849 prints 392 MiB on Vulkan, which keeps some tensors longer."""
    settings: dict[str, Any] = {"gguf_quant": "Q4_K_M", "n_ctx": 8192, "n_ubatch": 2048, "n_parallel": 4}
    new = serve("Qwen/Qwen3.5-9B", engine_version="b10621", kv_unified=False, **settings)
    old = serve("Qwen/Qwen3.5-9B", engine_version="b10621", kv_unified=False, logits_all=True, **settings)
    unknown = serve("Qwen/Qwen3.5-9B", kv_unified=False, **settings)
    assert mib(new, "compute_buffer") == pytest.approx(360.06, abs=0.01)
    assert mib(old, "compute_buffer") == pytest.approx(2012.07, abs=0.01)
    found = unknown.quantities["compute_buffer"]
    assert found.low < new.quantities["compute_buffer"].expected < found.expected


@pytest.mark.parametrize("rule", ["exps", "((=CPU", "blk.1=CPU,exps"])
def test_a_rule_that_llama_cpp_would_refuse_is_said_to_be_left_out(rule: str) -> None:
    def notes(*rules: str) -> tuple[str, ...]:
        settings = {"engine": "llama.cpp", "override_tensor": list(rules)}
        return estimate({"model": "meta-llama/Llama-3.1-8B", "task": "serve", "serve": settings}).notes

    assert f'override_tensor "{rule.rpartition(",")[2]}" is no PATTERN=DEVICE: left out' in notes(rule)
    assert not any("override_tensor" in note for note in notes("exps=CPU", "blk\\.1.*=CUDA0"))
    assert 'override_tensor "exps=CUDA7" names no device of this run: left out' in notes("exps=CUDA7")


def test_the_first_rule_that_a_tensor_matches_says_where_it_lies() -> None:
    """src/llama-model.cpp create_tensor breaks off at the first; rules come before --cpu-moe."""
    options = {"num_gpus": 2, "n_ctx": 4096, "gguf_quant": "Q8_0", "n_parallel": 1}

    def on_host(*rules: str, **more: object) -> float:
        found = serve("Qwen/Qwen3-30B-A3B", override_tensor=list(rules), **options, **more).quantities
        return found["weights_host"].expected

    def experts(layers: int) -> int:
        return layers * 3 * 128 * 2048 * 768 * 34 // 32

    embedding = on_host()
    ten = r"blk\.[0-9]\.ffn=CUDA0"
    assert on_host("exps=CPU") == on_host("exps=CPU", ten) == embedding + experts(48)
    assert on_host(ten, "exps=CPU") == on_host(ten, cpu_moe=True) == embedding + experts(38)
    assert on_host("token_embd=CUDA1") == 0
    assert on_host("exps=CPU", n_gpu_layers=0) == on_host(n_gpu_layers=0)


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_lightning_attention_keeps_a_state_in_seventy_of_eighty_layers(engine: str) -> None:
    """70 of 80 layers keep 64 heads of 128 x 128 in f32 for each slot (llama.cpp PR 27018: hybrid memory)."""
    result = estimate(
        {"model": "MiniMaxAI/MiniMax-Text-01", "task": "serve", "serve": {"engine": engine, "n_parallel": 1}}
    )
    assert result.quantities["recurrent_state_bytes"].expected == 70 * 64 * 128 * 128 * 4


@pytest.mark.parametrize("serve", [{"engine_version": "b9000"}, {"variant": "ik_llama.cpp"}, {"engine_version": "0.9"}])
def test_builds_without_lightning_attention_refuse_it(serve: dict[str, str]) -> None:
    engine = "ollama" if serve.get("engine_version") == "0.9" else "llama.cpp"
    with pytest.raises(ScenarioError, match=r"needs llama\.cpp b10410 or newer"):
        estimate({"model": "MiniMaxAI/MiniMax-Text-01", "task": "serve", "serve": {"engine": engine, **serve}})


@pytest.mark.parametrize(
    ("model", "version", "first"),
    [
        ("Qwen/Qwen3-8B", "b4980", "b5590"),
        ("openai/gpt-oss-20b", "b5640", "b6122"),
        ("Qwen/Qwen3.5-9B", "b7836", "b8095"),
        ("google/gemma-3-27b-it", "2025-01-10", "b4980"),
    ],
)
def test_builds_without_the_architecture_refuse_it(model: str, version: str, first: str) -> None:
    with pytest.raises(ScenarioError, match=rf"has no architecture for .*: say engine_version {first}, which has it"):
        serve(model, engine_version=version)
    assert serve(model, engine_version=first).quantities["weights"].expected


def test_states_are_kept_for_drafted_tokens_too() -> None:
    """Logs of 27B hybrids: 149.62 MiB of states, 598.50 with three drafted tokens (3 rs_seq), 154.02 MiB of graph."""
    settings = {"gguf_quant": "Q4_K_M", "n_ctx": 32768, "n_parallel": 1, "engine_version": "2026-09-01"}
    alone = serve("Qwen/Qwen3.6-27B", **settings)
    drafting = serve("Qwen/Qwen3.6-27B", speculative={"method": "mtp", "num_tokens": 3}, **settings)
    assert mib(alone, "recurrent_state_bytes") == pytest.approx(149.62, abs=0.01)
    assert mib(drafting, "recurrent_state_bytes") == pytest.approx(598.50, abs=0.01)
    assert mib(drafting, "compute_buffer") == pytest.approx(154.02, abs=0.01)


def test_cuda_copies_a_quantized_cache_to_16_bit_in_its_compute_buffer() -> None:
    """0c1e57098 with q8_0 caches on devices that copy them (benchmarks/oracles/llama_cpp); until June 2026 CUDA's pool
    held the copies; Metal reads the cache as it is until b10600."""
    settings: dict[str, Any] = {"gguf_quant": "Q4_K_M", "n_ctx": 65536, "n_parallel": 1, "cache_type_k": "q8_0",
                                "cache_type_v": "q8_0"}  # fmt: skip
    new = serve("Qwen/Qwen3.5-9B", engine_version="b10621", **settings)
    metal = serve("Qwen/Qwen3.5-9B", engine_version="b10590", gpu="m3-max", **settings)  # Metal's own since b10600
    assert new.quantities["compute_buffer"].expected == 394_559_744
    assert new.quantities["host_buffer"].expected == 84_183_104
    assert metal.quantities["compute_buffer"].expected < 394_559_744 - 200 * 2**20


def test_ollamas_own_runners_keep_room_for_embeddings() -> None:
    """A log of May 2026: 1.97 MiB for two slots of Gemma 2 2B, whose streams are apart (22.26 MiB on the host)."""
    found = serve(
        "google/gemma-2-2b-it", engine="ollama", engine_version="0.24.0", n_ctx=16384, n_batch=512, n_ubatch=256,
        n_parallel=2, flash_attn=False,
    )  # fmt: skip
    assert mib(found, "output_buffer") == pytest.approx(1.97, abs=0.005)
    assert mib(found, "host_buffer") == pytest.approx(22.26, abs=0.01)


def test_experts_that_a_rule_leaves_on_the_host_are_replayed_like_cpu_moe() -> None:
    settings: dict[str, Any] = {"gguf_quant": "Q4_K_M", "n_ctx": 8192, "engine_version": "b9665"}
    told = serve("Qwen/Qwen3-30B-A3B", override_tensor=["exps=CPU"], **settings)
    flag = serve("Qwen/Qwen3-30B-A3B", cpu_moe=True, **settings)
    for name in ("compute_buffer", "host_buffer"):
        assert told.quantities[name].expected == flag.quantities[name].expected


def test_experts_on_the_host_are_computed_there_in_batches_of_fewer_than_32() -> None:
    """b9525 with -b 16 on an RTX 5090: 42 MiB."""
    settings: dict[str, Any] = {"engine_version": "b9525", "gguf_quant": "Q4_K_M", "n_ctx": 16128, "cpu_moe": True}
    few, many = (
        serve("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", n_batch=batch, **settings) for batch in (16, 32)
    )
    assert mib(few, "compute_buffer") == pytest.approx(42, rel=0.1)
    assert mib(many, "compute_buffer") > 4096


def test_latent_attention_with_sinks_is_laid_out_like_any_other() -> None:
    config = {
        "model_type": "hy_v4", "vocab_size": 31, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 1, "kv_lora_rank": 4, "q_lora_rank": 4, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
        "v_head_dim": 8, "index_n_heads": 1, "index_head_dim": 16, "index_topk": 2, "hc_mult": 3, "n_routed_experts": 4,
        "n_group": 2, "topk_group": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32, "n_shared_experts": 1,
    }  # fmt: skip
    for engine in ("llama.cpp", "transformers"):
        found = estimate({"model": config, "task": "serve", "gpu": "l4", "serve": {"engine": engine}})
        assert found.quantities["weights"].expected > 0


@pytest.mark.parametrize(
    ("model", "n_ctx", "card", "host"),
    [("google/gemma-4-E2B-it", 4096, 515.00, 39.52), ("google/gemma-4-E4B-it", 32_768, 569.01, 159.02)],
)
def test_embeddings_for_each_layer_are_read_on_the_host(model: str, n_ctx: int, card: float, host: float) -> None:
    """Logs of a DGX Spark, June 2026: both masks in f32, two inputs of the hidden size, and rows of layers x 256."""
    serve = {"engine": "llama.cpp", "engine_version": "b9000", "gguf_quant": "Q4_K_M", "n_ctx": n_ctx, "n_ubatch": 512,
             "n_parallel": 1, "swa_full": True, "flash_attn": True}  # fmt: skip
    found = estimate({"model": model, "task": "serve", "gpu": "GB10", "serve": serve}).quantities
    assert found["compute_buffer"].expected / 2**20 == pytest.approx(card, abs=0.02)
    assert found["host_buffer"].expected / 2**20 == pytest.approx(host, abs=0.02)


@pytest.mark.parametrize(("n_ctx", "host", "on_cards"), [(131_072, 280.07, 6148.28), (896_000, 1774.07, 16606.28)])
def test_an_indexers_cache_has_a_mask_and_scores_of_its_own(n_ctx: int, host: float, on_cards: float) -> None:
    """A log of GLM-5.2 on four RTX PRO 6000, August 2026: two masks in f16, beside them the scores in f32."""
    serve = {"engine": "llama.cpp", "engine_version": "b10505", "gguf_quant": "Q5_K_M", "n_ctx": n_ctx, "n_ubatch": 512,
             "n_parallel": 1, "n_gpu_layers": 999, "n_cpu_moe": 54, "tensor_split": [54, 9, 8, 8],
             "flash_attn": True}  # fmt: skip
    scenario = {"model": "zai-org/GLM-5.2", "task": "serve", "gpu": "RTX PRO 6000", "num_gpus": 4, "serve": serve}
    found = estimate(scenario).quantities
    assert found["host_buffer"].expected / MIB == pytest.approx(host, abs=0.1)
    assert found["compute_buffer"].expected / MIB == pytest.approx(on_cards, rel=0.16)


def test_ollamas_batch_follows_the_context_that_is_advised() -> None:
    """A shorter context gets a larger batch, whose buffers are larger: 10,240 fitted with the batch of 32,768 alone."""
    asked = {
        "model": "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct", "task": "serve", "gpu": "jetson-orin-nano-8gb",
        "num_gpus": 2, "serve": {"engine": "ollama", "n_cpu_moe": 0, "n_ctx": 32_768},
    }  # fmt: skip
    verdict = estimate(asked).verdict
    assert verdict is not None
    (advice,) = [reason for reason in verdict.reasons if reason.startswith("set n_ctx to")]
    followed = estimate({**asked, "serve": {**asked["serve"], "n_ctx": int(advice.split()[-1].replace(",", ""))}})
    assert followed.verdict is not None
    assert followed.verdict.fits
