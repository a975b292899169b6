"""What lies outside torch's pool, and what a card of a kind shows: linked cards and others, totals given or not."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.units import GIB


def serve(model: str, gpu: str, ranks: int, version: str, total: int | None = None, **settings: Any) -> Result:
    table = {"engine": "vllm", "engine_version": version, "tensor_parallel_size": ranks, **settings}
    scenario = {"model": model, "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": table}
    return estimate(scenario | ({"gpu_total_bytes": total} if total else {}))


# start-up logs: model, card, ranks, version, settings, GiB of KV cache printed
LOGS: list[tuple[str, str, int, str, dict[str, Any], float]] = [
    ("Qwen/Qwen3-32B", "h100", 8, "0.10.0", {"max_model_len": 32768, "kv_cache_dtype": "fp8"}, 55.62),
    ("meta-llama/Meta-Llama-3-8B-Instruct", "h100", 4, "0.13.0", {}, 62.52),
    ("Qwen/Qwen2.5-14B-Instruct", "rtx-3090", 4, "0.9.2", {"max_model_len": 16384}, 12.79),
    # FlashInfer samples: "Using FlashInfer for top-p & top-k sampling."
    ("Qwen/Qwen2-7B-Instruct", "a100-sxm-80gb", 2, "0.10.1.1",
     {"max_model_len": 16384, "gpu_memory_utilization": 0.25, "flashinfer_sampler": True}, 12.02),
    ("openai/gpt-oss-120b", "a100-sxm-80gb", 4, "0.10.1.1",
     {"max_model_len": 16384, "gpu_memory_utilization": 0.8, "flashinfer_sampler": True}, 45.32),
    ("Qwen/Qwen2-7B-Instruct", "a100-sxm-40gb", 2, "0.10.1.1",
     {"max_model_len": 16384, "gpu_memory_utilization": 0.5}, 11.03),
    ("Qwen/Qwen3-30B-A3B", "h100", 2, "0.12.0", {"max_model_len": 40960, "max_num_seqs": 64}, 41.68),
]  # fmt: skip


@pytest.mark.parametrize(("model", "gpu", "ranks", "version", "settings", "printed"), LOGS)
def test_kv_cache_of_several_ranks(
    model: str, gpu: str, ranks: int, version: str, settings: dict[str, Any], printed: float
) -> None:
    found = serve(model, gpu, ranks, version, **settings).quantities["kv_cache_bytes"]
    assert found.expected / GIB == pytest.approx(printed, rel=0.015)
    assert found.low <= printed * GIB <= found.high


def test_cards_without_links_hold_little_outside_torch_however_many() -> None:
    two, eight = (serve("Qwen/Qwen3-32B", "l40s", n, "0.10.0").quantities["non_torch"] for n in (2, 8))
    assert two == eight
    linked = serve("Qwen/Qwen3-32B", "h100", 8, "0.10.0").quantities["non_torch"]
    assert linked.low > two.high
    # a bridge of two cards is not the NVLink of a server board
    assert serve("Qwen/Qwen3-32B", "rtx-3090", 8, "0.10.0").quantities["non_torch"] == two


def test_a_given_total_leaves_the_card_no_room() -> None:
    kind = serve("Qwen/Qwen3-8B", "a100-sxm-40gb", 1, "0.17.1").quantities["kv_cache_bytes"]
    card = serve("Qwen/Qwen3-8B", "a100-sxm-40gb", 1, "0.17.1", round(39.5 * GIB)).quantities["kv_cache_bytes"]
    assert kind.high - kind.low > card.high - card.low


@pytest.mark.parametrize(
    ("model", "gpu", "ranks", "settings", "total", "tokens"),
    [
        # vllm-project/vllm issue 21348: four H100, --mem-fraction-static 0.93
        ("Qwen/Qwen3-235B-A22B-FP8", "h100", 4, {"engine_version": "0.4.9", "mem_fraction_static": 0.93}, None, 367404),
        # public log of March 2025: four PCIe cards, 21.63 GB free before loading
        ("Qwen/Qwen2.5-32B-Instruct", "a10", 4, {"engine_version": "0.4.3"}, round(22.06 * GIB), 46611),
    ],
)
def test_sglangs_share_is_of_what_the_communicators_leave(
    model: str, gpu: str, ranks: int, settings: dict[str, Any], total: int | None, tokens: int
) -> None:
    table = {"engine": "sglang", "tensor_parallel_size": ranks, **settings}
    scenario = {"model": model, "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": table}
    found = estimate(scenario | ({"gpu_total_bytes": total} if total else {})).quantities["kv_cache_tokens"]
    assert found.expected == pytest.approx(tokens, rel=0.04)
    assert found.low <= tokens <= found.high


def test_the_fused_all_reduce_has_a_work_space_unless_nothing_is_compiled() -> None:
    """Three buffers of one multicast page each, 0.19.0 on H100: 2.07 GiB printed with two ranks, 2.13 with four."""
    for ranks, printed in ((2, 2.07), (4, 2.13)):
        found = serve("meta-llama/Llama-3.1-8B-Instruct", "h100", ranks, "0.19.0").quantities["non_torch"]
        assert found.expected / GIB == pytest.approx(printed, abs=0.1)
        eager = serve("meta-llama/Llama-3.1-8B-Instruct", "h100", ranks, "0.19.0", enforce_eager=True)
        assert found.expected - eager.quantities["non_torch"].expected == 1.5 * GIB


def test_older_cards_lose_more_beside_their_weights_since_0_26_1() -> None:
    """A100, 0.31.0: 0.13 GiB consumed beside the weights; a pool of 18.65 GiB of a 24 GB card under WSL, 0.27.1."""
    before, since = (
        serve("Qwen/Qwen3-8B", "a100-sxm-80gb", 1, v).quantities["non_torch"] for v in ("0.26.0", "0.31.0")
    )
    assert before.high < 0.13 * GIB
    assert since.expected / GIB == pytest.approx(0.13, abs=0.01)
    pool = serve(
        "Qwen/Qwen2.5-0.5B-Instruct", "rtx-4090", 1, "0.27.1", 25759066358, gpu_memory_utilization=0.85,
        max_model_len=2048,
    ).quantities["kv_cache_bytes"]  # fmt: skip
    assert pool.low <= 18.65 * GIB <= pool.high


def test_where_memory_is_the_systems_what_the_host_takes_counts() -> None:
    """Logs of GB10: 55.72 GiB of KV cache (0.18.1), 74.22 (0.25.1); nothing of the kind in 0.11."""
    total = round(121.69 * GIB)
    spark = serve("Qwen/Qwen3.5-35B-A3B-FP8", "gb10", 1, "0.18.1", total, max_model_len=262144,
                  gpu_memory_utilization=0.8, enable_prefix_caching=True)  # fmt: skip
    cache = spark.quantities["kv_cache_bytes"]
    assert cache.low <= 55.72 * GIB <= cache.high
    drafted = serve("RedHatAI/Qwen3.6-35B-A3B-NVFP4", "gb10", 1, "0.25.1", total, max_model_len=262144, max_num_seqs=32,
                    gpu_memory_utilization=0.85, speculative={"method": "mtp", "num_tokens": 3})  # fmt: skip
    cache = drafted.quantities["kv_cache_bytes"]
    assert cache.expected / GIB == pytest.approx(74.22, rel=0.02)
    assert cache.low <= 74.22 * GIB <= cache.high
    before = serve("meta-llama/Llama-3.1-8B-Instruct", "gb10", 1, "0.11.0", total, max_model_len=4096)
    assert before.quantities["non_torch"].expected < 0.3 * GIB
