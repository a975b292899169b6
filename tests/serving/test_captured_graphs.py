"""Numbers of CUDA graphs that vLLM's logs print while it captures them, and what their memory is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Node, Result
from vramwise.serving.common.forward.libraries import CUBLAS_BYTES
from vramwise.units import GIB, MIB


def serve(model: str = "Qwen/Qwen3-8B", gpu: str = "a100-sxm-80gb", **settings: Any) -> Result:
    table = {"engine": "vllm", "max_model_len": 8192, **settings}
    ranks = settings.get("tensor_parallel_size", 1)
    return estimate({"model": model, "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": table})


# version, max_num_seqs, then "PIECEWISE" and "FULL" as public logs count them
COUNTS = [
    ("0.11.0", 128, 35, 19), ("0.11.0", 256, 67, 35), ("0.12.0", 8, 5, 4), ("0.12.0", 64, 19, 11),
    ("0.13.0", 1024, 51, 51), ("0.17.1", 256, 51, 35), ("0.22.0", 2, 3, 2), ("0.22.0", 10, 5, 4),
    ("0.26.1", 16, 7, 5),
]  # fmt: skip


@pytest.mark.parametrize(("version", "seqs", "pieces", "steps"), COUNTS)
def test_graphs_are_counted_as_logs_print_them(version: str, seqs: int, pieces: int, steps: int) -> None:
    node = serve(engine_version=version, max_num_seqs=seqs).phases[-1].components.find("CUDA graphs")
    assert node is not None
    assert (node.inputs["sizes"], node.inputs["whole_steps"]) == (pieces, steps)


def test_graphs_beside_a_drafter_are_of_whole_queries_and_the_drafter_has_its_own() -> None:
    """Starts of 0.24.0 with EAGLE-3 and five drafted tokens: 48 + 48 graphs and 0.88 GiB, without it 51 + 35 and 0.56;
    with an fp8 cache, which FlashInfer reads, 48 graphs of pieces alone and 0.48 GiB."""
    llama, drafting = "meta-llama/Llama-3.1-8B-Instruct", {"method": "eagle3", "num_tokens": 5}
    both = serve(llama, engine_version="0.24.0", max_num_seqs=256, speculative=drafting)
    node = both.phases[-1].components.find("CUDA graphs")
    assert node is not None
    assert [(one.inputs["sizes"], one.inputs["whole_steps"]) for one in node.children if one.inputs] == [(48, 48)]
    pieces = serve(llama, engine_version="0.24.0", max_num_seqs=256, speculative=drafting, kv_cache_dtype="fp8")
    for found, printed_gib in ((both, 0.88), (pieces, 0.48)):
        took = found.quantities["cuda_graph"]
        assert took.expected / GIB == pytest.approx(printed_gib, rel=0.1)
        assert took.low <= printed_gib * GIB <= took.high


DRAFTING = {"method": "mtp", "num_tokens": 3}
ONE_USER = {
    "engine_version": "0.20.1", "tensor_parallel_size": 2, "dtype": "float16", "quantization": "w4a16",
    "kv_cache_dtype": "fp8_e5m2", "max_model_len": 262_144, "max_num_seqs": 2, "max_num_batched_tokens": 8192,
    "enable_prefix_caching": True,
}  # fmt: skip


def test_attention_that_no_profiled_graph_holds_has_its_work_space_outside_the_budget() -> None:
    """Starts of 0.20.1 on two RTX 3090 with a drafter: "PIECEWISE=5 (largest=16)", 0.11 to 0.13 GiB of graphs, and a
    cache of 10.98 GiB (https://github.com/noonghunna/club-3090/issues/91, 104)."""
    pieces = serve("Qwen/Qwen3.6-27B", "rtx-3090", **ONE_USER, speculative=DRAFTING)
    whole = serve("Qwen/Qwen3.6-27B", "rtx-3090", **ONE_USER)
    decode, capture = pieces.phases[-1].components, pieces.phases[-2].components
    assert pieces.quantities["cuda_graph_estimate"].expected < 0.13 * GIB
    assert decode.find("FlashInfer work space").bytes >= 394 * MIB
    assert capture.find("FlashInfer work space") is None
    assert capture.find("CUDA graphs/FlashInfer work space") is None
    assert whole.phases[-2].components.find("CUDA graphs/FlashInfer work space").bytes >= 394 * MIB
    assert pieces.quantities["kv_cache_bytes"].expected / GIB == pytest.approx(10.98, rel=0.015)


def test_tokens_of_models_with_states_are_requests_times_their_length_since_0_20_1() -> None:
    """The printed "GPU KV cache size" of 0.20.0 is that of one group's blocks."""
    before, since = (
        serve("Qwen/Qwen3.6-27B", "rtx-3090", **{**ONE_USER, "engine_version": version}).quantities
        for version in ("0.20.0", "0.20.1")
    )
    assert before["max_concurrency"] == since["max_concurrency"]
    assert since["kv_cache_tokens"].expected == int(since["max_concurrency"].expected * 262_144)
    assert before["kv_cache_tokens"].expected < since["kv_cache_tokens"].expected / 3


def test_a_drafter_may_be_quantized_with_its_model() -> None:
    """AutoRound leaves the join of Qwen3.6's drafter in 16 bit: 8.95 GiB on each of two cards, where 9.28 are expected
    (https://github.com/noonghunna/club-3090/issues/356)."""
    quantized = serve("Qwen/Qwen3.6-27B", "rtx-3090", **ONE_USER, speculative=DRAFTING)
    layer = quantized.phases[-1].components.find("weights/draft layer")
    join = 2 * 2 * 5120**2
    assert join + (layer.bytes - join) / 4 < layer.low < join + (layer.bytes - join) / 3.5


def captured_sizes(graphs: Node) -> Any:
    return next(node.inputs["sizes"] for node in (graphs, *graphs.children) if "sizes" in node.inputs)


@pytest.mark.parametrize(
    ("version", "gpu", "sizes"),
    [("0.27.1", "b200", 51), ("0.28.0", "b200", 83), ("0.28.0", "h100-sxm-80gb", 51), ("0.28.0", "rtx-5090", 51)],
)
def test_blackwell_servers_capture_1024_tokens_since_0_28(version: str, gpu: str, sizes: int) -> None:
    result = serve(gpu=gpu, engine_version=version, max_num_seqs=1024, max_model_len=4096)
    graphs = result.phases[-1].components.find("CUDA graphs")
    assert graphs is not None
    assert captured_sizes(graphs) == sizes


def test_before_0_11_only_pieces_are_captured() -> None:
    node = serve(engine_version="0.10.2", max_num_seqs=1024).phases[-1].components.find("CUDA graphs")
    assert node is not None
    assert (node.inputs["sizes"], node.inputs["whole_steps"]) == (67, 0)


@pytest.mark.parametrize(
    ("model", "gpu", "settings", "printed_gib"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "a100-sxm-80gb", {"engine_version": "0.17.1"}, 0.50),
        ("meta-llama/Llama-3.1-8B-Instruct", "l4", {"engine_version": "0.11.0", "max_num_seqs": 128}, 0.38),
        ("Qwen/Qwen3-30B-A3B", "a100-sxm-80gb", {"engine_version": "0.26.0", "max_num_seqs": 16}, 0.11),
        ("meta-llama/Llama-3.1-8B-Instruct", "a100-sxm-80gb", {"engine_version": "0.24.0", "kv_cache_dtype": "fp8"},
         0.88),
    ],
)  # fmt: skip
def test_printed_graphs(model: str, gpu: str, settings: dict[str, Any], printed_gib: float) -> None:
    found = serve(model, gpu, **settings).quantities["cuda_graph"]
    assert found.expected / GIB == pytest.approx(printed_gib, rel=0.2)
    assert found.low <= printed_gib * GIB <= found.high


