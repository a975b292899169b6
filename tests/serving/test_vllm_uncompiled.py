"""Models whose classes vLLM does not compile: their graphs, and what DeepSeek V4's attention keeps."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import described_model, estimate
from vramwise.models.type_facts import types_with
from vramwise.result import Node, Result
from vramwise.serving.common.forward.library_experts import padded_rows
from vramwise.serving.vllm.compressed import gathered_bytes
from vramwise.units import GIB, MIB

V4_FLASH = "deepseek-ai/DeepSeek-V4-Flash"


def served(version: str, gpu: str, **more: Any) -> Result:
    settings = {
        "engine": "vllm", "engine_version": version, "tensor_parallel_size": 2, "max_num_batched_tokens": 8192, **more
    }  # fmt: skip
    return estimate({"model": V4_FLASH, "task": "serve", "gpu": gpu, "num_gpus": 2, "serve": settings})


def nodes(tree: Node) -> dict[str, int]:
    found = {tree.name: tree.bytes}
    for child in tree.children:
        found.update(nodes(child))
    return found


def profiled(result: Result) -> dict[str, int]:
    return nodes(next(phase.components for phase in result.phases if phase.name == "profile run"))


def test_what_is_not_compiled_has_more_kernels_in_its_graphs() -> None:
    """0.25.0 on two RTX PRO 6000 says that 0.92 is 0.8993 without the graphs: 1.97 GiB of 51 pieces and 35 steps."""
    newer, older = (
        served(version, "rtx-pro-6000-blackwell", max_model_len=131072).quantities["cuda_graph_estimate"].expected
        for version in ("0.25.0", "0.22.0")
    )
    assert newer / GIB == pytest.approx(1.97, rel=0.15)
    assert older < newer / 3


@pytest.mark.parametrize(
    ("version", "added"),
    [((0, 22), set()), ((0, 23), {"deepseek_v4"}), ((0, 28), {"kimi_linear"}), ((0, 29), {"glm_moe_dsa"})],
)
def test_the_types_are_those_of_the_version(version: tuple[int, ...], added: set[str]) -> None:
    assert added <= types_with("vllm", "runs_uncompiled", version)
    assert "glm_moe_dsa" not in types_with("vllm", "runs_uncompiled", (0, 28))


def test_compressed_keys_are_gathered_in_the_largest_of_three_views() -> None:
    """models/deepseek_v4/nvidia/flashmla.py: (4, max_model_len / 4 + window + max_num_batched_tokens, 512) in bf16; the
    indexer's of forty contexts, whose keys of 128 values are 8-bit and have a scale, are more."""
    model = described_model(V4_FLASH)[1]
    assert gathered_bytes(model, 8_192, 1_048_576) == 4 * (262_144 + 128 + 8_192) * 512 * 2
    long, short = (profiled(served("0.25.0", "h200-nvl-141gb", max_model_len=n)) for n in (1_048_576, 8_192))
    assert long["indexer's gathered keys"] == pytest.approx(40 * 262_144 * (128 + 4), rel=0.01)
    assert not {"gathered keys", "indexer's gathered keys"} & set(short)
    assert "experts' work space" in short
    here = profiled(served("0.25.0", "rtx-pro-6000-blackwell", max_model_len=1_048_576))
    assert "gathered keys" not in here
    assert here["FlashInfer work space"] >= 128 * MIB


@pytest.mark.parametrize(
    ("gpu", "asked", "kept"),
    [("gb200-186gb", None, False), ("gb200-186gb", "cutlass", True), ("h200-sxm-141gb", None, True)],
)
def test_experts_of_another_librarys_kernels_keep_no_buffers(gpu: str, asked: str | None, kept: bool) -> None:
    """0.18.1 experts/trtllm_nvfp4_moe.py: no work space; starts of Kimi K2.5 beside EAGLE-3 on GB200 print peaks of
    2.41 (eager) and 2.66 GiB (compiled)."""
    more = {"moe_backend": asked} if asked else {}
    settings = {
        "engine": "vllm", "engine_version": "0.18.1", "tensor_parallel_size": 4, "kv_cache_dtype": "fp8",
        "max_model_len": 131072, "max_num_batched_tokens": 8192, "max_num_seqs": 1024,
        "speculative": {"method": "eagle3", "num_tokens": 3}, **more,
    }  # fmt: skip
    scenario = {"model": "nvidia/Kimi-K2.5-NVFP4", "task": "serve", "gpu": gpu, "num_gpus": 4, "serve": settings}
    result = estimate(scenario)
    peak = result.quantities["activation_peak"].expected / GIB
    assert peak > 4 if kept else 2.41 < peak < 2.66


def test_rows_of_another_librarys_experts_fill_whole_tiles() -> None:
    """computeSelectedTileN and getMaxNumCtasInBatchDim of FlashInfer 0.6.6: a tile an expert, then whole ones."""
    assert padded_rows(8192, 8, 384) == (384 + (65_536 - 384) // 128) * 128  # 170 rows an expert: half of 256
    assert padded_rows(1, 8, 256) == 8 * 8  # less than one row an expert: the smallest tile
    assert padded_rows(32_768, 8, 128) == (128 + (262_144 - 128) // 128) * 128  # the largest tile is 256
    assert padded_rows(8192, 8, 384, pads=False) < padded_rows(8192, 8, 384)
