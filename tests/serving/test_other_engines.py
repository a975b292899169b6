"""SGLang, TensorRT-LLM, TGI and transformers as servers."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.engines import ENGINES, engine_named
from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.scenario.definition import KINDS, ServeSettings
from vramwise.serving.packages import rules_of
from vramwise.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def serve(engine: str, model: Any = LLAMA, gpu: str | None = "h100-sxm-80gb", total: int = 0, **serve: Any) -> Result:
    scenario: dict[str, Any] = {"model": model, "task": "serve", "serve": {"engine": engine, **serve}}
    if gpu:
        scenario["gpu"] = gpu
    if total:
        scenario["gpu_total_bytes"] = total
    return estimate(scenario)


def test_every_engine_has_a_record_and_rules() -> None:
    for name in ENGINES:
        record = engine_named(name)
        assert record.name == name
        assert callable(rules_of(name).estimate)
        assert record.memory_share is None or record.memory_share in KINDS[ServeSettings]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gpu", [None, "h100-sxm-80gb", "rtx-3060-12gb"])
def test_every_engine_answers_with_and_without_a_card(engine: str, gpu: str | None) -> None:
    result = serve(engine, gpu=gpu)
    assert tuple(phase.name for phase in result.phases) == engine_named(engine).phases
    assert result.peak_phase in engine_named(engine).phases
    assert result.quantities["weights"].expected > 4 * GIB
    assert result.quantities["total_needed"].expected > result.quantities["weights"].expected
    assert ("oom" in result.quantities) == (gpu is not None)
    assert (result.verdict is None) == (gpu is None)
    assert result.scenario["serve"]["engine"] == engine


@pytest.mark.parametrize("engine", ENGINES)
def test_the_answer_is_a_scenario_that_gives_the_same_answer(engine: str) -> None:
    first = serve(engine)
    again = estimate(dict(first.scenario))
    assert again.quantities == first.quantities
    assert again.scenario == first.scenario


def test_sglang_keeps_weights_and_cache_inside_its_fraction() -> None:
    result = serve("sglang", total=80 * GIB, mem_fraction_static=0.8)
    held = result.quantities["weights"].expected + result.quantities["kv_cache_bytes"].expected
    context = result.phases[0].components.find("CUDA context")
    assert context is not None
    assert held == pytest.approx((80 * GIB - context.bytes) * 0.8, rel=1e-5)


def test_sglang_takes_98304_bytes_a_token_for_qwen3_30b() -> None:
    """SGLang log: 1,669,816 tokens in 152.88 GiB, 56.98 GiB of weights."""
    result = serve("sglang", "Qwen/Qwen3-30B-A3B", total=288 * GIB, mem_fraction_static=0.9)
    cache = result.quantities
    assert cache["kv_cache_bytes"].expected == cache["kv_cache_tokens"].expected * 98304
    assert cache["weights"].expected / GIB == pytest.approx(56.98, rel=2e-3)


@pytest.mark.parametrize(("total", "chunk"), [(16, 2048), (24, 4096), (48, 4096), (80, 8192), (192, 16384)])
def test_sglang_defaults_follow_the_cards_size(total: int, chunk: int) -> None:
    table = serve("sglang", "Qwen/Qwen3-0.6B", total=total * GIB).scenario["serve"]
    assert table["chunked_prefill_size"] == chunk


@pytest.mark.parametrize(
    ("version", "reserved"),
    [("0.5.4", 512 + 1.5 * 2048 + 2 * 16 + 128), ("0.5.23", 512 + 1.5 * 4096 + 2 * 48 + 128 + 8 * 50)],
)
def test_sglang_reserves_for_graphs_of_prefills_since_it_captures_them(version: str, reserved: float) -> None:
    table = serve("sglang", "Qwen/Qwen3-0.6B", total=24 * GIB, engine_version=version).scenario["serve"]
    assert table["mem_fraction_static"] == pytest.approx((24 * 1024 - reserved) / (24 * 1024), abs=5e-4)


def test_tensorrt_llm_gives_the_cache_nine_tenths_of_what_is_free() -> None:
    result = serve("tensorrt-llm")
    cache = result.quantities
    assert cache["kv_cache_bytes"].expected / cache["kv_cache_tokens"].expected == 131072
    assert cache["kv_cache_tokens"].expected % 32 == 0


def test_tensorrt_llms_nvfp4_cache_has_a_scale_for_sixteen_values() -> None:
    """_torch/pyexecutor/resource_manager.py get_cache_bytes_per_token: quant_vector_size 16, of one byte each."""
    eight, four = (serve("tensorrt-llm", kv_cache_dtype=name).quantities for name in ("fp8_e4m3", "nvfp4"))
    a_token = [said["kv_cache_bytes"].expected / said["kv_cache_tokens"].expected for said in (eight, four)]
    assert a_token[1] / a_token[0] == pytest.approx(9 / 16, rel=1e-3)


def test_tensorrt_llms_documented_log_is_met_within_a_tenth() -> None:
    """docs/source/reference/memory.md: Llama-2-7B in fp8, 79.10 GiB in total, 70.48 GiB available for the cache."""
    result = serve(
        "tensorrt-llm", "meta-llama/Llama-2-7b-hf", total=round(79.10 * GIB), quantization="fp8",
        engine_version="0.11", max_model_len=2048, block_size=64, gpu_memory_utilization=0.9,
    )  # fmt: skip
    available = result.quantities["kv_cache_bytes"].expected / 0.9 / GIB
    assert 79.10 - available == pytest.approx(79.10 - 70.48, rel=0.1)


def test_an_activation_that_finds_no_room_lowers_the_fraction() -> None:
    result = serve("sglang", mem_fraction_static=0.99, chunked_prefill_size=65536)
    assert result.verdict is not None
    assert not result.verdict.fits
    assert result.verdict.reasons[1].startswith("set mem_fraction_static to 0.")


def test_transformers_serves_like_generate() -> None:
    served = serve("transformers", max_model_len=2048, max_num_seqs=4)
    generated = estimate(
        {"model": LLAMA, "task": "generate", "gpu": "h100-sxm-80gb",
         "generate": {"batch_size": 4, "prompt_tokens": 1792, "new_tokens": 256}}
    )  # fmt: skip
    longest = {name: result.quantities["max_seq"].expected for name, result in (("s", served), ("g", generated))}
    assert longest["s"] == longest["g"] + 256  # a server's requests hold what they are answered with
    assert {**served.quantities, "max_seq": None} == {**generated.quantities, "max_seq": None}


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm", "tgi"])
def test_weights_that_do_not_fit_name_the_number_of_gpus(engine: str) -> None:
    small = serve(engine, "Qwen/Qwen3-32B", gpu="rtx-4090", max_model_len=4096)
    assert small.verdict is not None
    ranks = int(small.verdict.reasons[-1].rpartition(" ")[2])
    assert small.verdict.reasons[-1] == f"set tensor_parallel_size to {ranks}"
    spread = estimate(
        {"model": "Qwen/Qwen3-32B", "task": "serve", "gpu": "rtx-4090", "num_gpus": ranks,
         "serve": {"engine": engine, "tensor_parallel_size": ranks, "max_model_len": 4096}}
    )  # fmt: skip
    assert spread.verdict is not None
    assert spread.verdict.fits, spread.verdict.reasons


def test_a_length_beyond_the_pool_names_length_and_share() -> None:
    result = serve("tensorrt-llm", gpu="rtx-3090", max_model_len=131072)
    assert result.verdict is not None
    longest = int(result.quantities["max_seq"].expected)
    assert f"set max_model_len to {longest:,} at most" in result.verdict.reasons
    assert serve("tensorrt-llm", gpu="rtx-3090", max_model_len=longest).quantities["max_batch"].expected == 1


@pytest.mark.parametrize(
    ("version", "wiggle", "of_card"),
    [("1.4.0", 1.0, False), ("2.0.4", 0.95, False), ("2.4.1", 0.90, False), ("3.0.2", 0.95, True),
     ("3.1.0", 0.93, True), ("3.3.7", 0.90, True)],
)  # fmt: skip
def test_tgi_keeps_its_wiggle_room_of_the_free_memory_or_of_the_card(
    version: str, wiggle: float, of_card: bool
) -> None:
    """warmup of models/flash_causal_lm.py: blocks = free // block + the blocks of the warm-up batch itself."""
    total, prefill = 40 * GIB, 4096
    result = serve("tgi", total=total, engine_version=version, max_num_batched_tokens=prefill, max_model_len=4096)
    moment = result.phases[1].components
    names = ["weights", "warm-up prefill", "CUDA context", *(["libraries"] if version.startswith("2.") else [])]
    taken = sum(moment.find(name).bytes for name in names)  # type: ignore[union-attr]
    batch = prefill * 131072
    expected = wiggle * total - taken if of_card else wiggle * (total - taken - batch) + batch
    pool = result.quantities["kv_cache_bytes"].expected
    assert 0 <= expected - pool < 16 * 131072