def test_what_the_autotuner_leaves_in_the_pool_is_freed_while_graphs_are_captured() -> None:
    """Qwen3-30B-A3B on two H100, 0.12.0: "took -0.26 GiB", which counts as nothing; 19 + 11 graphs hold something."""
    settings = {"engine_version": "0.12.0", "max_num_seqs": 64, "tensor_parallel_size": 2}
    hopper = serve("Qwen/Qwen3-30B-A3B", "h100", **settings)
    assert hopper.quantities["cuda_graph"].expected == 0
    assert any(note.startswith("CUDA graphs hold") for note in hopper.notes)
    node = hopper.phases[-1].components.find("CUDA graphs")
    assert node is not None
    assert node.bytes > 0.2 * GIB
    ampere = serve("Qwen/Qwen3-30B-A3B", "a100-sxm-80gb", **settings)
    splits = node.find("attention splits")  # of flash attention 3, which the A100 does not have
    assert splits is not None
    work_space = CUBLAS_BYTES[True] - CUBLAS_BYTES[False]
    assert ampere.quantities["cuda_graph"].expected == node.bytes - splits.bytes - work_space
    later = serve("Qwen/Qwen3-30B-A3B", "h100", **{**settings, "engine_version": "0.19.0"})
    assert later.quantities["cuda_graph"].expected > 0