def test_tgi_2_holds_more_than_its_weights_blocks_and_context() -> None:
    """g5.2xlarge, text-generation-inference:2.2.0, Llama-3.1-8B: 19,056 tokens, and 19,882 MiB of the process."""
    quantities = serve("tgi", gpu="a10g-24gb", engine_version="2.2.0").quantities
    tokens, process = quantities["kv_cache_tokens"], quantities["nvidia_smi"]
    assert tokens.low <= 19_056 <= tokens.high
    assert tokens.expected == pytest.approx(19_056, rel=0.1)
    assert process.low <= 19_882 * 2**20 <= process.high


@pytest.mark.parametrize(
    ("gpu", "version", "prefill"),
    [
        # 900 · 10^12 // (32 · 4096 · (2 · 128 · (3 · 32 + 2 · 8) + 6 · 14336))
        ("h100-sxm-80gb", "3.3.7", 59870),
        ("rtx-3090", "3.3.7", 4096),
        ("h100-sxm-80gb", "2.4.1", 4145),
        ("h100-sxm-80gb", "1.4.0", 4096),
    ],
)
def test_tgi_chooses_the_tokens_of_its_warm_up_by_version_and_card(gpu: str, version: str, prefill: int) -> None:
    assert serve("tgi", gpu=gpu, engine_version=version).scenario["serve"]["max_num_batched_tokens"] == prefill