def graphs_bytes(gpu: str, ranks: int) -> float:
    settings = {"engine_version": "0.13.0", "max_num_seqs": 256, "tensor_parallel_size": ranks}
    return serve("Qwen/Qwen3-8B", gpu, **settings).quantities["cuda_graph"].expected


@pytest.mark.parametrize(
    ("gpu", "linked", "ranks", "calls"),
    [
        ("l40s", "a100-sxm-40gb", 4, True),  # "not supported on more than two PCIe-only GPUs"
        ("l40s", "a100-sxm-40gb", 2, False),  # vLLM's own all-reduce over PCIe: 1.22 GiB in 0.16.0 (70B, AWQ)
        ("rtx-3090", "a100-sxm-40gb", 2, True),  # "your platform lacks GPU P2P capability"
    ],
)
def test_nccl_calls_are_captured_where_vllms_own_all_reduce_does_not_run(
    gpu: str, linked: str, ranks: int, calls: bool
) -> None:
    more = graphs_bytes(gpu, ranks) - graphs_bytes(linked, ranks)
    assert more == pytest.approx(calls * 0.11 * MIB * 2 * 36 * (51 + 35), rel=1e-6)


TEN_USERS = {"engine_version": "0.24.0", "max_num_seqs": 10, "kv_cache_dtype": "fp8"}
# model, card, settings, "PIECEWISE=" and "FULL=" as starts with a drafter count them
DRAFTED = [
    ("Qwen/Qwen3.6-27B-FP8", "l40s", TEN_USERS, 4, 15, 0),
    ("Qwen/Qwen3.6-27B", "rtx-3090", ONE_USER, 3, 5, 0),
    ("Qwen/Qwen3.6-27B", "a100-sxm-80gb", {"engine_version": "0.19.2", "max_num_seqs": 2}, 3, 3, 2),  # whole queries
]  # fmt: skip


@pytest.mark.parametrize(("model", "gpu", "settings", "tokens", "pieces", "steps"), DRAFTED)
def test_sizes_reach_as_far_as_drafted_tokens_on_the_first_runner_too(
    model: str, gpu: str, settings: dict[str, Any], tokens: int, pieces: int, steps: int
) -> None:
    """Issues 91 and 104 of noonghunna/club-3090, and logs that serving-2026.jsonl quotes."""
    drafting = {"method": "mtp", "num_tokens": tokens}
    graphs = serve(model, gpu, **settings, speculative=drafting).phases[-1].components.find("CUDA graphs")
    assert graphs is not None
    node = next(one for one in (graphs, *graphs.children) if "sizes" in one.inputs)
    assert (node.inputs["sizes"], node.inputs["whole_steps"]) == (pieces, steps)


def test_the_largest_size_leaves_its_live_set_and_work_space_in_the_pool() -> None:
    """One size of one token on each side: the rest is what 512 tokens keep (28 and 14 MiB of the MLP among it)."""
    llama = "meta-llama/Llama-3.1-8B-Instruct"
    one, many = (
        serve(llama, engine_version="0.19.0", max_num_seqs=seqs, cudagraph_capture_sizes=[size], max_model_len=2048)
        .phases[-1].components.find("CUDA graphs").bytes
        for seqs, size in ((1, 1), (512, 512))
    )  # fmt: skip
    assert 42 * MIB <= many - one <= 70 * MIB


def test_states_beside_flashinfer_make_its_work_space_within_the_span_of_capture() -> None:
    """Qwen3.6-35B-A3B on GB10, 0.20.0: "took 0.47 GiB" for one piece and one step; where FlashInfer attends alone it is
    there since the warm-up of kernels (Llama-3.1-8B with an fp8 cache on A100, 0.24.0: 0.88 GiB, with 8 MiB a step)."""
    settings = {"engine_version": "0.20.0", "kv_cache_dtype": "fp8", "max_num_seqs": 8, "cudagraph_capture_sizes": [1]}
    mixed, plain = (
        serve("Qwen/Qwen3.6-35B-A3B", "gb10", **{**settings, "kv_cache_dtype": cache}, gpu_memory_utilization=0.85)
        .quantities["cuda_graph"]
        for cache in ("fp8", "bfloat16")
    )  # fmt: skip
    assert mixed.low <= 0.47 * GIB <= mixed.high
    assert (mixed.expected - plain.expected) / MIB == pytest.approx(
        394 + 8, abs=1
    )  # of all graphs on this card, the sure part
    alone = serve("meta-llama/Llama-3.1-8B-Instruct", "a100-sxm-80gb", **settings)
    assert alone.quantities["cuda_graph"].expected < 0.1 * GIB


def test_what_the_second_runner_has_profiled_shows_no_more_when_it_is_captured() -> None:
    """Llama-3.1-8B on an A100, 0.31.0, all defaults: 0.23 GiB; 0.56 GiB in 0.24.0, which profiles nothing."""
    settings = {"max_num_seqs": 256, "max_model_len": 131072}
    before, since = (
        serve("meta-llama/Llama-3.1-8B-Instruct", engine_version=version, **settings).quantities
        for version in ("0.24.0", "0.31.0")
    )
    assert before["cuda_graph"].expected / GIB == pytest.approx(0.56, rel=0.1)
    assert since["cuda_graph"].expected / GIB == pytest.approx(0.23, rel=0.15)
    assert since["cuda_graph_estimate"].expected == before["cuda_graph"].expected


# what vLLM 0.19.0 printed for the first whole step that it captured on an H100 (llm-d-planner accuracy/results/v0.19.0)
FIRST_STEPS_MIB = [
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 260), ("meta-llama/Llama-3.1-8B-Instruct", 2, 132),
    ("meta-llama/Llama-3.1-8B-Instruct", 4, 70), ("Qwen/Qwen2.5-7B-Instruct", 1, 228),
    ("Qwen/Qwen2.5-7B-Instruct", 2, 116),
    ("google/gemma-2-27b-it", 1, 262), ("google/gemma-2-9b-it", 1, 262), ("google/gemma-2-2b-it", 1, 134),
    ("ibm-granite/granite-3.1-2b-instruct", 1, 134), ("microsoft/phi-2", 1, 166), ("Qwen/Qwen3-8B", 1, 262),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, 136), ("deepseek-ai/DeepSeek-V2-Lite-Chat", 1, 522),
]  # fmt: skip


def splits(model: str = "Qwen/Qwen3-8B", gpu: str = "h100-sxm-80gb", **settings: Any) -> int:
    settings = {"engine_version": "0.19.0", "max_model_len": 2048, **settings}
    node = serve(model, gpu, **settings).phases[-1].components.find("CUDA graphs/attention splits")
    return 0 if node is None else node.bytes


@pytest.mark.parametrize(("model", "ranks", "printed"), FIRST_STEPS_MIB)
def test_the_first_whole_step_keeps_what_attention_splits_need(model: str, ranks: int, printed: int) -> None:
    assert printed - 12 <= splits(model, tensor_parallel_size=ranks) / MIB <= printed


@pytest.mark.parametrize(
    ("gpu", "settings"),
    [
        ("a100-sxm-80gb", {}),  # FlashAttention 2 captures without splits
        ("b200", {}),  # FlashInfer attends
        ("h100-sxm-80gb", {"dtype": "fp32"}),
        ("h100-sxm-80gb", {"engine_version": "0.10.2"}),  # no whole steps by default
        ("h100-sxm-80gb", {"enforce_eager": True}),
    ],
)
def test_nothing_is_split_without_flash_attention_3(gpu: str, settings: dict[str, Any]) -> None:
    assert splits(gpu=gpu, **settings) == 0


def test_fewer_requests_split_less() -> None:
    """32 splits · 32 heads · 16 tokens · 128 · 4."""
    assert splits(max_num_seqs=16) == 8 * MIB


def test_what_is_charged_is_a_quantity_of_its_own() -> None:
    assert "cuda_graph_estimate" in serve(engine_version="0.19.0").quantities
    assert "cuda_graph_estimate" not in serve(engine_version="0.17.1").quantities