def test_tgi_3_lowers_its_length_to_what_its_blocks_hold() -> None:
    free = serve("tgi", gpu="a10g-24gb")
    assert free.verdict is not None
    assert free.verdict.fits
    assert free.scenario["serve"].get("max_model_len") is None
    assert free.quantities["max_seq"].expected == free.quantities["kv_cache_tokens"].expected < 131072
    asked = serve("tgi", gpu="a10g-24gb", max_model_len=131072)
    assert asked.verdict is not None
    assert not asked.verdict.fits


@pytest.mark.parametrize("engine", ["tgi", "tensorrt-llm"])
@pytest.mark.parametrize("version", ["2.0.4", None])
def test_the_least_card_holds_one_request_and_no_smaller_one_does(engine: str, version: str | None) -> None:
    settings = {"max_model_len": 4096, "max_num_batched_tokens": 4096} | (
        {"engine_version": version} if version else {}
    )
    least = serve(engine, gpu=None, **settings).quantities["total_needed"].expected
    for total, fits in ((least + 32 * 131072, True), (least - 32 * 131072, False)):
        verdict = serve(engine, gpu=None, total=int(total), **settings).verdict
        assert verdict is not None
        assert verdict.fits is fits


@pytest.mark.parametrize(("version", "padding"), [("0.5.4", 0), ("0.5.23", 1)])
def test_sglang_keeps_recurrent_states_in_a_pool_of_nine_nineteenths(version: str, padding: int) -> None:
    """handle_max_mamba_cache: states and tokens share what is left 0.9 to 1; Qwen3-Next's states are fp32."""
    result = serve("sglang", "Qwen/Qwen3-Next-80B-A3B-Instruct", total=280 * GIB, engine_version=version)
    states = result.phases[-1].components.find("state pool")
    assert states is not None
    size = 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 4)
    assert states.inputs["bytes_per_sequence"] == size
    tokens = result.quantities["kv_cache_bytes"].expected
    left = states.bytes + tokens
    assert states.inputs["slots"] == int(left * 0.9 / 1.9) // size - padding
    assert states.bytes == (states.inputs["slots"] + padding) * size
    assert result.quantities["max_batch"].expected <= states.inputs["slots"] // 3


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(("cache", "latent"), [("bf16", 1152), ("fp8", 656)])
def test_an_indexer_keeps_132_bytes_a_token_and_layer(engine: str, cache: str, latent: int) -> None:
    """SGLang log of six such layers: 7,604,096 tokens in 54.56 GiB, 7,704 bytes a token."""
    result = serve(engine, "deepseek-ai/DeepSeek-V3.2", gpu=None, total=900 * GIB, kv_cache_dtype=cache)
    held = result.quantities["kv_cache_bytes"].expected / result.quantities["kv_cache_tokens"].expected
    assert held == pytest.approx(61 * (latent + 132), rel=1e-4)