CAPTURES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "benchmarks/cases/serving-vllm019.jsonl").read_text("utf-8").splitlines()
    if "graph_captures_mib" in line
]


@pytest.mark.parametrize("case", CAPTURES, ids=[case["id"] for case in CAPTURES])
def test_the_engine_counts_the_larger_of_both_first_captures(case: dict[str, Any]) -> None:
    """The first captures that 0.19.0 printed on H100, by mode, and the estimate that it made of them."""
    printed = {one["mode"]: one for one in case["extra"]["graph_captures_mib"]}
    firsts = [one["first"] for one in printed.values()]
    estimate_mib = max(firsts) + sum((one["graphs"] - 1) * max(1, one["each_further"]) for one in printed.values())
    if "cuda_graph_estimate" in case["measured"]:
        assert case["measured"]["cuda_graph_estimate"] / MIB == pytest.approx(estimate_mib, abs=8)
    found = estimate(case["scenario"])
    node = found.phases[-1].components.find("CUDA graphs")
    assert node is not None
    left_out = node.bytes - found.quantities["cuda_graph_estimate"].expected
    assert left_out / MIB == pytest.approx(min(firsts), abs=37)


def test_what_takes_all_graphs_is_not_the_estimate_but_on_the_second_runner() -> None:
    llama = "meta-llama/Llama-3.1-8B-Instruct"
    for version, differs in (("0.19.0", True), ("0.33.0", False)):
        found = serve(llama, engine_version=version)
        node = found.phases[-1].components.find("CUDA graphs")
        assert node is not None
        assert (found.quantities["cuda_graph_estimate"].expected < node.bytes) is differs


OWN_AWQ = {"max_model_len": 4096, "max_num_seqs": 8, "max_num_batched_tokens": 2048, "dtype": "fp16"}


@pytest.mark.parametrize(
    ("version", "gpu", "asked", "unpacks"),
    [
        ("0.22.1", "rtx-3090", "awq", True), ("0.22.1", "rtx-3090", None, False), ("0.24.0", "rtx-3090", "awq", False),
        ("0.13.0", "rtx-2080-ti", None, True), ("0.14.0", "rtx-2080-ti", None, False),
        ("0.18.0", "mi300x", None, True), ("0.19.0", "mi300x", None, False), ("0.24.0", "mi300x", None, True),
    ],
)  # fmt: skip
def test_graphs_hold_the_weight_that_awqs_own_kernels_unpack(
    version: str, gpu: str, asked: str | None, unpacks: bool
) -> None:
    """A start of 0.22.1 on an RTX 3090 with `--quantization awq`: graphs take 0.33 GiB, 0.35 as profiled."""
    settings = {**OWN_AWQ, "engine_version": version, "use_v1": True}
    asks = {"quantization": asked} if asked else {}
    found = serve("Qwen/Qwen2.5-7B-Instruct-AWQ", gpu, **settings, **asks).quantities["cuda_graph"].expected
    packed = serve("Qwen/Qwen2.5-7B-Instruct", gpu, **settings, quantization="gptq").quantities["cuda_graph"].expected
    largest = 3584 * 2 * 18944 * 2  # the gate's and the up-projection's rows in 16 bits
    assert found - packed == (pytest.approx(largest, abs=20 * MIB) if unpacks else 0)
    if asked and unpacks:
        assert found / GIB == pytest.approx(0.33, abs=0.02)


@pytest.mark.parametrize(("size", "layers", "gib"), [("E2B", 35, 3.93), ("12B", 48, 5.21), ("26B-A4B", 30, 3.41)])
def test_each_graph_of_hip_holds_a_pool_of_two_mebibytes(size: str, layers: int, gib: float) -> None:
    """0.31.1 on an MI300X says that 0.9 is 0.8795, 0.8728 and 0.8822 without graphs (191.69 GiB); 0.29.1 prints 3.9 GiB
    for what the first's took, so that HIP gives back what the profile's graphs held."""
    result = serve(f"google/gemma-4-{size}-it", "mi300x", engine_version="0.31.1", max_model_len=32768)
    said = result.quantities["cuda_graph_estimate"].expected
    assert said / GIB == pytest.approx(gib, rel=0.03)
    assert result.quantities["cuda_graph"].expected == pytest.approx(said, rel=0.01)
    node = result.phases[-1].components.find("CUDA graphs")
    assert node is not None
    assert node.inputs == {"sizes": 51, "whole_steps": 51, "layers": layers}
    older = serve(f"google/gemma-4-{size}-it", "mi300x", engine_version="0.13.0", max_model_len=32768)
    assert older.quantities["cuda_graph"].expected < said


def test_profiles_of_models_that_are_not_compiled_do_not_see_hips_pools() -> None:
    """0.26 on eight MI355X: 0.8 of a card less 35.15 GiB of weights and 191.04 of cache leaves 1.2 GiB for graphs,
    once the profile run and what lies outside torch are taken off; pools of 2,295 graphs would be 4.5."""
    result = serve("sgl-project/DeepSeek-V4-Flash-FP8", "mi355x", engine_version="0.26.0", tensor_parallel_size=8)
    assert result.quantities["cuda_graph_estimate"].expected < 2.5 * GIB


def test_drivers_before_cuda_12_4_keep_more_for_a_graph() -> None:
    """The same command took 3.81 GiB on A10G with the drivers of CUDA 12.2 and 12.3 and 1.14 with 12.4's
    (vllm-project/vllm#5517). Qwen3-8B in 0.19.1 on A100 of 40 GB with 535.247.01: 2.35 GiB said, 2.44 taken."""

    def graphs(driver: str | None, version: str = "0.19.1") -> dict[str, float]:
        asked = {
            "model": "Qwen/Qwen3-8B", "task": "serve", "gpu": "a100-sxm-40gb",
            "serve": {"engine": "vllm", "engine_version": version},
        }  # fmt: skip
        found = estimate(asked if driver is None else {**asked, "driver": driver}).quantities
        names = ("cuda_graph", "cuda_graph_estimate")
        return {name: found[name].expected / GIB for name in names if name in found}

    older = graphs("535.247.01")
    assert older["cuda_graph"] == pytest.approx(2.44, rel=0.05)
    assert older["cuda_graph_estimate"] == pytest.approx(2.35, rel=0.05)
    assert graphs("550.54.14") == graphs(None) == graphs("580.65.06")
    for version in ("0.8.4 (V0)", "0.10.1", "0.19.1"):
        assert 1.8 < graphs("545.23.08", version)["cuda_graph"] / graphs(None, version)["cuda_graph"] < 4.8, version


def test_an_estimate_of_graphs_lies_between_whole_steps_of_the_driver() -> None:
    """One further capture of each mode stands for all of them, and takes whole steps of 2 MiB. Debug lines of 0.19.0 on
    H100 (llm-d-planner accuracy/results/v0.19.0), 51 + 51 graphs: Qwen2.5-7B 4 and 4 MiB each (0.61 GiB said),
    granite-3.1-2b 26 and 4 (1.60), Qwen3-8B 8 and 4 (0.84)."""
    on_h100 = {"gpu": "h100-sxm-80gb", "engine_version": "0.19.0", "max_num_batched_tokens": 8192}
    printed = (("Qwen/Qwen2.5-7B-Instruct", 0.61), ("Qwen/Qwen3-8B", 0.84))
    for model, said_gib in printed:
        said = serve(model, **on_h100).quantities["cuda_graph_estimate"]
        assert said.low <= said_gib * GIB <= said.high
        assert (said.high - said.low) / MIB > 4 * 50


def test_where_the_host_shares_its_memory_a_capture_is_as_sure_as_the_system_is_still() -> None:
    """Two starts of one architecture with the same arguments on a GB10, eleven minutes apart (0.20.0, jethac/
    dgx-spark-hijinks): graphs took 0.66 and 0.28 GiB, 1.69 and 0.91 were said."""
    gemma = {"gpu": "gb10", "engine_version": "0.20.0", "gpu_memory_utilization": 0.8, "max_num_batched_tokens": 4096}
    found = serve("google/gemma-4-26B-A4B-it", **gemma).quantities
    for name, printed in (("cuda_graph", (0.66, 0.28)), ("cuda_graph_estimate", (1.69, 0.91))):
        for gib in printed:
            least, most = (gib - 0.005) * GIB, (gib + 0.005) * GIB  # rounded when printed
            assert found[name].low <= most, name
            assert least <= found[name].high, name
    assert found["cuda_graph"].low >= 0