@pytest.mark.parametrize(
    ("version", "total", "ranks", "chunk", "batch", "fraction"),
    [
        ("0.4.6", 80, 8, 8192, 160, 0.81),
        ("0.4.7", 140, 1, 8192, 160, round((140 - 18) / 140, 6)),
        ("0.4.9", 80, 1, 8192, 160, 0.875),
        ("0.5.2", 24, 1, 2048, 8, round((24 - 2.9) / 24, 3)),
        ("0.5.2", 180, 8, 16384, 512, round((180 - 32) / 180, 3)),
        ("0.5.4", 24, 1, 2048, 16, round((24 - (512 + 3072 + 128 + 32) / 1024) / 24, 3)),
        ("0.5.9", 24, 1, 2048, 24, round((24 - (512 + 3072 + 128 + 48) / 1024) / 24, 3)),
        # 8 + 14 + 8 + 8 + 4 captured prefills up to 2,048 tokens
        ("0.5.12", 24, 1, 2048, 24, round((24 - (512 + 3072 + 128 + 48 + 8 * 42) / 1024) / 24, 3)),
    ],
)
def test_sglangs_defaults_are_those_of_its_version(
    version: str, total: int, ranks: int, chunk: int, batch: int, fraction: float
) -> None:
    table = serve(
        "sglang", gpu=None, total=total * GIB, engine_version=version, tensor_parallel_size=ranks, max_model_len=4096
    ).scenario["serve"]
    assert (table["chunked_prefill_size"], table["cuda_graph_max_bs"]) == (chunk, batch)
    assert table["mem_fraction_static"] == fraction


@pytest.mark.parametrize(
    ("model", "version", "pooled"),
    [
        ("google/gemma-3-27b-it", "0.4.8", False), ("google/gemma-3-27b-it", "0.5.4", True),
        ("google/gemma-3-27b-it", "0.5.9", False), ("openai/gpt-oss-20b", "0.5.9", True),
    ],
)  # fmt: skip
def test_sglang_keeps_windows_apart_where_its_version_does(model: str, version: str, pooled: bool) -> None:
    result = serve("sglang", model, gpu=None, total=180 * GIB, engine_version=version)
    cell = result.phases[-1].components.find("KV cache").inputs["bytes_per_token"]  # type: ignore[union-attr]
    whole = 2 * 62 * 16 * 128 * 2 if "gemma" in model else 2 * 24 * 8 * 64 * 2  # keys and values of all layers in bf16
    assert cell < whole if pooled else cell == whole


def test_sglang_starts_with_shorter_requests_than_the_model_was_made_for() -> None:
    free = serve("sglang", gpu="rtx-4090")
    assert free.verdict is not None
    assert free.verdict.fits
    assert free.scenario["serve"].get("max_model_len") is None
    assert free.quantities["max_seq"].expected == free.quantities["kv_cache_tokens"].expected < 131072
    assert any("requests of" in note for note in free.notes)
    assert free.verdict.headroom_bytes > 100 * 131072  # of the card, not of the pool
    asked = serve("sglang", gpu="rtx-4090", max_model_len=131072)
    assert asked.verdict is not None
    assert not asked.verdict.fits


def test_sglang_takes_requests_as_long_as_its_tokens_allow() -> None:
    """max_req_len = min(context_len, max_total_num_tokens) − 1 (managers/tp_worker.py of 0.5.4): it starts."""
    result = serve("sglang", gpu="rtx-4090", max_model_len=32768, max_total_tokens=1000)
    assert result.verdict is not None
    assert result.verdict.fits
    assert result.quantities["max_seq"].expected == 1000
    assert estimate(dict(result.scenario)).quantities == result.quantities


def test_a_length_that_sglang_cuts_is_cut_again_when_it_is_asked_again() -> None:
    table = {"engine": "sglang", "max_total_tokens": 4096, "max_model_len": 32768}
    found = estimate({"model": "01-ai/Yi-34B", "task": "serve", "gpu": "a100-sxm-80gb", "serve": table})
    assert found.scenario["serve"]["max_model_len"] == 32768
    again = estimate(found.scenario)
    assert {n: q.to_dict() for n, q in again.quantities.items()} == {
        n: q.to_dict() for n, q in found.quantities.items()
    }
